package batch

import "math/bits"

// maxAmount bounds every amount: a float64, and so every JSON reader, represents it exactly. maxPercent bounds percentages.
const (
	maxAmount  = int64(1) << 53
	maxPercent = 1_000_000
	maxSum     = int64(1) << 61 // bounds sums: adding two of them does not overflow
)

// wholeNumber converts an external value to a whole number of at least 0, rounded down; false if it is missing or invalid.
func wholeNumber(f *float64) (int64, bool) {
	switch {
	case f == nil || *f != *f:
		return 0, false
	case *f <= 0:
		return 0, true
	case *f >= float64(maxAmount):
		return maxAmount, true
	}
	return int64(*f), true
}

// add and less are a sum and a difference that saturate instead of overflowing.
func add(a, b int64) int64      { return max(min(a+b, maxSum), -maxSum) }
func subtract(a, b int64) int64 { return add(a, -b) }

// scale returns v*by/of, truncated towards zero like Go's division.
func scale(v, by, of int64) int64 {
	negative := (v < 0) != (by < 0)
	hi, lo := bits.Mul64(absolute(v), absolute(by))
	if hi >= uint64(of) {
		lo = uint64(maxSum)
	} else if lo, _ = bits.Div64(hi, lo, uint64(of)); lo > uint64(maxSum) {
		lo = uint64(maxSum)
	}
	if negative {
		return -int64(lo)
	}
	return int64(lo)
}

// scaleUp returns v*by/of, rounded up; no argument is negative.
func scaleUp(v, by, of int64) int64 {
	hi, lo := bits.Mul64(absolute(v), absolute(by))
	if hi >= uint64(of) {
		return maxSum
	}
	quotient, rest := bits.Div64(hi, lo, uint64(of))
	if rest > 0 {
		quotient++
	}
	return int64(min(quotient, uint64(maxSum)))
}

// equalPart returns one of n equal parts, rounded up; all of it if n is 0.
func equalPart(v int64, n int) int64 {
	if n <= 0 || v <= 0 {
		return v
	}
	return (v-1)/int64(n) + 1
}

func absolute(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}
