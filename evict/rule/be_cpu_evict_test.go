package rule

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// guide are the thresholds of the guide "Eviction Strategy base on CPU Satisfaction".
func guide(change ...func(*sloconfig.Threshold)) *Settings {
	return strategy(func(th *sloconfig.Threshold) {
		th.CPUEvictBESatisfactionLowerPercent, th.CPUEvictBESatisfactionUpperPercent = new(int64(60)), new(int64(80))
		th.CPUEvictBEUsageThresholdPercent, th.CPUEvictTimeWindowSeconds = new(int64(90)), new(int64(60))
		for _, c := range change {
			c(th)
		}
	})
}

// tier sets the tier of BE pods: the milli-CPU that it uses, its CPUs, and its quota in milli-CPU.
func tier(used float64, set string, quota int64) func(*tick.Sample) {
	return func(s *tick.Sample) {
		s.Tiers[0].UsageMilliCPU, s.Tiers[0].CPUSetCPUs, s.Tiers[0].CPUMaxMilliCPU = &used, set, &quota
	}
}

func changed(x *tick.Tick, change ...func(*tick.Sample)) *tick.Tick {
	for _, c := range change {
		c(x.Sample)
	}
	return x
}

// steady plays so many ticks, 5 seconds apart, and returns the last one's measure.
func steady(s *Settings, ticks int, at func(seconds int) *tick.Tick) Measure {
	w := beCPUEvict.New()
	var m Measure
	for i := range ticks {
		m = w.Measure(s, at(5*i))
	}
	return m
}

func TestUsesLimit(t *testing.T) {
	x := satisfactionSettings{usage: 90}
	for _, tt := range []struct {
		used, limit float64
		want        bool
	}{
		{2000, 0, false}, {2000, -1, false}, {0, 999, true}, {0, 1, true}, {0, 1000, false}, {899, 1000, false}, {900, 1000, true}, {1799, 2000, false}, {1800, 2000, true}, {5000, 2000, true},
	} {
		if got := x.usesLimit(tt.used, tt.limit); got != tt.want {
			t.Errorf("usesLimit(%v, %v) = %t; want %t", tt.used, tt.limit, got, tt.want)
		}
	}
	if !(satisfactionSettings{usage: 0}).usesLimit(0, 1000) || (satisfactionSettings{usage: 100}).usesLimit(999, 1000) {
		t.Error("usage thresholds 0 and 100")
	}
}

func TestRequestReduction(t *testing.T) {
	x := satisfactionSettings{lower: 60, upper: 80}
	for _, tt := range []struct{ request, limit, want float64 }{
		{0, 2000, 0},
		{-1, 2000, 0},
		{4000, 2000, 1200}, // the guide's
		{4000, 1200, 2000},
		{4000, 2400, 800},  // equal triggers
		{4000, 2401, 0},    // 60.025 %
		{4000, 8000, 0},    // more than requested
		{4000, 0, 3200},    // nothing may be used
		{1, 0, 0},          // 0.8
		{1000, 400, 400},   // not 399 by floating point
		{3333, 1000, 1666}, // whole milli-CPU
		{1e18, 0, 8e17},
	} {
		if got := x.requestReduction(tt.request, tt.limit); got != tt.want {
			t.Errorf("requestReduction(%v, %v) = %v; want %v", tt.request, tt.limit, got, tt.want)
		}
	}
	if got := (satisfactionSettings{lower: 60, upper: 60}).requestReduction(1000, 600); got != 0 {
		t.Errorf("without a gap: %v; want 0", got)
	}
}

// These decisions follow from equal samples: of what is used, requested and may be used.
func TestSatisfaction(t *testing.T) {
	for _, tt := range []struct {
		name       string
		change     func(*tick.Sample)
		requested  float64
		settings   *Settings
		value      float64
		need       float64
		threshold  float64
		ticksFirst int // the first tick at which it is met
	}{
		{"half of it, the guide's event", tier(2000, "0-1", -1), 4000, guide(), 50, 1200, 60, 4},
		{"equal triggers", tier(2400, "0-5", 2400), 4000, guide(), 60, 800, 60, 4},
		{"satisfied", tier(3000, "0-2", -1), 4000, guide(), 75, 0, 60, 0},
		{"more than is requested", tier(4000, "0-3", -1), 2000, guide(), 200, 0, 60, 0},
		{"too little used", tier(1799, "0-1", -1), 4000, guide(), 50, 0, 60, 0},
		{"just enough used", tier(1800, "0-1", -1), 4000, guide(), 50, 1200, 60, 4},
		{"the quota is less", tier(1500, "0-3", 1500), 4000, guide(), 37.5, 1700, 60, 4},
		{"the CPU set is less", tier(2000, "0-1", 8000), 4000, guide(), 50, 1200, 60, 4},
		{"less than a core needs no use", tier(0, "0-3", 500), 4000, guide(), 12.5, 2700, 60, 4},
		{"a quota of 0", tier(2000, "0-1", 0), 4000, guide(), 0, 0, 60, 0},
		{"no request", tier(2000, "0-1", -1), 0, guide(), 100, 0, 60, 0},
		{"usage threshold of 95", tier(1800, "0-1", -1), 4000, guide(func(th *sloconfig.Threshold) { th.CPUEvictBEUsageThresholdPercent = new(int64(95)) }), 50, 0, 60, 0},
		{"usage threshold not set: 90", tier(1800, "0-1", -1), 4000, guide(func(th *sloconfig.Threshold) { th.CPUEvictBEUsageThresholdPercent = nil }), 50, 1200, 60, 4},
		{"window not set: the sample's own", tier(2000, "0-1", -1), 4000, guide(func(th *sloconfig.Threshold) { th.CPUEvictTimeWindowSeconds = nil }), 50, 1200, 60, 1},
		{"window under the interval", tier(2000, "0-1", -1), 4000, guide(func(th *sloconfig.Threshold) { th.CPUEvictTimeWindowSeconds = new(int64(2)) }), 50, 1200, 60, 1},
		{"a negative window", tier(2000, "0-1", -1), 4000, guide(func(th *sloconfig.Threshold) { th.CPUEvictTimeWindowSeconds = new(int64(-5)) }), 50, 1200, 60, 1},
		{"a long window", tier(2000, "0-1", -1), 4000, guide(func(th *sloconfig.Threshold) { th.CPUEvictTimeWindowSeconds = new(int64(120)) }), 50, 1200, 60, 8},
		{"an endless window", tier(2000, "0-1", -1), 4000, guide(func(th *sloconfig.Threshold) { th.CPUEvictTimeWindowSeconds = tick.Ptr(int64(math.MaxInt64)) }), 50, 0, 60, 0},
		{"what the node offers", tier(1800, "0-15", -1), 4000, guide(func(th *sloconfig.Threshold) { th.CPUEvictPolicy = tick.Ptr(sloconfig.EvictByAllocatable) }), 50, 1200, 60, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first := 0
			for n := 1; n <= 20; n++ {
				m := steady(tt.settings, n, func(s int) *tick.Tick {
					x := changed(koordTick(s, 0, 0, bePod("be", request(tt.requested), usage(1000, 1))), tt.change)
					x.Sample.Allocatable.ReclaimedMilliCPU = new(2000.0)
					return x
				})
				f := onlyFinding(t, m)
				if f.Value != tt.value || f.Threshold != tt.threshold || !f.Below || !f.Hard || len(m.Errors) > 0 {
					t.Fatalf("%+v, errors %v; want a satisfaction of %v", f.PressureFinding, m.Errors, tt.value)
				}
				if f.Met && first == 0 {
					first = n
				}
				if f.Met && f.Need != tt.need || f.Met != (len(f.Candidates) > 0) {
					t.Fatalf("at tick %d need %v, candidates %v; want %v", n, f.Need, f.Candidates, tt.need)
				}
				// No pod is evicted within the first 20 seconds of observation.
				if wait := "observed for less than 20s"; f.Met && (f.WhyWait == wait) != (5*(n-1) < 20) {
					t.Errorf("at tick %d: waits %q", n, f.WhyWait)
				}
			}
			if first != tt.ticksFirst {
				t.Errorf("met from tick %d on; want %d: a third of the window", first, tt.ticksFirst)
			}
		})
	}
}

// The average and the last sample both must require it, and the smaller amount counts.
func TestSatisfactionAverageAndLast(t *testing.T) {
	type sample struct {
		used, requested float64
		set             string
	}
	low, high := sample{2000, 4000, "0-1"}, sample{4000, 4000, "0-3"}
	repeat := func(n int, s sample) (out []sample) {
		for range n {
			out = append(out, s)
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		samples []sample
		need    float64
	}{
		{"the same", repeat(12, low), 1200},
		{"the last one is satisfied", append(repeat(11, low), high), 0},
		{"the average is satisfied", append(repeat(11, high), low), 0},
		{"the last one needs less", append(repeat(11, low), sample{2000, 3500, "0-1"}), 800},
		{"the average needs less", append(repeat(11, low), sample{2000, 9000, "0-1"}), 1533}, // of (11x4000 + 9000)/12 = 4416.7
		{"the last one uses too little", append(repeat(11, low), sample{100, 4000, "0-1"}), 0},
		{"the average uses too little", append(repeat(11, sample{100, 4000, "0-1"}), low), 0},
		{"no more requests", append(repeat(11, low), sample{2000, 0, "0-1"}), 0},
	} {
		w := beCPUEvict.New()
		var f Finding
		for i, x := range tt.samples {
			f = onlyFinding(t, w.Measure(guide(), changed(koordTick(5*i, 0, 0, bePod("be", request(x.requested))), tier(x.used, x.set, -1))))
		}
		if f.Need != tt.need || f.Met != (tt.need > 0) {
			t.Errorf("%s: met %t, need %v; want %v", tt.name, f.Met, f.Need, tt.need)
		}
	}
}

// The window may be partly covered, with a silence in it, with a repeated tick, or with a clock that was set back.
func TestSatisfactionWindow(t *testing.T) {
	at := func(s int) *tick.Tick { return koordTick(s, 0, 0, bePod("be", request(4000))) }
	for _, tt := range []struct {
		name  string
		times []int
		met   bool
	}{
		{"a third", []int{0, 5, 10, 15}, true},
		{"less than a third", []int{0, 5, 10}, false},
		{"the same tick again and again", []int{0, 0, 0, 0, 0, 0}, false},
		{"with a silence", []int{0, 5, 10, 55}, true},
		{"what was before the window", []int{0, 5, 10, 100}, false},
		{"the clock was set back", []int{100, 105, 110, 10, 15, 20}, false},
		{"and continues", []int{100, 105, 110, 10, 15, 20, 25}, true},
	} {
		w := beCPUEvict.New()
		var f Finding
		for _, s := range tt.times {
			f = onlyFinding(t, w.Measure(guide(), at(s)))
		}
		if f.Met != tt.met {
			t.Errorf("%s: met %t", tt.name, f.Met)
		}
	}
	// The observation starts over after a silence; samples under another policy's limits are not averaged with these.
	w := beCPUEvict.New()
	for _, s := range []int{0, 5, 10, 15, 20} {
		w.Measure(guide(), at(s))
	}
	if f := onlyFinding(t, w.Measure(guide(), at(25))); !f.Met || f.WhyWait != "" {
		t.Errorf("after 25 s: %+v, waits %q", f.PressureFinding, f.WhyWait)
	}
	offered := at(30)
	offered.Sample.Allocatable.ReclaimedMilliCPU = new(2000.0)
	if f := onlyFinding(t, w.Measure(guide(func(th *sloconfig.Threshold) { th.CPUEvictPolicy = tick.Ptr(sloconfig.EvictByAllocatable) }), offered)); f.Met {
		t.Error("met with the averages of another policy")
	}
	// Disabled and enabled again, it starts over.
	w.Measure(strategy(nil), at(35))
	if f := onlyFinding(t, w.Measure(guide(), at(40))); f.Met {
		t.Error("met with the averages of before it was off")
	}
}

func TestSatisfactionMissing(t *testing.T) {
	allocatable := guide(func(th *sloconfig.Threshold) { th.CPUEvictPolicy = tick.Ptr(sloconfig.EvictByAllocatable) })
	for _, tt := range []struct {
		name     string
		settings *Settings
		change   func(*tick.Tick)
		want     string
	}{
		{"no rates", guide(), func(x *tick.Tick) { x.Sample.IntervalSeconds = nil }, "the sample is the first one of this run of collect, without rates"},
		{"an interval of 0", guide(), func(x *tick.Tick) { x.Sample.IntervalSeconds = new(0.0) }, "the sample is the first one of this run of collect, without rates"},
		{"no use of the tier", guide(), func(x *tick.Tick) { x.Sample.Tiers[0].UsageMilliCPU = nil }, "the CPU use of the BE pods is unknown"},
		{"a negative use", guide(), func(x *tick.Tick) { x.Sample.Tiers[0].UsageMilliCPU = new(-1.0) }, "the CPU use of the BE pods is unknown"},
		{"no limit", guide(), func(x *tick.Tick) { x.Sample.Tiers[0].CPUSetCPUs, x.Sample.Tiers[0].CPUMaxMilliCPU = "", nil }, "the CPUs of the BE pods are unknown"},
		{"a CPU set that is none", guide(), func(x *tick.Tick) { x.Sample.Tiers[0].CPUSetCPUs = "x" }, "the CPUs of the BE pods are unknown"},
		{"no allocatable", allocatable, func(x *tick.Tick) { x.Sample.Allocatable = nil }, "the node has no allocatable kubernetes.io/batch-cpu"},
		{"no allocatable batch-cpu", allocatable, func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMilliCPU = nil }, "the node has no allocatable kubernetes.io/batch-cpu"},
		{"a negative one", allocatable, func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMilliCPU = new(-1.0) }, "the node has no allocatable kubernetes.io/batch-cpu"},
		{"one of 0", allocatable, func(x *tick.Tick) { x.Sample.Allocatable.ReclaimedMilliCPU = new(0.0) }, "the node's allocatable kubernetes.io/batch-cpu is 0, which counts as withdrawn"},
		{"a withdrawn one", allocatable, func(x *tick.Tick) { x.Advice = &tick.Advice{Withdrawn: "degraded"} }, "the offer of kubernetes.io/batch-cpu is withdrawn"},
	} {
		m := steady(tt.settings, 12, func(s int) *tick.Tick {
			x := koordTick(s, 0, 0, bePod("be", request(4000)))
			tt.change(x)
			return x
		})
		if want := "BECPUEvict: " + tt.want + ": not measured"; len(m.Findings) > 0 || errorsOf(m) != want {
			t.Errorf("%s: findings %+v, errors %q; want %q", tt.name, m.Findings, errorsOf(m), want)
		}
	}
}

// BE pods may use the smallest of the CPU sets, and on a plain machine their own; the use there counts as theirs.
func TestSatisfactionLimit(t *testing.T) {
	on := func(cpuSets ...string) func(*tick.Pod) {
		return func(p *tick.Pod) {
			for _, s := range cpuSets {
				p.Containers = append(p.Containers, tick.Container{Cgroup: "/kubepods/besteffort/" + p.Name + "/c", CPUSetCPUs: s})
			}
		}
	}
	plain := func(s *tick.Sample) {
		s.Tiers = []tick.Tier{{Name: tick.TierPods, CPUSetCPUs: "0", UsageMilliCPU: new(9.0)}}
	}
	tiered := func(*tick.Sample) {}
	service := func(p *tick.Pod) { p.Labels[qos.KoordinatorClass] = qos.LS }
	for _, tt := range []struct {
		name   string
		change func(*tick.Sample)
		pods   []tick.Pod
		want   beCPUSample
		why    string
	}{
		{"the tier's", tiered, []tick.Pod{bePod("a", request(4000), on("0-3"))}, beCPUSample{2000, 4000, 2000}, ""},
		{"a container's", tiered, []tick.Pod{bePod("a", request(4000), on("0-3", "1"))}, beCPUSample{2000, 4000, 1000}, ""},
		{"a BE pod's of another tier does not count", tiered, []tick.Pod{
			bePod("a", request(4000), on("0-3")),
			bePod("g", request(0), on("0"), func(p *tick.Pod) { p.Containers[0].Cgroup = "/kubepods/besteffort-like/g/c" }),
		}, beCPUSample{2000, 4000, 2000}, ""},
		{"an unknown one", tiered, []tick.Pod{bePod("a", request(4000), on("", "x"))}, beCPUSample{2000, 4000, 2000}, ""},
		{"another's does not count", tiered, []tick.Pod{bePod("a", request(4000), on("0-3")), bePod("s", request(500), service, on("0"))}, beCPUSample{2000, 4000, 2000}, ""},
		{"nor one that has ended", tiered, []tick.Pod{bePod("a", request(4000)), bePod("b", request(500), phase("Succeeded"), on("0")), bePod("c", request(500), phase("Failed"), on("0"))}, beCPUSample{2000, 4000, 2000}, ""},
		{"a terminating pod requests nothing", tiered, []tick.Pod{bePod("a", request(4000)), bePod("b", request(500), terminating)}, beCPUSample{2000, 4000, 2000}, ""},
		{"a pending pod requests", tiered, []tick.Pod{bePod("a", request(4000), phase("Pending"), func(p *tick.Pod) { p.Missing = tick.MissingCgroup })}, beCPUSample{2000, 4000, 2000}, ""},
		{"a pod without a request", tiered, []tick.Pod{bePod("a")}, beCPUSample{2000, 0, 2000}, ""},
		{"the containers' sum", tiered, []tick.Pod{bePod("a", func(p *tick.Pod) {
			p.Requests = nil
			p.Containers = []tick.Container{{Requests: &tick.Resources{ReclaimedMilliCPU: new(500.0)}}, {Requests: &tick.Resources{ReclaimedMilliCPU: new(700.0)}}}
		})}, beCPUSample{2000, 1200, 2000}, ""},
		{"the pod's own before its containers': with a sidecar, as collect sums them", tiered, []tick.Pod{bePod("a", request(1500), requestsInContainers(1000, 500))}, beCPUSample{2000, 1500, 2000}, ""},
		{"and a larger init container's", tiered, []tick.Pod{bePod("a", request(3500), requestsInContainers(1000, 500))}, beCPUSample{2000, 3500, 2000}, ""},
		{"the containers' sum, a sidecar's too", tiered, []tick.Pod{bePod("a", requestsInContainers(1000, 500))}, beCPUSample{2000, 1500, 2000}, ""},
		{"no pods", tiered, nil, beCPUSample{2000, 0, 2000}, ""},
		{"plain", plain, []tick.Pod{bePod("a", request(4000), usage(900, 0), on("0-1")), bePod("b", request(1000), usage(1000, 0), on("0-2"))}, beCPUSample{1900, 5000, 2000}, ""},
		{"plain host, one use is unknown", plain, []tick.Pod{bePod("a", request(4000), on("0-1"))}, beCPUSample{}, "the CPU use of the BE pods is unknown"},
		{"plain host, without CPU sets", plain, []tick.Pod{bePod("a", request(4000), usage(900, 0))}, beCPUSample{}, "the CPUs of the BE pods are unknown"},
		{"plain host, without pods", plain, nil, beCPUSample{}, ""},
	} {
		got, why := readBESample(changed(koordTick(0, 0, 0, tt.pods...), tt.change), sloconfig.EvictByRealLimit)
		if why != tt.why || why == "" && got != tt.want {
			t.Errorf("%s: %+v, %q; want %+v, %q", tt.name, got, why, tt.want, tt.why)
		}
	}
}

// requestsInContainers gives a pod containers with their requests for batch-cpu: a sidecar is one of them.
func requestsInContainers(milli ...float64) func(*tick.Pod) {
	return func(p *tick.Pod) {
		for _, m := range milli {
			p.Containers = append(p.Containers, tick.Container{Requests: &tick.Resources{ReclaimedMilliCPU: &m}})
		}
	}
}

// An allocatable batch-cpu of 1 milli-CPU is used as it is: Koordinator uses it for a missing value, and here a missing value
// evicts no pod.
func TestSatisfactionOfOneMilli(t *testing.T) {
	settings := guide(func(th *sloconfig.Threshold) { th.CPUEvictPolicy = tick.Ptr(sloconfig.EvictByAllocatable) })
	for _, tt := range []struct{ requested, value, need float64 }{
		{4000, 0.025, 3199}, {100, 1, 79}, {2, 50, 0}, {1, 100, 0}, // 0.6 is less than a milli-CPU
	} {
		m := steady(settings, 6, func(s int) *tick.Tick {
			x := koordTick(s, 0, 0, bePod("be", request(tt.requested), usage(0, 1)))
			x.Sample.Tiers[0].UsageMilliCPU, x.Sample.Allocatable.ReclaimedMilliCPU = new(0.0), new(1.0)
			return x
		})
		if f := onlyFinding(t, m); f.Value != tt.value || f.Need != tt.need || f.Met != (tt.need > 0) || f.WhyWait != "" || len(m.Errors) > 0 {
			t.Errorf("%v requested: %v, need %v, waits %q, errors %v; want %v, %v", tt.requested, f.Value, f.Need, f.WhyWait, m.Errors, tt.value, tt.need)
		}
	}
}

func TestSatisfactionCandidates(t *testing.T) {
	m := steady(guide(), 6, func(s int) *tick.Tick {
		return koordTick(s, 0, 0,
			bePod("busy", request(1000), usage(900, 0)),
			bePod("idle", request(1000), usage(100, 0)),
			bePod("low", request(1000), usage(0, 0), prioritized(4000)),
			bePod("new", request(1000)),
			bePod("asks-none", usage(2000, 0)),
			bePod("forbids", request(250), usage(500, 0), annotated(qos.EvictionPolicy, `["CPUEvict","becpuevict"]`)),
			bePod("names-none", request(250), usage(500, 0), annotated(qos.EvictionPolicy, `[]`)),
			bePod("names-it", request(500), usage(400, 0), annotated(qos.EvictionPolicy, `["BECPUEvict"]`)),
			bePod("ends", request(500), usage(500, 0), terminating),
			bePod("done", request(500), phase("Succeeded")),
			bePod("service", request(500), usage(500, 0), labelled(qos.KoordinatorClass, qos.LS)),
		)
	})
	f := onlyFinding(t, m)
	// 5000 are requested: 5000 x 0.8 - 2000 are too many.
	if f.Need != 2000 || f.Reason != "EvictPodByBECPUSatisfaction" || f.Cooldown.Seconds() != 20 || f.CooldownKey() != "koordinator cpu" || !f.UntilCovered {
		t.Errorf("%+v", f)
	}
	if d := cmp.Diff(map[string]float64{"busy": 1000, "idle": 1000, "low": 1000, "new": 1000, "names-it": 500, "asks-none": 0}, released(f.Candidates)); d != "" {
		t.Errorf("candidates (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]float64{"forbids": 250, "names-none": 250}, released(f.Others)); d != "" {
		t.Errorf("others (-want +got):\n%s", d)
	}
	if got := strings.Join(ranked(f), " "); got != "low asks-none busy names-it idle new" {
		t.Errorf("order %s", got)
	}
	if want := "killAndEvictBEPodsRelease for node(node-1), need realase CPU : 2000"; f.Candidates[0].Message != want {
		t.Errorf("message %q; want the guide's, %q", f.Candidates[0].Message, want)
	}
	if want := "BE pods may use 2000m of the 5000m of CPU that they request (40%, at or below the threshold of 60%), and use 2000m: 2000m must be released to approach 80%"; f.Message != want {
		t.Errorf("message %q; want %q", f.Message, want)
	}
}
