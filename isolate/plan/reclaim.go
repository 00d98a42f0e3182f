package plan

import (
	"fmt"
	"math"

	"polder/lib/clip"
	"polder/lib/tick"
)

// Bounds of one reclaim. The kernel takes memory back in the time of whoever writes, so that little at a time bounds how long that is.
const (
	// MaxReclaimCgroups is how many cgroups one may name, and MaxReclaimBytes what may be taken of all of them together.
	MaxReclaimCgroups = 64
	MaxReclaimBytes   = 1 << 30
	// MaxReclaimAge is how old the sample may be that it was decided by, in seconds, whatever --max-age is.
	MaxReclaimAge = 30
	// aheadSeconds is how much later than now that may be: /proc/uptime has steps of 10 ms.
	aheadSeconds = 1
)

// ReclaimClock is the kernel's own clock, and what was asked for by it.
type ReclaimClock struct {
	// Boot is the run of the kernel, and Seconds the time since its start.
	Boot    string
	Seconds float64
	// Last is the time of the last reclaim that was begun; before the first one it is when isolate started.
	Last float64
}

// Skips returns why a reclaim is not to be begun, neither now nor later; empty where it is. It is what makes a repeated tick do nothing: a
// time of a run of the kernel is good for one reclaim, and none is good that is not later than the last one. So a replay, a duplicate and a
// tick that comes late change nothing, and neither do those from before isolate was started, by which another isolate may have acted.
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

// Reclaims are those parts of a reclaim that may be done. The cgroups' paths are the caller's to check.
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

// NoReclaim is the problem that the kernel has no such file.
const NoReclaim = unavailable + "this kernel has no memory.reclaim (it is of cgroup version 2 and Linux 5.19); nothing is taken back"
