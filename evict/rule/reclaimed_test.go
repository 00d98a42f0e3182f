package rule

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

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
	low, high := reclaimedPod("low", 6000), reclaimedPod("high", 19000)
	low.Priority, high.Priority = new(int64(-5)), new(int64(10))
	none := reclaimedPod("none", 1000)
	zero := reclaimedPod("zero", 0)
	ended := reclaimedPod("ended", 50000)
	ended.Phase = "Succeeded"
	service := sharedPod("service", 1)
	b, a := reclaimedPod("b", 7000), reclaimedPod("a", 7000)
	b.Priority, a.Priority = new(int64(-5)), new(int64(-5))
	other := reclaimedPod("z", 7000)
	other.Namespace, other.Priority = "another", new(int64(-5))

	s := Defaults()
	m := reclaimedPressure.New().Measure(&s, tickAt(0, high, low, none, zero, ended, service, b, a, other))
	got := ranked(m.Findings[0])
	if d := cmp.Diff([]string{"none", "z", "a", "b", "low", "high"}, got); d != "" {
		t.Errorf("order of the candidates (-want +got):\n%s", d)
	}
	if v := m.Findings[0].Value; v != 6000+19000+1000+3*7000 {
		t.Errorf("Value = %v: ended and shared pods count?", v)
	}
}

func TestReclaimedMissing(t *testing.T) {
	without := tick.Pod{UID: "u", Namespace: "spark", Name: "w", QoS: tick.QoSReclaimed}
	inContainers := tick.Pod{UID: "v", Name: "c", QoS: tick.QoSReclaimed, Containers: []tick.Container{
		{Requests: &tick.Resources{ReclaimedMilliCPU: new(15000.0), ReclaimedMemoryBytes: new(1.0)}},
		{Requests: &tick.Resources{ReclaimedMilliCPU: new(15000.0)}},
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
		{"a cgroup of a plain machine, which cannot request", func(x *tick.Tick) { x.Sample.Pods[0].Namespace = "" }, 2, nil},
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
					t.Errorf("Measure: error %q; want it to contain %q", m.Errors[i], want)
				}
			}
			if tt.findings > 0 && m.Findings[0].Value != 30000 {
				t.Errorf("Value = %v; want the containers' sum 30000", m.Findings[0].Value)
			}
		})
	}
}

func TestReclaimedThresholds(t *testing.T) {
	type row struct {
		Scope      string
		Threshold  float64
		Met, Hard  bool
		Tolerance  time.Duration
		Candidates []string
	}
	s := Defaults()
	s.ReclaimedCPUThreshold, s.ReclaimedSoftCPUThreshold, s.ReclaimedSoftMemoryThreshold = 10, 1.5, 1.2
	s.ReclaimedTolerance, s.ReclaimedGracePeriod = time.Minute, 0
	a := reclaimedPod("a", 6001)
	a.Requests.ReclaimedMemoryBytes = new(1.2 * (1 << 30))
	m := reclaimedPressure.New().Measure(&s, tickAt(0, a))
	var got []row
	for _, f := range m.Findings {
		got = append(got, row{f.Scope, f.Threshold, f.Met, f.Hard, f.Tolerance, ranked(f)})
		if f.GracePeriodSeconds != nil {
			t.Errorf("grace %d; want the pod's own", *f.GracePeriodSeconds)
		}
	}
	want := []row{
		{ScopeReclaimedMilliCPU, 40_000, false, true, time.Minute, nil},
		{ScopeReclaimedMilliCPU, 6000, true, false, time.Minute, []string{"a"}},
		{ScopeReclaimedMemory, 5 << 30, false, true, time.Minute, nil},
		{ScopeReclaimedMemory, 1.2 * (1 << 30), false, false, time.Minute, nil}, // exactly at it
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
}

func TestReclaimedScore(t *testing.T) {
	scored := func(name, score string, milli float64) tick.Pod {
		p := reclaimedPod(name, milli)
		p.Annotations = map[string]string{annotationEvictScore: score}
		return p
	}
	s := Defaults()
	important := reclaimedPod("important", 1000)
	important.Priority = new(int64(1000))
	m := reclaimedPressure.New().Measure(&s, tickAt(0,
		reclaimedPod("none", 15_000), scored("later", "0.5", 18_000), scored("first", "-3", 1), scored("broken", "x", 12_000),
		scored("nan", "NaN", 10_000), important))
	if d := cmp.Diff([]string{"first", "none", "broken", "nan", "important", "later"}, ranked(m.Findings[0])); d != "" {
		t.Errorf("order of the candidates (-want +got):\n%s", d)
	}
	if len(m.Errors) != 2 || !strings.Contains(m.Errors[0], `pod broken: annotation katalyst.kubewharf.io/pod_evict_score "x" is not a number`) {
		t.Errorf("reported errors %q; want the two annotations that are not numbers", m.Errors)
	}
}

// Where tenants may not exempt their pods, they may not have other pods evicted before theirs either.
func TestReclaimedScoreWithoutOptOut(t *testing.T) {
	scored := func(name, score string, milli float64) tick.Pod {
		p := reclaimedPod(name, milli)
		p.Annotations = map[string]string{annotationEvictScore: score}
		return p
	}
	for name, tt := range map[string]struct {
		optOut, want []string
	}{
		"tenants may protect pods":     {[]string{"polder/evict=false"}, []string{"first", "other", "late"}},
		"tenants may not protect pods": {nil, []string{"first", "late", "other"}},
	} {
		s := Defaults()
		s.OptOut = tt.optOut
		m := reclaimedPressure.New().Measure(&s, tickAt(0,
			scored("late", "9", 15_000), reclaimedPod("other", 10_000), scored("first", "-1", 5000)))
		if d := cmp.Diff(tt.want, ranked(m.Findings[0])); d != "" || len(m.Errors) > 0 {
			t.Errorf("%s: order of the candidates (-want +got):\n%s\nerrors %q", name, d, m.Errors)
		}
	}
}

func TestReclaimedHysteresis(t *testing.T) {
	s := Defaults()
	s.ReclaimedHysteresis = 0.1
	w := reclaimedPressure.New()
	for i, tt := range []struct {
		sum, threshold float64
		met            bool
		since          string
	}{
		{20_000, 20_000, false, ""},
		{20_001, 20_000, true, "2026-11-21T12:00:01Z"},
		{18_001, 18_000, true, "2026-11-21T12:00:01Z"},
		{18_000, 18_000, false, ""},
		{19_000, 20_000, false, ""},
	} {
		f := w.Measure(&s, tickAt(i, reclaimedPod("a", tt.sum))).Findings[0]
		if f.Met != tt.met || f.Threshold != tt.threshold || f.Since != tt.since {
			t.Errorf("%v: %+v; want met %t against %v since %q", tt.sum, f.PressureFinding, tt.met, tt.threshold, tt.since)
		}
	}
}

func TestReclaimedZones(t *testing.T) {
	bound := func(name string, milli float64, annotations map[string]string, sets ...string) tick.Pod {
		p := reclaimedPod(name, milli)
		p.Requests.ReclaimedMemoryBytes = new(1.0)
		p.Annotations = annotations
		for _, set := range sets {
			p.Containers = append(p.Containers, tick.Container{CPUSetCPUs: set})
		}
		return p
	}
	requestsBinding := map[string]string{annotationMemory: `{"numa_binding": "true"}`}
	boundBy := func(id string) map[string]string { return map[string]string{annotationNUMABinding: id} }
	setOffers := func(x *tick.Tick) {
		x.Sample.Topology.NUMANodes = []tick.TopologyNUMA{{ID: 0, CPUs: "0-23"}, {ID: 1, CPUs: "24-47"}}
		x.Advice.Reclaimed.NUMANodes = []tick.ReclaimedNUMA{{ID: 0, MilliCPU: new(int64(1000)), MemoryBytes: new(int64(1 << 20))}, {ID: 1, MilliCPU: new(int64(3000)), MemoryBytes: new(int64(1 << 20))}}
	}
	pods := []tick.Pod{
		bound("asked", 3000, requestsBinding, "1-2", "3"), bound("told", 2001, boundBy("0")), bound("other", 9000, requestsBinding, "24-30"),
		bound("free", 3000, nil, "1-2"), bound("both", 3000, requestsBinding, "1-30"), bound("two", 3000, requestsBinding, "1", "30"),
		bound("unknown", 3000, requestsBinding, ""), bound("elsewhere", 3000, boundBy("7")), bound("nowhere", 3000, requestsBinding),
	}
	for _, tt := range []struct {
		name   string
		change func(*Settings, *tick.Tick)
		zone0  float64 // -1 if it is not measured
		met    bool
		errors int
	}{
		{"over", func(*Settings, *tick.Tick) {}, 5001, true, 0},
		{"at", func(_ *Settings, x *tick.Tick) { x.Sample.Pods[1].Requests.ReclaimedMilliCPU = new(2000.0) }, 5000, false, 0},
		{"off", func(s *Settings, _ *tick.Tick) { s.ReclaimedNUMAEnabled = false }, -1, false, 0},
		{"one node", func(_ *Settings, x *tick.Tick) { x.Sample.Topology.NUMANodes = x.Sample.Topology.NUMANodes[:1] }, -1, false, 0},
		{"no topology", func(_ *Settings, x *tick.Tick) { x.Sample.Topology = nil }, -1, false, 0},
		{"no offer of that node", func(_ *Settings, x *tick.Tick) { x.Advice.Reclaimed.NUMANodes = x.Advice.Reclaimed.NUMANodes[1:] }, -1, false, 2},
		{"no bound pod", func(_ *Settings, x *tick.Tick) { x.Sample.Pods = x.Sample.Pods[3:] }, -1, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			list := make([]tick.Pod, len(pods))
			for i, p := range pods {
				requests := *p.Requests
				p.Requests = &requests
				list[i] = p
			}
			x := tickAt(0, list...)
			setOffers(x)
			tt.change(&s, x)
			m := reclaimedPressure.New().Measure(&s, x)
			if len(m.Errors) != tt.errors {
				t.Errorf("reported errors %q; want %d", m.Errors, tt.errors)
			}
			var zone *Finding
			for i := range m.Findings {
				if m.Findings[i].Scope == "zone0|"+ScopeReclaimedMilliCPU {
					zone = &m.Findings[i]
				}
			}
			if (zone == nil) != (tt.zone0 < 0) {
				t.Fatalf("zone 0: %+v in %+v", zone, m.Findings)
			}
			if zone == nil {
				return
			}
			if zone.Value != tt.zone0 || zone.Threshold != 5000 || zone.Met != tt.met || !zone.Hard {
				t.Errorf("zone 0: %+v; want %v against 5000, met %t", zone.PressureFinding, tt.zone0, tt.met)
			}
			if want := map[bool][]string{true: {"asked", "told"}}[tt.met]; cmp.Diff(want, ranked(*zone)) != "" {
				t.Errorf("candidates %v; want %v", ranked(*zone), want)
			}
		})
	}
}

// A pod with promised capacity is not evicted because the offer was switched off: an offer of 0 or less causes no decision
// without the explicit setting, for the machine, for a NUMA node, hard or soft.
func TestZeroOfferIsNotMeasured(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*tick.Tick)
		setting bool
		met     []string
	}{
		{"enough is offered", func(*tick.Tick) {}, false, nil},
		{"CPU and memory are switched off", func(x *tick.Tick) { offer(x, 0, 0) }, false, nil},
		{"only memory has the offer 0", func(x *tick.Tick) { offer(x, 40_000, 0) }, false, nil},
		{"less than 0", func(x *tick.Tick) { offer(x, -1, -1) }, false, nil},
		{"less than 0 with the setting", func(x *tick.Tick) { offer(x, -1, -1) }, true, nil},
		{"nothing is requested", func(x *tick.Tick) { offer(x, 0, 0); x.Sample.Pods = nil }, false, nil},
		{"0 with the setting", func(x *tick.Tick) { offer(x, 0, 0) }, true, []string{
			ScopeReclaimedMilliCPU, ScopeReclaimedMilliCPU, ScopeReclaimedMemory, ScopeReclaimedMemory, "zone0|" + ScopeReclaimedMilliCPU, "zone0|" + ScopeReclaimedMemory,
		}},
		{"a very small request", func(x *tick.Tick) { offer(x, 1, 0) }, false, []string{ScopeReclaimedMilliCPU, ScopeReclaimedMilliCPU, "zone0|" + ScopeReclaimedMilliCPU}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			s.ReclaimedZeroOfferEnabled = tt.setting
			s.ReclaimedSoftCPUThreshold, s.ReclaimedSoftMemoryThreshold = 1.5, 1.2
			p := reclaimedPod("a", 6000)
			p.Requests.ReclaimedMemoryBytes = new(1e6)
			p.Annotations = map[string]string{annotationNUMABinding: "0"}
			x := tickAt(0, p)
			x.Sample.Topology.NUMANodes = []tick.TopologyNUMA{{ID: 0, CPUs: "0-23"}, {ID: 1, CPUs: "24-47"}}
			offer(x, 40_000, 1<<30)
			tt.change(x)
			var met []string
			for _, f := range reclaimedPressure.New().Measure(&s, x).Findings {
				if f.Met {
					met = append(met, f.Scope)
				}
			}
			if d := cmp.Diff(tt.met, met); d != "" {
				t.Errorf("findings that are met (-want +got):\n%s", d)
			}
		})
	}
}

// offer is the advice's offer, all of it on NUMA node 0.
func offer(x *tick.Tick, milli, bytes int64) {
	x.Advice.Reclaimed = &tick.Reclaimed{MilliCPU: &milli, MemoryBytes: &bytes, NUMANodes: []tick.ReclaimedNUMA{{ID: 0, MilliCPU: &milli, MemoryBytes: &bytes}}}
}

// A pod that requests more than the threshold by itself is first, whatever its annotation says: no others' ends would be enough.
func TestAnIndispensableVictimIsFirst(t *testing.T) {
	greedy := reclaimedPod("greedy", 1e6)
	greedy.Annotations, greedy.Priority = map[string]string{annotationEvictScore: "1000"}, new(int64(1000))
	s := Defaults()
	f := reclaimedPressure.New().Measure(&s, tickAt(0, reclaimedPod("a", 2000), greedy, reclaimedPod("b", 3000))).Findings[0]
	if d := cmp.Diff([]string{"greedy", "b", "a"}, ranked(f)); d != "" {
		t.Errorf("order of the candidates (-want +got):\n%s", d)
	}
}

// No pod is evicted for what another requests that cannot be evicted, because its tenant opted out or named a critical priority.
func TestRequestsOfExemptPodsDoNotCount(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		priority    int64
		optOut      []string
		value       float64
	}{
		"it opted out":                     {map[string]string{tick.AnnotationEvict: "false"}, 0, Defaults().OptOut, 5000},
		"it opted out in vain":             {map[string]string{tick.AnnotationEvict: "false"}, 0, nil, 1_005_000},
		"it is critical":                   {nil, 2_000_000_000, Defaults().OptOut, 5000},
		"its priority is almost critical":  {nil, 1_999_999_999, Defaults().OptOut, 1_005_000},
		"its priority is above all others": {nil, 2_000_001_000, nil, 5000},
	} {
		greedy := reclaimedPod("greedy", 1e6)
		greedy.Annotations, greedy.Priority = tt.annotations, &tt.priority
		s := Defaults()
		s.OptOut = tt.optOut
		f := reclaimedPressure.New().Measure(&s, tickAt(0, reclaimedPod("a", 2000), greedy, reclaimedPod("b", 3000))).Findings[0]
		if f.Value != tt.value || f.Met != (tt.value > 20000) {
			t.Errorf("%s: value %v, met %v; want %v", name, f.Value, f.Met, tt.value)
		}
	}
}
