package series

import (
	"testing"
	"time"

	"polder/lib/tick"
)

// TestTimeOfLostTicks: what a lost tick covered counts with the next one, also if that comes early and its rates cover less.
func TestTimeOfLostTicks(t *testing.T) {
	for _, tt := range []struct {
		name         string
		at, interval time.Duration
		period, want float64
	}{
		{"early", 1250 * time.Millisecond, 250 * time.Millisecond, 1, 2.25},
		{"early, and three are lost", 3250 * time.Millisecond, 250 * time.Millisecond, 1, 1.25},
		{"without a period", 1250 * time.Millisecond, 250 * time.Millisecond, 0, 1.25},
	} {
		n := NewNode("report")
		n.Add(used(0, 1, 2000, batchPod("a", 1000)))
		x := used(tt.at, tt.interval.Seconds(), 2000, batchPod("a", 1000))
		if tt.period > 0 {
			x.Sample.PeriodSeconds = &tt.period
		}
		n.Add(x)
		if w := n.Worth(); w.Seconds != tt.want {
			t.Errorf("%s: %v s; want %v", tt.name, w.Seconds, tt.want)
		}
	}
}

// Time counts once, whatever the order of the ticks.
func TestTimeCountsOnce(t *testing.T) {
	for _, tt := range []struct {
		name          string
		seconds       []int // of the ticks
		worth, advice float64
	}{
		{"in order", []int{0, 1, 2, 3}, 4, 3},
		{"one is lost", []int{0, 1, 3}, 4, 3},
		{"one is repeated", []int{0, 1, 1, 2}, 3, 2},
		{"one is late", []int{0, 2, 1, 3}, 4, 3},
		{"one is later than others by far", []int{0, 1, 2, 3, 1, 4}, 5, 4},
		{"the clock is set back", []int{3600, 3601, 0, 1, 2}, 4, 3},
		{"the clock is set back a little", []int{3, 4, 2, 3, 4, 5}, 5, 4},
		{"the clock is set forward, and back", []int{0, 1, 3600, 3601, 2, 3}, 5, 3},
	} {
		n := NewNode("report")
		for _, second := range tt.seconds {
			x := used(time.Duration(second)*time.Second, 1, 2000, batchPod("a", 1000))
			x.Advice = &tick.Advice{}
			n.Add(x)
		}
		if w := n.Worth(); w.Seconds != tt.worth || w.Advised != tt.advice {
			t.Errorf("%s: %v s of samples and %v s between advices; want %v and %v", tt.name, w.Seconds, w.Advised, tt.worth, tt.advice)
		}
	}
}
