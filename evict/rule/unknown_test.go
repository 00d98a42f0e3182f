package rule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// A pod's memory on a NUMA node is known if each of its containers reports an amount; 0 is an amount, a negative number is not.
func TestMemoryOnANUMANodeNeedsAllContainers(t *testing.T) {
	on := func(list ...tick.NUMABytes) tick.Container { return tick.Container{NUMAMemory: list} }
	for _, tt := range []struct {
		name       string
		containers []tick.Container
		bytes      float64
		known      bool
	}{
		{
			"the sum",
			[]tick.Container{
				on(tick.NUMABytes{ID: 1, Bytes: 3}, tick.NUMABytes{ID: 0, Bytes: 9}),
				on(tick.NUMABytes{ID: 1, Bytes: 4}),
			},
			7, true,
		},
		{"none used there", []tick.Container{on(tick.NUMABytes{ID: 1})}, 0, true},
		{"the largest amount", []tick.Container{on(tick.NUMABytes{ID: 1, Bytes: maxAmount})}, maxAmount, true},
		{"less than 0", []tick.Container{on(tick.NUMABytes{ID: 1, Bytes: -1})}, 0, false},
		{"too much", []tick.Container{on(tick.NUMABytes{ID: 1, Bytes: 2 * maxAmount})}, 0, false},
		{"one container has none", []tick.Container{on(tick.NUMABytes{ID: 1, Bytes: 3}), {}}, 0, false},
		{"no container", nil, 0, false},
	} {
		bytes, known := memoryOnNode(&tick.Pod{Containers: tt.containers}, 1)
		if bytes != tt.bytes || known != tt.known {
			t.Errorf("%s: %v, known %t; want %v, %t", tt.name, bytes, known, tt.bytes, tt.known)
		}
	}
}

// A NUMA node with unknown free or total memory is not short of memory.
func TestUnknownNUMANodeIsNotShort(t *testing.T) {
	for name, change := range map[string]func(*tick.NUMAMemory){
		"no free":     func(m *tick.NUMAMemory) { m.FreeBytes = nil },
		"no total":    func(m *tick.NUMAMemory) { m.TotalBytes = nil },
		"less than 0": func(m *tick.NUMAMemory) { m.FreeBytes = new(-1.0) },
	} {
		s := Defaults()
		s.MemoryNUMABelowTimes, s.MemoryNUMABelowTimesReclaimed = 1, 1
		m := measureTicks(s, 2, func(_ int, x *tick.Tick) { change(x.Sample.NUMANodes[0].Memory) }, podWithMemory("r", tick.QoSReclaimed, 9000))
		if f := part(m, "numa0"); f != nil || !strings.Contains(fmt.Sprint(m.Errors), "memory (numa0): the sample lacks the free or total") {
			t.Errorf("%s: %+v, errors %q; want it not measured, and an error", name, f, m.Errors)
		}
	}
}

// On a NUMA node a pod may be evicted that uses at least the minimum part of it; none that uses less, or nothing if the minimum is 0.
func TestNUMAVictimMinimum(t *testing.T) {
	for _, tt := range []struct {
		part float64
		want []string
	}{{0.5, []string{"just"}}, {0, []string{"just", "less"}}} {
		s := Defaults()
		s.MemoryNUMABelowTimes, s.MemoryNUMABelowTimesReclaimed, s.MemoryNUMAVictimMinimum = 9, 1, tt.part
		m := measureTicks(s, 1, nil,
			podWithMemory("just", tick.QoSReclaimed, 25*1024), podWithMemory("less", tick.QoSReclaimed, 25*1024-1), podWithMemory("nothing", tick.QoSReclaimed, 0))
		if d := cmp.Diff(tt.want, ranked(*part(m, "numa0"))); d != "" {
			t.Errorf("at least %v of the node (-want +got):\n%s", tt.part, d)
		}
		if len(m.Errors) > 0 {
			t.Errorf("reported errors %q; want none: all amounts are known", m.Errors)
		}
	}
}

// A watermark of 0 counts as none: nothing is compared with it.
func TestZeroWatermarkIsUnknown(t *testing.T) {
	for scale, want := range map[float64]bool{0: false, 1: true, 9999: true, 10_000: false, -1: false} {
		x := shortTick(0, 50)
		x.Sample.Memory.WatermarkScaleFactor = &scale
		if part, ok := watermark(x); ok != want || ok && part != scale/10_000 {
			t.Errorf("a scale factor of %v: %v, known %t; want known %t", scale, part, ok, want)
		}
	}
}

// A disabled memory rule reports nothing if the node's memory is missing, and a rate of 0 pages disables it.
func TestMissingMemoryIsReported(t *testing.T) {
	for _, tt := range []struct {
		name         string
		system, numa bool
		rate         float64
		want         int
	}{{"off", false, false, 0, 0}, {"system", true, false, 0, 1}, {"NUMA", false, true, 0, 1}, {"kswapd", false, false, 1, 1}} {
		s := Defaults()
		s.MemorySystemEnabled, s.MemoryNUMAEnabled, s.MemoryKswapdRate = tt.system, tt.numa, tt.rate
		x := shortTick(0, 50)
		x.Sample.Memory = nil
		if m := memoryPressure.New().Measure(&s, x); len(m.Errors) != tt.want {
			t.Errorf("%s: errors %q; want %d", tt.name, m.Errors, tt.want)
		}
	}
	s := Defaults()
	s.MemoryKswapdRate, s.MemoryKswapdTimes = 0, 1
	w := memoryPressure.New()
	for i := range 3 {
		x := shortTick(5*i, 50, podWithMemory("r", tick.QoSReclaimed, 100))
		x.Sample.Memory.KswapdStealPages = new(1e6 * float64(i))
		if f := part(w.Measure(&s, x), partKswapd); f != nil {
			t.Errorf("a rate of 0 is off: %+v", f.PressureFinding)
		}
	}
}

// The counter's rate counts once the counter has a first reading; until then the sample's own does. A constant counter is a rate of 0.
func TestKswapdCounterNeedsAStart(t *testing.T) {
	s := Defaults()
	s.MemoryKswapdTimes = 1
	w := memoryPressure.New()
	for i, tt := range []struct {
		pages *float64
		rate  float64
	}{{nil, 3000}, {new(1e6), 3000}, {new(1e6), 0}, {new(1e6 + 5000), 1000}} {
		x := shortTick(5*i, 50)
		x.Sample.Memory.KswapdStealPages, x.Sample.Memory.KswapdStealPerSecond = tt.pages, new(3000.0)
		if f := part(w.Measure(&s, x), partKswapd); f == nil || f.Value != tt.rate {
			t.Errorf("period %d: %+v; want a rate of %v", i, f, tt.rate)
		}
	}
}

// A period of length 0 has no rate from the counter.
func TestKswapdRateNeedsTime(t *testing.T) {
	s := Defaults()
	s.MemoryKswapdTimes = 1
	x := shortTick(5, 50)
	x.Sample.Memory.KswapdStealPages, x.Sample.Memory.KswapdStealPerSecond = new(1e6), new(3000.0)
	var m Measure
	k := kswapd{Pages: 1, PeriodStart: x.Time}
	k.measure(&memoryCheck{s: &s, t: x, m: &m, pods: memoryUsers(x)}, true, true)
	if f := part(m, partKswapd); f == nil || f.Value != 3000 {
		t.Errorf("%+v; want the sample's own rate of 3000", f)
	}
}

// Of services that wait equally long the first one is named.
func TestFirstOfEqualServicesIsNamed(t *testing.T) {
	s := Defaults()
	s.ServiceWaiting.Enabled = true
	m := serviceWaiting.New().Measure(&s, tickAt(0, waitingPod("a", tick.QoSShared, 500, 1), waitingPod("b", tick.QoSShared, 500, 1)))
	if f := onlyFinding(t, m); !strings.HasPrefix(f.Message, "service a ") {
		t.Errorf("message %q", f.Message)
	}
}

// A pod that requests nothing of a resource is not evicted for it; of those that request some, one at exactly the priority may be.
func TestPodWithoutRequestIsNoCandidate(t *testing.T) {
	m := cpuAllocatableEvict.New().Measure(allocatableStrategy(100, 90, 5000), koordTick(0, 0, 0,
		bePod("at", enabledPod, requestBatch(9000, 1)), bePod("zero", enabledPod, requestBatch(0, 1)),
		bePod("over", enabledPod, requestBatch(9000, 1), prioritized(5001))))
	if d := cmp.Diff(map[string]float64{"at": 9000}, released(onlyFinding(t, m).Candidates)); d != "" {
		t.Errorf("candidates (-want +got):\n%s", d)
	}
}

// A pod without containers has no memory request, and does not exceed it.
func TestPodWithoutContainersExceedsNoRequest(t *testing.T) {
	s := Defaults()
	s.RSSOveruseEnabled, s.RSSOveruseTolerance = true, 0
	withoutContainers := resident("bare", tick.QoSShared, 9000)
	withoutContainers.Containers = nil
	first, second := resident("first", tick.QoSShared, 9000), resident("second", tick.QoSShared, 8000)
	w := rssOveruse.New()
	if f := onlyFinding(t, w.Measure(&s, tickAt(0, withoutContainers))); f.Met || f.Message != "" {
		t.Errorf("without a request: %+v; want no candidate and no error", f)
	}
	w.Measure(&s, tickAt(0, withoutContainers, second))
	f := onlyFinding(t, w.Measure(&s, tickAt(5, first, withoutContainers, second)))
	if d := cmp.Diff([]string{"first", "second"}, ranked(f)); d != "" {
		t.Errorf("candidates (-want +got):\n%s", d)
	}
	if f.Since != "2026-11-21T12:00:00Z" || f.Message != "2 pods use more resident memory than their thresholds" {
		t.Errorf("since %q, message %q; want the earliest start, and both", f.Since, f.Message)
	}
}

// If nothing is requested an offer of 0 suffices, and is no error.
func TestZeroOfferWithoutRequests(t *testing.T) {
	s := Defaults()
	x := tickAt(0)
	offer(x, 0, 0)
	m := reclaimedPressure.New().Measure(&s, x)
	if len(m.Errors) > 0 || len(m.Findings) != 2 || m.Findings[0].Met || m.Findings[1].Met {
		t.Errorf("findings %+v, errors %q; want two that are not met", m.Findings, m.Errors)
	}
}

// A pod is bound to the NUMA node in its annotation, and to none if that is not the number of a node.
func TestBoundNode(t *testing.T) {
	nodes := []numaNode{{id: 0, cpus: cpus.New(0, 1)}, {id: 1, cpus: cpus.New(2, 3)}}
	for text, want := range map[string]int{"0": 0, "1": 1, "7": -1, "x": -1, "": -1, "-1": -1} {
		id, ok := boundNode(&tick.Pod{Annotations: map[string]string{annotationNUMABinding: text}}, nodes)
		if ok != (want >= 0) || ok && id != want {
			t.Errorf("%q: NUMA node %d, %t; want %d", text, id, ok, want)
		}
	}
}

// A container has exclusive CPUs if all CPUs on which it runs are exclusive, and as many as it requests. Otherwise its load counts.
func TestSharedCPUsAreNotExclusive(t *testing.T) {
	cpuRequest := func(milli float64) *tick.Resources { return &tick.Resources{MilliCPU: &milli} }
	for _, tt := range []struct {
		name      string
		set       string
		requests  *tick.Resources
		exclusive cpus.Set
		want      bool
	}{
		{"its own", "2-3", cpuRequest(2000), cpus.New(2, 3, 4), true},
		{"as many, of which one is shared", "2-3", cpuRequest(2000), cpus.New(2, 4), false},
		{"more than it requests", "2-3", cpuRequest(1000), cpus.New(2, 3), false},
		{"no request of CPU", "2-3", &tick.Resources{}, cpus.New(2, 3), false},
		{"no request", "2-3", nil, cpus.New(2, 3), false},
		{"no exclusive ones", "2-3", cpuRequest(2000), cpus.New(), false},
		{"no set", "", cpuRequest(0), cpus.New(2, 3), false},
		{"no list", "x", cpuRequest(0), cpus.New(2, 3), false},
		{"a list of none", " ", cpuRequest(0), cpus.New(2, 3), false},
	} {
		if got := hasExclusiveCPUs(&tick.Container{CPUSetCPUs: tt.set, Requests: tt.requests}, tt.exclusive); got != tt.want {
			t.Errorf("%s: %t; want %t", tt.name, got, tt.want)
		}
	}
}

// If there are no NUMA nodes, that is reported, whatever else is missing.
func TestNoNUMANodesAreReported(t *testing.T) {
	s := Defaults()
	x := shortTick(0, 50)
	x.Sample.Memory.WatermarkScaleFactor, x.Sample.NUMANodes = nil, nil
	if got := errorsOf(memoryPressure.New().Measure(&s, x)); !strings.Contains(got, "memory (numa): the sample has no NUMA nodes") {
		t.Errorf("reported errors %q", got)
	}
}
