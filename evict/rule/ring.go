package rule

import "time"

// Sample is one value of a [Ring] with the time that it is of.
type Sample[T any] struct {
	At    time.Time `json:"at"`
	Value T         `json:"value"`
}

// Ring is the last few samples of something that is looked at once a period. Its zero value is empty; it can be
// encoded as JSON and decoded again.
type Ring[T any] struct {
	Samples []Sample[T] `json:"samples,omitempty"`
	// Last is when the ring was last offered a sample that it took, or the time that it was set back to.
	Last time.Time `json:"last,omitzero"`
}

// Due reports whether a sample should be taken at now. Samples have distinct times, and the clock may be set:
//   - backwards, the period starts over, so that the same stretch of time is neither counted twice nor waited for;
//   - forwards, or the stream was away for more than twice the time that a full ring covers, what was seen
//     before shows nothing about the present any more, and the ring is emptied.
func (r *Ring[T]) Due(now time.Time, period time.Duration, capacity int) bool {
	switch gap := now.Sub(r.Last); {
	case r.Last.IsZero():
		return true
	case gap < 0:
		r.Last = now
		return false
	case period > 0 && gap > 2*period*time.Duration(capacity):
		r.Samples = nil
		return true
	case gap == 0:
		return false
	default:
		return gap >= period
	}
}

// Push adds a sample and forgets the oldest ones over capacity, which may be smaller than it was before.
func (r *Ring[T]) Push(now time.Time, v T, capacity int) {
	r.Samples = append(r.Samples, Sample[T]{At: now, Value: v})
	if over := len(r.Samples) - capacity; over > 0 {
		r.Samples = append(r.Samples[:0], r.Samples[over:]...)
	}
	r.Last = now
}

// Share is the part of the capacity, not of the samples present, for which is holds: a ring that is not yet full counts
// as one whose missing samples do not hold.
func (r *Ring[T]) Share(capacity int, is func(T) bool) float64 {
	if capacity <= 0 {
		return 0
	}
	n := 0
	for _, s := range r.Samples[max(0, len(r.Samples)-capacity):] {
		if is(s.Value) {
			n++
		}
	}
	return float64(n) / float64(capacity)
}
