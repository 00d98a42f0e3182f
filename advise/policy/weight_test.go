package policy

import (
	"math"
	"testing"
)

// On version 2 the weight is Koordinator's. On version 1 it is the weight that isolate converts to the shares, or to the nearest possible
// shares.
func TestWeightOf(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 27: 1, 29: 2, 1024: 39, 2048: 79, 8192: 313, 262143: 9999, 262144: 10000} {
		if got := WeightOf(shares, 2); got != want {
			t.Errorf("weight of %d shares on version 2 = %d, want %d", shares, got, want)
		}
		if got := WeightOf(shares, 0); got != want {
			t.Errorf("weight of %d shares on an unknown version = %d, want %d", shares, got, want)
		}
	}
	curve := func(weight int64) int64 { // what isolate writes
		l := (-125 + math.Sqrt(125*125+4*612*(math.Log10(float64(weight))+7.0/34))) / 2
		return min(max(int64(math.Round(math.Exp2(l))), MinShares), MaxShares)
	}
	before := int64(0)
	for shares := int64(MinShares); shares <= MaxShares; shares++ {
		weight := WeightOf(shares, 1)
		if weight < before || weight < 1 || weight > 10000 {
			t.Fatalf("weight of %d shares = %d after %d", shares, weight, before)
		}
		before = weight
		got := curve(weight)
		off := math.Abs(float64(got-shares)) / float64(shares)
		if near := math.Abs(float64(curve(min(weight+1, 10000)) - shares)); near < math.Abs(float64(got-shares))-1 && shares > 30 {
			t.Fatalf("%d shares become %d by weight %d: the next would be nearer", shares, got, weight)
		}
		if shares >= 1024 && off > 0.008 || shares >= 256 && off > 0.022 {
			t.Fatalf("%d shares become %d: off by %.1f %%", shares, got, 100*off)
		}
	}
	if curve(WeightOf(2, 1)) != 2 || curve(WeightOf(1024, 1)) < 1018 || curve(WeightOf(1024, 1)) > 1030 {
		t.Errorf("the defaults become %d and %d", curve(WeightOf(2, 1)), curve(WeightOf(1024, 1)))
	}
}
