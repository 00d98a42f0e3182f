package window

import "math"

// CountBins is the number of bins of [Counts]: from nothing to 1, in steps of half a percent.
const CountBins = 200

// Counts is a table of how often a part, 0 to 1, was seen; what is old counts less. A state file's may say anything.
type Counts []float64

// Add counts a part, rounded up.
func (c *Counts) Add(part float64) {
	i := int(math.Ceil(min(max(part, 0), 1) * CountBins))
	for len(*c) <= i {
		*c = append(*c, 0)
	}
	(*c)[i]++
}

// Age lets all that was seen count less, and forgets what hardly counts.
func (c *Counts) Age(by float64) {
	end := 0
	for i := range *c {
		if (*c)[i] *= by; (*c)[i] < 1e-4 {
			(*c)[i] = 0
		} else {
			end = i + 1
		}
	}
	*c = (*c)[:end]
}

// Sum is how often any was seen.
func (c Counts) Sum() (sum float64) {
	for i, n := range c {
		if i <= CountBins && n > 0 {
			sum += n
		}
	}
	return sum
}

// Quantile is the part that so many did not exceed, and how many there are.
func (c Counts) Quantile(q float64) (part, seen float64) {
	seen = c.Sum()
	upTo := 0.0
	for i, n := range c {
		if upTo += max(n, 0); upTo >= seen*q-1e-9 {
			return float64(min(i, CountBins)) / CountBins, seen
		}
	}
	return 0, seen
}
