package plan

import (
	"fmt"
	"math"

	"polder/lib/clip"
	"polder/lib/tick"
)

// These are the bounds of one reclaim. The kernel reclaims memory in the time of the writing process; small amounts bound that time.
const (
	// MaxReclaimCgroups is how many cgroups one reclaim may name; MaxReclaimBytes is the maximum for all of them together.
	MaxReclaimCgroups = 64
	MaxReclaimBytes   = 1 << 30
	// MaxReclaimAge is the maximum age, in seconds, of the sample on which the decision is based, whatever --max-age is.
	MaxReclaimAge = 30
	// maxAheadSeconds is how far in the future that sample's time may be: /proc/uptime has steps of 10 ms.
	maxAheadSeconds = 1
)

// ReclaimClock is the kernel's own clock, and the time of the last reclaim by it.
type ReclaimClock struct {
	// Boot is the kernel's boot ID, and Seconds the time since boot.
	Boot    string
	Seconds float64
	// Last is the time when the last reclaim began; before the first one it is the time when isolate started.
	Last float64
}

// SkipReason returns why a reclaim must not begin, neither now nor later; empty if it may. It makes a repeated tick have no effect: each
// time since boot allows one reclaim, and only if it is later than the last one. So a replay, a duplicate or a late tick changes nothing,
// and neither does a tick from before the start of isolate, which another isolate may have applied.
func (c ReclaimClock) SkipReason(request *tick.MemoryReclaim) string {
	at := request.BootSeconds
	switch {
	case c.Boot == "" || request.Boot != c.Boot:
		return "it is of another boot, or of another machine"
	case math.IsNaN(at) || math.IsNaN(c.Seconds):
		return "its time is unknown"
	case at <= c.Last:
		return "a repeat, or older than the start of isolate"
	case c.Seconds-at > MaxReclaimAge:
		return fmt.Sprintf("its sample is %.0f s old, the limit is %d s", min(c.Seconds-at, 1e9), MaxReclaimAge)
	case at-c.Seconds > maxAheadSeconds:
		return fmt.Sprintf("its sample is %.0f s ahead of the kernel's clock", min(at-c.Seconds, 1e9))
	}
	return ""
}

// ValidReclaims returns the valid parts of a reclaim. The caller must check the cgroups' paths.
func ValidReclaims(requested []tick.CgroupReclaim) (list []tick.CgroupReclaim, problems []tick.IsolationError) {
	const key = KeyReclaim
	refuse := func(cgroup, format string, args ...any) {
		const listed = 10
		if len(problems) < listed {
			problems = append(problems, tick.IsolationError{Cgroup: clip.Text(cgroup, maxShownBytes), Key: key, Error: "refused: " + fmt.Sprintf(format, args...)})
		}
	}
	count := map[string]int{}
	for _, w := range requested {
		count[w.Cgroup]++
	}
	remaining := int64(MaxReclaimBytes)
	for _, w := range requested {
		switch {
		case w.Cgroup == "/" || isAbovePods(w.Cgroup):
			refuse(w.Cgroup, "memory is reclaimed only from pods, not from the root or kubelet's cgroups above pods")
		case count[w.Cgroup] > 1:
			refuse(w.Cgroup, "named %d times", count[w.Cgroup])
		case w.Bytes < 1:
			refuse(w.Cgroup, "%d bytes", w.Bytes)
		case w.Bytes > remaining:
			refuse(w.Cgroup, "%d bytes: one tick may reclaim %d in total", w.Bytes, int64(MaxReclaimBytes))
		case len(list) == MaxReclaimCgroups:
			refuse(w.Cgroup, "a tick may name %d cgroups", MaxReclaimCgroups)
		default:
			remaining -= w.Bytes
			list = append(list, w)
		}
	}
	return list, problems
}

// KeyReclaim is the key of errors about reclaims.
const KeyReclaim = "memoryReclaim"

// NoReclaim is the problem of a kernel without memory.reclaim.
const NoReclaim = unavailable + "this kernel has no memory.reclaim (cgroup version 2, Linux 5.19); nothing is reclaimed"
