package histogram

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A part is counted in steps of half a percent, rounded up, from 0 to 1.
func TestAdd(t *testing.T) {
	for part, want := range map[float64]int{-1: 0, 0: 0, 0.001: 1, 0.0049: 1, 0.0051: 2, 0.9999: 200, 1: 200, 7: 200} {
		var h Histogram
		if h.Add(part); len(h) != want+1 || h[want] != 1 || h.Sum() != 1 {
			t.Errorf("%v: %v", part, h)
		}
	}
	if got := (Histogram{1, -5, 0, 200: 2, 201: 7}).Sum(); got != 3 {
		t.Errorf("of a state file with what is no part %v count", got)
	}
}

func TestAge(t *testing.T) {
	h := Histogram{1, 3e-4, 2, 1e-4, 1e-5}
	if h.Age(0.5); !cmp.Equal(Histogram{0.5, 1.5e-4, 1}, h, cmpopts.EquateApprox(0, 1e-9)) {
		t.Errorf("aged: %v", h)
	}
}

// The quantile is the smallest part that the given share did not exceed.
func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		seen Histogram
		q    float64
		want float64
	}{
		{nil, 0.99, 0},
		{Histogram{0: 98, 10: 2}, 0.98, 0},
		{Histogram{0: 98, 10: 2}, 0.99, 0.05},
		{Histogram{0: 98, 10: 2}, 1, 0.05},
		{Histogram{0: 1, 10: 1, 200: 1}, 1, 1},
		{Histogram{0: -5, 10: 1}, 0.5, 0.05},
	} {
		if got, _ := tt.seen.Quantile(tt.q); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%v of %v: %v, want %v", tt.q, tt.seen, got, tt.want)
		}
	}
}
