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

// tolerant is a reclaimed pod with a tolerance of its own.
func tolerant(name string, milli float64, rate string) tick.Pod {
	p := reclaimedPod(name, milli)
	if rate != "" {
		p.Annotations = map[string]string{annotationCPU: fmt.Sprintf(`{"suppression_tolerance_rate": %q}`, rate)}
	}
	return p
}

// suppressed measures a tick every 10 s from 0 to seconds, on a pool of 4 CPUs.
func suppressed(s Settings, seconds int, pods func(second int) []tick.Pod) (m Measure) {
	s.LoadEnabled = false
	w := cpuPressure.New()
	for at := 0; at <= seconds; at += 10 {
		m = w.Measure(&s, tickAt(at, pods(at)...))
	}
	return m
}

func always(pods ...tick.Pod) func(int) []tick.Pod { return func(int) []tick.Pod { return pods } }

func TestSuppression(t *testing.T) {
	low := tolerant("low", 10_000, "")
	low.Priority = new(int64(-1))
	high := tolerant("high", 10_000, "")
	high.Priority = new(int64(1))
	ended := tolerant("ended", 90_000, "")
	ended.Phase = "Succeeded"
	for _, tt := range []struct {
		name    string
		pods    func(int) []tick.Pod
		seconds int
		rate    float64
		want    []string
	}{
		{"at the tolerance", always(tolerant("a", 20_000, "")), 600, 5, nil},
		{"over it", always(tolerant("a", 20_001, "")), 310, 5.25, []string{"a"}}, // whole cores
		{"met for less than the tolerance", always(tolerant("a", 20_001, "")), 300, 5.25, nil},
		{"an own tolerance", always(tolerant("a", 8001, "2")), 310, 2.25, []string{"a"}},
		{"an own tolerance, at it", always(tolerant("a", 8000, "2")), 310, 2, nil},
		{"no more than the most", always(tolerant("a", 24_000, "100")), 310, 6, []string{"a"}},
		{"the largest first, and the others are not evicted", always(tolerant("small", 9000, ""), tolerant("large", 13_000, "")), 310, 5.5, []string{"large"}},
		{"as many as are needed", always(tolerant("a", 12_000, "1"), tolerant("b", 8000, "1"), tolerant("c", 4000, "1")), 310, 6, []string{"a", "b"}},
		{"the lowest priority among equals", always(high, low), 310, 5, nil},
		{"the lowest priority among equals, over", always(high, low, tolerant("x", 1000, "")), 310, 5.25, []string{"low"}},
		{"a tolerant pod does not protect the next one", always(tolerant("patient", 10_000, "5"), tolerant("touchy", 6000, "3")), 310, 4, []string{"touchy"}},
		{"ended", always(ended, tolerant("a", 1000, "")), 310, 0.25, nil},
		{"a pause", func(at int) []tick.Pod {
			if at == 150 {
				return []tick.Pod{tolerant("a", 20_000, "")}
			}
			return []tick.Pod{tolerant("a", 20_001, "")}
		}, 450, 5.25, nil},
		{"missing at one tick", func(at int) []tick.Pod {
			if at == 150 {
				return nil
			}
			return []tick.Pod{tolerant("a", 20_001, "")}
		}, 450, 5.25, nil},
		{"one that exceeds it by itself, and is replaced again and again", func(at int) []tick.Pod {
			return []tick.Pod{tolerant(fmt.Sprint("huge", at/240), 20_001, ""), tolerant("other", 4000, "")}
		}, 600, 6.25, nil},
		{"beside it the others suppress each other", func(at int) []tick.Pod {
			return []tick.Pod{tolerant(fmt.Sprint("huge", at/240), 90_000, ""), tolerant("other", 14_000, ""), tolerant("another", 8000, "")}
		}, 600, 28, []string{"other"}},
		{"nobody", always(), 310, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := suppressed(Defaults(), tt.seconds, tt.pods)
			if len(m.Findings) != 1 || len(m.Errors) != 0 {
				t.Fatalf("Measure = %+v; want one finding", m)
			}
			f := m.Findings[0]
			if f.Value != tt.rate || math.Signbit(f.Value) || f.Met != (len(tt.want) > 0) || f.Hard || f.Scope != ScopeSuppression || f.Taint != nil {
				t.Errorf("finding %+v; want a soft one of %v", f.PressureFinding, tt.rate)
			}
			if d := cmp.Diff(tt.want, ranked(f)); d != "" {
				t.Errorf("candidates (-want +got):\n%s", d)
			}
			if f.Met && f.Since != "2026-11-21T12:00:00Z" {
				t.Errorf("since %s", f.Since)
			}
		})
	}
}

// A pod whose end releases CPUs is named even if it is no candidate itself, and each candidate has the threshold of its own tolerance.
func TestSuppressionOthers(t *testing.T) {
	m := suppressed(Defaults(), 310, always(
		tolerant("big", 16_000, ""), tolerant("small", 8000, ""), tolerant("broken", 1000, "x"), tolerant("touchy", 500, "7"),
	))
	f := m.Findings[0]
	if !f.Met || len(f.Candidates) != 1 || f.Candidates[0].Pod.Name != "big" || f.Candidates[0].Threshold != 5 {
		t.Errorf("finding %+v; want big alone, over 5", f)
	}
	others := map[string]float64{}
	for _, c := range f.Others {
		others[c.Pod.Name] = c.Releases
	}
	if d := cmp.Diff(map[string]float64{"small": 2, "broken": 0.25, "touchy": 0.125}, others); d != "" {
		t.Errorf("others, with their parts of the rate (-want +got):\n%s", d)
	}
}

func TestSuppressionMessage(t *testing.T) {
	f := suppressed(Defaults(), 310, always(tolerant("a", 9000, "1.5"))).Findings[0]
	if want := "current pool suppression rate 2.25 is over than the pod suppression tolerance rate 1.50"; f.Message != want {
		t.Errorf("message %q; want Katalyst's %q", f.Message, want)
	}
	if f.Threshold != 1.5 || f.Candidates[0].Releases != 2.25 {
		t.Errorf("%+v; want the threshold 1.5 and all of the rate released", f)
	}
}

func TestSuppressionMissing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*tick.Tick)
		rate   float64 // -1 if it is not measured
		err    string
	}{
		{"no advice", func(x *tick.Tick) { x.Advice = nil }, -1, "no advice"},
		{"no reclaim pool", func(x *tick.Tick) { x.Advice.Pools = x.Advice.Pools[:1] }, -1, "the advice has no pool reclaim"},
		{"no pools", func(x *tick.Tick) { x.Advice.Pools = nil }, 5.5, ""}, // 4000m are offered
		{"no pools and no offer", func(x *tick.Tick) { x.Advice.Pools, x.Advice.Reclaimed = nil, nil }, -1, "neither a pool reclaim nor reclaimed CPU"},
		{"nothing offered", func(x *tick.Tick) { x.Advice.Pools, x.Advice.Reclaimed.MilliCPU = nil, new(int64(0)) }, -1, "neither a pool reclaim nor reclaimed CPU"},
		{"an empty pool", func(x *tick.Tick) { x.Advice.Pools[1].CPUs = "" }, -1, "pool reclaim has no CPUs"},
		{"a broken annotation", func(x *tick.Tick) { x.Sample.Pods[0] = tolerant("a", 22_000, "-1") }, 5.5, `pod a: annotation katalyst.kubewharf.io/cpu_enhancement: suppression_tolerance_rate "-1" is not a number over 0: --suppression-max-tolerance-rate applies`},
		{"no number", func(x *tick.Tick) { x.Sample.Pods[0] = tolerant("a", 22_000, "NaN") }, 5.5, "is not a number over 0"},
		{"no request", func(x *tick.Tick) { x.Sample.Pods[0].Requests = nil }, 0, "1 of 1 reclaimed pods request no reclaimed CPU and count as 0: a"},
		{"no pods and no advice", func(x *tick.Tick) { x.Advice, x.Sample.Pods = nil, nil }, 0, ""},
	} {
		s := Defaults()
		s.LoadEnabled = false
		x := tickAt(0, tolerant("a", 22_000, ""))
		tt.change(x)
		m := cpuPressure.New().Measure(&s, x)
		got := -1.0
		if len(m.Findings) > 0 {
			got = m.Findings[0].Value
		}
		if text := fmt.Sprint(m.Errors); got != tt.rate || !strings.Contains(text, tt.err) || (tt.err == "") != (len(m.Errors) == 0) {
			t.Errorf("%s: rate %v, errors %s; want %v and %q", tt.name, got, text, tt.rate, tt.err)
		}
	}
}

func TestSuppressionSettings(t *testing.T) {
	s := Defaults()
	s.SuppressionMaxToleranceRate, s.SuppressionMinDuration, s.CPUGracePeriod = 2, 20*time.Second, 1500*time.Millisecond
	m := suppressed(s, 30, always(tolerant("a", 8001, "")))
	if f := m.Findings[0]; !f.Met || f.GracePeriodSeconds == nil || *f.GracePeriodSeconds != 2 {
		t.Errorf("%+v; want it met after 20 s, with a grace period rounded up to 2 s", f)
	}
	s.SuppressionEnabled = false
	if m := suppressed(s, 30, always(tolerant("a", 8001, ""))); len(m.Findings) != 0 {
		t.Errorf("switched off: %+v", m)
	}
	// Hysteresis: after it was met, 1.9 x is still too much, 1.8 x is not.
	s = Defaults()
	s.SuppressionMaxToleranceRate, s.SuppressionMinDuration, s.SuppressionHysteresis = 2, 20*time.Second, 0.1
	for milli, want := range map[float64]bool{7500: true, 7000: false} {
		m := suppressed(s, 30, func(at int) []tick.Pod {
			if at == 0 {
				return []tick.Pod{tolerant("a", 9000, "")}
			}
			return []tick.Pod{tolerant("a", milli, "")}
		})
		if f := m.Findings[0]; f.Met != want {
			t.Errorf("back at %vm: %+v; want met %t", milli, f.PressureFinding, want)
		}
	}
}
