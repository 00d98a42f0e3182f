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

// These are value, threshold, whether it is met and the need, for the node's use in GiB of 100.
func TestBEMemoryUse(t *testing.T) {
	lower := func(n int64) func(*sloconfig.Threshold) {
		return func(th *sloconfig.Threshold) { th.MemoryEvictLowerPercent = &n }
	}
	for _, tt := range []struct {
		name   string
		used   float64
		change func(*sloconfig.Threshold)
		value  float64
		met    bool
		need   float64 // in GiB
	}{
		{"nothing is used", 0, nil, 0, false, 0},
		{"under", 69.99, nil, 69, false, 0},
		{"at the threshold: to 2 under it", 70, nil, 70, true, 2},
		{"a fraction does not count", 70.9, nil, 70, true, 2},
		{"over", 75.5, nil, 75, true, 7},
		{"all of it", 100, nil, 100, true, 32},
		{"to a lower one", 70, lower(60), 70, true, 10},
		{"to a lower one of 0", 70, lower(0), 70, true, 70},
		{"a threshold of 1", 1, func(th *sloconfig.Threshold) { th.MemoryEvictThresholdPercent = new(int64(1)) }, 1, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := strategy(tt.change)
			f := onlyFinding(t, beMemoryEvict.New().Measure(s, koordTick(0, 0, tt.used, bePod("be", usage(0, 1)))))
			if f.Value != tt.value || f.Met != tt.met || f.Need != tt.need*gib || !f.Hard || f.Below || f.Threshold != float64(*s.Strategies.Threshold.MemoryEvictThresholdPercent) {
				t.Errorf("%+v, need %v GiB; want %v, met %t, need %v GiB", f.PressureFinding, f.Need/gib, tt.value, tt.met, tt.need)
			}
			if tt.met != (len(f.Candidates) == 1) || tt.met != (f.Since != "") {
				t.Errorf("met %t, candidates %v, since %q", tt.met, f.Candidates, f.Since)
			}
			if f.Cooldown.Seconds() != 4 || f.CooldownKey() != "koordinator memory" || !f.UntilCovered || f.GracePeriodSeconds != nil || f.Tolerance != 0 || f.Taint != nil {
				t.Errorf("%+v: want a cooldown of 4 s for all memory rules, the pod's own grace, no tolerance and no taint", f)
			}
		})
	}
}

// The capacity is the Node object's, which may differ from the kernel's total.
func TestBEMemoryOfCapacity(t *testing.T) {
	x := koordTick(0, 0, 75, bePod("be", usage(0, 1)))
	x.Sample.Capacity.MemoryBytes = new(50.0 * gib)
	f := onlyFinding(t, beMemoryEvict.New().Measure(strategy(nil), x))
	if f.Value != 150 || f.Need != 41*gib {
		t.Errorf("%s; want 150 %% of the capacity, and 82 %% of it to be released", text(f))
	}
}

func TestBEMemoryMissing(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*tick.Sample)
		want   string
	}{
		{"no memory", func(s *tick.Sample) { s.Memory = nil }, "the sample lacks the node's memory or capacity"},
		{"no capacity", func(s *tick.Sample) { s.Capacity = nil }, "the sample lacks the node's memory or capacity"},
		{"no total", func(s *tick.Sample) { s.Memory.TotalBytes = nil }, "the sample lacks the node's total or available memory"},
		{"no available", func(s *tick.Sample) { s.Memory.AvailableBytes = nil }, "the sample lacks the node's total or available memory"},
		{"more available than there is", func(s *tick.Sample) { s.Memory.AvailableBytes = new(101.0 * gib) }, "the sample lacks the node's total or available memory"},
		{"negative", func(s *tick.Sample) { s.Memory.AvailableBytes = new(-1.0) }, "the sample lacks the node's total or available memory"},
		{"huge", func(s *tick.Sample) { s.Memory.TotalBytes = new(1e300) }, "the sample lacks the node's total or available memory"},
		{"no memory capacity", func(s *tick.Sample) { s.Capacity.MemoryBytes = nil }, "the sample lacks the node's memory capacity"},
		{"a capacity of 0", func(s *tick.Sample) { s.Capacity.MemoryBytes = new(0.0) }, "the sample lacks the node's memory capacity"},
		{"no number", func(s *tick.Sample) { s.Capacity.MemoryBytes = new(math.NaN()) }, "the sample lacks the node's memory capacity"},
	} {
		w := beMemoryEvict.New()
		w.Measure(strategy(nil), koordTick(0, 0, 90, bePod("be", usage(0, 1))))
		x := koordTick(5, 0, 90, bePod("be", usage(0, 1)))
		tt.change(x.Sample)
		m := w.Measure(strategy(nil), x)
		if want := "BEMemoryEvict: " + tt.want + ": not measured"; len(m.Findings) > 0 || errorsOf(m) != want {
			t.Errorf("%s: findings %+v, errors %q; want %q", tt.name, m.Findings, errorsOf(m), want)
		}
		// A condition that was met before a gap starts over after it.
		if f := onlyFinding(t, w.Measure(strategy(nil), koordTick(10, 0, 90))); f.Since != at(10).Format("2006-01-02T15:04:05Z") {
			t.Errorf("%s: met since %s; want since after the gap", tt.name, f.Since)
		}
	}
}

// These pods are candidates, and these count as released.
func TestBEMemoryCandidates(t *testing.T) {
	unknown := func(p *tick.Pod) { p.Memory = nil }
	x := koordTick(0, 0, 75,
		bePod("be", usage(0, 3)),
		bePod("allowed", usage(0, 4), annotated(qos.EvictionPolicy, `["BEMemoryEvict"]`)),
		bePod("forbids", usage(0, 5), annotated(qos.EvictionPolicy, `["BECPUEvict"]`)),
		bePod("ends", usage(0, 6), terminating),
		bePod("done", usage(0, 7), phase("Succeeded")),
		bePod("failed", usage(0, 7), phase("Failed")),
		bePod("waits", unknown, phase("Pending"), func(p *tick.Pod) { p.Missing = tick.MissingCgroup }),
		bePod("new", unknown),
		bePod("unknown-ends", unknown, terminating, func(p *tick.Pod) { p.Containers = []tick.Container{{Name: "main"}} }),
		bePod("without-containers", unknown, terminating, func(p *tick.Pod) { p.Cgroup = "/gone" }),
		bePod("plain", usage(0, 8), func(p *tick.Pod) { p.Labels, p.QoSSource = nil, tick.QoSFromRule }),
		bePod("by-kubernetes", usage(0, 8), func(p *tick.Pod) { p.Labels, p.QoSSource = nil, tick.QoSFromKubernetes }),
		bePod("service", usage(0, 20), labelled(qos.KoordinatorClass, qos.LS), func(p *tick.Pod) { p.QoS = tick.QoSShared }),
		bePod("typo", usage(0, 20), labelled(qos.KoordinatorClass, "be"), func(p *tick.Pod) { p.QoS = tick.QoSShared }),
	)
	f := onlyFinding(t, beMemoryEvict.New().Measure(strategy(nil), x))
	if d := cmp.Diff(map[string]float64{"be": 3 * gib, "allowed": 4 * gib, "plain": 8 * gib, "new": 7 * gib}, released(f.Candidates)); d != "" {
		t.Errorf("candidates (-want +got):\n%s", d)
	}
	others := map[string]float64{
		"forbids": 5 * gib, "ends": 6 * gib, "unknown-ends": 7 * gib, "by-kubernetes": 8 * gib, "service": 20 * gib, "typo": 20 * gib,
	}
	if d := cmp.Diff(others, released(f.Others)); d != "" {
		t.Errorf("others (-want +got):\n%s", d)
	}
	if got := strings.Join(ranked(f), " "); got != "plain allowed be new" {
		t.Errorf("order %s", got)
	}
	if want := "killAndEvictBEPods for node(node-1), need to release memory: 7516192768"; f.Reason != "EvictPodByNodeMemoryUsage" || f.Candidates[0].Message != want {
		t.Errorf("reason %q, message %q; want the guide's, %q", f.Reason, f.Candidates[0].Message, want)
	}
	if want := "75% of the node's memory is used (76800Mi of 102400Mi), at or over the threshold of 70%: 7168Mi must be released to reach 68%"; f.Message != want {
		t.Errorf("message %q; want %q", f.Message, want)
	}
}

// A pod without a container, such as one whose container fails at each start, uses nothing: it is not evicted instead of the pod that uses
// the memory, even if its priority is lower.
func TestBEMemoryWithoutContainer(t *testing.T) {
	failing := bePod("failing", prioritized(5000), func(p *tick.Pod) { p.Memory, p.Containers, p.Cgroup = nil, nil, "/failing" })
	user := bePod("user", prioritized(5500), usage(0, 20))
	f := onlyFinding(t, beMemoryEvict.New().Measure(strategy(nil), koordTick(0, 0, 75, failing, user)))
	if got := strings.Join(ranked(f), " "); got != "user" || len(f.Others) > 0 {
		t.Errorf("candidates %s, others %v; want the pod with a container alone", got, released(f.Others))
	}
	// With a container of unknown memory, it may use any amount.
	failing.Containers = []tick.Container{{Name: "main"}}
	f = onlyFinding(t, beMemoryEvict.New().Measure(strategy(nil), koordTick(0, 0, 75, failing, user)))
	if got := strings.Join(ranked(f), " "); got != "failing user" {
		t.Errorf("candidates %s; want the pod of the lower priority, whose memory is unknown, first", got)
	}
}

// A pod's use is its anonymous memory, or the containers' sum if the pod has none.
func TestAnonymous(t *testing.T) {
	p := bePod("be", func(p *tick.Pod) {
		p.Memory = &tick.Memory{UsageBytes: new(9.0), WorkingSetBytes: new(8.0), CacheBytes: new(7.0)}
		p.Containers = []tick.Container{{Memory: &tick.Memory{RSSBytes: new(2.0)}}, {Memory: &tick.Memory{RSSBytes: new(3.0)}}, {}}
	})
	if v, ok := anonymousMemory(&p); v != 5 || !ok {
		t.Errorf("anonymousMemory = %v, %t; want 5", v, ok)
	}
	p.Containers = nil
	if _, ok := anonymousMemory(&p); ok {
		t.Error("usage and cache replace unknown anonymous memory")
	}
}

// MemoryEvict evicts any pods that permit it, with the same thresholds.
func TestMemoryEvict(t *testing.T) {
	unknown := func(p *tick.Pod) { p.Memory = nil }
	service := func(p *tick.Pod) { p.QoS, p.Labels[qos.KoordinatorClass] = tick.QoSShared, qos.LS }
	pods := []tick.Pod{
		bePod("be", usage(0, 3), enabledPod),
		bePod("not-labelled", usage(0, 4)),
		bePod("service", usage(0, 5), enabledPod, service, prioritized(5999)),
		bePod("prod", usage(0, 6), enabledPod, service, prioritized(9000)),
		bePod("new", enabledPod, unknown), // its end releases all that is needed, if another rule evicts it
		bePod("without-containers", enabledPod, unknown, func(p *tick.Pod) { p.Cgroup = "/empty" }),
		bePod("ends", usage(0, 7), enabledPod, terminating),
		bePod("done", usage(0, 8), enabledPod, phase("Succeeded")),
		bePod("forbids", usage(0, 9), enabledPod, annotated(qos.EvictionPolicy, `["BEMemoryEvict"]`)),
	}
	s := strategy(func(th *sloconfig.Threshold) { th.EvictEnabledPriorityThreshold = new(int64(5999)) })
	f := onlyFinding(t, memoryEvict.New().Measure(s, koordTick(0, 0, 70.9, pods...)))
	if text(f) != text(Finding{PressureFinding: tick.PressureFinding{Value: 70, Threshold: 70, Met: true}, Need: 2 * gib}) || !f.Hard {
		t.Errorf("%s; want 70 of 70, and 2 GiB", text(f))
	}
	if d := cmp.Diff(map[string]float64{"be": 3 * gib, "service": 5 * gib}, released(f.Candidates)); d != "" {
		t.Errorf("candidates (-want +got):\n%s", d)
	}
	others := map[string]float64{"not-labelled": 4 * gib, "prod": 6 * gib, "new": 2 * gib, "ends": 7 * gib, "forbids": 9 * gib}
	if d := cmp.Diff(others, released(f.Others)); d != "" {
		t.Errorf("others (-want +got):\n%s", d)
	}
	if got := strings.Join(ranked(f), " "); got != "be service" {
		t.Errorf("order %s", got)
	}
	if f.Reason != "evicted" || f.Candidates[0].Message != "trigger by koordlet feature MemoryEvict, kill pod: be" || f.CooldownKey() != "koordinator memory" {
		t.Errorf("reason %q, message %q, cooldown %q", f.Reason, f.Candidates[0].Message, f.CooldownKey())
	}
	if f := onlyFinding(t, memoryEvict.New().Measure(s, koordTick(0, 0, 69.9, pods...))); f.Met || len(f.Candidates)+len(f.Others) > 0 {
		t.Errorf("under the threshold: %+v", f)
	}
	x := koordTick(0, 0, 99)
	x.Sample.Memory = nil
	if m := memoryEvict.New().Measure(s, x); len(m.Findings) > 0 || errorsOf(m) != "MemoryEvict: the sample lacks the node's memory or capacity: not measured" {
		t.Errorf("without memory: %+v", m)
	}
}
