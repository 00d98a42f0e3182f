// Package histogram counts how often parts of a whole were seen, for policies that decide by how things were before. It is pure.
package histogram

import "math"

// Bins is the number of bins of a [Histogram]: from nothing to 1, in steps of half a percent.
const Bins = 200

// Histogram is how often each part of a whole, 0 to 1, was seen; what is old counts less. Out of a state file it may have anything.
type Histogram []float64

// Add counts a part, rounded up.
func (h *Histogram) Add(part float64) {
	i := int(math.Ceil(min(max(part, 0), 1) * Bins))
	for len(*h) <= i {
		*h = append(*h, 0)
	}
	(*h)[i]++
}

// Age lets all that was seen count less, and forgets what hardly counts.
func (h *Histogram) Age(by float64) {
	end := 0
	for i := range *h {
		if (*h)[i] *= by; (*h)[i] < 1e-4 {
			(*h)[i] = 0
		} else {
			end = i + 1
		}
	}
	*h = (*h)[:end]
}

// Sum is how often any was seen.
func (h Histogram) Sum() (sum float64) {
	for i, n := range h {
		if i <= Bins && n > 0 {
			sum += n
		}
	}
	return sum
}

// Quantile is the part that so many did not exceed, and how many there are.
func (h Histogram) Quantile(q float64) (part, seen float64) {
	seen = h.Sum()
	upTo := 0.0
	for i, n := range h {
		if upTo += max(n, 0); upTo >= seen*q-1e-9 {
			return float64(min(i, Bins)) / Bins, seen
		}
	}
	return 0, seen
}
