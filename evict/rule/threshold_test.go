package rule

import (
	"testing"
	"time"

	"polder/lib/tick"
)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestCondition(t *testing.T) {
	for _, tt := range []struct {
		name         string
		measurements []int // seconds
		values       []float64
		h            float64
		metFor       int // seconds, -1 if it is not met
	}{
		{"at", []int{0}, []float64{10}, 0, -1},
		{"over", []int{0, 5}, []float64{11, 11}, 0, 5},
		{"back", []int{0, 5, 6}, []float64{11, 10, 11}, 0, 0},
		{"held", []int{0, 5, 6}, []float64{11, 9.1, 9.1}, 0.1, 6},
		{"met no longer", []int{0, 5, 6}, []float64{11, 9, 9.5}, 0.1, -1},
		{"a minute between measurements", []int{0, 60, 120}, []float64{11, 11, 11}, 0, 120},
		{"a little more than a minute", []int{0, 90, 151}, []float64{11, 11, 11}, 0, 151},
		{"a silence", []int{0, 60, 151}, []float64{11, 11, 11}, 0, 0},
		{"nothing stays met over a silence", []int{0, 91}, []float64{11, 9.5}, 0.1, -1},
		{"the clock set back", []int{1000, 0, 7}, []float64{11, 11, 11}, 0, 7},
	} {
		var isOver, isUnder condition
		met, metUnder := false, false
		for i, s := range tt.measurements {
			_, met = isOver.isOver(&tick.Tick{Time: at(s)}, tt.values[i], 10, tt.h)
			_, metUnder = isUnder.isUnder(&tick.Tick{Time: at(s)}, 20-tt.values[i], 10, tt.h)
		}
		last := at(tt.measurements[len(tt.measurements)-1])
		if want := tt.metFor >= 0; met != want || metUnder != want {
			t.Errorf("%s: met %t over, %t under; want %t", tt.name, met, metUnder, want)
		}
		if got, want := isOver.metFor(last), time.Duration(max(0, tt.metFor))*time.Second; got != want || isUnder.metFor(last) != want {
			t.Errorf("%s: met for %s; want %s", tt.name, got, want)
		}
	}
}

func TestCountPeriod(t *testing.T) {
	for _, tt := range []struct {
		name      string
		ticks     []int // tenths of a second
		due       []bool
		continued bool // at the last one
	}{
		{"the first", []int{0}, []bool{true}, false},
		{"each second", []int{0, 10, 20, 30, 40, 50, 60}, []bool{true, false, false, false, false, true, false}, true},
		{"a little early", []int{0, 46}, []bool{true, true}, true},
		{"too early", []int{0, 44}, []bool{true, false}, true},
		{"the same tick twice", []int{0, 0}, []bool{true, false}, true},
		{"a minute apart", []int{0, 600}, []bool{true, true}, true},
		{"a little more than a minute", []int{0, 900}, []bool{true, true}, true},
		{"a silence", []int{0, 901}, []bool{true, true}, false},
		{"the clock set back", []int{1000, 0, 40, 50}, []bool{true, false, false, true}, true},
	} {
		var p countPeriod
		for i, tenths := range tt.ticks {
			due, continued := p.due(&tick.Tick{Time: start.Add(time.Duration(tenths) * 100 * time.Millisecond)}, 5*time.Second)
			if due != tt.due[i] || i == len(tt.ticks)-1 && continued != tt.continued {
				t.Errorf("%s: tick %d: due %t, continued %t; want %t, %t", tt.name, i, due, continued, tt.due[i], tt.continued)
			}
		}
	}
	var zero countPeriod
	zero.due(&tick.Tick{Time: at(0)}, 0)
	if due, _ := zero.due(&tick.Tick{Time: at(1)}, 0); !due {
		t.Error("with a period of 0 every tick is due")
	}
}

// Samples that are further apart are valid for three of their intervals; the one that ends a silence covers it, and does not count.
func TestMaxGap(t *testing.T) {
	for _, tt := range []struct {
		name      string
		intervals []float64 // seconds that each sample covers
		second    int       // of the last one; the earlier ones are 120 s apart
		metFor    int
	}{
		{"every two minutes", []float64{120, 120, 120}, 240, 240},
		{"one is missing", []float64{120, 120, 240}, 360, 360},
		{"three are missing", []float64{120, 120, 480}, 600, 0},
		{"every second, then a silence of ten minutes", []float64{120, 1, 600}, 720, 0},
		{"a broken interval", []float64{120, -1, 120}, 240, 0},
	} {
		var l condition
		var p countPeriod
		continued := false
		for i, covered := range tt.intervals {
			x := &tick.Tick{Time: at(120 * i), Sample: &tick.Sample{IntervalSeconds: &covered}}
			if i == len(tt.intervals)-1 {
				x.Time = at(tt.second)
			}
			l.isOver(x, 11, 10, 0)
			_, continued = p.due(x, 5*time.Second)
		}
		if got := l.metFor(at(tt.second)); got != time.Duration(tt.metFor)*time.Second || continued != (tt.metFor > 0) {
			t.Errorf("%s: met for %s, continued %t; want %d s", tt.name, got, continued, tt.metFor)
		}
	}
}

func TestGraceSeconds(t *testing.T) {
	for d, want := range map[time.Duration]*int64{0: nil, -time.Second: nil, time.Millisecond: new(int64(1)), time.Second: new(int64(1)), 1500 * time.Millisecond: new(int64(2))} {
		if got := graceSeconds(d); (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("grace(%s) = %v; want %v", d, got, want)
		}
	}
}
