package rule

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

func TestKswapd(t *testing.T) {
	pods := []tick.Pod{podWithMemory("r", tick.QoSReclaimed, 1), podWithMemory("s", tick.QoSShared, 9000), podWithMemory("d", tick.QoSDedicated, 9000)}
	steady := func(rate float64) []float64 {
		pages := make([]float64, 12)
		for i := range pages {
			pages[i] = 1e9 + float64(i)*5*rate // pages from before the first sample do not count
		}
		return pages
	}
	for _, tt := range []struct {
		name     string
		pages    []float64
		times    int
		duration time.Duration
		met      bool
	}{
		{"at the rate", steady(2000), 4, 0, false},
		{"over the rate", steady(2000.2), 4, 0, true},
		{"too short", steady(9000)[:4], 4, 0, false},
		{"exactly long enough", steady(9000)[:5], 4, 0, true},
		{"once is enough", steady(9000)[:2], 1, 0, true},
		{"the first sample has no rate", steady(9000)[:1], 1, 0, false},
		{"a pause", []float64{0, 5e4, 1e5, 1e5, 1.5e5, 2e5, 2.5e5}, 4, 0, false},
		{"a counter that was set back", []float64{0, 5e4, 1e5, 1.5e5, 10, 5e4, 1e5}, 4, 0, false},
		{"for almost as long", steady(9000)[:6], 1, 21 * time.Second, false},
		{"for as long", steady(9000)[:6], 9, 20 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			s.MemoryKswapdTimes, s.MemoryKswapdDuration = tt.times, tt.duration
			w := memoryPressure.New()
			var m Measure
			for i, pages := range tt.pages {
				x := shortTick(5*i, 50, pods...)
				x.Sample.Memory.KswapdStealPages = &pages
				m = w.Measure(&s, x)
			}
			if len(m.Errors) != 0 {
				t.Errorf("reported errors %q", m.Errors)
			}
			f := part(m, partKswapd)
			if f == nil {
				if len(tt.pages) > 1 {
					t.Fatal("not measured")
				}
				return
			}
			if f.Met != tt.met || (f.Taint != nil) != tt.met || (f.Since != "") != tt.met || f.Threshold != 2000 {
				t.Errorf("finding %+v; want met %t", f, tt.met)
			}
			if tt.met {
				if d := cmp.Diff([]string{"r", "s"}, ranked(*f)); d != "" {
					t.Errorf("candidates (-want +got):\n%s", d)
				}
				if f.Candidates[0].Releases != f.Value {
					t.Errorf("one releases %v of %v; want all, until it has ended", f.Candidates[0].Releases, f.Value)
				}
			}
		})
	}
}

// Between two periods the earlier rate stays: it requires no eviction.
func TestKswapdBetweenPeriods(t *testing.T) {
	s := Defaults()
	s.MemoryKswapdTimes = 1
	w := memoryPressure.New()
	for i := range 16 {
		x := shortTick(i, 50, podWithMemory("r", tick.QoSReclaimed, 1), podWithMemory("q", tick.QoSReclaimed, 2))
		pages := float64(i) * 9000
		x.Sample.Memory.KswapdStealPages = &pages
		f := part(w.Measure(&s, x), partKswapd)
		if i < 5 {
			continue
		}
		if !f.Met || f.Taint == nil || len(f.Candidates) != 2 || (f.WhyWait == "") != (i%5 == 0) {
			t.Errorf("second %d: met %t, taint %v, %d candidates, waits %q; want it met, and a candidate only at every fifth tick", i, f.Met, f.Taint, len(f.Candidates), f.WhyWait)
		}
	}
}

func TestKswapdInputs(t *testing.T) {
	s := Defaults()
	s.MemoryKswapdTimes = 1
	w := memoryPressure.New()
	x := shortTick(0, 50)
	x.Sample.Memory.KswapdStealPages = nil
	if m := w.Measure(&s, x); part(m, partKswapd) != nil || !strings.Contains(fmt.Sprint(m.Errors), "neither kswapd's pages nor their rate") {
		t.Errorf("without both: %+v", m)
	}
	x = shortTick(5, 50)
	x.Sample.Memory.KswapdStealPages = nil
	x.Sample.Memory.KswapdStealPerSecond = new(3000.0)
	if f := part(w.Measure(&s, x), partKswapd); f == nil || !f.Met || f.Value != 3000 {
		t.Errorf("with the rate alone: %+v", f)
	}
	// A counter that decreases, as after a reboot, results in no rate.
	for i, pages := range []float64{1e6, 10} {
		x = shortTick(10+5*i, 50)
		x.Sample.Memory.KswapdStealPages = &pages
		if f := part(w.Measure(&s, x), partKswapd); i == 1 && f != nil {
			t.Errorf("after the counter went back: %+v", f.PressureFinding)
		}
	}
	s.MemoryKswapdRate = 0
	if m := w.Measure(&s, x); part(m, partKswapd) != nil {
		t.Errorf("switched off: %+v", m)
	}
	// The counter's mean over the period counts, not the rate of the last interval.
	s, w = Defaults(), memoryPressure.New()
	s.MemoryKswapdTimes = 1
	for i, pages := range []float64{0, 40_000, 40_000, 40_000, 40_000, 40_000} {
		x = shortTick(i, 50)
		x.Sample.Memory.KswapdStealPages, x.Sample.Memory.KswapdStealPerSecond = &pages, new(0.0)
		if f := part(w.Measure(&s, x), partKswapd); i == 5 && (f.Value != 8000 || !f.Met) {
			t.Errorf("40,000 pages in the first of 5 seconds: %+v; want 8000 a second", f)
		}
	}
}

func TestPSI(t *testing.T) {
	pods := func(avg10 ...float64) []tick.Pod {
		list := []tick.Pod{podWithMemory("r", tick.QoSReclaimed, 1)}
		list[0].MemoryPressure = stall(90)
		for i, v := range avg10 {
			p := podWithMemory(fmt.Sprintf("s%d", i), []string{tick.QoSShared, tick.QoSDedicated}[i%2], 1)
			p.MemoryPressure = stall(v)
			list = append(list, p)
		}
		return list
	}
	for _, tt := range []struct {
		name    string
		node    float64
		pods    []tick.Pod
		seconds int
		met     bool
		want    []string
	}{
		{"at the node's threshold", 15, pods(9, 9, 9), 60, false, nil},
		{"just begun", 15.01, pods(9, 9, 9), 0, true, []string{"r"}},
		{"almost all", 15.01, pods(9, 9, 9), 44, true, []string{"r"}},
		{"all", 15.01, pods(9, 9, 9), 45, true, []string{"r", "s0", "s1", "s2"}},
		{"two pods", 50, pods(9, 9, 1), 60, false, nil},
		{"the mean", 50, pods(1.01, 1.01, 9.98), 45, true, []string{"r", "s0", "s1", "s2"}},
		{"under the mean", 50, pods(1.01, 1.01, 9.97), 45, false, nil},
		{"pods without pressure do not count", 50, pods(4, 4, 4, 0, 1), 0, true, []string{"r"}},
		{"reclaimed pods do not count", 50, pods(9, 9), 60, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			w := memoryPressure.New()
			var f *Finding
			for i := 0; i <= tt.seconds; i++ {
				x := shortTick(i, 50, tt.pods...)
				x.Sample.Memory.Pressure = stall(tt.node)
				m := w.Measure(&s, x)
				if f = part(m, partPSI); f == nil || len(m.Errors) != 0 {
					t.Fatalf("not measured: %q", m.Errors)
				}
			}
			if f.Met != tt.met || f.Value != tt.node || f.Threshold != 15 || f.Tolerance != 15*time.Second || f.Cooldown != 35*time.Second {
				t.Errorf("finding %+v; want met %t, after 15 s, and then none for 35 s", f, tt.met)
			}
			if taint := tt.met && tt.seconds >= 15; taint != (f.Taint != nil) {
				t.Errorf("taint %v after %d s", f.Taint, tt.seconds)
			}
			if d := cmp.Diff(tt.want, ranked(*f)); d != "" {
				t.Errorf("candidates (-want +got):\n%s", d)
			}
		})
	}
}

func TestPSIMissing(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(*tick.Sample)
		measured bool
		err      string
	}{
		"version 1":     {func(s *tick.Sample) { s.CgroupVersion = 1 }, false, ""},
		"no PSI":        {func(s *tick.Sample) { s.Memory.Pressure = nil }, false, ""},
		"no some":       {func(s *tick.Sample) { s.Memory.Pressure.Some = nil }, false, "memory (psi): the node's memory pressure has no some avg10"},
		"nonsense":      {func(s *tick.Sample) { s.Memory.Pressure.Some.Avg10 = 101 }, false, "memory (psi): the node's memory pressure has no some avg10"},
		"a pod without": {func(s *tick.Sample) { s.Pods[0].MemoryPressure = nil }, true, "no memory pressure of 1 of 2 shared and dedicated pods, they count as without pressure: a"},
	} {
		s := Defaults()
		x := shortTick(0, 50, podWithMemory("a", tick.QoSShared, 1), podWithMemory("b", tick.QoSDedicated, 1))
		x.Sample.Memory.Pressure = stall(50)
		for i := range x.Sample.Pods {
			x.Sample.Pods[i].MemoryPressure = stall(50)
		}
		tt.change(x.Sample)
		m := memoryPressure.New().Measure(&s, x)
		if got := strings.Join(m.Errors, "\n"); (part(m, partPSI) != nil) != tt.measured || !strings.Contains(got, tt.err) || (tt.err == "") != (got == "") {
			t.Errorf("%s: %+v; want measured %t and the error %q", name, m, tt.measured, tt.err)
		}
	}
}

func TestMemoryHysteresis(t *testing.T) {
	s := Defaults()
	s.MemoryHysteresis = 0.5
	w := memoryPressure.New()
	for i, tt := range []struct {
		gib       float64
		met       bool
		threshold float64
	}{{0.11, false, 0.1}, {0.09, true, 0.1}, {0.14, true, 0.15}, {0.151, false, 0.15}, {0.11, false, 0.1}} {
		f := part(w.Measure(&s, shortTick(i, tt.gib)), partFree)
		if f.Met != tt.met || math.Abs(f.Threshold-tt.threshold*gib) > 1 {
			t.Errorf("%v GiB free: met %t against %v; want %t against %v", tt.gib, f.Met, f.Threshold, tt.met, tt.threshold*gib)
		}
	}
}

func TestMemoryOff(t *testing.T) {
	s := Defaults()
	s.MemorySystemEnabled, s.MemoryNUMAEnabled, s.MemoryPSIEnabled, s.MemoryKswapdRate = false, false, false, 0
	w := memoryPressure.New()
	m := w.Measure(&s, busyTick(0))
	if len(m.Findings) != 0 || len(m.Errors) != 0 {
		t.Errorf("switched off: %+v", m)
	}
}
