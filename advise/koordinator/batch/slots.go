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
	gone  int
	begun bool
}

// advance moves the slots to now: it drops slots that began before the sample window, and adds new ones.
func (s *slots) advance(now time.Time, over time.Duration) (c change) {
	width := max(over/parts, minWidth)
	at := now.UnixNano()
	for n := len(s.At); n > 0 && s.At[n-1] > at; n-- {
		s.At = s.At[:n-1]
		c.gone++
	}
	if n := len(s.At); n == 0 || at-s.At[n-1] >= int64(width) {
		s.At = append(s.At, at)
		c.begun = true
	}
	old := 0
	for old < len(s.At)-1 && at-s.At[old] > int64(over) {
		old++
	}
	s.At = append(s.At[:0], s.At[old:]...)
	return c
}

// follow applies a change of the slots to the series.
func (s *series) follow(c change, slots int) {
	if len(s.Sum) != len(s.N) { // invalid in a state file
		*s = series{}
	}
	if left := len(s.Sum) - c.gone; left <= 0 {
		s.Sum, s.N = s.Sum[:0], s.N[:0]
	} else {
		s.Sum, s.N = s.Sum[:left], s.N[:left]
	}
	if c.begun || len(s.Sum) == 0 {
		s.Sum, s.N = append(s.Sum, 0), append(s.N, 0)
	}
	if old := len(s.Sum) - slots; old > 0 {
		s.Sum, s.N = append(s.Sum[:0], s.Sum[old:]...), append(s.N[:0], s.N[old:]...)
	}
}

// note adds a value to the last slot.
func (s *series) note(figure int64) {
	last := len(s.Sum) - 1
	s.Sum[last] = add(s.Sum[last], figure)
	s.N[last]++
}

// average returns the mean over the sample window, truncated to a whole number; false if there is none.
func (s *series) average() (int64, bool) {
	sum, n := int64(0), int64(0)
	for i := range s.Sum {
		if s.N[i] > 0 { // a state file may contain other values
			sum, n = add(sum, min(max(s.Sum[i], 0), huge)), add(n, int64(s.N[i]))
		}
	}
	if n == 0 {
		return 0, false
	}
	return min(sum/n, most), true
}
