package batch

import "math/bits"

// most bounds every amount: a float64, and so every JSON reader, represents it exactly. maxPercent bounds percentages.
const (
	most       = int64(1) << 53
	maxPercent = 1_000_000
	huge       = int64(1) << 61 // bounds sums: adding two of them does not overflow
)

// whole converts an external value to a whole number of at least 0, rounded down; false if it is missing or invalid.
func whole(f *float64) (int64, bool) {
	switch {
	case f == nil || *f != *f:
		return 0, false
	case *f <= 0:
		return 0, true
	case *f >= float64(most):
		return most, true
	}
	return int64(*f), true
}

// add and less are a sum and a difference that saturate instead of overflowing.
func add(a, b int64) int64  { return max(min(a+b, huge), -huge) }
func less(a, b int64) int64 { return add(a, -b) }

// scaled returns v*by/of, truncated towards zero like Go's division.
func scaled(v, by, of int64) int64 {
	negative := (v < 0) != (by < 0)
	hi, lo := bits.Mul64(magnitude(v), magnitude(by))
	if hi >= uint64(of) {
		lo = uint64(huge)
	} else if lo, _ = bits.Div64(hi, lo, uint64(of)); lo > uint64(huge) {
		lo = uint64(huge)
	}
	if negative {
		return -int64(lo)
	}
	return int64(lo)
}

// scaledUp returns v*by/of, rounded up; no argument is negative.
func scaledUp(v, by, of int64) int64 {
	hi, lo := bits.Mul64(magnitude(v), magnitude(by))
	if hi >= uint64(of) {
		return huge
	}
	quotient, rest := bits.Div64(hi, lo, uint64(of))
	if rest > 0 {
		quotient++
	}
	return int64(min(quotient, uint64(huge)))
}

// shared returns one of n equal parts, rounded up; all of it if n is 0.
func shared(v int64, n int) int64 {
	if n <= 0 || v <= 0 {
		return v
	}
	return (v-1)/int64(n) + 1
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}
