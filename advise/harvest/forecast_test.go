package harvest

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"polder/advise/histogram"
)

// near compares floating-point numbers.
var near = cmpopts.EquateApprox(0, 1e-9)

// The use is averaged over a quarter of a minute, so that shorter peaks count less.
func TestUseIsAMean(t *testing.T) {
	f := forecast{}
	var got []float64
	for _, seconds := range []int{0, 1, 2, 17, 18} {
		f.observe(start.Add(time.Duration(seconds)*time.Second), map[bool]float64{true: 0.8, false: 0.2}[seconds > 0 && seconds < 18])
		got = append(got, f.Use)
	}
	if diff := cmp.Diff([]float64{0.2, 0.24, 0.24 + 0.56/15, 0.8, 0.76}, got, near); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The history has an hour of minutes, each with its largest use; older entries of a state file are dropped.
func TestAnHourOfMinutes(t *testing.T) {
	f := forecast{}
	for _, s := range []struct {
		seconds int
		use     float64
	}{{0, 0.1}, {30, 0.3}, {59, 0.2}, {60, 0.2}, {120, 0.4}, {179, 0.3}, {180, 0.1}} {
		f.observe(start.Add(time.Duration(s.seconds)*time.Second), s.use)
	}
	minute := func(n int, maximum float64) use { return use{start.Add(time.Duration(n) * time.Minute), maximum} }
	last := minute(3, f.Use)
	if diff := cmp.Diff([]use{minute(0, 0.3), minute(1, 0.2), minute(2, 0.4), last}, f.Hour, near); diff != "" {
		t.Errorf("minutes (-want +got):\n%s", diff)
	}
	f.observe(start.Add(61*time.Minute), 0.1)
	if diff := cmp.Diff([]use{minute(1, 0.2), minute(2, 0.4), last, minute(61, 0.1)}, f.Hour, near); diff != "" {
		t.Errorf("an hour later (-want +got):\n%s", diff)
	}
	f.Hour = nil
	for range 2 * maxMinutes {
		f.Hour = append(f.Hour, minute(61, 0.1))
	}
	if f.observe(start.Add(62*time.Minute), 0.5); len(f.Hour) != maxMinutes || f.Hour[maxMinutes-1].Use != 0.5 {
		t.Errorf("%d minutes are remembered, the last is %+v", len(f.Hour), f.Hour[len(f.Hour)-1])
	}
}

// Each minute starts a span, which five minutes later has grown by the largest use since then, less the level before it.
func TestSpansTakeFiveMinutes(t *testing.T) {
	f := forecast{}
	for i, use := range []float64{0.2, 0.2, 0.2, 0.3, 0.2, 0.2, 0.2, 0.2} {
		f.observe(start.Add(time.Duration(i)*time.Minute), use)
		if want := min(i, 5); len(f.Spans) != want {
			t.Errorf("after %d minutes %d spans are open, want %d", i, len(f.Spans), want)
		}
	}
	// The spans of the minutes 0 and 1 are complete: both grew from 0.2 to 0.3.
	want, aging := [classes]histogram.Histogram{{20: 2}}, cmpopts.EquateApprox(0, 0.01)
	if diff := cmp.Diff(want, f.Growths, aging); diff != "" {
		t.Errorf("growths (-want +got):\n%s", diff)
	}
	if spans := len(f.Spans); f.observe(f.SeenAt, 0.9) || len(f.Spans) != spans {
		t.Errorf("a second tick of an instant was learnt from, or ended %d spans", spans)
	}
	for _, class := range []int{-1, classes} { // invalid in a state file
		f.Spans = []span{{At: start, Class: class}}
		f.learn(use{start.Add(8 * time.Minute), 0.2})
		if diff := cmp.Diff(want, f.Growths, aging); diff != "" {
			t.Errorf("class %d: growths (-want +got):\n%s", class, diff)
		}
	}
	f.Spans = make([]span, 2*maxSpans)
	for i := range f.Spans {
		f.Spans[i].At = start.Add(9 * time.Minute)
	}
	if f.learn(use{start.Add(9 * time.Minute), 0.2}); len(f.Spans) != maxSpans || f.Spans[maxSpans-1].Level == 0 {
		t.Errorf("%d spans of a state file are open, the last is %+v", len(f.Spans), f.Spans[len(f.Spans)-1])
	}
}

// The weight of an observation halves in two days, and a negligible one is dropped. A clock that was set back ages nothing.
func TestGrowthsAge(t *testing.T) {
	f := forecast{AgedAt: start, Growths: [classes]histogram.Histogram{{8, 0, 4}, nil, {2}}}
	f.learn(use{start.Add(halfLife), 0.2})
	if diff := cmp.Diff([classes]histogram.Histogram{{4, 0, 2}, nil, {1}}, f.Growths, near); diff != "" {
		t.Errorf("after two days (-want +got):\n%s", diff)
	}
	f.learn(use{start, 0.2})
	if diff := cmp.Diff([classes]histogram.Histogram{{4, 0, 2}, nil, {1}}, f.Growths, near); diff != "" || !f.AgedAt.Equal(start.Add(halfLife)) {
		t.Errorf("before that (-want +got):\n%s", diff)
	}
}

// The level is the mean of the largest use of ten minutes and that of the hour; before ten minutes it warms up. The class depends on the
// difference between the hour's largest use and its mean.
func TestLevel(t *testing.T) {
	back := func(minutes int) time.Time { return start.Add(-time.Duration(minutes) * time.Minute) }
	for _, tt := range []struct {
		name string
		hour []use
		want level
	}{
		{"nothing", nil, level{}},
		{"the hour's begins with it", []use{{back(61), 0.9}, {back(60), 0.44}, {back(10), 0.4}, {back(0), 0.38}}, level{part: 0.42, longMax: 0.44, shortMax: 0.4}},
		{"ten minutes", []use{{back(10), 0.2}, {back(0), 0.2}}, level{part: 0.2, longMax: 0.2, shortMax: 0.2}},
		{"less than ten", []use{{back(9), 0.2}, {back(0), 0.2}}, level{part: 0.2, longMax: 0.2, shortMax: 0.2, isWarmingUp: true}},
		{"medium", []use{{back(30), 0.4}, {back(0), 0.2}}, level{part: 0.3, longMax: 0.4, shortMax: 0.2, class: 1}},
		{"high", []use{{back(30), 0.6}, {back(0), 0.2}}, level{part: 0.4, longMax: 0.6, shortMax: 0.2, class: 2}},
	} {
		f := forecast{Hour: tt.hour}
		if diff := cmp.Diff(tt.want, f.level(start), near, cmp.AllowUnexported(level{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The margin is the growth that costs least: room costs its own size, and each span beyond it the price. At any price, at most 7 of 100
// spans are beyond it. Without observations, two spans of the first margin count.
func TestMarginIsTheCheapest(t *testing.T) {
	priced := func(price float64) Settings { s := Defaults(); s.Price = price; return s }
	rare := histogram.Histogram{0: 98, 10: 4}
	never := Defaults()
	never.FirstMargin = 2
	for _, tt := range []struct {
		name string
		seen histogram.Histogram
		s    Settings
		want float64
		sum  float64
	}{
		{"nothing was seen", nil, Defaults(), 0.03, 0},
		{"it never grew", histogram.Histogram{0: 1000}, Defaults(), 0.02, 1000},
		{"it grew seldom, which costs much", rare, priced(2.2), 0.05, 102},
		{"it grew seldom, which costs little", rare, priced(0.5), 0.02, 102},
		{"it grew too often for any price", histogram.Histogram{0: 100, 20: 10}, priced(0), 0.1, 110},
		{"as often as may be", histogram.Histogram{0: 91, 20: 7}, priced(0), 0.03, 98},
		{"by all of the machine", histogram.Histogram{200: 100}, Defaults(), 1, 100},
		{"no room is enough", nil, never, 1, 0},
		{"what is no number of times", histogram.Histogram{0: 1000, 5: -1e6, 300: 1e6}, Defaults(), 0.02, 1000},
	} {
		part, seen := cheapest(tt.seen, tt.s)
		if math.Abs(part-tt.want) > 1e-9 || seen != tt.sum {
			t.Errorf("%s: %v of %v, want %v of %v", tt.name, part, seen, tt.want, tt.sum)
		}
	}
	f := forecast{Growths: [classes]histogram.Histogram{{0: 1000}}}
	if part, _ := f.margin(level{isWarmingUp: true}, Defaults()); part != warmUpMargin {
		t.Errorf("while it warms up the margin is %v", part)
	}
}
