package rule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

func cpuStrategy(change ...func(*sloconfig.Threshold)) *Settings {
	return strategy(func(th *sloconfig.Threshold) {
		th.CPUEvictThresholdPercent, th.EvictEnabledPriorityThreshold, th.CPUEvictTimeWindowSeconds = new(int64(70)), new(int64(5999)), new(int64(60))
		for _, c := range change {
			c(th)
		}
	})
}

// These are value and need for the use of a node of 10 cores, tick by tick.
func TestCPUUse(t *testing.T) {
	lower := func(n int64) func(*sloconfig.Threshold) {
		return func(th *sloconfig.Threshold) { th.CPUEvictLowerPercent = &n }
	}
	repeat := func(n int, v float64, then ...float64) (out []float64) {
		for range n {
			out = append(out, v)
		}
		return append(out, then...)
	}
	for _, tt := range []struct {
		name     string
		settings *Settings
		used     []float64
		value    float64
		met      bool
		need     float64
	}{
		{"idle", cpuStrategy(), repeat(12, 0), 0, false, 0},
		{"under", cpuStrategy(), repeat(12, 6999), 69, false, 0},
		{"at the threshold", cpuStrategy(), repeat(12, 7000), 70, true, 200},
		{"a fraction does not count", cpuStrategy(), repeat(12, 7090), 70, true, 200},
		{"to a lower one", cpuStrategy(lower(50)), repeat(12, 7500), 75, true, 2500},
		{"over 100 %", cpuStrategy(), repeat(12, 12_000), 120, true, 5200},
		{"a third of the window", cpuStrategy(), repeat(4, 8000), 80, true, 1200},
		{"less than a third", cpuStrategy(), repeat(3, 8000), 80, false, 0},
		{"the average is under", cpuStrategy(), repeat(11, 5000, 9900), 54, false, 0},
		{"the last one is under", cpuStrategy(), repeat(11, 9900, 5000), 94, false, 0},
		{"the last one is between the bounds", cpuStrategy(), repeat(11, 9900, 6950), 96, false, 0},
		{"the last one needs less", cpuStrategy(), repeat(11, 9900, 7100), 96, true, 300},
		{"no window: the sample's own", cpuStrategy(func(th *sloconfig.Threshold) { th.CPUEvictTimeWindowSeconds = nil }), []float64{0, 8000}, 40, false, 0},
		{"no window, one sample", cpuStrategy(func(th *sloconfig.Threshold) { th.CPUEvictTimeWindowSeconds = nil }), []float64{8000}, 80, true, 1200},
	} {
		w := cpuEvict.New()
		var f Finding
		for i, used := range tt.used {
			f = onlyFinding(t, w.Measure(tt.settings, koordTick(5*i, used, 0, bePod("p", enabledPod, usage(100, 0)))))
		}
		if f.Value != tt.value || f.Met != tt.met || f.Need != tt.need || f.Threshold != 70 || !f.Hard || f.Below {
			t.Errorf("%s: %+v, need %v; want %v, met %t, need %v", tt.name, f.PressureFinding, f.Need, tt.value, tt.met, tt.need)
		}
		if observed := 5 * (len(tt.used) - 1); f.Met && (f.WhyWait != "") != (observed < 20) {
			t.Errorf("%s: observed for %d s, waits %q", tt.name, observed, f.WhyWait)
		}
		if f.Cooldown.Seconds() != 20 || f.CooldownKey() != "koordinator cpu" {
			t.Errorf("%s: cooldown %s, %s", tt.name, f.CooldownKey(), f.Cooldown)
		}
	}
}

func TestCPUMissing(t *testing.T) {
	for name, change := range map[string]func(*tick.Sample){
		"no CPU":          func(s *tick.Sample) { s.CPU = nil },
		"no use":          func(s *tick.Sample) { s.CPU.UsageMilliCPU = nil },
		"a negative one":  func(s *tick.Sample) { s.CPU.UsageMilliCPU = new(-1.0) },
		"no capacity":     func(s *tick.Sample) { s.Capacity = nil },
		"a capacity of 0": func(s *tick.Sample) { s.Capacity.MilliCPU = new(0.0) },
		"no rates":        func(s *tick.Sample) { s.IntervalSeconds = nil },
	} {
		m := cpuEvict.New().Measure(cpuStrategy(), changed(koordTick(0, 9000, 0), change))
		if want := "CPUEvict: the sample lacks the node's CPU use or capacity: not measured"; len(m.Findings) > 0 || errorsOf(m) != want {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func TestCPUCandidates(t *testing.T) {
	w := cpuEvict.New()
	var f Finding
	for i := range 6 {
		f = onlyFinding(t, w.Measure(cpuStrategy(), koordTick(5*i, 9000, 0,
			bePod("small", enabledPod, usage(100, 0)),
			bePod("large", enabledPod, usage(500, 0)),
			bePod("first", enabledPod, usage(1, 0), annotated(qos.EvictionPriority, "-1")),
			bePod("unknown", enabledPod),
			bePod("not-labelled", usage(300, 0)),
			bePod("prod", enabledPod, usage(400, 0), prioritized(9000)),
			bePod("ends", enabledPod, usage(600, 0), terminating),
			bePod("done", enabledPod, usage(700, 0), phase("Failed")),
		)))
	}
	if d := cmp.Diff(map[string]float64{"small": 100, "large": 500, "first": 1}, released(f.Candidates)); d != "" {
		t.Errorf("candidates (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]float64{"not-labelled": 300, "prod": 400, "ends": 600, "unknown": 2200}, released(f.Others)); d != "" {
		t.Errorf("others (-want +got):\n%s", d)
	}
	if got := strings.Join(ranked(f), " "); got != "first large small" {
		t.Errorf("order %s", got)
	}
	if f.Reason != "evicted" || f.Candidates[0].Message != "trigger by koordlet feature CPUEvict, kill pod: small" {
		t.Errorf("reason %q, message %q", f.Reason, f.Candidates[0].Message)
	}
	if want := "90% of the node's CPU is used, at or over the threshold of 70%: 2200m must be released to reach 68%"; f.Message != want {
		t.Errorf("message %q; want %q", f.Message, want)
	}
}
