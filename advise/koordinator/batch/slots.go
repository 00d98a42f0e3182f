package batch

import "time"

// slots are the pieces that the last while is divided into. They are the same for all figures, so that a figure is two short
// lists: a node's hundred pods would else fill the state file with times.
type slots struct {
	// At is when each began, in nanoseconds since 1970.
	At []int64 `json:"at,omitempty"`
}

// series is one figure in the slots: the last of the list is in the last slot. Younger series have fewer.
type series struct {
	Sum []int64 `json:"sum,omitempty"`
	N   []int   `json:"n,omitempty"`
}

// change is what became of the slots: so many of the last are gone, where the clock was set back, and whether there is a new one.
type change struct {
	gone  int
	begun bool
}

// advance comes to now: a slot is so wide, and what began longer ago than the while is forgotten.
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

// follow does to the series what was done to the slots.
func (s *series) follow(c change, slots int) {
	if len(s.Sum) != len(s.N) { // a state file's
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

// note adds a figure to the last slot.
func (s *series) note(figure int64) {
	last := len(s.Sum) - 1
	s.Sum[last] = add(s.Sum[last], figure)
	s.N[last]++
}

// average is the mean of the last while, cut off to a whole number; false where there is none.
func (s *series) average() (int64, bool) {
	sum, n := int64(0), int64(0)
	for i := range s.Sum {
		if s.N[i] > 0 { // a state file may have others
			sum, n = add(sum, min(max(s.Sum[i], 0), huge)), add(n, int64(s.N[i]))
		}
	}
	if n == 0 {
		return 0, false
	}
	return min(sum/n, most), true
}
