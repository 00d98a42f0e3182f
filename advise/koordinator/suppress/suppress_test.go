package suppress

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// machine returns the 48-CPU node of the guides, with kubelet's cgroups and its CPU manager off.
func machine(pods ...tick.Pod) *tick.Sample {
	t := &tick.Topology{
		CPUs: "0-47", Sockets: []string{"0-11,24-35", "12-23,36-47"},
		NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-11,24-35"}, {ID: 1, CPUs: "12-23,36-47"}},
	}
	for i := range 24 {
		t.Cores = append(t.Cores, fmt.Sprintf("%d,%d", i, i+24))
	}
	return &tick.Sample{
		Topology: t, CgroupVersion: 2, Pods: pods,
		CPU:         &tick.NodeCPU{UsageMilliCPU: new(10_000.0)},
		Capacity:    &tick.Resources{MilliCPU: new(48_000.0)},
		Allocatable: &tick.Resources{MilliCPU: new(48_000.0)},
		Kubelet:     &tick.Kubelet{CPUManagerPolicy: "none"},
		Tiers: []tick.Tier{
			{Name: tick.TierPods, Cgroup: "/kubepods", CPUSetCPUs: "0-47", CPUMaxMilliCPU: new(int64(-1))},
			{Name: tick.TierBestEffort, Cgroup: tier, CPUSetCPUs: "0-47", CPUMaxMilliCPU: new(int64(-1))},
		},
	}
}

const tier = "/kubepods/besteffort"

// service returns a Burstable pod without a label.
func service(use float64) tick.Pod {
	return tick.Pod{
		UID: "s", Namespace: "shop", Name: "web", QoS: tick.QoSShared, QoSSource: tick.QoSFromKubernetes, KubernetesQOS: "Burstable",
		Cgroup: "/kubepods/burstable/pods", UsageMilliCPU: &use, Containers: []tick.Container{{Name: "web", Cgroup: "/kubepods/burstable/pods/c"}},
	}
}

// labelled returns a pod with Koordinator's label.
func labelled(class, name string, use float64) tick.Pod {
	at, kubernetes := "/kubepods/pod"+name, "Guaranteed"
	if class == "BE" {
		at, kubernetes = tier+"/pod"+name, "BestEffort"
	}
	return tick.Pod{
		UID: name, Namespace: "ns", Name: name, QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKoordinator, KubernetesQOS: kubernetes,
		Labels: map[string]string{"koordinator.sh/qosClass": class}, Annotations: map[string]string{},
		Cgroup: at, UsageMilliCPU: &use, Containers: []tick.Container{{Name: "main", Cgroup: at + "/c", CPUSetCPUs: "0-47"}},
	}
}

// pinned returns one with CPUs from Koordinator's scheduler.
func pinned(class, name, list string) tick.Pod {
	pod := labelled(class, name, 0)
	pod.Annotations[annotation.Status] = fmt.Sprintf(`{"cpuset":%q,"numaNodeResources":[{"node":0}]}`, list)
	pod.Requests = &tick.Resources{MilliCPU: new(float64(parse(list).Size()) * 1000)}
	return pod
}

// rulePod returns a cgroup on a machine without Kubernetes.
func rulePod(class, at string, use float64) tick.Pod {
	return tick.Pod{
		UID: at, Name: at[1:], QoS: class, QoSSource: tick.QoSFromRule, Cgroup: at, UsageMilliCPU: &use,
		Containers: []tick.Container{{Name: at[1:], Cgroup: at, CPUSetCPUs: "0-47"}},
	}
}

// plain converts a sample to one of a machine without Kubernetes.
func plain(s *tick.Sample) *tick.Sample {
	s.Tiers, s.Kubelet = nil, nil
	return s
}

// with returns the shipped strategies, changed.
func with(change func(*sloconfig.Strategies)) *sloconfig.Strategies {
	s := sloconfig.Shipped()
	if change != nil {
		change(&s)
	}
	return &s
}

func byPolicy(name string) *sloconfig.Strategies {
	return with(func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressPolicy = &name })
}

func disabled() *sloconfig.Strategies {
	return with(func(s *sloconfig.Strategies) { s.Threshold.Enable = new(false) })
}

func (st *State) step(s *tick.Sample, strategies *sloconfig.Strategies) *tick.Advice {
	a := &tick.Advice{}
	st.Advise(&tick.Tick{V: 1, Node: "n", Time: time.Unix(1_767_225_600, 0), Sample: s}, strategies, a, Settings{})
	return a
}

// of returns what is desired of a cgroup.
func of(t *testing.T, list []tick.Cgroup, path string) tick.Cgroup {
	t.Helper()
	found := tick.Cgroup{}
	for _, c := range list {
		if c.Cgroup == path {
			if found.Cgroup != "" {
				t.Fatalf("%s is named twice", path)
			}
			found = c
		}
	}
	return found
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func hasReason(a *tick.Advice, part string) bool {
	return strings.Contains(strings.Join(a.Reasons, "\n"), part)
}

// Errors in the annotation of reserved CPUs are reported, the list's before the quantity's; of pods' annotations only the first error.
func TestFaultsOfAnnotationsAreReported(t *testing.T) {
	for text, want := range map[string]string{
		`{"resources":{"cpu":"x"}}`:                         "resources.cpu: ",
		`{"resources":{"cpu":"x"},"reservedCPUs":"nought"}`: "reservedCPUs: ",
	} {
		s := withBudget(4000)
		s.Annotations = map[string]string{annotation.Reservation: text}
		if a := new(State).step(s, with(nil)); !hasReason(a, "annotation "+annotation.Reservation+": "+want) {
			t.Errorf("%s: %q; want %q", text, a.Reasons, want)
		}
	}
	for n, want := range map[int]string{1: "pod ns/e0: annotation scheduling.koordinator.sh/resource-status: ", 3: " (and 2 more pods)"} {
		s := withBudget(4000)
		for i := range n {
			s.Pods = append(s.Pods, pinned("LSE", fmt.Sprint("e", i), "nought"))
		}
		if a := new(State).step(s, with(nil)); !hasReason(a, want) || hasReason(a, "more pods)") != (n > 1) {
			t.Errorf("%d pods: %q; want %q", n, a.Reasons, want)
		}
	}
}

func TestBudget(t *testing.T) {
	annotated := func(s *tick.Sample, text string) { s.Annotations = map[string]string{annotation.Reservation: text} }
	for _, c := range []struct {
		name   string
		change func(*tick.Sample)
		slo    func(*sloconfig.Strategies)
		want   int64
	}{
		// 48000 * 65 % - 4000 - max(10000 - 7000, 0)
		{"the sum", nil, nil, 31200 - 4000 - 3000},
		{"another threshold", nil, func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressThresholdPercent = new(int64(50)) }, 24000 - 7000},
		{"no threshold is the default", nil, func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressThresholdPercent = nil }, 31200 - 7000},
		{"threshold 0", nil, func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressThresholdPercent = new(int64(0)) }, -7000},
		{"a threshold over 100 is 100", nil, func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressThresholdPercent = new(int64(1 << 60)) }, 48000 - 7000},
		{"a negative threshold is 0", nil, func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressThresholdPercent = new(int64(-5)) }, -7000},
		{"percent is cut to a whole number", func(s *tick.Sample) { s.Capacity.MilliCPU = new(1001.0) }, nil, 650 - 7000 + 0},
		{"use is cut to whole milli-CPU", func(s *tick.Sample) { s.Pods[0].UsageMilliCPU = new(4000.9); s.CPU.UsageMilliCPU = new(10_001.8) }, nil, 31200 - 4000 - 3000},
		{"negative where services use it all", func(s *tick.Sample) { s.Pods[0].UsageMilliCPU = new(40_000.0) }, nil, 31200 - 40000},
		{"not under the least share", func(s *tick.Sample) { s.Pods[0].UsageMilliCPU = new(40_000.0) }, func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressMinPercent = new(int64(20)) }, 9600},
		{"the least share does not bind above", nil, func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressMinPercent = new(int64(20)) }, 24200},
		{"a least share of 0", func(s *tick.Sample) { s.Pods[0].UsageMilliCPU = new(40_000.0) }, func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressMinPercent = new(int64(0)) }, 0},
		{"pods use more than the node", func(s *tick.Sample) { s.CPU.UsageMilliCPU = new(5_000.0) }, nil, 31200 - 4000},
		{"kubelet reserves more than the system uses", func(s *tick.Sample) { s.Allocatable.MilliCPU = new(43_000.0) }, nil, 31200 - 4000 - 5000},
		{"allocatable over capacity", func(s *tick.Sample) { s.Allocatable.MilliCPU = new(99_000.0) }, nil, 24200},
		{"no allocatable", func(s *tick.Sample) { s.Allocatable = nil }, nil, 24200},
		{"the annotation reserves more", func(s *tick.Sample) { annotated(s, `{"resources":{"cpu":"6"}}`) }, nil, 31200 - 4000 - 6000},
		{"the annotation reserves less than kubelet", func(s *tick.Sample) {
			annotated(s, `{"resources":{"cpu":"4500m"}}`)
			s.Allocatable.MilliCPU = new(43_000.0)
		}, nil, 31200 - 4000 - 5000},
		{"named CPUs take the quantity's place", func(s *tick.Sample) { annotated(s, `{"resources":{"cpu":"20"},"reservedCPUs":"0-3"}`) }, nil, 31200 - 4000 - 4000},
		{"for reserved CPUs only", func(s *tick.Sample) { annotated(s, `{"reservedCPUs":"0-9","applyPolicy":"ReservedCPUsOnly"}`) }, nil, 31200 - 4000 - 10000},
		{"an invalid list leaves the quantity", func(s *tick.Sample) { annotated(s, `{"resources":{"cpu":6},"reservedCPUs":"0-"}`) }, nil, 31200 - 4000 - 6000},
		{"an invalid quantity", func(s *tick.Sample) { annotated(s, `{"resources":{"cpu":"x"}}`) }, nil, 24200},
		{"no pod runs yet: all is the system's", func(s *tick.Sample) {
			for i := range s.Pods {
				s.Pods[i].Missing, s.Pods[i].UsageMilliCPU = tick.MissingCgroup, nil
			}
		}, nil, 31200 - 10000},
		{"a negative quantity", func(s *tick.Sample) { annotated(s, `{"resources":{"cpu":"-9"}}`) }, nil, 24200},
		{"an annotation that is no JSON", func(s *tick.Sample) { annotated(s, `6 cores`) }, nil, 24200},
		{"a pod unknown to the cluster is a service", func(s *tick.Sample) { s.Pods[1].Missing = tick.MissingCluster }, nil, 31200 - 7000 - 3000},
		{"BestEffort without a label is batch", func(s *tick.Sample) { s.Pods[0].KubernetesQOS = "BestEffort" }, nil, 31200 - 3000},
		{"a label BE is batch, whatever Kubernetes' class is", func(s *tick.Sample) { s.Pods[1].KubernetesQOS = "Guaranteed" }, nil, 24200},
		{"a label LS on a BestEffort pod is no service", func(s *tick.Sample) {
			s.Pods[1].Labels["koordinator.sh/qosClass"] = "LS"
		}, nil, 24200},
		{"an invalid label counts by Kubernetes' class", func(s *tick.Sample) {
			s.Pods[1].Labels["koordinator.sh/qosClass"] = "be"
			s.Pods[1].KubernetesQOS = "Burstable"
		}, nil, 31200 - 7000 - 3000},
		{"a batch pod without a rate yet is not the system's, where its tier's use is known", func(s *tick.Sample) {
			s.Pods[1].UsageMilliCPU, s.Tiers[1].UsageMilliCPU = nil, new(3000.0)
		}, nil, 24200},
		{"the pods' use counts where the tier's is less", func(s *tick.Sample) { s.Tiers[1].UsageMilliCPU = new(1000.0) }, nil, 24200},
		{"what the tier uses beside its pods is batch's", func(s *tick.Sample) { s.Tiers[1].UsageMilliCPU = new(4000.0) }, nil, 25200},
		{"a service below the tier counts once", func(s *tick.Sample) {
			s.Pods[1].Missing, s.Tiers[1].UsageMilliCPU = tick.MissingCluster, new(3000.0)
		}, nil, 31200 - 7000 - 3000},
		{"an invalid use of the tier", func(s *tick.Sample) { s.Tiers[1].UsageMilliCPU = new(-1e9) }, nil, 24200},
		{"a pod without a use is the system's", func(s *tick.Sample) { s.Pods[0].UsageMilliCPU = nil }, nil, 31200 - 7000},
		{"negative use", func(s *tick.Sample) { s.Pods[0].UsageMilliCPU = new(-4000.0) }, nil, 31200 - 7000},
		{"huge use", func(s *tick.Sample) { s.Pods[0].UsageMilliCPU = new(1e308) }, nil, 31200 - 1e12},
		{"huge capacity", func(s *tick.Sample) { s.Capacity.MilliCPU = new(1e308); s.Allocatable = nil }, nil, 65e10 - 7000},
		{"half a CPU", func(s *tick.Sample) {
			s.Capacity.MilliCPU, s.Allocatable, s.CPU.UsageMilliCPU = new(500.0), nil, new(100.0)
			s.Pods = []tick.Pod{service(50)}
		}, nil, 325 - 100},
		{"the newest sample alone counts", func(s *tick.Sample) { s.IntervalSeconds = nil }, nil, 24200},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := machine(service(4000), labelled("BE", "b", 3000))
			if c.change != nil {
				c.change(s)
			}
			v, _, err := new(State).newView(&tick.Tick{Time: time.Unix(1e9, 0), Sample: s}, with(c.slo), Settings{})
			if err != nil {
				t.Fatal(err)
			}
			b, why := v.budget()
			if why != "" || b.milliCPU != c.want {
				t.Errorf("budget = %d (%s) %s; want %d", b.milliCPU, b.sum, why, c.want)
			}
		})
	}
}

func TestReasonHasTheSum(t *testing.T) {
	a := new(State).step(machine(service(4000), labelled("BE", "b", 3000)), with(func(s *sloconfig.Strategies) { s.Threshold.CPUSuppressMinPercent = new(int64(60)) }))
	want := "suppression: capacity 48000m * 65 % (cpuSuppressThresholdPercent) - services 4000m (1 pod) - system 3000m (use outside of pods) = 24200m, at least 28800m (cpuSuppressMinPercent 60) -> 29 CPUs"
	if len(a.Reasons) != 1 || a.Reasons[0] != want {
		t.Errorf("reasons %q\nwant %q", a.Reasons, want)
	}
}

// Missing input changes nothing: nothing is desired of lists and quotas, and the fallback stays available.
func TestNoDecisionChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name, why string
		change    func(*tick.Sample)
	}{
		{"no capacity", "capacity is unknown", func(s *tick.Sample) { s.Capacity = nil }},
		{"no CPU capacity", "capacity is unknown", func(s *tick.Sample) { s.Capacity.MilliCPU = nil }},
		{"capacity 0", "capacity is unknown", func(s *tick.Sample) { s.Capacity.MilliCPU = new(0.0) }},
		{"negative capacity", "capacity is unknown", func(s *tick.Sample) { s.Capacity.MilliCPU = new(-1.0) }},
		{"no CPU of the node", "CPU use is unknown", func(s *tick.Sample) { s.CPU = nil }},
		{"no use of the node", "CPU use is unknown", func(s *tick.Sample) { s.CPU.UsageMilliCPU = nil }},
		{"no pods", "no pods in the sample", func(s *tick.Sample) { s.Pods = nil }},
		{"no pod's use", "no pod's CPU use is known", func(s *tick.Sample) {
			for i := range s.Pods {
				s.Pods[i].UsageMilliCPU = nil
			}
		}},
		{"unknown pods alone", "still unknown", func(s *tick.Sample) {
			for i := range s.Pods {
				s.Pods[i].Missing, s.Pods[i].QoSSource = tick.MissingCluster, tick.QoSFromRule
			}
			s.Errors = []tick.SourceError{{Source: "pods", Error: "no answer"}}
		}},
		{"the node object is not read", "the node object could not be read", func(s *tick.Sample) {
			s.Allocatable, s.Errors = nil, []tick.SourceError{{Source: "node", Error: "no answer"}}
		}},
		{"the tier is not seen", "kubelet's cgroup /kubepods/besteffort is not in the sample", func(s *tick.Sample) { s.Tiers = nil }},
		{"no topology", "no topology", func(s *tick.Sample) { s.Topology = nil }},
		{"an invalid topology", "topology", func(s *tick.Sample) { s.Topology.CPUs = "x" }},
		{"a topology without CPUs", "topology", func(s *tick.Sample) { s.Topology.CPUs = "" }},
	} {
		for _, mode := range []string{sloconfig.SuppressCPUSet, sloconfig.SuppressCFSQuota} {
			t.Run(c.name+" "+mode, func(t *testing.T) {
				st := &State{}
				batch := labelled("BE", "b", 3000)
				batch.Limits = &tick.Resources{ReclaimedMilliCPU: new(2000.0)}
				batch.Containers[0].Limits = batch.Limits
				st.step(machine(service(4000), batch), byPolicy(mode))
				before := text(st)
				s := machine(service(4000), batch)
				c.change(s)
				a := st.step(s, byPolicy(mode))
				if text(st) != before {
					t.Errorf("state\n%s\nbecame\n%s", before, text(st))
				}
				if !hasReason(a, c.why) || !hasReason(a, "unchanged") {
					t.Errorf("reasons %q", a.Reasons)
				}
				for _, w := range a.Cgroups {
					if w.CPUSetCPUs != "" || w.CPUMaxMilliCPU != nil && mode == sloconfig.SuppressCFSQuota {
						t.Errorf("desired %s", text(w))
					}
				}
				if s.Topology != nil && len(s.Topology.CPUs) > 1 && len(a.Fallback) == 0 {
					t.Error("no fallback")
				}
			})
		}
	}
	a := new(State).step(nil, with(nil))
	if len(a.Cgroups)+len(a.Fallback)+len(a.Pools) > 0 || !hasReason(a, "no topology") {
		t.Errorf("no sample: %s", text(a))
	}
}

// TestFirstTickOfBatchOutsideOfTheTier: what a batch pod outside of kubelet's tier uses in its first tick, which has no rate, is not the
// use outside of pods; after a minute it counts as such.
func TestFirstTickOfBatchOutsideOfTheTier(t *testing.T) {
	st := &State{}
	budget := func(seconds int, s *tick.Sample) int64 {
		t.Helper()
		now := &tick.Tick{Time: time.Unix(1e9+int64(seconds), 0), Sample: s}
		v, _, err := st.newView(now, with(nil), Settings{})
		if err != nil {
			t.Fatal(err)
		}
		b, why := v.budget()
		if why != "" {
			t.Fatal(why)
		}
		st.Advise(now, with(nil), &tick.Advice{}, Settings{})
		return b.milliCPU
	}
	plain := func() *tick.Sample {
		s := machine(service(4000))
		s.Tiers = nil
		return s
	}
	fresh := func() *tick.Sample {
		s := plain()
		pod := labelled("BE", "b", 0)
		pod.UsageMilliCPU, pod.Cgroup, pod.Containers[0].Cgroup = nil, "/batch", "/batch/c"
		s.Pods, s.CPU.UsageMilliCPU = append(s.Pods, pod), new(*s.CPU.UsageMilliCPU+8000)
		return s
	}
	before := budget(0, plain())
	for _, c := range []struct {
		seconds int
		want    int64
	}{{1, before}, {60, before}, {61, before - 8000}} {
		if got := budget(c.seconds, fresh()); got != c.want {
			t.Errorf("after %d s the budget is %d; want %d", c.seconds, got, c.want)
		}
	}
}
