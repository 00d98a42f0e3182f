package cgroup

// pace says how often one of a [Reader]'s files is read. What is not read again keeps its value for a bounded time, and only while what is
// read each time shows no sign that it may have changed. A pace of zero is a file that is read each time.
type pace struct {
	// every is how old the values may become, in seconds.
	every float64
	// stir, where given, reports such a sign; v has the values that were read before this file.
	stir func(v *Values, h *held) bool
}

const (
	// soonSeconds is for what limits a cgroup, or tells that a limit holds it back, or that it is empty; laterSeconds for what the memory is
	// used for while its amount is the same. Both are half a second early rather than late, for ticks a second apart.
	soonSeconds  = 2 - 0.5
	laterSeconds = 5 - 0.5
)

var (
	// paceSoon is for the list of CPUs in force.
	paceSoon = pace{every: soonSeconds}
	// paceQuota is for the counts of version 1's quotas: each time once a quota has counted a period, for the share of the time in which the
	// cgroup was held back is then wanted of each round.
	paceQuota = pace{every: soonSeconds, stir: func(_ *Values, h *held) bool { return h.counted }}
	// paceThreads is for their number: each time while there are none, for then the cgroup is being filled.
	paceThreads = pace{every: soonSeconds, stir: func(_ *Values, h *held) bool { return h.empty }}
	// paceMemory is for what the memory is used for: each time that the amount is another one, or pages are needed again shortly after
	// they were reclaimed. It is the dearest file of all, with more than forty sums over all CPUs.
	paceMemory = pace{every: laterSeconds, stir: func(v *Values, h *held) bool {
		return v.Has&HasMemory == 0 || v.MemoryBytes != h.memory || h.refaulted
	}}
)

// held is what is remembered of the last readings of one file.
type held struct {
	has  Has     // the values that it gave
	kept bool    // it was left out of the reading under way
	at   float64 // when it was read, in seconds; 0 where that failed, or has not been
	due  float64 // when it is to be read again
	// readings counts the first two: rates need both.
	readings int

	memory            uint64 // the amount of memory then
	periods, refaults uint64
	// counted and refaulted say that these had grown since the reading before.
	counted, refaulted bool
	empty              bool // there was no thread
}

// firstReadings are always made: a rate needs two, and a run of collect that makes one tick has no more.
const firstReadings = 2

// holds reports whether the file's values may stay as they are. A clock that stands still or goes back is a copy's, which may have changed.
func (p *pace) holds(h *held, v *Values, seconds float64) bool {
	if p.every == 0 || h.at == 0 || h.readings < firstReadings || seconds <= h.at || seconds >= h.due {
		return false
	}
	return p.stir == nil || !p.stir(v, h)
}

// note takes what was read just now. The groups' turns are spread over the time between two readings, by spread, from 0 to 1: else all
// of them would come in one round.
func (p *pace) note(h *held, v *Values, has Has, seconds, spread float64) {
	if p.every == 0 {
		h.has, h.at = has, seconds
		return
	}
	h.counted = h.at > 0 && v.Periods != h.periods
	h.refaulted = h.at > 0 && v.RefaultPages != h.refaults
	h.has, h.at, h.due = has, seconds, seconds+p.every
	if h.readings < firstReadings {
		if h.readings++; h.readings == firstReadings {
			h.due = seconds + p.every*spread
		}
	}
	h.memory, h.periods, h.refaults, h.empty = v.MemoryBytes, v.Periods, v.RefaultPages, v.Threads == 0
}
