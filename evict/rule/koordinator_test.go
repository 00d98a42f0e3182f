package rule

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// strategy is the shipped one with changes: everything enabled, and the thresholds with defaults set.
func strategy(change func(*sloconfig.Threshold)) *Settings {
	s := Defaults()
	x := sloconfig.Shipped()
	if change != nil {
		change(&x.Threshold)
	}
	s.Strategies = &x
	return &s
}

// every enables all of Koordinator's rules.
func every(th *sloconfig.Threshold) {
	th.CPUEvictBESatisfactionLowerPercent, th.CPUEvictBESatisfactionUpperPercent = new(int64(60)), new(int64(80))
	th.CPUEvictThresholdPercent, th.EvictEnabledPriorityThreshold = new(int64(70)), new(int64(9999))
	th.MemoryAllocatableEvictThresholdPercent, th.MemoryAllocatableEvictLowerPercent = new(int64(100)), new(int64(90))
	th.CPUAllocatableEvictThresholdPercent, th.CPUAllocatableEvictLowerPercent = new(int64(100)), new(int64(90))
	th.AllocatableEvictPriorityThreshold = new(int64(7999))
}

// koordTick is a node of 10 cores and 100 GiB with the given use, and kubelet's tier of BE pods with so many CPUs.
func koordTick(seconds int, usedMilli, usedGiB float64, pods ...tick.Pod) *tick.Tick {
	return &tick.Tick{
		V: 1, Node: "node-1", Time: at(seconds),
		Sample: &tick.Sample{
			IntervalSeconds: new(5.0), Pods: pods,
			CPU:      &tick.NodeCPU{UsageMilliCPU: new(usedMilli)},
			Memory:   &tick.NodeMemory{TotalBytes: new(100.0 * gib), AvailableBytes: new((100 - usedGiB) * gib)},
			Capacity: &tick.Resources{MilliCPU: new(10_000.0), MemoryBytes: new(100.0 * gib)},
			Allocatable: &tick.Resources{
				MilliCPU: new(10_000.0), MemoryBytes: new(100.0 * gib), ReclaimedMilliCPU: new(4000.0), ReclaimedMemoryBytes: new(40.0 * gib),
				MidMilliCPU: new(2000.0), MidMemoryBytes: new(20.0 * gib),
			},
			Tiers: []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "/kubepods/besteffort", CPUSetCPUs: "0-1", CPUMaxMilliCPU: new(int64(-1)), UsageMilliCPU: new(2000.0)}},
		},
	}
}

// bePod is a batch pod as the cluster describes it.
func bePod(name string, change ...func(*tick.Pod)) tick.Pod {
	p := tick.Pod{
		UID: "uid-" + name, Namespace: "default", Name: name, QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKoordinator, Phase: "Running", KubernetesQOS: qos.BestEffort,
		Labels: map[string]string{qos.KoordinatorClass: qos.BE}, Annotations: map[string]string{}, Priority: new(int64(5000)),
		Requests: &tick.Resources{}, Memory: &tick.Memory{},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func usage(milli, gibs float64) func(*tick.Pod) {
	return func(p *tick.Pod) { p.UsageMilliCPU, p.Memory.RSSBytes = new(milli), new(gibs*gib) }
}

func request(milli float64) func(*tick.Pod) {
	return func(p *tick.Pod) { p.Requests.ReclaimedMilliCPU = new(milli) }
}

func prioritized(n int64) func(*tick.Pod)     { return func(p *tick.Pod) { p.Priority = &n } }
func labelled(key, v string) func(*tick.Pod)  { return func(p *tick.Pod) { p.Labels[key] = v } }
func annotated(key, v string) func(*tick.Pod) { return func(p *tick.Pod) { p.Annotations[key] = v } }
func enabledPod(p *tick.Pod)                  { p.Labels[qos.EvictionEnabled] = "true" }
func terminating(p *tick.Pod)                 { p.Terminating = true }
func phase(v string) func(*tick.Pod)          { return func(p *tick.Pod) { p.Phase = v } }

// released returns the names of a list's pods with the amounts that they release.
func released(list []Candidate) map[string]float64 {
	out := map[string]float64{}
	for _, c := range list {
		out[c.Pod.Name] = c.Releases
	}
	return out
}

// A rule is on, off without an error, or off with an error.
func TestStrategies(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	satisfied := func(lower, upper *int64) func(*sloconfig.Threshold) {
		return func(th *sloconfig.Threshold) {
			th.CPUEvictBESatisfactionLowerPercent, th.CPUEvictBESatisfactionUpperPercent = lower, upper
		}
	}
	usageThresholds := func(upper, lower, priority *int64) func(*sloconfig.Threshold) {
		return func(th *sloconfig.Threshold) {
			th.MemoryEvictThresholdPercent, th.MemoryEvictLowerPercent = upper, lower
			th.CPUEvictThresholdPercent, th.CPUEvictLowerPercent = upper, lower
			th.EvictEnabledPriorityThreshold = priority
		}
	}
	allocatable := func(upper, lower, priority *int64) func(*sloconfig.Threshold) {
		return func(th *sloconfig.Threshold) {
			th.MemoryAllocatableEvictThresholdPercent, th.MemoryAllocatableEvictLowerPercent = upper, lower
			th.CPUAllocatableEvictThresholdPercent, th.CPUAllocatableEvictLowerPercent = upper, lower
			th.AllocatableEvictPriorityThreshold = priority
		}
	}
	const on = ""
	for _, tt := range []struct {
		rule    *Rule
		name    string
		change  func(*sloconfig.Threshold)
		why     string
		isError bool
	}{
		{beMemoryEvict, "the default threshold counts as set", nil, on, false},
		{beMemoryEvict, "not enabled", func(th *sloconfig.Threshold) { th.Enable = new(false) }, "enable is not true", false},
		{beMemoryEvict, "enable is missing", func(th *sloconfig.Threshold) { th.Enable = nil }, "enable is not true", false},
		{beMemoryEvict, "no threshold", usageThresholds(nil, nil, nil), "memoryEvictThresholdPercent is not set", false},
		{beMemoryEvict, "a lower one alone", usageThresholds(nil, n(60), nil), "memoryEvictLowerPercent is set, and memoryEvictThresholdPercent is not", true},
		{beMemoryEvict, "0", usageThresholds(n(0), nil, nil), "memoryEvictThresholdPercent: 0: want 1 to 100", true},
		{beMemoryEvict, "negative", usageThresholds(n(-1), nil, nil), "memoryEvictThresholdPercent: -1: want 1 to 100", true},
		{beMemoryEvict, "over 100", usageThresholds(n(101), nil, nil), "memoryEvictThresholdPercent: 101: want 1 to 100", true},
		{beMemoryEvict, "100", usageThresholds(n(100), nil, nil), on, false},
		{beMemoryEvict, "1", usageThresholds(n(1), nil, nil), on, false},
		{beMemoryEvict, "lower is the same", usageThresholds(n(70), n(70), nil), "memoryEvictLowerPercent: 70: want 0 or more, and less than memoryEvictThresholdPercent, which is 70", true},
		{beMemoryEvict, "lower is over", usageThresholds(n(70), n(71), nil), "memoryEvictLowerPercent: 71: want 0 or more, and less than memoryEvictThresholdPercent, which is 70", true},
		{beMemoryEvict, "lower is negative", usageThresholds(n(70), n(-1), nil), "memoryEvictLowerPercent: -1: want 0 or more, and less than memoryEvictThresholdPercent, which is 70", true},
		{beMemoryEvict, "lower is 0", usageThresholds(n(70), n(0), nil), on, false},
		{memoryEvict, "no priority", nil, "evictEnabledPriorityThreshold is not set", false},
		{memoryEvict, "with one", usageThresholds(n(70), nil, n(0)), on, false},
		{memoryEvict, "a negative one", usageThresholds(n(70), nil, n(-1)), "evictEnabledPriorityThreshold: -1: want a priority of 0 or more", true},
		{memoryEvict, "prod's priority", usageThresholds(n(70), nil, n(9999)), on, false},
		{memoryEvict, "a lower one over it", usageThresholds(n(70), n(80), n(0)), "memoryEvictLowerPercent: 80: want 0 or more, and less than memoryEvictThresholdPercent, which is 70", true},
		{cpuEvict, "nothing", nil, "cpuEvictThresholdPercent is not set", false},
		{cpuEvict, "a priority alone", usageThresholds(nil, nil, n(5)), "cpuEvictThresholdPercent is not set", false},
		{cpuEvict, "no priority", usageThresholds(n(70), nil, nil), "cpuEvictThresholdPercent is set, and evictEnabledPriorityThreshold is not", true},
		{cpuEvict, "both", usageThresholds(n(70), nil, n(5999)), on, false},
		{cpuEvict, "0", usageThresholds(n(0), nil, n(5999)), "cpuEvictThresholdPercent: 0: want 1 to 100", true},
		{cpuEvict, "lower over it", usageThresholds(n(50), n(60), n(5999)), "cpuEvictLowerPercent: 60: want 0 or more, and less than cpuEvictThresholdPercent, which is 50", true},
		{cpuEvict, "not enabled", func(th *sloconfig.Threshold) { every(th); th.Enable = new(false) }, "enable is not true", false},
		{beCPUEvict, "nothing", nil, "cpuEvictBESatisfactionLowerPercent is not set", false},
		{beCPUEvict, "the guide's", satisfied(n(60), n(80)), on, false},
		{beCPUEvict, "lower alone", satisfied(n(60), nil), "cpuEvictBESatisfactionLowerPercent is set, and cpuEvictBESatisfactionUpperPercent is not", true},
		{beCPUEvict, "upper alone", satisfied(nil, n(80)), "cpuEvictBESatisfactionUpperPercent is set, and cpuEvictBESatisfactionLowerPercent is not", true},
		{beCPUEvict, "lower 0", satisfied(n(0), n(80)), "cpuEvictBESatisfactionLowerPercent: 0: want 1 to 60", true},
		{beCPUEvict, "lower 61", satisfied(n(61), n(80)), "cpuEvictBESatisfactionLowerPercent: 61: want 1 to 60", true},
		{beCPUEvict, "upper 100", satisfied(n(60), n(100)), "cpuEvictBESatisfactionUpperPercent: 100: want 1 to 99", true},
		{beCPUEvict, "upper under lower", satisfied(n(60), n(59)), "cpuEvictBESatisfactionUpperPercent: 59: want cpuEvictBESatisfactionLowerPercent, which is 60, or more", true},
		{beCPUEvict, "both the same", satisfied(n(60), n(60)), on, false},
		{beCPUEvict, "usage 101", func(th *sloconfig.Threshold) { every(th); th.CPUEvictBEUsageThresholdPercent = n(101) }, "cpuEvictBEUsageThresholdPercent: 101: want 0 to 100", true},
		{beCPUEvict, "usage negative", func(th *sloconfig.Threshold) { every(th); th.CPUEvictBEUsageThresholdPercent = n(-1) }, "cpuEvictBEUsageThresholdPercent: -1: want 0 to 100", true},
		{beCPUEvict, "usage not set", func(th *sloconfig.Threshold) { every(th); th.CPUEvictBEUsageThresholdPercent = nil }, on, false},
		{beCPUEvict, "no such policy", func(th *sloconfig.Threshold) { every(th); th.CPUEvictPolicy = new("evictByMood") }, `cpuEvictPolicy: "evictByMood": want evictByRealLimit or evictByAllocatable`, true},
		{beCPUEvict, "an empty policy", func(th *sloconfig.Threshold) { every(th); th.CPUEvictPolicy = new("") }, on, false},
		{memoryAllocatableEvict, "nothing", nil, "memoryAllocatableEvictThresholdPercent is not set", false},
		{memoryAllocatableEvict, "upper alone", allocatable(n(100), nil, n(5999)), "memoryAllocatableEvictThresholdPercent is set, and memoryAllocatableEvictLowerPercent is not", true},
		{memoryAllocatableEvict, "lower alone", allocatable(nil, n(90), n(5999)), "memoryAllocatableEvictLowerPercent is set, and memoryAllocatableEvictThresholdPercent is not", true},
		{memoryAllocatableEvict, "no priority", allocatable(n(100), n(90), nil), "memoryAllocatableEvictThresholdPercent is set, and allocatableEvictPriorityThreshold is not", true},
		{memoryAllocatableEvict, "prod's priority", allocatable(n(100), n(90), n(8000)), "allocatableEvictPriorityThreshold: 8000: want 0 to 7999", true},
		{memoryAllocatableEvict, "a negative one", allocatable(n(100), n(90), n(-1)), "allocatableEvictPriorityThreshold: -1: want 0 to 7999", true},
		{memoryAllocatableEvict, "no upper bound", allocatable(n(900), n(800), n(7999)), on, false},
		{memoryAllocatableEvict, "but what can be a percentage", allocatable(n(math.MaxInt64), n(800), n(7999)), "memoryAllocatableEvictThresholdPercent: 9223372036854775807: want at most 1000000", true},
		{memoryAllocatableEvict, "0", allocatable(n(0), n(0), n(7999)), "memoryAllocatableEvictLowerPercent: 0: want 0 or more, and less than memoryAllocatableEvictThresholdPercent, which is 0", true},
		{cpuAllocatableEvict, "nothing", nil, "cpuAllocatableEvictThresholdPercent is not set", false},
		{cpuAllocatableEvict, "a priority alone", allocatable(nil, nil, n(7999)), "cpuAllocatableEvictThresholdPercent is not set", false},
		{cpuAllocatableEvict, "all", allocatable(n(100), n(0), n(7999)), on, false},
		{cpuAllocatableEvict, "lower over it", allocatable(n(100), n(101), n(7999)), "cpuAllocatableEvictLowerPercent: 101: want 0 or more, and less than cpuAllocatableEvictThresholdPercent, which is 100", true},
		{cpuAllocatableEvict, "not enabled", func(th *sloconfig.Threshold) { every(th); th.Enable = nil }, "enable is not true", false},
	} {
		t.Run(tt.rule.Name+"/"+tt.name, func(t *testing.T) {
			s := strategy(tt.change)
			if why, isError := tt.rule.WhyOff(s.Strategies); why != tt.why || isError != tt.isError {
				t.Errorf("WhyOff = %q, %t; want %q, %t", why, isError, tt.why, tt.isError)
			}
			// A rule that is off measures nothing, and reports why if that is an error.
			m := tt.rule.New().Measure(s, koordTick(0, 9900, 99, bePod("be", usage(2000, 50), request(9000), enabledPod)))
			if tt.why == on {
				return
			}
			var want []string
			if tt.isError {
				want = []string{tt.rule.Name + ": resource-threshold-config: " + tt.why + ": the rule is off"}
			}
			if d := cmp.Diff(want, m.Errors); d != "" || len(m.Findings) > 0 {
				t.Errorf("findings %+v, errors (-want +got):\n%s", m.Findings, d)
			}
		})
	}
}

// Without strategies none of Koordinator's rules measures anything, and the other rules do not depend on them.
func TestNoStrategies(t *testing.T) {
	s := Defaults()
	names := ""
	for _, r := range All {
		if r.Strategy == nil {
			if IsKoordinator(r.Name) {
				t.Errorf("%s is one of Koordinator's", r.Name)
			}
			continue
		}
		names += r.Name + " "
		if !IsKoordinator(r.Name) || len(r.Thresholds) < 3 || r.Rows != nil {
			t.Errorf("%s: want it to be Koordinator's, with thresholds and no settings of its own", r.Name)
		}
		if m := r.New().Measure(&s, koordTick(0, 9900, 99, bePod("be", usage(2000, 50), request(9000)))); len(m.Findings) > 0 || len(m.Errors) > 0 {
			t.Errorf("%s measures without a strategy: %+v", r.Name, m)
		}
		if why, isError := r.WhyOff(nil); why != "the tick has no strategies of Koordinator" || isError {
			t.Errorf("%s: WhyOff = %q, %t", r.Name, why, isError)
		}
	}
	if want := "BEMemoryEvict BECPUEvict MemoryAllocatableEvict CPUAllocatableEvict MemoryEvict CPUEvict "; names != want {
		t.Errorf("Koordinator's rules are measured in the order %s; want %s", names, want)
	}
	if IsKoordinator("agent-health") || IsKoordinator("") {
		t.Error("other names count as Koordinator's")
	}
}

// This is the order of BE pods, for any order of the input.
func TestRankBEPods(t *testing.T) {
	none := func(p *tick.Pod) { p.Priority = nil }
	unknown := func(p *tick.Pod) { p.Memory.RSSBytes = nil }
	for _, tt := range []struct {
		name string
		pods []tick.Pod
		want string
	}{
		{"priority before use", []tick.Pod{bePod("high", prioritized(5500), usage(0, 9)), bePod("low", prioritized(5000), usage(0, 1))}, "low high"},
		{"use within a priority", []tick.Pod{bePod("small", usage(0, 1)), bePod("large", usage(0, 2))}, "large small"},
		{"negative priorities", []tick.Pod{bePod("a", prioritized(-1), usage(0, 1)), bePod("b", prioritized(0), usage(0, 2))}, "a b"},
		{"without priorities, only use", []tick.Pod{bePod("a", none, usage(0, 1)), bePod("b", none, usage(0, 2))}, "b a"},
		{"one without a priority, only use", []tick.Pod{bePod("a", prioritized(1), usage(0, 1)), bePod("b", none, usage(0, 2)), bePod("c", prioritized(9), usage(0, 3))}, "c b a"},
		{"unknown use last, by name from the end", []tick.Pod{bePod("a", unknown), bePod("b", unknown), bePod("c", usage(0, 0)), bePod("d", usage(0, 1))}, "d c b a"},
		{"unknown use within a priority", []tick.Pod{bePod("a", prioritized(1), unknown), bePod("b", prioritized(2), usage(0, 5))}, "a b"},
		{"equal ones by name", []tick.Pod{bePod("b", usage(0, 1)), bePod("a", usage(0, 1))}, "a b"},
	} {
		for range 2 {
			var f Finding
			for i := range tt.pods {
				f.Candidates = append(f.Candidates, Candidate{Pod: &tt.pods[i]})
			}
			rankBEPods(f.Candidates, anonymousMemory)
			if got := strings.Join(ranked(f), " "); got != tt.want {
				t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
			}
			for i, j := 0, len(tt.pods)-1; i < j; i, j = i+1, j-1 {
				tt.pods[i], tt.pods[j] = tt.pods[j], tt.pods[i]
			}
		}
	}
}

// This is the order of the pods of the newer rules.
func TestEvictionRank(t *testing.T) {
	classPriority := func(n int64) func(*tick.Pod) { return func(p *tick.Pod) { p.KoordinatorPriority = &n } }
	class := func(p *tick.Pod) { p.Priority = nil; p.Labels[qos.KoordinatorPriorityClass] = qos.Free }
	for _, tt := range []struct {
		name          string
		first, second tick.Pod
	}{
		{"eviction priority", bePod("a", annotated(qos.EvictionPriority, "-5"), prioritized(9000)), bePod("b", prioritized(1))},
		{"an eviction priority that is no number is 0", bePod("b", annotated(qos.EvictionPriority, "-1"), prioritized(9000)), bePod("a", annotated(qos.EvictionPriority, "-9e9"), prioritized(1))},
		{"one of more than 32 bits is 0", bePod("b", annotated(qos.EvictionPriority, "-1")), bePod("a", annotated(qos.EvictionPriority, "-2147483649"))},
		{"priority", bePod("b", prioritized(5000), usage(0, 1)), bePod("a", prioritized(5001), usage(0, 9))},
		{"the class's number for a missing one", bePod("b", class, usage(0, 1)), bePod("a", prioritized(5000), usage(0, 9))},
		{"priority within the class", bePod("b", classPriority(10), usage(0, 1)), bePod("a", classPriority(11), usage(0, 9))},
		{"within the class, spec.priority for a missing one", bePod("b", classPriority(10)), bePod("a")},
		{"use", bePod("b", usage(0, 2)), bePod("a", usage(0, 1))},
		{"name", bePod("a", usage(0, 2)), bePod("b", usage(0, 2))},
	} {
		var list []Candidate
		for _, p := range []*tick.Pod{&tt.first, &tt.second} {
			used, _ := anonymousMemory(p)
			list = append(list, Candidate{Pod: p, Rank: evictionRank(p, used)})
		}
		if Compare(list[0], list[1]) >= 0 || Compare(list[1], list[0]) <= 0 {
			t.Errorf("%s: %s is not before %s: ranks %v, %v", tt.name, tt.first.Name, tt.second.Name, list[0].Rank, list[1].Rank)
		}
	}
}

// These pods permit eviction by the newer rules.
func TestPermitsEviction(t *testing.T) {
	const maxPriority = 5999
	for _, tt := range []struct {
		name string
		pod  tick.Pod
		want bool
	}{
		{"labelled", bePod("p", enabledPod), true},
		{"not labelled", bePod("p"), false},
		{"labelled with another value", bePod("p", labelled(qos.EvictionEnabled, "True")), false},
		{"labelled false", bePod("p", labelled(qos.EvictionEnabled, "false")), false},
		{"at the priority", bePod("p", enabledPod, prioritized(5999)), true},
		{"over the priority", bePod("p", enabledPod, prioritized(6000)), false},
		{"no priority and class batch", bePod("p", enabledPod, func(p *tick.Pod) { p.Priority = nil }), true},
		{"no priority and class prod", bePod("p", enabledPod, func(p *tick.Pod) { p.Priority = nil; p.Labels[qos.KoordinatorClass] = qos.LS }), false},
		{"policy names it", bePod("p", enabledPod, annotated(qos.EvictionPolicy, `["CPUEvict","MemoryEvict"]`)), true},
		{"policy names another", bePod("p", enabledPod, annotated(qos.EvictionPolicy, `["CPUEvict"]`)), false},
		{"policy names none", bePod("p", enabledPod, annotated(qos.EvictionPolicy, `[]`)), false},
		{"policy is empty", bePod("p", enabledPod, annotated(qos.EvictionPolicy, ``)), false},
		{"policy is no list", bePod("p", enabledPod, annotated(qos.EvictionPolicy, `"MemoryEvict"`)), false},
		{"policy in lower case", bePod("p", enabledPod, annotated(qos.EvictionPolicy, `["memoryevict"]`)), false},
		{"succeeded", bePod("p", enabledPod, phase("Succeeded")), false},
		{"failed", bePod("p", enabledPod, phase("Failed")), false},
		{"terminating", bePod("p", enabledPod, terminating), false},
		{"pending", bePod("p", enabledPod, phase("Pending")), true},
	} {
		if got := permitsEviction(&tt.pod, "MemoryEvict", maxPriority); got != tt.want {
			t.Errorf("%s: %t; want %t", tt.name, got, tt.want)
		}
	}
}

func TestWholePercent(t *testing.T) {
	for _, tt := range []struct{ part, whole, want float64 }{
		{70.9, 100, 70}, {70, 100, 70}, {69.999, 100, 69}, {0, 100, 0}, {150, 100, 150}, {1e18, 1, 1e18}, {1, 3, 33},
	} {
		if got := wholePercent(tt.part, tt.whole); got != tt.want {
			t.Errorf("wholePercent(%v, %v) = %v; want %v", tt.part, tt.whole, got, tt.want)
		}
	}
}

// errorsOf returns a measure's errors as one text.
func errorsOf(m Measure) string { return strings.Join(m.Errors, "\n") }

// onlyFinding returns a measure's only finding.
func onlyFinding(t *testing.T, m Measure) Finding {
	t.Helper()
	if len(m.Findings) != 1 {
		t.Fatalf("%d findings; want one (errors: %s)", len(m.Findings), errorsOf(m))
	}
	return m.Findings[0]
}

func text(f Finding) string { return fmt.Sprintf("%v %v %t %v", f.Value, f.Threshold, f.Met, f.Need) }

// pressedTick requires evictions by every rule of Koordinator's.
func pressedTick(seconds int) *tick.Tick {
	return koordTick(seconds, 9500, 95,
		bePod("batch", enabledPod, requestBatch(9000, 90), usage(900, 9)),
		bePod("mid", enabledPod, requestMid(9000, 90), usage(500, 5)),
		bePod("free", enabledPod, requestOwn(3000, 50_000, 500), usage(700, 7)))
}

func TestKoordinatorWindowsSurviveEncoding(t *testing.T) {
	s := strategy(func(th *sloconfig.Threshold) { every(th); th.CPUEvictTimeWindowSeconds = new(int64(60)) })
	for _, r := range All {
		if !IsKoordinator(r.Name) {
			continue
		}
		w := r.New()
		for i := range 9 {
			w.Measure(s, pressedTick(5*i))
		}
		data, err := tick.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		again := r.New()
		if err := tick.Unmarshal(data, again); err != nil {
			t.Fatal(err)
		}
		next := pressedTick(45)
		before := w.Measure(s, next)
		if d := cmp.Diff(before, again.Measure(s, next)); d != "" {
			t.Errorf("%s after encoding (-before +after):\n%s", r.Name, d)
		}
		if len(before.Findings) == 0 || len(before.Errors) > 0 {
			t.Errorf("%s: %+v", r.Name, before)
		}
		for _, f := range before.Findings {
			if !f.Met || f.WhyWait != "" || len(f.Candidates) == 0 {
				t.Errorf("%s: %+v is not met: its window is not complete", r.Name, f.PressureFinding)
			}
		}
	}
}
