package tick

import (
	"math"
	"strconv"
	"unsafe"

	jsoniter "github.com/json-iterator/go"
)

// floatEncoder writes numbers as json-iterator does, with the fewest digits that read back as the same number, and faster for numbers
// that are whole or have at most three decimals. Nearly all of a tick's do: collect rounds rates, and amounts are bytes.
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

// These are the largest numbers that are written here. Below both, different decimals are different numbers, because a float64
// distinguishes any two numbers of 15 digits: so the text that reads as the number, without trailing zeros, is the shortest.
const (
	largestWhole    = 1e15
	largestDecimals = 1e12
	decimals        = 1000
)

// appendShort appends a number that is whole or has at most three decimals, and returns false for all others.
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
