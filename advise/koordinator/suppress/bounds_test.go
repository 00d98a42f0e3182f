package suppress

import (
	"testing"

	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// burstable returns a BE pod with native requests and limits beside its batch resources; kubelet puts it outside the BestEffort tier.
func burstable(requests, limits tick.Resources) tick.Pod {
	pod := labelled("BE", "b", 0)
	pod.KubernetesQOS, pod.Cgroup = "Burstable", "/kubepods/burstable/podb"
	pod.Requests, pod.Limits = &requests, &limits
	pod.Containers = []tick.Container{{Name: "main", Cgroup: pod.Cgroup + "/c", Requests: &requests, Limits: &limits}}
	return pod
}

// The smaller one of a batch limit and kubelet's own applies.
func TestTheSmallerLimitHolds(t *testing.T) {
	for _, tt := range []struct {
		batchMilli, milli, batchBytes, bytes float64
		want                                 string
	}{
		{2000, 500, 1 << 30, 1 << 20, "20 500 1048576"},
		{500, 2000, 1 << 20, 1 << 30, "20 500 1048576"},
		{5, 2000, 4096, 4096, "20 10 4096"},
		{2000, 5, 4096, 4096, "20 10 4096"}, // kubelet sets 1 ms, too
		{2000, 0, 4096, 0, "20 2000 4096"},
	} {
		some := func(v float64) *float64 {
			if v == 0 {
				return nil
			}
			return &v
		}
		pod := burstable(tick.Resources{MilliCPU: new(500.0), ReclaimedMilliCPU: new(1000.0)}, tick.Resources{
			ReclaimedMilliCPU: &tt.batchMilli, MilliCPU: some(tt.milli), ReclaimedMemoryBytes: &tt.batchBytes, MemoryBytes: some(tt.bytes),
		})
		pod.Requests.ReclaimedMilliCPU = new(min(1000, tt.batchMilli))
		pod.Requests.MilliCPU = new(500.0)
		a := new(State).step(machine(service(1000), pod), disabled())
		got := of(t, a.Cgroups, pod.Cgroup+"/c")
		got.CPUWeight = new(int64(20)) // another test covers it
		if got := values(got); got != tt.want {
			t.Errorf("%+v: the container: desired %s", tt, got)
		}
	}
}

// While a quota is in force above, a container keeps kubelet's, or has the one above if that is smaller.
func TestAQuotaAboveLiftsNoQuotaOfKubelets(t *testing.T) {
	for _, tt := range []struct {
		milli *float64
		want  int64
	}{{nil, tick.Unlimited}, {new(0.0), tick.Unlimited}, {new(300.0), 300}, {new(9000.0), 5000}} {
		s := withBudget(5000)
		s.Pods[1].Limits = &tick.Resources{MilliCPU: tt.milli}
		s.Pods[1].Containers[0].Limits = s.Pods[1].Limits
		a := new(State).step(s, byPolicy(sloconfig.SuppressCFSQuota))
		for _, path := range []string{own, container} {
			if got := of(t, a.Cgroups, path).CPUMaxMilliCPU; got == nil || *got != tt.want {
				t.Errorf("%s, limited to %v: desired %s; want %d", path, text(tt.milli), text(of(t, a.Cgroups, path)), tt.want)
			}
		}
	}
}

// A rule that limits only memory leaves the quota unchanged, and while no decision is possible quotas stay.
func TestUnsetLimitOfARuleChangesNothing(t *testing.T) {
	pod := rulePod(tick.QoSReclaimed, "/b", 0)
	pod.Limits = &tick.Resources{ReclaimedMemoryBytes: new(1e9)}
	a := new(State).step(plain(machine(pod)), disabled())
	if got := text(a.Cgroups); got != `[{"cgroup":"/b","memoryMaxBytes":1000000000}]` {
		t.Errorf("of memory alone: desired %s", got)
	}
	pod.Limits = &tick.Resources{ReclaimedMilliCPU: new(2000.0)}
	st, s := &State{Mode: sloconfig.SuppressCFSQuota, QuotaMilliCPU: 5000}, plain(machine(pod))
	s.CPU = nil
	if a := st.step(s, byPolicy(sloconfig.SuppressCFSQuota)); len(a.Cgroups) > 0 {
		t.Errorf("while nothing is decided: desired %s", text(a.Cgroups))
	}
}

// Batch limits apply while the budget is unknown and CPU lists are in force: there is no quota above that could conflict.
func TestBatchLimitsHoldWhileTheBudgetIsUnknown(t *testing.T) {
	st, s := &State{}, withBudget(5000)
	s.Pods[1] = batchPod(amounts{1000, 2000, 1 << 30})
	st.step(s, byPolicy(sloconfig.SuppressCPUSet))
	s.CPU = nil
	if got := values(of(t, st.step(s, byPolicy(sloconfig.SuppressCPUSet)).Cgroups, own)); got != "39 2000 1073741824" {
		t.Errorf("the pod: desired %s", got)
	}
}

// The weight of a container whose annotation has no request is that of its native request.
func TestWeightOfAnAnnotationWithoutARequest(t *testing.T) {
	pod := burstable(tick.Resources{ReclaimedMilliCPU: new(1000.0), MilliCPU: new(500.0)}, tick.Resources{ReclaimedMilliCPU: new(2000.0)})
	pod.Containers[0].Requests, pod.Containers[0].Limits = &tick.Resources{MilliCPU: new(500.0)}, nil
	pod.Annotations[annotation.Extended] = `{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":2000}}}}`
	a := new(State).step(machine(service(1000), pod), disabled())
	if got := values(of(t, a.Cgroups, pod.Cgroup+"/c")); got != "20 2000 -" {
		t.Errorf("the container: desired %s", got)
	}
}

// The annotation applies to a pod that has batch requests and no limits.
func TestAnAnnotationCountsWhereThePodHasRequestsAlone(t *testing.T) {
	pod := batchPod(amounts{1000, 0, 0})
	pod.Containers[0].Requests, pod.Containers[0].Limits, pod.Limits = nil, nil, nil
	pod.Annotations[annotation.Extended] = `{"containers":{"c0":{"requests":{"kubernetes.io/batch-cpu":1000}}}}`
	a := new(State).step(machine(service(1000), pod), disabled())
	if got := values(of(t, a.Cgroups, own+"/0")); got != "39 - -" || len(a.Reasons) > 0 {
		t.Errorf("the container: desired %s: %q", got, a.Reasons)
	}
}

// If a container's name is unknown kubelet's values for it are unknown too: nothing is undone there. A rule's cgroup is always known.
func TestNothingIsUndoneInAContainerWithoutAName(t *testing.T) {
	for _, name := range []string{"", "c"} { // or known only by its cgroup
		s := machine(service(1000), labelled("BE", "b", 0))
		s.Pods[1].Containers[0].Name = name
		st := &State{Advised: advisedState(map[string]keys{container: keyMemory | keyQuota | keyCPUs})}
		if w := of(t, st.step(s, disabled()).Cgroups, container); keysOf(&w) != 0 || st.Advised[container].Keys != keyMemory|keyQuota|keyCPUs {
			t.Errorf("named %q: desired %s, remembered %d", name, text(w), st.Advised[container].Keys)
		}
	}
	s := plain(machine(rulePod(tick.QoSReclaimed, "/b", 0)))
	s.Pods[0].Cgroup, s.Pods[0].Containers[0] = "/a", tick.Container{Name: "b", Cgroup: "/a/b"}
	st := &State{Advised: advisedState(map[string]keys{"/a/b": keyQuota})}
	if w := of(t, st.step(s, disabled()).Cgroups, "/a/b"); w.CPUMaxMilliCPU == nil || *w.CPUMaxMilliCPU != tick.Unlimited {
		t.Errorf("a rule's: desired %s", text(w))
	}
}

// A container without a name has no values either, because it is unknown which of the pod's it is.
func TestAContainerWithoutANameHasNoBatchValues(t *testing.T) {
	pod := batchPod(amounts{1000, 2000, 1 << 30}, amounts{1000, 2000, 1 << 30})
	pod.Containers[1].Name = ""
	a := new(State).step(machine(service(1000), pod), disabled())
	if got := values(of(t, a.Cgroups, own+"/1")); got != "- - -" {
		t.Errorf("desired %s", got)
	}
}

// Nothing is desired of a removed cgroup of an existing pod, and its entry is removed.
func TestNothingIsUndoneInARemovedCgroup(t *testing.T) {
	s := machine(service(1000), labelled("BE", "b", 0))
	s.Pods[1].Missing, s.Pods[1].Containers = tick.MissingCgroup, nil
	st := &State{Advised: advisedState(map[string]keys{own: keyCPUs | keyMemory})}
	if a := st.step(s, disabled()); len(a.Cgroups) > 0 || len(st.Advised) > 0 {
		t.Errorf("desired %s, remembered %v", text(a.Cgroups), st.Advised)
	}
}

// A quota yields to others' quota of a pod's cgroup only if it undoes one; the tier's never does, nor does the undo of another key.
func TestOnlyAQuotaThatUndoesOneYields(t *testing.T) {
	for _, tt := range []struct {
		path string
		held keys
		want bool
	}{{own, keyQuota, true}, {container, keyQuota | keyMemory, true}, {own, keyMemory, false}, {container, keyCPUs, false}, {tier, keyQuota, false}} {
		st := &State{Advised: advisedState(map[string]keys{tt.path: tt.held})}
		st.step(machine(service(1000), labelled("BE", "b", 0)), disabled())
		if got := st.OnlyUndoesQuota(tt.path); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A container's list is restored under every policy of kubelet's CPU manager, without the CPUs that are kept out; above containers only if
// kubelet manages no CPUs.
func TestListsOfContainersAreRevertedUnderEveryCPUManager(t *testing.T) {
	for _, tt := range []struct {
		manager string
		version int
		want    string // of the tier, the pod and the container
	}{
		{"none", 1, `["4-47","4-47","4-47"]`},
		{"none", 2, `["4-47","4-47","4-47"]`},
		{"static", 1, `["","","4-47"]`},
		{"static", 2, `["0-47","0-47","4-47"]`},
		{"", 2, `["","","4-47"]`},
	} {
		s := machine(service(1000), labelled("BE", "b", 0), pinned("LSE", "e", "0-3"))
		s.Kubelet.CPUManagerPolicy, s.CgroupVersion = tt.manager, tt.version
		s.Tiers[1].CPUSetCPUs, s.Pods[1].Containers[0].CPUSetCPUs = "4-47", "4-47"
		st := &State{Advised: advisedState(map[string]keys{tier: keyCPUs, own: keyCPUs, container: keyCPUs})}
		if got := listed(t, st.step(s, disabled()).Cgroups); got != tt.want {
			t.Errorf("%q on version %d: desired %s; want %s", tt.manager, tt.version, got, tt.want)
		}
	}
}

// A service's own CPUs in the BestEffort tier, or a narrow list outside it, do not show that batch was confined and the state lost.
func TestAServicesListIsNotWidened(t *testing.T) {
	inside, outside := labelled("LSE", "e", 0), burstable(tick.Resources{}, tick.Resources{})
	inside.Cgroup, inside.Containers[0].Cgroup = tier+"/pode", tier+"/pode/c"
	for name, pod := range map[string]tick.Pod{"inside": inside, "outside": outside} {
		pod.Containers[0].CPUSetCPUs = "8-9"
		a := new(State).step(machine(service(1000), labelled("BE", "x", 0), pod), disabled())
		for _, w := range a.Cgroups {
			if w.CPUSetCPUs != "" {
				t.Errorf("%s: desired %s: %q", name, text(w), a.Reasons)
			}
		}
	}
}

// Batch in a cgroup of batch's own is confined in both; only a pod that is not batch prevents confining the one above.
func TestBatchBelowBatchIsConfinedInBoth(t *testing.T) {
	for below, want := range map[string]string{tick.QoSReclaimed: "0-1,12-13,24-25,36-37", tick.QoSShared: ""} {
		s := plain(withBudget(8000, rulePod(tick.QoSReclaimed, "/grid", 0), rulePod(below, "/grid/job", 0)))
		s.Pods = append(s.Pods[:1:1], s.Pods[2:]...)
		s.Pods[1].Containers = nil
		a := new(State).step(s, with(nil))
		if got := of(t, a.Cgroups, "/grid").CPUSetCPUs; got != want {
			t.Errorf("above a pod of class %s: %q; want %q: %q", below, got, want, a.Reasons)
		}
	}
}

// A pod whose cgroup is not a valid path has none.
func TestACgroupThatIsNoPathIsNotNamed(t *testing.T) {
	s := withBudget(8000)
	s.Pods[1].Cgroup, s.Pods[1].Containers = "podb", nil
	for _, w := range new(State).step(s, with(nil)).Cgroups {
		if w.Cgroup != tier {
			t.Errorf("desired %s", text(w))
		}
	}
}

// A batch request of 0 is not a pod's weight for dividing a quota; the native request is.
func TestARequestOfZeroIsNoPartOfAQuota(t *testing.T) {
	for _, tt := range []struct {
		requests *tick.Resources
		want     float64
	}{
		{nil, 1000},
		{&tick.Resources{}, 1000},
		{&tick.Resources{ReclaimedMilliCPU: new(0.0), MilliCPU: new(4000.0)}, 4000},
		{&tick.Resources{ReclaimedMilliCPU: new(2000.0), MilliCPU: new(4000.0)}, 2000},
		{&tick.Resources{ReclaimedMilliCPU: new(-1.0), MilliCPU: new(0.0)}, 1000},
	} {
		p := pod{Pod: &tick.Pod{Requests: tt.requests}}
		if got := p.requestWeight(); got != tt.want {
			t.Errorf("%s: %v; want %v", text(tt.requests), got, tt.want)
		}
	}
}

// An LSR pod shares the CPUs that kubelet gave its containers exclusively, but none that its containers share with other pods.
func TestAnLSRPodOnSharedCPUsOwnsNone(t *testing.T) {
	for list, want := range map[string]string{"2-3": "2-3", "0-47": "", "2-4": "", "": ""} {
		pod := labelled("LSR", "r", 0)
		pod.Containers[0].CPUSetCPUs = list
		s := withBudget(8000, pod)
		s.Kubelet.CPUManagerPolicy, s.Kubelet.ExclusiveCPUs = "static", "2-3,26-27"
		a := new(State).step(s, with(nil))
		got := ""
		for _, pool := range a.Pools {
			if pool.Name == tick.PoolDedicatedPrefix+"ns/r" {
				got = pool.CPUs
			}
		}
		if got != want {
			t.Errorf("on %q: its own are %q; want %q", list, got, want)
		}
		if batch := parse(of(t, a.Cgroups, container).CPUSetCPUs); batch.Intersection(parse("26-27")).Size() > 0 {
			t.Errorf("on %q: batch has %s, and kubelet assigned 26-27 exclusively", list, batch)
		}
	}
}

// A memory limit of 2^60 bytes is valid, and more means none.
func TestTheLargestMemoryLimit(t *testing.T) {
	for bytes, want := range map[float64]int64{0: tick.Unlimited, 1: 1, 1 << 60: 1 << 60, 1 << 61: tick.Unlimited} {
		if got := bytesOf(bytes); got != want {
			t.Errorf("%v: %d; want %d", bytes, got, want)
		}
	}
}
