package tick

import (
	"math"
	"strconv"
	"unsafe"

	jsoniter "github.com/json-iterator/go"
)

// floatEncoder writes numbers as json-iterator does, in the fewest digits from which the same number is read again, and faster where the
// number is whole or has three decimals at most. Nearly all of a tick's are: collect rounds rates, and amounts are bytes.
type floatEncoder struct{}

// IsEmpty implements [jsoniter.ValEncoder].
func (floatEncoder) IsEmpty(ptr unsafe.Pointer) bool { return *(*float64)(ptr) == 0 }

// Encode implements [jsoniter.ValEncoder].
func (floatEncoder) Encode(ptr unsafe.Pointer, s *jsoniter.Stream) {
	f := *(*float64)(ptr)
	if text, ok := appendShort(s.Buffer(), f); ok {
		s.SetBuffer(text)
		return
	}
	s.WriteFloat64(f)
}

// The largest numbers that are written here. Below both, decimals of different text are different numbers, because a float64 distinguishes
// any two numbers of 15 digits: so the text that reads as the number, without trailing zeros, is the shortest.
const (
	largestWhole    = 1e15
	largestDecimals = 1e12
	decimals        = 1000
)

// appendShort appends a number that is whole or has three decimals at most, and reports false for every other.
func appendShort(dst []byte, f float64) ([]byte, bool) {
	switch whole := math.Trunc(f); {
	case f == 0:
		return append(dst, '0'), !math.Signbit(f)
	case whole == f && math.Abs(f) < largestWhole:
		return strconv.AppendInt(dst, int64(f), 10), true
	case !(math.Abs(f) < largestDecimals): // NaN too
		return dst, false
	}
	n := math.Round(math.Abs(f) * decimals)
	if n/decimals != math.Abs(f) {
		return dst, false
	}
	if f < 0 {
		dst = append(dst, '-')
	}
	thousandths := uint64(n)
	dst = strconv.AppendUint(dst, thousandths/decimals, 10)
	part := thousandths % decimals
	dst = append(dst, '.', byte('0'+part/100))
	if part %= 100; part > 0 {
		dst = append(dst, byte('0'+part/10))
	}
	if part %= 10; part > 0 {
		dst = append(dst, byte('0'+part))
	}
	return dst, true
}
