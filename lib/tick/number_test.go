package tick

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// FuzzShortNumbers: the output equals strconv's, byte for byte, and whole and rounded numbers never fall back to strconv.
func FuzzShortNumbers(f *testing.F) {
	for _, x := range []float64{
		0, math.Copysign(0, -1), 1, -1, 0.1, 0.001, 0.0005, 12.34, -12.3, 0.25, 1e-7, 123456789012, 999999999999.999, 1e12 + 0.1, 1e15 - 1, 1e15, 1e21,
		math.MaxFloat64, math.SmallestNonzeroFloat64, math.NaN(), math.Inf(1), math.Inf(-1), 0.1 + 0.2, 1.005, 4035.7, 109.01,
	} {
		f.Add(x)
	}
	f.Fuzz(func(t *testing.T, x float64) {
		got, ok := appendShort([]byte("x"), x)
		if want := "x" + strconv.FormatFloat(x, 'f', -1, 64); ok && string(got) != want {
			t.Errorf("%v is written as %s; want %s", x, got, want)
		}
	})
}

// The numbers that collect writes are of this kind.
func TestRoundedNumbersAreShort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		magnitude := math.Pow(10, 11*r.Float64())
		for _, parts := range []float64{1, 10, 100, 1000} {
			x := math.Round((r.Float64()-0.5)*magnitude*parts) / parts
			got, ok := appendShort(nil, x)
			if want := strconv.FormatFloat(x, 'f', -1, 64); (!ok || string(got) != want) && want != "-0" {
				t.Fatalf("%v is written as %s, %v; want %s", x, got, ok, want)
			}
		}
	}
}
