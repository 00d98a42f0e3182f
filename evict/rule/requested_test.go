package rule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

func allocatableStrategy(upper, lower, priority int64) *Settings {
	return strategy(func(th *sloconfig.Threshold) {
		th.MemoryAllocatableEvictThresholdPercent, th.MemoryAllocatableEvictLowerPercent = &upper, &lower
		th.CPUAllocatableEvictThresholdPercent, th.CPUAllocatableEvictLowerPercent = &upper, &lower
		th.AllocatableEvictPriorityThreshold = &priority
	})
}

// requestMid and requestOwn create a pod of another class with its requests.
func requestMid(milli, gibs float64) func(*tick.Pod) {
	return func(p *tick.Pod) {
		p.Priority = new(int64(7000))
		p.Requests = &tick.Resources{MidMilliCPU: new(milli), MidMemoryBytes: new(gibs * gib)}
	}
}

func requestOwn(priority int64, milli, gibs float64) func(*tick.Pod) {
	return func(p *tick.Pod) {
		p.Priority = &priority
		p.Labels[qos.KoordinatorClass] = qos.LS
		p.Requests = &tick.Resources{MilliCPU: new(milli), MemoryBytes: new(gibs * gib)}
	}
}

func requestBatch(milli, gibs float64) func(*tick.Pod) {
	return func(p *tick.Pod) {
		p.Requests = &tick.Resources{ReclaimedMilliCPU: new(milli), ReclaimedMemoryBytes: new(gibs * gib)}
	}
}

// The node offers 4 cores and 40 GiB of batch, 2 and 20 of mid, 10 and 100 of its own; requests are compared with that.
func TestRequested(t *testing.T) {
	for _, tt := range []struct {
		name        string
		pods        []tick.Pod
		settings    *Settings
		cpu, memory string // resource: value of threshold, need
	}{
		{"no pods", nil, allocatableStrategy(100, 90, 7999), "", ""},
		{"a pod without a request", []tick.Pod{bePod("a")}, allocatableStrategy(100, 90, 7999), "", ""},
		{"as much as is offered", []tick.Pod{bePod("a", requestBatch(4000, 40))}, allocatableStrategy(100, 90, 7999), "kubernetes.io/batch-cpu 4000 of 4000, 0", "kubernetes.io/batch-memory 40 of 40, 0"},
		{"a little more", []tick.Pod{bePod("a", requestBatch(4001, 41))}, allocatableStrategy(100, 90, 7999), "kubernetes.io/batch-cpu 4001 of 4000, 401", "kubernetes.io/batch-memory 41 of 40, 5"},
		{"the sum", []tick.Pod{bePod("a", requestBatch(3000, 30)), bePod("b", requestBatch(3000, 30))}, allocatableStrategy(100, 90, 7999), "kubernetes.io/batch-cpu 6000 of 4000, 2400", "kubernetes.io/batch-memory 60 of 40, 24"},
		{"over 100 %", []tick.Pod{bePod("a", requestBatch(8001, 81))}, allocatableStrategy(200, 150, 7999), "kubernetes.io/batch-cpu 8001 of 8000, 2001", "kubernetes.io/batch-memory 81 of 80, 21"},
		{"down to nothing", []tick.Pod{bePod("a", requestBatch(8001, 81))}, allocatableStrategy(100, 0, 7999), "kubernetes.io/batch-cpu 8001 of 4000, 8001", "kubernetes.io/batch-memory 81 of 40, 81"},
		{"over the priority", []tick.Pod{bePod("a", requestBatch(9000, 90), prioritized(5001))}, allocatableStrategy(100, 90, 5000), "", ""},
		{
			"ended and terminating pods do not count",
			[]tick.Pod{
				bePod("a", requestBatch(9000, 90), terminating), bePod("b", requestBatch(9000, 90), phase("Succeeded")),
				bePod("c", requestBatch(1000, 10)),
				bePod("d", requestBatch(9000, 90), func(p *tick.Pod) { p.Missing = tick.MissingCluster }),
			},
			allocatableStrategy(100, 90, 7999),
			"kubernetes.io/batch-cpu 1000 of 4000, 0", "kubernetes.io/batch-memory 10 of 40, 0",
		},
		{
			"each class its own resource",
			[]tick.Pod{bePod("a", requestBatch(4400, 44)), bePod("b", requestMid(2200, 22)), bePod("c", requestOwn(3000, 11_000, 110)), bePod("d", requestOwn(9000, 50_000, 500))},
			allocatableStrategy(100, 90, 7999),
			"kubernetes.io/batch-cpu 4400 of 4000, 800; kubernetes.io/mid-cpu 2200 of 2000, 400; cpu 11000 of 10000, 2000",
			"kubernetes.io/batch-memory 44 of 40, 8; kubernetes.io/mid-memory 22 of 20, 4; memory 110 of 100, 20",
		},
		{"batch pods' own requests are no batch-cpu", []tick.Pod{bePod("a", func(p *tick.Pod) {
			p.Requests = &tick.Resources{MilliCPU: new(9000.0), MemoryBytes: new(90 * gib)}
		})}, allocatableStrategy(100, 90, 7999), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []*Rule{cpuAllocatableEvict, memoryAllocatableEvict} {
				want, unit := tt.cpu, 1.0
				if r == memoryAllocatableEvict {
					want, unit = tt.memory, gib
				}
				m := r.New().Measure(tt.settings, koordTick(0, 0, 0, tt.pods...))
				var got []string
				for _, f := range m.Findings {
					got = append(got, fmt.Sprintf("%s %v of %v, %v", f.Scope, f.Value/unit, f.Threshold/unit, f.Need/unit))
					if f.Met != (f.Need > 0) || !f.Hard || f.Below || !f.UntilCovered || f.Met != (f.Since != "") {
						t.Errorf("%+v", f)
					}
				}
				if s := strings.Join(got, "; "); s != want || len(m.Errors) > 0 {
					t.Errorf("%s: %s, errors %v; want %s", r.Name, s, m.Errors, want)
				}
			}
		})
	}
}

// A resource that is not offered, or withdrawn, does not count as an offer of 0.
func TestRequestedOfNothing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*tick.Tick)
		want   string
	}{
		{"no allocatable", func(x *tick.Tick) { x.Sample.Allocatable = nil }, "the node has no allocatable kubernetes.io/batch-cpu"},
		{"no batch-cpu", func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMilliCPU = nil }, "the node has no allocatable kubernetes.io/batch-cpu"},
		{"an allocatable of 0", func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMilliCPU = new(0.0) }, "the node's allocatable kubernetes.io/batch-cpu is 0, which counts as withdrawn"},
		{"a negative amount", func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMilliCPU = new(-5.0) }, "the node has no allocatable kubernetes.io/batch-cpu"},
		{"a huge one", func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMilliCPU = new(1e300) }, "the node has no allocatable kubernetes.io/batch-cpu"},
		{"withdrawn", func(x *tick.Tick) { x.Advice = &tick.Advice{Withdrawn: "the strategy is disabled"} }, "the offer of kubernetes.io/batch-cpu is withdrawn"},
	} {
		x := koordTick(0, 0, 0, bePod("a", enabledPod, requestBatch(4400, 44)))
		tt.change(x)
		m := cpuAllocatableEvict.New().Measure(allocatableStrategy(100, 90, 7999), x)
		if want := "CPUAllocatableEvict: " + tt.want + ": not measured"; len(m.Findings) > 0 || errorsOf(m) != want {
			t.Errorf("%s: findings %+v, errors %q; want %q", tt.name, m.Findings, errorsOf(m), want)
		}
	}
	// The node's own resources are not withdrawn with the offer.
	x := koordTick(0, 0, 0, bePod("a", enabledPod, requestOwn(3000, 11_000, 1)))
	x.Advice = &tick.Advice{Withdrawn: "degraded"}
	if f := onlyFinding(t, cpuAllocatableEvict.New().Measure(allocatableStrategy(100, 90, 7999), x)); !f.Met || f.Scope != "cpu" {
		t.Errorf("%+v", f.PressureFinding)
	}
}

// A missing value of one resource does not affect another one in the same tick.
func TestRequestedOneMissing(t *testing.T) {
	pods := []tick.Pod{
		bePod("batch", enabledPod, requestBatch(4400, 44)), bePod("mid", enabledPod, requestMid(2200, 22)), bePod("own", enabledPod, requestOwn(3000, 11_000, 110)),
	}
	const batchCPU, midCPU, ownCPU = "kubernetes.io/batch-cpu 800", "kubernetes.io/mid-cpu 400", "cpu 2000"
	const batchMemory, midMemory, ownMemory = "kubernetes.io/batch-memory 8", "kubernetes.io/mid-memory 4", "memory 20"
	for _, tt := range []struct {
		name   string
		change func(*tick.Tick)
		rule   *Rule
		met    []string // resource and need
		errors []string // the resources that are not measured
	}{
		{"batch-cpu", func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMilliCPU = nil }, cpuAllocatableEvict, []string{midCPU, ownCPU}, []string{"the node has no allocatable kubernetes.io/batch-cpu"}},
		{"mid-cpu of 0", func(x *tick.Tick) { x.Sample.Allocatable.MidMilliCPU = new(0.0) }, cpuAllocatableEvict, []string{batchCPU, ownCPU}, []string{"the node's allocatable kubernetes.io/mid-cpu is 0, which counts as withdrawn"}},
		{"cpu", func(x *tick.Tick) { x.Sample.Allocatable.MilliCPU = nil }, cpuAllocatableEvict, []string{batchCPU, midCPU}, []string{"the node has no allocatable cpu"}},
		{"only the other rule's", func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMemoryBytes = nil }, cpuAllocatableEvict, []string{batchCPU, midCPU, ownCPU}, nil},
		{"batch-memory", func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMemoryBytes = nil }, memoryAllocatableEvict, []string{midMemory, ownMemory}, []string{"the node has no allocatable kubernetes.io/batch-memory"}},
		{"mid-memory and memory", func(x *tick.Tick) {
			x.Sample.Allocatable.MidMemoryBytes, x.Sample.Allocatable.MemoryBytes = new(-1.0), nil
		}, memoryAllocatableEvict, []string{batchMemory}, []string{"the node has no allocatable kubernetes.io/mid-memory", "the node has no allocatable memory"}},
		{"a withdrawn offer", func(x *tick.Tick) { x.Advice = &tick.Advice{Withdrawn: "degraded"} }, memoryAllocatableEvict, []string{ownMemory}, []string{"the offer of kubernetes.io/batch-memory is withdrawn", "the offer of kubernetes.io/mid-memory is withdrawn"}},
	} {
		x := koordTick(0, 0, 0, pods...)
		tt.change(x)
		unit := 1.0
		if tt.rule == memoryAllocatableEvict {
			unit = gib
		}
		m := tt.rule.New().Measure(allocatableStrategy(100, 90, 7999), x)
		var met, errors []string
		for _, f := range m.Findings {
			met = append(met, fmt.Sprintf("%s %v", f.Scope, f.Need/unit))
			pod := "own"
			if name, ok := strings.CutPrefix(f.Scope, "kubernetes.io/"); ok {
				pod, _, _ = strings.Cut(name, "-")
			}
			// Each resource has its own pods: a pod that requests an unknown resource stays.
			if len(f.Candidates) != 1 || f.Candidates[0].Pod.Name != pod {
				t.Errorf("%s: candidates of %s: %v", tt.name, f.Scope, released(f.Candidates))
			}
		}
		for _, why := range tt.errors {
			errors = append(errors, tt.rule.Name+": "+why+": not measured")
		}
		if d := cmp.Diff(tt.met, met) + cmp.Diff(errors, m.Errors); d != "" {
			t.Errorf("%s, %s (-want +got):\n%s", tt.rule.Name, tt.name, d)
		}
	}
}

func TestRequestedCandidates(t *testing.T) {
	pods := []tick.Pod{
		bePod("small", enabledPod, requestBatch(1000, 10)),
		bePod("large", enabledPod, requestBatch(2000, 20)),
		bePod("first", enabledPod, requestBatch(500, 5), prioritized(5999), annotated(qos.EvictionPriority, "-1")),
		bePod("not-labelled", requestBatch(3000, 30)),
		bePod("forbids", enabledPod, requestBatch(3000, 30), annotated(qos.EvictionPolicy, `["CPUEvict"]`)),
		bePod("mid", enabledPod, requestMid(100, 1)),
	}
	w := cpuAllocatableEvict.New()
	for i, whyWait := range []string{"observed for less than 20s", "observed for less than 20s", "observed for less than 20s", "observed for less than 20s", ""} {
		m := w.Measure(allocatableStrategy(100, 90, 7999), koordTick(5*i, 0, 0, pods...))
		if len(m.Findings) != 2 || m.Findings[0].WhyWait != whyWait {
			t.Fatalf("after %d s: %+v; want batch-cpu and mid-cpu, and the first to wait: %q", 5*i, m.Findings, whyWait)
		}
		f := m.Findings[0]
		if d := cmp.Diff(map[string]float64{"small": 1000, "large": 2000, "first": 500}, released(f.Candidates)); d != "" {
			t.Errorf("candidates (-want +got):\n%s", d)
		}
		if d := cmp.Diff(map[string]float64{"not-labelled": 3000, "forbids": 3000}, released(f.Others)); d != "" {
			t.Errorf("others (-want +got):\n%s", d)
		}
		if got := strings.Join(ranked(f), " "); got != "first large small" {
			t.Errorf("order %s", got)
		}
		if f.Reason != "evicted" || f.Candidates[0].Message != "trigger by koordlet feature CPUAllocatableEvict, kill pod: small" || f.CooldownKey() != "koordinator cpu" || f.Cooldown.Seconds() != 20 {
			t.Errorf("%+v", f)
		}
		if want := "pods of priority 7999 or lower request 9500m of kubernetes.io/batch-cpu, over 100% of the 4000m that the node offers: 5900m must be released to reach 90%"; f.Message != want {
			t.Errorf("message %q; want %q", f.Message, want)
		}
	}
	// Memory has no observation time.
	m := memoryAllocatableEvict.New().Measure(allocatableStrategy(100, 90, 7999), koordTick(0, 0, 0, pods...))
	if f := m.Findings[0]; !f.Met || f.WhyWait != "" || f.CooldownKey() != "koordinator memory" || f.Cooldown.Seconds() != 4 {
		t.Errorf("%+v", f)
	}
}
