// Package histogram counts how often parts of a whole were observed, for policies that predict from history. It is pure.
package histogram

import "math"

// Bins is the number of bins of a [Histogram]: from 0 to 1, in steps of half a percent.
const Bins = 200

// Histogram has the weight of each observed part of a whole, 0 to 1; older observations count less. A state file may contain any value.
type Histogram []float64

// Add counts a part, rounded up.
func (h *Histogram) Add(part float64) {
	i := int(math.Ceil(min(max(part, 0), 1) * Bins))
	for len(*h) <= i {
		*h = append(*h, 0)
	}
	(*h)[i]++
}

// Age reduces the weight of all observations, and removes negligible ones.
func (h *Histogram) Age(factor float64) {
	end := 0
	for i := range *h {
		if (*h)[i] *= factor; (*h)[i] < 1e-4 {
			(*h)[i] = 0
		} else {
			end = i + 1
		}
	}
	*h = (*h)[:end]
}

// Sum returns the weight of all observations.
func (h Histogram) Sum() (sum float64) {
	for i, n := range h {
		if i <= Bins && n > 0 {
			sum += n
		}
	}
	return sum
}

// Quantile returns the part that a share q of the observations did not exceed, and the weight of all observations.
func (h Histogram) Quantile(q float64) (part, total float64) {
	total = h.Sum()
	cumulative := 0.0
	for i, n := range h {
		if cumulative += max(n, 0); cumulative >= total*q-1e-9 {
			return float64(min(i, Bins)) / Bins, total
		}
	}
	return 0, total
}
