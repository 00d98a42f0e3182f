package rule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/lib/evictconfig"
	"polder/lib/sloconfig"
	"polder/lib/tick"
	"polder/lib/window"
)

// A load that could not be measured interrupts the duration; an empty pool in a state file does no harm.
func TestUnknownLoadEndsTheCondition(t *testing.T) {
	was := condition{Start: at(0), Last: at(0)}
	l := &poolLoad{Soft: was, Hard: was}
	l.observeUnknown(tickAt(5))
	if !l.Soft.Start.IsZero() || !l.Hard.Start.IsZero() {
		t.Errorf("%+v; want both to start over", l)
	}
	(*poolLoad)(nil).observeUnknown(tickAt(5))
}

// The message of a load contains the number of samples in which it exceeded the bound.
func TestLoadMessageHasThePercentage(t *testing.T) {
	s := onlyLoad()
	s.LoadSyncPeriod = 10 * time.Second
	m := measureLoad(s, repeat(80, 8)...)
	const want = "it was over the bound in 80% of the last 10 samples"
	if f := m.Findings[1]; !f.Hard || !f.Met || !strings.Contains(f.Message, want) {
		t.Errorf("%+v; want %q in its message", f, want)
	}
}

// No pod is evicted because of satisfaction if one of the three averages does not cover enough time.
func TestSatisfactionNeedsAllThreeAverages(t *testing.T) {
	for name, clearAverage := range map[string]func(*beCPUWindow){
		"all are known": func(*beCPUWindow) {},
		"the use":       func(w *beCPUWindow) { w.Usage = movingAverage{} },
		"the request":   func(w *beCPUWindow) { w.Request = movingAverage{} },
		"the limit":     func(w *beCPUWindow) { w.Limit = movingAverage{} },
	} {
		w := beCPUEvict.New()
		var m Measure
		for i := range 12 {
			if i == 11 {
				clearAverage(w.(*beCPUWindow))
			}
			m = w.Measure(guide(), koordTick(5*i, 0, 0, bePod("a", request(4000), usage(2000, 0))))
		}
		if f, want := onlyFinding(t, m), name == "all are known"; f.Met != want {
			t.Errorf("%s: met %t; want %t", name, f.Met, want)
		}
	}
}

// The pod that uses the larger part of its request comes first, not the one that uses more.
func TestSatisfactionRanksByThePartOfTheRequest(t *testing.T) {
	m := steady(guide(), 6, func(s int) *tick.Tick {
		return koordTick(s, 0, 0, bePod("large", request(4000), usage(1000, 0)), bePod("small", request(1000), usage(900, 0)))
	})
	if got := strings.Join(ranked(onlyFinding(t, m)), " "); got != "small large" {
		t.Errorf("order %s", got)
	}
}

// If less than a whole milli-CPU must be released, no pod is evicted, however much is used.
func TestCPUUseWithoutNeedIsNotMet(t *testing.T) {
	w := cpuEvict.New()
	for i := range 12 {
		x := koordTick(5*i, 1, 0, bePod("a", enabledPod, usage(1, 0)))
		x.Sample.Capacity.MilliCPU = new(1.0)
		if f := onlyFinding(t, w.Measure(cpuStrategy(), x)); f.Met || f.Need != 0 {
			t.Errorf("tick %d: %s; want it not met", i, text(f))
		}
	}
}

// A capacity and a request of 1 byte are known, those of 0 are not.
func TestTheSmallestAmountIsKnown(t *testing.T) {
	for bytes, want := range map[float64]bool{0: false, 1: true} {
		requested := []tick.Container{{Requests: &tick.Resources{MemoryBytes: &bytes}}}
		if _, ok := memoryRequest(&tick.Pod{QoS: tick.QoSShared, Containers: requested}); ok != want {
			t.Errorf("a request of %v: known %t; want %t", bytes, ok, want)
		}
		x := koordTick(0, 0, 0)
		x.Sample.Capacity.MemoryBytes = &bytes
		if _, _, why := nodeMemory(x.Sample); (why == "") != want {
			t.Errorf("a capacity of %v: %q; want it known: %t", bytes, why, want)
		}
	}
}

// The bounds of settings and of known values are valid.
func TestEndsOfRangesAreValid(t *testing.T) {
	for _, tt := range []struct{ lower, upper, usage int64 }{{1, 1, 0}, {60, 99, 100}} {
		s := guide(func(th *sloconfig.Threshold) {
			th.CPUEvictBESatisfactionLowerPercent, th.CPUEvictBESatisfactionUpperPercent = &tt.lower, &tt.upper
			th.CPUEvictBEUsageThresholdPercent = &tt.usage
		})
		if _, err := readSatisfaction(&s.Strategies.Threshold); err != nil {
			t.Error(err)
		}
	}
	if _, err := requestBounds("upper", new(int64(evictconfig.MaxRatio)), "lower", new(int64(0))); err != nil {
		t.Error(err)
	}
	if err := checkPriority("priority", new(int64(0))); err != nil {
		t.Error(err)
	}
	for _, priority := range []int64{0, 7999} {
		if err := checkBatchPriority(&sloconfig.Threshold{AllocatableEvictPriorityThreshold: &priority}, "threshold"); err != nil {
			t.Error(err)
		}
	}
	own := &tick.Pod{Annotations: map[string]string{annotationCPU: `{"rate": "1000000"}`}}
	if v, err := rate(own, annotationCPU, "rate"); err != nil || v == nil || *v != evictconfig.MaxRatio {
		t.Errorf("the largest rate: %v, %v", v, err)
	}
	if v, ok := amount(new(float64(maxAmount))); !ok || v != maxAmount {
		t.Errorf("the largest amount: %v, known %t", v, ok)
	}
	m, scored := Measure{}, &tick.Pod{UID: "u", Annotations: map[string]string{annotationEvictScore: "-1e18"}}
	if scores := evictScores(&m, new(Defaults()), []*tick.Pod{scored}); len(m.Errors) > 0 || scores["u"] != -maxAmount {
		t.Errorf("the lowest score: %v, %q", scores, m.Errors)
	}
	for seconds, want := range map[float64]time.Duration{3599: 3599 * time.Second, 3600: 0, 0: 0, -1: 0} {
		if got := Interval(&tick.Sample{IntervalSeconds: &seconds}); got != want {
			t.Errorf("an interval of %v s: %s; want %s", seconds, got, want)
		}
	}
}

// Values leave a window one by one as they become too old: after a while it contains only the last ones, and always enough of them.
func TestWindowDropsOldPoints(t *testing.T) {
	var a movingAverage
	const over = 100 * time.Second
	for i := range 250 {
		x := tickAt(i)
		x.Sample.IntervalSeconds = new(1.0)
		a.add(x, float64(i), over)
		mean, covered := a.mean(x, over)
		if want := float64(max(0, i-100)+i) / 2; mean != want || covered != (i >= 33) {
			t.Fatalf("after %d s: %v, covered %t; want %v", i, mean, covered, want)
		}
	}
}

// A value exactly as old as the window is long counts.
func TestWindowBounds(t *testing.T) {
	var a movingAverage
	for i, want := range []bool{false, true} {
		x := tickAt(10 * i)
		x.Sample.IntervalSeconds = new(2.0)
		a.add(x, 1, 10*time.Second)
		if _, covered := a.mean(x, 10*time.Second); covered != want {
			t.Errorf("value %d: covered %t; want %t", i, covered, want)
		}
	}
}

// If a window becomes shorter, only values within it count.
func TestShorterWindowNeedsItsOwnSamples(t *testing.T) {
	var a movingAverage
	x := tickAt(0)
	for i := range 4 {
		x = tickAt(10 * i)
		x.Sample.IntervalSeconds = new(1.0)
		a.add(x, float64(i), time.Minute)
	}
	if mean, covered := a.mean(x, 10*time.Second); mean != 2.5 || covered {
		t.Errorf("%v, covered %t; want 2.5, of two seconds of ten", mean, covered)
	}
}

// An invalid sum in a state file is dropped, and unknown.
func TestInvalidSumIsUnknown(t *testing.T) {
	for _, sum := range []float64{-1, 1e300} {
		a := movingAverage{window.Samples{Points: []window.Point{{At: at(0), Sum: sum, N: 100}}}}
		x := tickAt(0)
		x.Sample.IntervalSeconds = new(1.0)
		if v, covered := a.mean(x, time.Minute); covered || v != 0 || len(a.Points) > 0 {
			t.Errorf("a sum of %v: %v, covered %t, %d points", sum, v, covered, len(a.Points))
		}
	}
}

// With a period of 0 each sample counts, and a silence of exactly twice a full ring does not empty it.
func TestSampleWindowIsNotEmptiedTooEarly(t *testing.T) {
	for _, tt := range []struct {
		period  time.Duration
		seconds []int
		want    int
	}{{0, []int{0, 1, 2}, 3}, {30 * time.Second, []int{0, 600}, 2}, {30 * time.Second, []int{0, 601}, 1}} {
		var r SampleWindow[float64]
		for _, s := range tt.seconds {
			if r.Due(at(s), tt.period, 10) {
				r.Add(at(s), 1, 10)
			}
		}
		if len(r.Samples) != tt.want {
			t.Errorf("a period of %s, ticks at %v: %d samples; want %d", tt.period, tt.seconds, len(r.Samples), tt.want)
		}
	}
}

// A tick that is early by exactly a tenth of the period is due.
func TestDueATenthEarly(t *testing.T) {
	var p countPeriod
	p.due(tickAt(0), 10*time.Second)
	if due, _ := p.due(tickAt(9), 10*time.Second); !due {
		t.Error("a tick 9 s after the last one, every 10 s, is not due")
	}
}

// The taint of memory stalls is set when they have lasted for exactly the tolerance.
func TestPSITaintsAfterTheTolerance(t *testing.T) {
	s := Defaults()
	s.MemoryTolerance, s.MemoryPSIDurationReclaimed = 0, 10*time.Second
	w := memoryPressure.New()
	for i, want := range []bool{false, false, true} {
		var pods []tick.Pod
		for j := range 3 {
			p := podWithMemory(fmt.Sprintf("s%d", j), tick.QoSShared, 1)
			p.MemoryPressure = stall(50)
			pods = append(pods, p)
		}
		x := shortTick(5*i, 50, pods...)
		x.Sample.Memory.Pressure = stall(50)
		if f := part(w.Measure(&s, x), partPSI); f == nil || !f.Met || (f.Taint != nil) != want {
			t.Errorf("after %d s: %+v; want a taint: %t", 5*i, f, want)
		}
	}
}

// A field of an annotation is a text under its own name, in an annotation of limited length.
func TestEnhancement(t *testing.T) {
	long := func(bytes int) string {
		const frame = `{"a": "b", "c": ""}`
		return `{"a": "b", "c": "` + strings.Repeat("x", bytes-len(frame)) + `"}`
	}
	for _, tt := range []struct{ name, text, want string }{
		{"a text", `{"a": "b"}`, "b"},
		{"of the maximum length", long(maxEnhancement), "b"},
		{"too long", long(maxEnhancement + 1), ""},
		{"value of another key", `{"c": "a"}`, ""},
		{"a number", `{"a": 1}`, ""},
		{"null", `{"a": null}`, ""},
	} {
		if got := enhancement(&tick.Pod{Annotations: map[string]string{annotationCPU: tt.text}}, annotationCPU, "a"); got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

// These are the formats of counts and names, and a count stays within its bound.
func TestTexts(t *testing.T) {
	s := streak{Times: evictconfig.MaxTimes}
	s.count(true, true)
	two := Candidate{Pod: &tick.Pod{Name: "b"}, Rank: []float64{1, 2}}
	one := Candidate{Pod: &tick.Pod{Name: "a"}, Rank: []float64{1}}
	whole := Finding{PressureFinding: tick.PressureFinding{Scope: "s"}}
	of := Finding{PressureFinding: tick.PressureFinding{Scope: "s", Part: "p"}}
	for _, tt := range []struct{ got, want string }{
		{fmt.Sprint(s.Times), "1000000"},
		{streak{Times: 1}.String(), "once"},
		{streak{Times: 2}.String(), "2 times in a row"},
		{whole.About(), "s"},
		{of.About(), "s (p)"},
		{fmt.Sprint(Compare(one, two)), "-1"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q; want %q", tt.got, tt.want)
		}
	}
}
