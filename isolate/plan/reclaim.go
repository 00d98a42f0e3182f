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
	// aheadSeconds is how far in the future that sample's time may be: /proc/uptime has steps of 10 ms.
	aheadSeconds = 1
)

// ReclaimClock is the kernel's own clock, and the time of the last reclaim by it.
type ReclaimClock struct {
	// Boot is the kernel's boot ID, and Seconds the time since boot.
	Boot    string
	Seconds float64
	// Last is the time when the last reclaim began; before the first one it is the time when isolate started.
	Last float64
}

// Skips returns why a reclaim must not begin, neither now nor later; empty if it may. It makes a repeated tick have no effect: each time
// since boot allows one reclaim, and only if it is later than the last one. So a replay, a duplicate or a late tick changes nothing, and
// neither does a tick from before the start of isolate, which another isolate may have applied.
func (c ReclaimClock) Skips(want *tick.MemoryReclaim) string {
	at := want.BootSeconds
	switch {
	case c.Boot == "" || want.Boot != c.Boot:
		return "it is for another run of the kernel, or another machine"
	case math.IsNaN(at) || math.IsNaN(c.Seconds):
		return "its time is not known"
	case at <= c.Last:
		return "a repeat, or from before isolate was started"
	case c.Seconds-at > MaxReclaimAge:
		return fmt.Sprintf("its sample is %.0f s old, the limit is %d s", min(c.Seconds-at, 1e9), MaxReclaimAge)
	case at-c.Seconds > aheadSeconds:
		return fmt.Sprintf("its sample is %.0f s ahead of the kernel's clock", min(at-c.Seconds, 1e9))
	}
	return ""
}

// Reclaims returns the valid parts of a reclaim. The caller must check the cgroups' paths.
func Reclaims(want []tick.MemoryToTake) (list []tick.MemoryToTake, problems []tick.IsolationError) {
	const key = KeyReclaim
	refuse := func(cgroup, format string, args ...any) {
		const listed = 10
		if len(problems) < listed {
			problems = append(problems, tick.IsolationError{Cgroup: clip.Text(cgroup, shownBytes), Key: key, Error: "refused: " + fmt.Sprintf(format, args...)})
		}
	}
	times := map[string]int{}
	for _, w := range want {
		times[w.Cgroup]++
	}
	left := int64(MaxReclaimBytes)
	for _, w := range want {
		at, _ := Place(w.Cgroup)
		switch {
		case w.Cgroup == "/" || at == root || at == tier:
			refuse(w.Cgroup, "memory is taken back of pods, not of the root or of kubelet's cgroups above pods")
		case times[w.Cgroup] > 1:
			refuse(w.Cgroup, "named %d times", times[w.Cgroup])
		case w.Bytes < 1:
			refuse(w.Cgroup, "%d bytes", w.Bytes)
		case w.Bytes > left:
			refuse(w.Cgroup, "%d bytes: all of a tick together are %d at most", w.Bytes, int64(MaxReclaimBytes))
		case len(list) == MaxReclaimCgroups:
			refuse(w.Cgroup, "a tick may name %d cgroups", MaxReclaimCgroups)
		default:
			left -= w.Bytes
			list = append(list, w)
		}
	}
	return list, problems
}

// KeyReclaim is the key of errors about reclaims.
const KeyReclaim = "memoryReclaim"

// NoReclaim is the problem of a kernel without memory.reclaim.
const NoReclaim = unavailable + "this kernel has no memory.reclaim (it is of cgroup version 2 and Linux 5.19); nothing is taken back"
