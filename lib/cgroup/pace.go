package cgroup

// pace sets how often one of a [Reader]'s files is read. A value that is not read again is used for a bounded time, and only while
// the values that are read each time show no sign that it may have changed. A file with the zero pace is read each time.
type pace struct {
	// maxAgeSeconds is the maximum age of the values, in seconds.
	maxAgeSeconds float64
	// mayDiffer, if set, reports such a sign; v has the values that were read before this file.
	mayDiffer func(v *Values, last *lastReading) bool
}

const (
	// soonSeconds is for the limits of a cgroup, for signs that a limit is reached, and for its number of threads; laterSeconds is for the
	// kinds of its memory while the amount is the same. For ticks that are a second apart, both are half a second early rather than late.
	soonSeconds  = 2 - 0.5
	laterSeconds = 5 - 0.5
)

var (
	// paceSoon is for the effective CPU list.
	paceSoon = pace{maxAgeSeconds: soonSeconds}
	// paceQuota is for the counters of version 1's quotas: they are read each time after a quota has counted a period, because each
	// round then needs the share of the time in which the cgroup was throttled.
	paceQuota = pace{maxAgeSeconds: soonSeconds, mayDiffer: func(_ *Values, last *lastReading) bool { return last.periodsGrew }}
	// paceThreads is for the number of threads: it is read each time while there are none, because the cgroup is then being filled.
	paceThreads = pace{maxAgeSeconds: soonSeconds, mayDiffer: func(_ *Values, last *lastReading) bool { return last.isEmpty }}
	// paceMemory is for the kinds of memory: they are read each time that the amount has changed, or pages were refaulted shortly
	// after they were reclaimed. It is the most expensive file, with more than forty sums over all CPUs.
	paceMemory = pace{maxAgeSeconds: laterSeconds, mayDiffer: func(v *Values, last *lastReading) bool {
		return v.Has&HasMemory == 0 || v.MemoryBytes != last.memory || last.refaultsGrew
	}}
)

// lastReading is the state of the last readings of one file.
type lastReading struct {
	has       Has     // its values
	isSkipped bool    // it was skipped in the current reading
	readAt    float64 // when it was read, in seconds; 0 if that failed or never happened
	dueAt     float64 // when it must be read again
	// readings counts the first two: rates need both.
	readings int

	memory            uint64 // the amount of memory at that time
	periods, refaults uint64
	// periodsGrew and refaultsGrew mean that these had grown since the previous reading.
	periodsGrew, refaultsGrew bool
	isEmpty                   bool // there was no thread
}

// firstReadings are always made: a rate needs two, and a run of collect that writes one tick makes no more.
const firstReadings = 2

// isFresh reports whether the file need not be read. A clock that stands still or is set back belongs to a copy, which may have changed.
func (p *pace) isFresh(last *lastReading, v *Values, seconds float64) bool {
	if p.maxAgeSeconds == 0 || last.readAt == 0 || last.readings < firstReadings || seconds <= last.readAt || seconds >= last.dueAt {
		return false
	}
	return p.mayDiffer == nil || !p.mayDiffer(v, last)
}

// record records a reading. The groups' readings are spread over the time between two of them, by spread, from 0 to 1, so that not
// all of them are in one round.
func (p *pace) record(last *lastReading, v *Values, has Has, seconds, spread float64) {
	if p.maxAgeSeconds == 0 {
		last.has, last.readAt = has, seconds
		return
	}
	last.periodsGrew = last.readAt > 0 && v.Periods != last.periods
	last.refaultsGrew = last.readAt > 0 && v.RefaultPages != last.refaults
	last.has, last.readAt, last.dueAt = has, seconds, seconds+p.maxAgeSeconds
	if last.readings < firstReadings {
		if last.readings++; last.readings == firstReadings {
			last.dueAt = seconds + p.maxAgeSeconds*spread
		}
	}
	last.memory, last.periods, last.refaults, last.isEmpty = v.MemoryBytes, v.Periods, v.RefaultPages, v.Threads == 0
}
