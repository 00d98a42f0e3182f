package rule

import "time"

// Sample is one value of a [SampleWindow] with its time.
type Sample[T any] struct {
	At    time.Time `json:"at"`
	Value T         `json:"value"`
}

// SampleWindow contains the last few samples of something that is measured once per period. Its zero value is empty; it
// can be encoded as JSON and decoded again.
type SampleWindow[T any] struct {
	Samples []Sample[T] `json:"samples,omitempty"`
	// Last is the time of the last sample that the window accepted, or the time to which the clock was set back.
	Last time.Time `json:"last,omitzero"`
}

// Due reports whether a sample should be taken at now. Samples have distinct times, and the clock may be set:
//   - backwards: the period starts over, so that the same span of time is neither counted twice nor waited for;
//   - forwards, or the stream was away for more than twice the time of a full window: the earlier samples
//     say nothing about the present, and the window is emptied.
func (r *SampleWindow[T]) Due(now time.Time, period time.Duration, capacity int) bool {
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

// Add adds a sample and drops the oldest ones above capacity, which may be smaller than before.
func (r *SampleWindow[T]) Add(now time.Time, v T, capacity int) {
	r.Samples = append(r.Samples, Sample[T]{At: now, Value: v})
	if excess := len(r.Samples) - capacity; excess > 0 {
		r.Samples = append(r.Samples[:0], r.Samples[excess:]...)
	}
	r.Last = now
}

// Share returns for which part of the capacity, not of the present samples, matches returns true: missing samples of a window
// that is not yet full count as false.
func (r *SampleWindow[T]) Share(capacity int, matches func(T) bool) float64 {
	if capacity <= 0 {
		return 0
	}
	n := 0
	for _, s := range r.Samples[max(0, len(r.Samples)-capacity):] {
		if matches(s.Value) {
			n++
		}
	}
	return float64(n) / float64(capacity)
}
