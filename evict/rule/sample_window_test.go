package rule

import (
	"testing"
	"time"
)

func over(bound float64) func(float64) bool { return func(v float64) bool { return v > bound } }

func TestSampleWindowDue(t *testing.T) {
	tests := []struct {
		name  string
		ticks []int // seconds of the ticks offered
		want  []int // seconds of the samples that the ring accepts
	}{
		{"first at once, then each period", []int{0, 1, 29, 30, 31, 60}, []int{0, 30, 60}},
		{"the same time counts once", []int{0, 0, 30, 30}, []int{0, 30}},
		{"a late tick", []int{0, 45, 75}, []int{0, 45, 75}},
		{"back: the period starts over", []int{100, 40, 60, 70}, []int{100, 70}},
		{"silent for too long: emptied", []int{0, 30, 700}, []int{700}},
		{"silent, but not for too long", []int{0, 30, 600}, []int{0, 30, 600}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r SampleWindow[float64]
			for _, s := range tt.ticks {
				if r.Due(at(s), 30*time.Second, 10) {
					r.Add(at(s), 1, 10)
				}
			}
			var got []int
			for _, s := range r.Samples {
				got = append(got, int(s.At.Sub(start)/time.Second))
			}
			if len(got) != len(tt.want) {
				t.Fatalf("samples at %v; want %v", got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Fatalf("samples at %v; want %v", got, tt.want)
				}
			}
		})
	}
}

func TestSampleWindowShareIsOfCapacity(t *testing.T) {
	var r SampleWindow[float64]
	for i := range 12 {
		r.Add(at(i), float64(i), 10)
		if want := min(10, i+1); len(r.Samples) != want {
			t.Fatalf("after %d: %d samples; want %d", i+1, len(r.Samples), want)
		}
		if i == 7 {
			if got := r.Share(10, over(-1)); got != 0.8 {
				t.Errorf("Share of 8 samples in a window of 10 = %v; want 0.8", got)
			}
		}
	}
	if got := r.Share(10, over(10)); got != 0.1 {
		t.Errorf("Share(over 10) = %v; want 0.1", got)
	}
	if got := r.Share(4, over(9)); got != 0.5 {
		t.Errorf("Share of a smaller window = %v; want 0.5 (the newest samples)", got)
	}
	if got := r.Share(0, over(0)); got != 0 {
		t.Errorf("Share(0) = %v; want 0", got)
	}
}
