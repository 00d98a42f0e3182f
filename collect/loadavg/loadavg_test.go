package loadavg

import (
	"math"
	"slices"
	"testing"
	"time"
)

// kernelStep is kernel/sched/loadavg.c's calc_load with its fixed-point constants.
func kernelStep(load, exp, active uint64) uint64 {
	const fixed1 = 1 << 11
	n := load*exp + active*fixed1*(fixed1-exp)
	if active*fixed1 >= load {
		n += fixed1 - 1
	}
	return n / fixed1
}

func TestLoadFollowsTheKernel(t *testing.T) {
	const exp1, exp5 = 1884, 2014 // EXP_1 and EXP_5
	at := time.Unix(1000, 0)
	var l Average
	l.Add(at, 0)
	var k1, k5 uint64
	for i := range 100 {
		active := uint64(i % 7)
		at = at.Add(Every)
		l.Add(at, float64(active))
		k1, k5 = kernelStep(k1, exp1, active), kernelStep(k5, exp5, active)
		if got, want := l.Load1, float64(k1)/2048; math.Abs(got-want) > 0.02 {
			t.Errorf("sample %d: load1 = %.3f; want %.3f", i, got, want)
		}
		if got, want := l.Load5, float64(k5)/2048; math.Abs(got-want) > 0.1 { // the kernel's 11 bits err upwards
			t.Errorf("sample %d: load5 = %.3f; want %.3f", i, got, want)
		}
	}
}

func TestLoadIsDueAndKnown(t *testing.T) {
	start := time.Unix(1000, 0)
	var l Average
	taken, known := []int{}, -1
	for second := range 21 {
		at := start.Add(time.Duration(second) * time.Second)
		if l.Due(at) {
			l.Add(at, 1)
			taken = append(taken, second)
		}
		if known < 0 && l.Known(at) {
			known = second
		}
	}
	if want := []int{0, 1, 2, 3, 4, 9, 14, 19}; !slices.Equal(taken, want) || known != 5 {
		t.Errorf("samples at %v, known at %d; want %v and 5", taken, known, want)
	}
	if l.Known(start.Add(-time.Second)) {
		t.Error("known before its first sample")
	}
	back := start.Add(-time.Hour)
	if !l.Due(back) {
		t.Error("not due after the clock went back; want a sample")
	}
	l.Add(back, 1)
	if !l.Known(back) {
		t.Error("not known any more after the clock went back")
	}
}

func TestLoad(t *testing.T) {
	start := time.Unix(1000, 0)
	type sample struct {
		after    time.Duration
		runnable float64
	}
	tests := []struct {
		name         string
		samples      []sample
		load1, load5 float64
	}{
		{"begins at the first sample", []sample{{0, 12}}, 12, 12},
		{"stays where samples are equal", []sample{{0, 3}, {5 * time.Second, 3}, {time.Hour, 3}}, 3, 3},
		{"a late sample decays by its time", []sample{{0, 8}, {time.Minute, 0}}, 8 * math.Exp(-1), 8 * math.Exp(-0.2)},
		{"a sample of a day later is all", []sample{{0, 8}, {24 * time.Hour, 2}}, 2, 2},
		{"a clock that went back", []sample{{0, 8}, {-time.Hour, 2}}, 8, 8},
		{"begins with the mean of the first 5 s", []sample{{0, 1}, {time.Second, 0}, {time.Second, 0}, {time.Second, 1}}, 0.5, 0.5},
		{"and then decays", []sample{{0, 1}, {4 * time.Second, 0}, {9 * time.Second, 0.5}}, 0.5, 0.5},
		{"twice at the same time", []sample{{0, 8}, {6 * time.Second, 8}, {6 * time.Second, 2}}, 8, 8},
		{"no number", []sample{{0, 8}, {5 * time.Second, math.NaN()}, {5 * time.Second, math.Inf(1)}, {5 * time.Second, -1}}, 8, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l Average
			if l.Valid() {
				t.Error("Valid() = true before a sample")
			}
			for _, s := range tt.samples {
				l.Add(start.Add(s.after), s.runnable)
			}
			if !l.Valid() || math.Abs(l.Load1-tt.load1) > 1e-9 || math.Abs(l.Load5-tt.load5) > 1e-9 {
				t.Errorf("load1 = %v, load5 = %v; want %v, %v", l.Load1, l.Load5, tt.load1, tt.load5)
			}
		})
	}
}
