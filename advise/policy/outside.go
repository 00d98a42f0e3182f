package policy

import "time"

// MaxUnknown is how long a known value stands in for one that cannot be known, because the use of a new container has no rate yet.
const MaxUnknown = time.Minute

// OutsideUse is the CPU use outside of pods, as last known.
type OutsideUse struct {
	at       time.Time
	milliCPU float64
}

// Observe returns the use outside of pods, given the difference between the machine's use and that of the pods. What a new batch pod uses
// in its first tick, which has no rate, is in that difference: while batch's use is unknown, the result is no more than the last known use.
func (u *OutsideUse) Observe(now time.Time, milliCPU float64, isBatchKnown bool) float64 {
	if isBatchKnown {
		*u = OutsideUse{now, milliCPU}
	} else if age := now.Sub(u.at); age >= 0 && age <= MaxUnknown {
		return min(milliCPU, u.milliCPU)
	}
	return milliCPU
}
