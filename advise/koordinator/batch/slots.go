package batch

import "time"

// slots are the parts of the sample window. They are the same for all values, so that each value needs only two short lists: otherwise the
// times of a node's hundred pods would fill the state file.
type slots struct {
	// At is the start of each, in nanoseconds since 1970.
	At []int64 `json:"at,omitempty"`
}

// series is the history of one value: the end of the lists belongs to the last slot. Younger series are shorter.
type series struct {
	Sum []int64 `json:"sum,omitempty"`
	N   []int   `json:"n,omitempty"`
}

// change describes a change of the slots: how many of the last were removed because the clock was set back, and whether there is a new one.
type change struct {
	removed   int
	isNewSlot bool
}

// advance moves the slots to now: it drops slots that began before the sample window, and adds new ones.
func (s *slots) advance(now time.Time, window time.Duration) (c change) {
	width := max(window/slotCount, minSlotWidth)
	nowNanos := now.UnixNano()
	for n := len(s.At); n > 0 && s.At[n-1] > nowNanos; n-- {
		s.At = s.At[:n-1]
		c.removed++
	}
	if n := len(s.At); n == 0 || nowNanos-s.At[n-1] >= int64(width) {
		s.At = append(s.At, nowNanos)
		c.isNewSlot = true
	}
	expired := 0
	for expired < len(s.At)-1 && nowNanos-s.At[expired] > int64(window) {
		expired++
	}
	s.At = append(s.At[:0], s.At[expired:]...)
	return c
}

// applyChange applies a change of the slots to the series.
func (s *series) applyChange(c change, slots int) {
	if len(s.Sum) != len(s.N) { // invalid in a state file
		*s = series{}
	}
	if remaining := len(s.Sum) - c.removed; remaining <= 0 {
		s.Sum, s.N = s.Sum[:0], s.N[:0]
	} else {
		s.Sum, s.N = s.Sum[:remaining], s.N[:remaining]
	}
	if c.isNewSlot || len(s.Sum) == 0 {
		s.Sum, s.N = append(s.Sum, 0), append(s.N, 0)
	}
	if excess := len(s.Sum) - slots; excess > 0 {
		s.Sum, s.N = append(s.Sum[:0], s.Sum[excess:]...), append(s.N[:0], s.N[excess:]...)
	}
}

// add adds a value to the last slot.
func (s *series) add(value int64) {
	last := len(s.Sum) - 1
	s.Sum[last] = add(s.Sum[last], value)
	s.N[last]++
}

// average returns the mean over the sample window, truncated to a whole number; false if there is none.
func (s *series) average() (int64, bool) {
	sum, n := int64(0), int64(0)
	for i := range s.Sum {
		if s.N[i] > 0 { // a state file may contain other values
			sum, n = add(sum, min(max(s.Sum[i], 0), maxSum)), add(n, int64(s.N[i]))
		}
	}
	if n == 0 {
		return 0, false
	}
	return min(sum/n, maxAmount), true
}
