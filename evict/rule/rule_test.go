package rule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func tickAt(seconds int, pods ...tick.Pod) *tick.Tick {
	return &tick.Tick{
		V: 1, Node: "n", Time: start.Add(time.Duration(seconds) * time.Second),
		Sample: &tick.Sample{Pods: pods, Topology: &tick.Topology{CPUs: "0-47"}},
		Advice: &tick.Advice{
			Reclaimed: &tick.Reclaimed{MilliCPU: tick.Ptr(int64(4000)), MemoryBytes: tick.Ptr(int64(1 << 30))},
			Pools:     []tick.Pool{{Name: tick.PoolShare, CPUs: "0-43"}, {Name: tick.PoolReclaim, CPUs: "44-47"}},
		},
	}
}

func reclaimedPod(name string, milli float64) tick.Pod {
	return tick.Pod{UID: "uid-" + name, Namespace: "default", Name: name, QoS: tick.QoSReclaimed,
		Requests: &tick.Resources{ReclaimedMilliCPU: tick.Ptr(milli), ReclaimedMemoryBytes: tick.Ptr(0.0)}}
}

func sharedPod(name string, loads ...float64) tick.Pod {
	p := tick.Pod{UID: "uid-" + name, Namespace: "default", Name: name, QoS: tick.QoSShared}
	for _, l := range loads {
		p.Containers = append(p.Containers, tick.Container{Load1: tick.Ptr(l)})
	}
	return p
}

func ranked(f Finding) []string {
	c := slices.Clone(f.Candidates)
	slices.SortFunc(c, Compare)
	var names []string
	for _, x := range c {
		names = append(names, x.Pod.Name)
	}
	return names
}

func TestReclaimedThreshold(t *testing.T) {
	for _, tt := range []struct {
		name string
		sum  float64
		met  bool
	}{{"under", 19999, false}, {"at", 20000, false}, {"over", 20001, true}} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			m := reclaimedPressure.New().Measure(&s, tickAt(0, reclaimedPod("a", 1), reclaimedPod("b", tt.sum-1)))
			if len(m.Findings) != 2 || len(m.Errors) != 0 {
				t.Fatalf("Measure = %+v; want two findings and no error", m)
			}
			f := m.Findings[0]
			want := tick.PressureFinding{Rule: reclaimedPressure.Name, Scope: ScopeReclaimedMilliCPU, Value: tt.sum, Threshold: 20000, Met: tt.met, Hard: true}
			if tt.met {
				want.Since = "2026-11-21T12:00:00Z"
			}
			if d := cmp.Diff(want, f.PressureFinding); d != "" {
				t.Errorf("finding (-want +got):\n%s", d)
			}
			if tt.met != (len(f.Candidates) > 0) || tt.met != (f.Message != "") {
				t.Errorf("met %v with candidates %v and message %q", tt.met, ranked(f), f.Message)
			}
			if tt.met && *f.GracePeriodSeconds != 60 {
				t.Errorf("grace %d; want 60", *f.GracePeriodSeconds)
			}
		})
	}
}

func TestReclaimedRanking(t *testing.T) {
	low, high := reclaimedPod("low", 6000), reclaimedPod("high", 90000)
	low.Priority, high.Priority = tick.Ptr(int64(-5)), tick.Ptr(int64(10))
	none := reclaimedPod("none", 1000)
	zero := reclaimedPod("zero", 0)
	ended := reclaimedPod("ended", 50000)
	ended.Phase = "Succeeded"
	service := sharedPod("service", 1)
	b, a := reclaimedPod("b", 7000), reclaimedPod("a", 7000)
	b.Priority, a.Priority = tick.Ptr(int64(-5)), tick.Ptr(int64(-5))
	other := reclaimedPod("z", 7000)
	other.Namespace, other.Priority = "another", tick.Ptr(int64(-5))

	s := Defaults()
	m := reclaimedPressure.New().Measure(&s, tickAt(0, high, low, none, zero, ended, service, b, a, other))
	got := ranked(m.Findings[0])
	if d := cmp.Diff([]string{"none", "z", "a", "b", "low", "high"}, got); d != "" {
		t.Errorf("who goes first (-want +got):\n%s", d)
	}
	if v := m.Findings[0].Value; v != 6000+90000+1000+3*7000 {
		t.Errorf("Value = %v: ended and shared pods count?", v)
	}
}

func TestReclaimedMissing(t *testing.T) {
	without := tick.Pod{UID: "u", Name: "w", QoS: tick.QoSReclaimed}
	inContainers := tick.Pod{UID: "v", Name: "c", QoS: tick.QoSReclaimed, Containers: []tick.Container{
		{Requests: &tick.Resources{ReclaimedMilliCPU: tick.Ptr(15000.0), ReclaimedMemoryBytes: tick.Ptr(1.0)}},
		{Requests: &tick.Resources{ReclaimedMilliCPU: tick.Ptr(15000.0)}},
	}}
	for _, tt := range []struct {
		name     string
		change   func(*tick.Tick)
		findings int
		errors   []string
	}{
		{"no advice", func(x *tick.Tick) { x.Advice = nil }, 0, []string{"has no reclaimed CPU: not measured", "has no reclaimed memory: not measured"}},
		{"no reclaimed", func(x *tick.Tick) { x.Advice.Reclaimed = nil }, 0, []string{"has no reclaimed CPU", "has no reclaimed memory"}},
		{"no memory", func(x *tick.Tick) { x.Advice.Reclaimed.MemoryBytes = nil }, 1, []string{"1 of 2 reclaimed pods request none and count as 0: w", "has no reclaimed memory"}},
		{"a pod without", func(x *tick.Tick) {}, 2, []string{"1 of 2", "1 of 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			x := tickAt(0, without, inContainers)
			tt.change(x)
			m := reclaimedPressure.New().Measure(&s, x)
			if len(m.Findings) != tt.findings || len(m.Errors) != len(tt.errors) {
				t.Fatalf("Measure = %+v; want %d findings and the errors %q", m, tt.findings, tt.errors)
			}
			for i, want := range tt.errors {
				if !strings.Contains(m.Errors[i], want) {
					t.Errorf("error %q; want it to contain %q", m.Errors[i], want)
				}
			}
			if tt.findings > 0 && m.Findings[0].Value != 30000 {
				t.Errorf("Value = %v; want the containers' sum 30000", m.Findings[0].Value)
			}
		})
	}
}

// measure runs the load rule over one tick every 10 seconds, with the load of each.
func measureLoad(s Settings, loads ...float64) (m Measure) {
	w := cpuPressure.New()
	for i, l := range loads {
		m = w.Measure(&s, tickAt(10*i, sharedPod("a", l/2, l/2), sharedPod("idle", 0)))
	}
	return m
}

func repeat(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

func TestLoadBounds(t *testing.T) {
	s := Defaults()
	full := 10 * 3 // ten samples, one every third tick
	for _, tt := range []struct {
		name       string
		loads      []float64
		soft, hard bool
	}{
		{"under", repeat(43.9, full), false, false},
		{"at the lower bound", repeat(44, full), false, false},
		{"over the lower bound", repeat(44.5, full), true, false},
		{"at the upper bound", repeat(44*1.8, full), true, false},
		{"over the upper bound", repeat(80, full), true, true},
		{"seven samples are not enough", repeat(80, 7*3), false, false},
		{"eight of ten are, also when the ring is not full", repeat(80, 7*3+1), true, true},
		{"seven of ten", slices.Concat(repeat(1, 9), repeat(80, 7*3)), false, false},
		{"eight of ten", slices.Concat(repeat(1, 6), repeat(80, 8*3)), true, true},
		{"long ago", slices.Concat(repeat(80, full), repeat(1, 3*3)), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := measureLoad(s, tt.loads...)
			if len(m.Findings) != 2 {
				t.Fatalf("Measure = %+v; want two findings", m)
			}
			soft, hard := m.Findings[0], m.Findings[1]
			if soft.Met != tt.soft || hard.Met != tt.hard || soft.Hard || !hard.Hard {
				t.Errorf("met soft %v, hard %v; want %v, %v", soft.Met, hard.Met, tt.soft, tt.hard)
			}
			if last := tt.loads[len(tt.loads)-1]; soft.Value != last || soft.Threshold != 44 || hard.Threshold != 44*1.8 {
				t.Errorf("value %v against %v and %v; want the present load %v", soft.Value, soft.Threshold, hard.Threshold, last)
			}
			if (soft.Taint != nil) != tt.soft || len(soft.Candidates) != 0 {
				t.Errorf("soft: taint %v, candidates %v", soft.Taint, ranked(soft))
			}
			if tt.hard && cmp.Diff([]string{"a"}, ranked(hard)) != "" {
				t.Errorf("candidates %v; want a alone", ranked(hard))
			}
		})
	}
}

func TestLoadVictimByHistory(t *testing.T) {
	s := Defaults()
	s.LoadSyncPeriod = time.Second
	w := cpuPressure.New()
	var m Measure
	for i := range 10 {
		steady, burst := sharedPod("steady", 50), sharedPod("burst", 40)
		if i == 9 {
			burst = sharedPod("burst", 100)
		}
		m = w.Measure(&s, tickAt(i, burst, steady, sharedPod("twin-b", 50), sharedPod("twin-a", 50)))
	}
	if d := cmp.Diff([]string{"steady", "twin-a", "twin-b", "burst"}, ranked(m.Findings[1])); d != "" {
		t.Errorf("who goes first (-want +got):\n%s", d)
	}
	// A pod that vanishes is no candidate, whatever it did.
	m = w.Measure(&s, tickAt(10, sharedPod("twin-b", 150)))
	if d := cmp.Diff([]string{"twin-b"}, ranked(m.Findings[1])); d != "" {
		t.Errorf("after the others vanished (-want +got):\n%s", d)
	}
}

func TestLoadBoundsStayWithTheSample(t *testing.T) {
	s := Defaults()
	s.LoadSyncPeriod = time.Second
	w := cpuPressure.New()
	var m Measure
	for i := range 10 {
		x := tickAt(i, sharedPod("a", 50))
		if i > 1 { // the pool is larger when most samples are taken
			x.Advice.Pools[0].CPUs = "0-63"
		}
		m = w.Measure(&s, x)
	}
	if m.Findings[0].Met {
		t.Errorf("met by samples that were under the bound when they were taken: %+v", m.Findings[0])
	}
	if m.Findings[0].Threshold != 64 {
		t.Errorf("Threshold = %v; want the present bound 64", m.Findings[0].Threshold)
	}
}

func TestLoadMissing(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*tick.Tick)
		measured bool
		err      string
	}{
		{"no advice", func(x *tick.Tick) { x.Advice = nil }, false, "no advice"},
		{"no load at all", func(x *tick.Tick) { x.Sample.Pods = []tick.Pod{sharedPod("a")} }, false, "no load1 of any of the 1 shared pods"},
		{"one without load", func(x *tick.Tick) { x.Sample.Pods = append(x.Sample.Pods, sharedPod("b")) }, true, "no load1 of 1 of 2"},
		{"no shared pods", func(x *tick.Tick) { x.Sample.Pods = nil }, true, ""},
		{"bad pool", func(x *tick.Tick) { x.Advice.Pools[0].CPUs = "a-b" }, false, "pool share"},
		{"empty pool", func(x *tick.Tick) { x.Advice.Pools[0].CPUs = "" }, false, "pool share has no CPUs"},
		{"small machine", func(x *tick.Tick) { x.Advice.Pools = nil }, true, ""},
		{"small machine without reclaimed", func(x *tick.Tick) { x.Advice.Pools, x.Advice.Reclaimed = nil, nil }, false, "neither a pool share nor reclaimed"},
		{"small machine without topology", func(x *tick.Tick) { x.Advice.Pools, x.Sample.Topology = nil, nil }, false, "no topology"},
		{"everything is offered", func(x *tick.Tick) { x.Advice.Pools = nil; *x.Advice.Reclaimed.MilliCPU = 48000 }, false, "leaves none"},
		{"the pod's own load", func(x *tick.Tick) { x.Sample.Pods = []tick.Pod{{UID: "u", QoS: "shared", Load1: tick.Ptr(1.0)}} }, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			x := tickAt(0, sharedPod("a", 1))
			tt.change(x)
			w := cpuPressure.New().(*loadWindow)
			m := w.Measure(&s, x)
			if got := len(m.Findings) > 0; got != tt.measured || (len(w.Ring.Samples) > 0) != tt.measured {
				t.Errorf("measured %v with %d samples; want %v", got, len(w.Ring.Samples), tt.measured)
			}
			if got := fmt.Sprint(m.Errors); !strings.Contains(got, tt.err) || (tt.err == "") != (len(m.Errors) == 0) {
				t.Errorf("errors %s; want %q", got, tt.err)
			}
		})
	}
}

func TestLoadQuotaMode(t *testing.T) {
	s := Defaults()
	x := tickAt(0, sharedPod("a", 1))
	x.Advice.Pools = nil
	if m := cpuPressure.New().Measure(&s, x); m.Findings[0].Threshold != 44 {
		t.Errorf("Threshold = %v; want 48 CPUs less the 4 offered", m.Findings[0].Threshold)
	}
}

// Pods in pools of their own have those pools' CPUs; a dedicated pod's and the system's are nobody else's.
func TestLoadNamedPools(t *testing.T) {
	s := Defaults()
	x := tickAt(0, sharedPod("a", 1))
	x.Advice.Pools = []tick.Pool{{Name: tick.PoolReserve, CPUs: "0-1"}, {Name: tick.PoolReclaim, CPUs: "2-9"},
		{Name: tick.PoolDedicatedPrefix + "ns/pod", CPUs: "10-19"}, {Name: "batch", CPUs: "20-25"}, {Name: tick.PoolShare, CPUs: "26-29"}}
	if m := cpuPressure.New().Measure(&s, x); m.Findings[0].Threshold != 10 {
		t.Errorf("Threshold = %v; want the 6 CPUs of batch and the 4 of share", m.Findings[0].Threshold)
	}
}

func TestTimeStepsBack(t *testing.T) {
	s := Defaults()
	w := cpuPressure.New()
	for i := range 8 {
		w.Measure(&s, tickAt(10000+30*i, sharedPod("a", 80)))
	}
	m := w.Measure(&s, tickAt(0, sharedPod("a", 80)))
	if !m.Findings[1].Met {
		t.Errorf("the window was lost when the clock was set back: %+v", m.Findings[1])
	}
	if m.Findings[1].Since != "2026-11-21T12:00:00Z" {
		t.Errorf("Since = %s; want the present, never the future", m.Findings[1].Since)
	}
	before := len(w.(*loadWindow).Ring.Samples)
	w.Measure(&s, tickAt(29, sharedPod("a", 80)))
	if n := len(w.(*loadWindow).Ring.Samples); n != before {
		t.Errorf("a sample was taken before the period was over")
	}
	w.Measure(&s, tickAt(30, sharedPod("a", 80)))
	if n := len(w.(*loadWindow).Ring.Samples); n != before+1 {
		t.Errorf("%d samples after a period; want %d: blocked until the old time comes again?", n, before+1)
	}
}

func TestWindowsSurviveEncoding(t *testing.T) {
	s := Defaults()
	for _, r := range All {
		w := r.New()
		for i := range 9 {
			w.Measure(&s, tickAt(30*i, sharedPod("a", 80), reclaimedPod("r", 90000)))
		}
		data, err := tick.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		again := r.New()
		if err := tick.Unmarshal(data, again); err != nil {
			t.Fatal(err)
		}
		next := tickAt(270, sharedPod("a", 80), reclaimedPod("r", 90000))
		if d := cmp.Diff(w.Measure(&s, next), again.Measure(&s, next)); d != "" {
			t.Errorf("%s after encoding (-before +after):\n%s", r.Name, d)
		}
	}
}

func TestList(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range All {
		if r.Name == "" || seen[r.Name] || r.New == nil || len(r.Scopes) == 0 {
			t.Errorf("rule %q: want a name of its own, scopes and a window", r.Name)
		}
		seen[r.Name] = true
		if first, _, ok := strings.Cut(r.Doc, "\n"); !ok || len(first) > 90 {
			t.Errorf("rule %s: want a title of at most 90 bytes and a manual", r.Name)
		}
	}
	if _, err := Select([]string{"memory"}); err == nil || !strings.Contains(err.Error(), `no rule "memory": want some of reclaimed-`) {
		t.Errorf("Select(memory) = %v", err)
	}
	rules, err := Select([]string{cpuPressure.Name})
	if err != nil || len(rules) != 1 || rules[0] != cpuPressure {
		t.Errorf("Select(%s) = %v, %v", cpuPressure.Name, rules, err)
	}
}

func TestSettingsCheck(t *testing.T) {
	for key, change := range map[string]func(*Settings){
		"reclaimed-threshold":           func(s *Settings) { s.ReclaimedThreshold = 0 },
		"load-lower-bound-ratio":        func(s *Settings) { s.LoadLowerBoundRatio = -1 },
		"load-upper-bound-ratio":        func(s *Settings) { s.LoadUpperBoundRatio = 0.9 },
		"load-threshold-met-percentage": func(s *Settings) { s.LoadThresholdMetPercentage = 80 },
		"load-metric-ring-size":         func(s *Settings) { s.LoadMetricRingSize = 0 },
		"load-cooldown":                 func(s *Settings) { s.LoadCooldown = -1 },
	} {
		s := Defaults()
		change(&s)
		var got []string
		s.Check(func(key string, _ error) { got = append(got, key) })
		if d := cmp.Diff([]string{key}, got); d != "" {
			t.Errorf("Check (-want +got):\n%s", d)
		}
	}
	s := Defaults()
	s.Check(func(key string, err error) { t.Errorf("defaults: %s: %v", key, err) })
}
