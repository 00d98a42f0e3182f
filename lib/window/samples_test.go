package window_test

import (
	"testing"
	"time"

	"polder/lib/window"
)

func TestTrail(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var tr window.Samples
	if _, ok := tr.Average(at(0), time.Minute); ok || tr.Span(at(0), time.Minute) != 0 {
		t.Error("an empty trail knows something")
	}
	for i := range 100 {
		tr.Add(at(i), float64(i+1), time.Second, 2*time.Minute)
	}
	for _, c := range []struct{ share, want float64 }{{0.5, 50}, {0.9, 90}, {0.95, 95}, {0.99, 99}, {1, 100}, {0, 1}} {
		if got, ok := tr.Percentile(at(99), time.Hour, c.share); !ok || got != c.want {
			t.Errorf("percentile %v: %v, want %v", c.share, got, c.want)
		}
	}
	if got, _ := tr.Average(at(99), 9*time.Second); got != 95.5 {
		t.Errorf("average of the last ten: %v", got)
	}
	if got := tr.Span(at(99), time.Hour); got != 99*time.Second {
		t.Errorf("span %v", got)
	}
	if _, ok := tr.Average(at(300), time.Minute); ok {
		t.Error("what is old counts as now")
	}
	tr.Add(at(200), 7, time.Second, 2*time.Minute)
	if len(tr.Points) != 21 { // 80 to 99, and 200
		t.Errorf("%d points are kept", len(tr.Points))
	}
	tr.Add(at(90), 5, time.Second, 2*time.Minute) // the clock was set back
	if figure, when, _ := tr.Last(); !when.Equal(at(90)) || figure != 48 {
		t.Errorf("last %v at %v: want the mean of 91 and 5", figure, when)
	}
}

// A percentile is that of the values in ascending order, in whatever order they came.
func TestPercentileOfUnorderedValues(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	var tr window.Samples
	for i, v := range []float64{9, 1, 5, 3, 7} {
		tr.Add(start.Add(time.Duration(i)*time.Minute), v, time.Second, time.Hour)
	}
	for _, c := range []struct{ share, want float64 }{{0, 1}, {0.5, 3}, {0.9, 7}, {1, 9}} {
		if got, ok := tr.Percentile(start.Add(5*time.Minute), time.Hour, c.share); !ok || got != c.want {
			t.Errorf("percentile %v: %v, want %v", c.share, got, c.want)
		}
	}
}

func TestTrailSharesPoints(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	var tr window.Samples
	for i := range 50 {
		tr.Add(start.Add(time.Duration(i)*100*time.Millisecond), float64(i), time.Second, time.Minute)
	}
	if got, _ := tr.Average(start.Add(5*time.Second), time.Minute); len(tr.Points) != 5 || got != 24.5 {
		t.Errorf("%d points, average %v", len(tr.Points), got)
	}
}
