package suppress

import (
	"slices"
	"strings"
	"testing"
	"time"

	"polder/advise/koordinator/annotation"
	"polder/advise/koordinator/revert"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

const (
	own       = tier + "/podb"
	container = tier + "/podb/c"
)

// listed returns the desired lists of the tier, the pod and its container.
func listed(t *testing.T, list []tick.Cgroup) string {
	t.Helper()
	var out []string
	for _, path := range []string{tier, own, container} {
		out = append(out, of(t, list, path).CPUSetCPUs)
	}
	return text(out)
}

func TestWhichCgroupsAreNarrowed(t *testing.T) {
	for _, c := range []struct {
		name        string
		change      func(*tick.Sample)
		list, floor string
		why         string
	}{
		{"kubelet manages no CPUs: tier, pods and containers", nil, `["0,12,24,36","0,12,24,36","0,12,24,36"]`, `["0,24","0,24","0,24"]`, ""},
		{"static: the containers alone", func(s *tick.Sample) { s.Kubelet.CPUManagerPolicy = "static" }, `["","","0,12,24,36"]`, `["","","0,24"]`, "not /kubepods/besteffort: kubelet's CPU manager policy is static"},
		{"static on version 1", func(s *tick.Sample) { s.Kubelet.CPUManagerPolicy, s.CgroupVersion = "static", 1 }, `["","","0,12,24,36"]`, `["","","0,24"]`, "policy is static"},
		{"a policy of later kubelets", func(s *tick.Sample) { s.Kubelet.CPUManagerPolicy = "dynamic" }, `["","","0,12,24,36"]`, `["","","0,24"]`, "policy is dynamic"},
		{"unknown", func(s *tick.Sample) { s.Kubelet.CPUManagerPolicy = "" }, `["","","0,12,24,36"]`, `["","","0,24"]`, "policy is unknown"},
		{"no state of kubelet's", func(s *tick.Sample) { s.Kubelet = nil }, `["","","0,12,24,36"]`, `["","","0,24"]`, "policy is unknown"},
		{"version 1 as version 2", func(s *tick.Sample) { s.CgroupVersion = 1 }, `["0,12,24,36","0,12,24,36","0,12,24,36"]`, `["0,24","0,24","0,24"]`, ""},
		{"no container yet", func(s *tick.Sample) { s.Pods[1].Containers = nil }, `["0,12,24,36","0,12,24,36",""]`, `["0,24","0,24",""]`, ""},
		{"the pod has no cgroup yet", func(s *tick.Sample) { s.Pods[1].Missing = tick.MissingCgroup }, `["0,12,24,36","",""]`, `["0,24","",""]`, ""},
		{"the pod is over", func(s *tick.Sample) { s.Pods[1].Phase = "Failed" }, `["0,12,24,36","",""]`, `["0,24","",""]`, ""},
		{"the cluster does not know the pod: its tier alone", func(s *tick.Sample) { s.Pods[1].Missing = tick.MissingCluster }, `["0,12,24,36","",""]`, `["0,24","",""]`, ""},
		{"BestEffort without a label", func(s *tick.Sample) { s.Pods[1].Labels, s.Pods[1].QoSSource = nil, tick.QoSFromKubernetes }, `["0,12,24,36","0,12,24,36","0,12,24,36"]`, `["0,24","0,24","0,24"]`, ""},
		{"the tier is too narrow for its containers, by another program", func(s *tick.Sample) {
			s.Kubelet.CPUManagerPolicy, s.Kubelet.ExclusiveCPUs, s.Tiers[1].CPUSetCPUs = "static", "47", "0-7"
		}, `["0-46","","0,12,24,36"]`, `["","","0,24"]`, "policy is static"},
		{"it is wide enough", func(s *tick.Sample) {
			s.Kubelet.CPUManagerPolicy, s.Tiers[1].CPUSetCPUs = "static", "0-36"
		}, `["","","0,12,24,36"]`, `["","","0,24"]`, "policy is static"},
		{"a tier that is no path", func(s *tick.Sample) { s.Tiers[1].Cgroup = "kubepods" }, `["","0,12,24,36","0,12,24,36"]`, `["","0,24","0,24"]`, ""},
		{"the root is no tier", func(s *tick.Sample) { s.Tiers[1].Cgroup = "/" }, `["","0,12,24,36","0,12,24,36"]`, `["","0,24","0,24"]`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := withBudget(4000)
			s.Pods = append(s.Pods, service(0))
			s.Pods[2].Cgroup, s.Pods[2].Containers[0].Cgroup = "/kubepods/burstable/podx", "/kubepods/burstable/podx/c"
			if c.change != nil {
				c.change(s)
			}
			a := new(State).step(s, with(nil))
			if got := listed(t, a.Cgroups); got != c.list {
				t.Errorf("desired %s; want %s", got, c.list)
			}
			if got := listed(t, a.Fallback); got != c.floor {
				t.Errorf("fallback %s; want %s", got, c.floor)
			}
			if !hasReason(a, c.why) || (c.why == "") != (len(a.Reasons) == 1) {
				t.Errorf("reasons %q", a.Reasons)
			}
			for _, w := range a.Fallback {
				if w.CPUMaxMilliCPU != nil {
					t.Errorf("no quota is in force, and the fallback has %s", text(w))
				}
			}
			for _, w := range append(a.Cgroups, a.Fallback...) {
				if w.Cgroup == "/kubepods/burstable/podx" || w.Cgroup == "/kubepods/burstable/podx/c" || w.Cgroup == "/" || w.Cgroup[0] != '/' {
					t.Errorf("desired %s", text(w))
				}
			}
		})
	}
}

// On a machine without Kubernetes the batch cgroups themselves are confined, unless they contain another pod.
func TestPlainMachine(t *testing.T) {
	group := rulePod(tick.QoSReclaimed, "/group", 0)
	group.Containers = []tick.Container{{Name: "a", Cgroup: "/group/a"}}
	around := rulePod(tick.QoSReclaimed, "/around", 0)
	around.Containers = []tick.Container{{Name: "a", Cgroup: "/around/a"}}
	s := plain(machine(rulePod(tick.QoSShared, "/web", 27_200), rulePod(tick.QoSReclaimed, "/spark", 0), group, around, rulePod(tick.QoSShared, "/around/db", 0), rulePod(tick.QoSReclaimed, "/around2", 0)))
	s.CPU.UsageMilliCPU = new(27_200.0)
	a := new(State).step(s, with(nil))
	var got []string
	for _, c := range a.Cgroups {
		got = append(got, c.Cgroup+" "+c.CPUSetCPUs)
	}
	slices.Sort(got)
	want := []string{"/around/a 0,12,24,36", "/around2 0,12,24,36", "/group 0,12,24,36", "/group/a 0,12,24,36", "/spark 0,12,24,36"}
	if !slices.Equal(got, want) {
		t.Errorf("desired %q; want %q", got, want)
	}
	if len(a.Fallback) != 5 || a.Fallback[0].CPUSetCPUs != "0,24" || len(a.Reasons) != 1 {
		t.Errorf("fallback %s, reasons %q", text(a.Fallback), a.Reasons)
	}
}

// A value that was desired is undone when it is no longer desired, while the cgroup exists.
func TestUndo(t *testing.T) {
	const mode = sloconfig.SuppressCPUSet
	quota := byPolicy(sloconfig.SuppressCFSQuota)
	for _, c := range []struct {
		name          string
		first, second *sloconfig.Strategies
		change        func(*tick.Sample) // before the second tick
		lists         string
		quotas        []int64 // of tier, pod and container; 0 means not desired
	}{
		{"never used, disabled", disabled(), disabled(), nil, `["","",""]`, []int64{0, 0, 0}},
		{"lists, disabled", byPolicy(mode), disabled(), nil, `["0-47","0-47","0-47"]`, []int64{0, 0, 0}},
		{"lists, disabled: but for what is excluded", byPolicy(mode), disabled(), func(s *tick.Sample) {
			s.Pods = append(s.Pods, pinned("LSE", "e", "0-3"))
			s.Annotations = map[string]string{annotation.Reservation: `{"reservedCPUs":"4"}`, annotation.System: `{"cpuset":"5"}`}
		}, `["6-47","6-47","6-47"]`, []int64{0, 0, 0}},
		{"lists, disabled, and nothing is left: never an empty list", byPolicy(mode), disabled(), func(s *tick.Sample) {
			s.Pods = append(s.Pods, pinned("LSE", "e", "0-47"))
		}, `["0","0","0"]`, []int64{0, 0, 0}},
		{"lists to quota", byPolicy(mode), quota, nil, `["0-47","0-47","0-47"]`, []int64{4000, -1, -1}},
		{"quota, disabled", quota, disabled(), nil, `["","",""]`, []int64{-1, -1, -1}},
		{"quota to lists", quota, byPolicy(mode), nil, `["0,12,24,36","0,12,24,36","0,12,24,36"]`, []int64{-1, -1, -1}},
		{"enable is not set", byPolicy(mode), with(func(s *sloconfig.Strategies) { s.Threshold.Enable = nil }), nil, `["0-47","0-47","0-47"]`, []int64{0, 0, 0}},
		{"the pod is a service by now", byPolicy(mode), byPolicy(mode), func(s *tick.Sample) {
			s.Pods[1].Labels["koordinator.sh/qosClass"], s.Pods[1].KubernetesQOS = "LS", "Burstable"
		}, `["0,12,24,36","0-47","0-47"]`, []int64{0, 0, 0}},
		{"the pod was a batch one, with a limit of its own", quota, byPolicy(mode), func(s *tick.Sample) {
			s.Pods[1].Labels["koordinator.sh/qosClass"], s.Pods[1].KubernetesQOS = "LS", "Burstable"
			s.Pods[1].Limits, s.Pods[1].Containers[0].Limits = &tick.Resources{MilliCPU: new(700.0)}, &tick.Resources{MilliCPU: new(300.0)}
		}, `["0,12,24,36","",""]`, []int64{-1, 700, 300}},
		{"the pod is over", byPolicy(mode), disabled(), func(s *tick.Sample) { s.Pods = s.Pods[:1] }, `["0-47","",""]`, []int64{0, 0, 0}},
		{"the tier is not seen", byPolicy(mode), disabled(), func(s *tick.Sample) { s.Tiers = nil }, `["","0-47","0-47"]`, []int64{0, 0, 0}},
		{"kubelet manages CPUs by now", byPolicy(mode), byPolicy(mode), func(s *tick.Sample) {
			s.Kubelet.CPUManagerPolicy, s.Kubelet.ExclusiveCPUs = "static", "47"
		}, `["0-46","0-46","0,12,24,36"]`, []int64{0, 0, 0}},
		{"the same on version 1: isolate puts back what it wrote", byPolicy(mode), byPolicy(mode), func(s *tick.Sample) {
			s.Kubelet.CPUManagerPolicy, s.CgroupVersion = "static", 1
		}, `["","","0,12,24,36"]`, []int64{0, 0, 0}},
		{"kubelet's state cannot be read: nothing moves above", byPolicy(mode), byPolicy(mode), func(s *tick.Sample) {
			s.Kubelet, s.Errors = nil, []tick.SourceError{{Source: "kubelet"}}
		}, `["","","0,12,24,36"]`, []int64{0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, s := &State{}, withBudget(4000)
			st.step(s, c.first)
			if c.change != nil {
				c.change(s)
			}
			for range 3 { // repeatedly
				again := &State{}
				if err := tick.Unmarshal([]byte(text(st)), again); err != nil { // through the state file
					t.Fatal(err)
				}
				st = again
				a := st.step(s, c.second)
				if got := listed(t, a.Cgroups); got != c.lists {
					t.Errorf("lists %s; want %s", got, c.lists)
				}
				for i, path := range []string{tier, own, container} {
					got := int64(0)
					if w := of(t, a.Cgroups, path); w.CPUMaxMilliCPU != nil {
						got = *w.CPUMaxMilliCPU
					}
					if got != c.quotas[i] {
						t.Errorf("%s: quota %d; want %d", path, got, c.quotas[i])
					}
				}
			}
		})
	}
}

// Pods that the API server does not know keep their values: nothing is desired of their cgroups.
func TestUndoLeavesUnknownPods(t *testing.T) {
	for _, slo := range []*sloconfig.Strategies{byPolicy(sloconfig.SuppressCPUSet), byPolicy(sloconfig.SuppressCFSQuota), disabled()} {
		pods := func() []tick.Pod {
			one, other := batchPod(amounts{1000, 2000, 1 << 30}), batchPod(amounts{1000, 2000, 1 << 30})
			other.UID, other.Name, other.Cgroup = "o", "other", tier+"/podo"
			other.Containers = slices.Clone(other.Containers)
			for i := range other.Containers {
				other.Containers[i].Cgroup = tier + "/podo/c"
			}
			return []tick.Pod{service(1000), one, other}
		}
		st := &State{}
		first := st.step(machine(pods()...), slo)
		if w := of(t, first.Cgroups, tier+"/podo"); w.MemoryMaxBytes == nil || w.CPUWeight == nil {
			t.Fatalf("desired %s", text(w))
		}
		before := text(st.Advised)

		lost := pods() // collect was restarted while the API server is unreachable
		for i := range lost {
			lost[i].Missing, lost[i].QoSSource, lost[i].Labels, lost[i].KubernetesQOS = tick.MissingCluster, tick.QoSFromRule, nil, ""
			lost[i].Requests, lost[i].Limits = nil, nil
			for j := range lost[i].Containers {
				lost[i].Containers[j].Requests, lost[i].Containers[j].Limits = nil, nil
			}
		}
		s := machine(lost...)
		s.Errors = []tick.SourceError{{Source: "pods", Error: "no answer"}}
		a := st.step(s, slo)
		for _, w := range a.Cgroups {
			if strings.HasPrefix(w.Cgroup, tier+"/") || w.CPUSetCPUs != "" || w.CPUMaxMilliCPU != nil {
				t.Errorf("all unknown: desired %s", text(w))
			}
		}
		if text(st.Advised) != before {
			t.Errorf("all unknown: remembers %s; want %s", text(st.Advised), before)
		}

		some := pods() // only one of them
		some[2] = lost[2]
		a = st.step(machine(some...), slo)
		for _, w := range a.Cgroups {
			if strings.HasPrefix(w.Cgroup, tier+"/podo") {
				t.Errorf("one unknown: desired %s", text(w))
			}
		}
		if w := of(t, a.Cgroups, own); w.MemoryMaxBytes == nil || *w.MemoryMaxBytes != 1<<30 {
			t.Errorf("the other one: desired %s", text(w))
		}
		if text(st.Advised) != before {
			t.Errorf("one unknown: remembers %s; want %s", text(st.Advised), before)
		}

		back := pods() // known again, without batch resources: now it is undone
		back[2].Requests, back[2].Limits, back[2].Containers[0].Requests, back[2].Containers[0].Limits = nil, nil, nil, nil
		if w := of(t, st.step(machine(back...), slo).Cgroups, tier+"/podo"); w.MemoryMaxBytes == nil || *w.MemoryMaxBytes != tick.Unlimited {
			t.Errorf("known again: desired %s", text(w))
		}
	}
}

// A confined tier is widened although the state has no entry for it: according to the observed value, until that is wide.
func TestUndoWithoutState(t *testing.T) {
	quota := byPolicy(sloconfig.SuppressCFSQuota)
	for _, c := range []struct {
		name   string
		slo    *sloconfig.Strategies
		change func(*tick.Sample)
		lists  string
		quota  int64 // of the tier; 0 means not desired
	}{
		{"disabled", disabled(), nil, `["0-47","0-47","0-47"]`, 0},
		{"under a quota", quota, nil, `["0-47","0-47","0-47"]`, 4000},
		{"but for what is excluded", disabled(), func(s *tick.Sample) { s.Pods = append(s.Pods, pinned("LSE", "e", "0-3")) }, `["4-47","4-47","4-47"]`, 0},
		{"it is what is excluded alone", disabled(), func(s *tick.Sample) {
			s.Pods, s.Tiers[1].CPUSetCPUs = append(s.Pods, pinned("LSE", "e", "0-3")), "4-47"
			s.Pods[1].Containers[0].CPUSetCPUs = "4-47"
		}, `["","",""]`, 0},
		{"a container alone", disabled(), func(s *tick.Sample) {
			s.Tiers[1].CPUSetCPUs, s.Pods[1].Containers[0].CPUSetCPUs = "0-47", "0,24"
		}, `["0-47","0-47","0-47"]`, 0},
		{"no wider than the one above", disabled(), func(s *tick.Sample) { s.Tiers[0].CPUSetCPUs = "0-23" }, `["0-23","0-23","0-23"]`, 0},
		{"as wide as the one above", disabled(), func(s *tick.Sample) {
			s.Tiers[0].CPUSetCPUs, s.Tiers[1].CPUSetCPUs, s.Pods[1].Containers[0].CPUSetCPUs = "0-23", "0-23", "0-23"
		}, `["","",""]`, 0},
		{"unknown", disabled(), func(s *tick.Sample) { s.Tiers[1].CPUSetCPUs, s.Pods[1].Containers[0].CPUSetCPUs = "", "" }, `["","",""]`, 0},
		{"kubelet manages CPUs", disabled(), func(s *tick.Sample) { s.Kubelet.CPUManagerPolicy = "static" }, `["","",""]`, 0},
		{"kubelet's policy is unknown", disabled(), func(s *tick.Sample) { s.Kubelet = nil }, `["","",""]`, 0},
		{"a quota", disabled(), func(s *tick.Sample) { s.Tiers[1].CPUMaxMilliCPU = new(int64(20)) }, `["0-47","0-47","0-47"]`, -1},
		{"a quota, and lists are wanted", byPolicy(sloconfig.SuppressCPUSet), func(s *tick.Sample) { s.Tiers[1].CPUMaxMilliCPU = new(int64(20)) }, `["0,12,24,36","0,12,24,36","0,12,24,36"]`, -1},
		{"no pods: nothing is known", disabled(), func(s *tick.Sample) { s.Pods = nil }, `["","",""]`, 0},
		{"unknown pods alone", disabled(), func(s *tick.Sample) {
			for i := range s.Pods {
				s.Pods[i].Missing, s.Pods[i].QoSSource = tick.MissingCluster, tick.QoSFromRule
			}
			s.Errors, s.Tiers[1].CPUMaxMilliCPU = []tick.SourceError{{Source: "pods", Error: "no answer"}}, new(int64(20))
		}, `["","",""]`, 0},
		{"nothing could be decided", quota, func(s *tick.Sample) { s.CPU, s.Tiers[1].CPUMaxMilliCPU = nil, new(int64(20)) }, `["","",""]`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := withBudget(4000)
			s.Tiers[1].CPUSetCPUs, s.Pods[1].Containers[0].CPUSetCPUs = "0,24", "0,24"
			if c.change != nil {
				c.change(s)
			}
			a := new(State).step(s, c.slo)
			if got := listed(t, a.Cgroups); got != c.lists {
				t.Errorf("lists %s; want %s: %q", got, c.lists, a.Reasons)
			}
			got := int64(0)
			if w := of(t, a.Cgroups, tier); w.CPUMaxMilliCPU != nil {
				got = *w.CPUMaxMilliCPU
			}
			if got != c.quota {
				t.Errorf("quota %d; want %d: %q", got, c.quota, a.Reasons)
			}
			const notDesired = "/kubepods/besteffort has CPUs 0,24, which are not desired: batch pods get 0-47"
			if c.name == "disabled" && !hasReason(a, notDesired) {
				t.Errorf("reasons %q; want %q", a.Reasons, notDesired)
			}
		})
	}
	st, s := &State{}, withBudget(4000) // with an entry in the state the reason is another one
	st.step(s, with(nil))
	s.Tiers[1].CPUSetCPUs = st.CPUs
	if a := st.step(s, disabled()); hasReason(a, "not desired") || !hasReason(a, "batch pods get all CPUs 0-47") {
		t.Errorf("reasons %q", a.Reasons)
	}
}

// While the API server's pods are unknown a disabled suppression stays in force, and a reason names it if there was one.
func TestDisabledWhilePodsAreUnknown(t *testing.T) {
	lost := withBudget(4000)
	for i := range lost.Pods {
		lost.Pods[i].Missing, lost.Pods[i].QoSSource = tick.MissingCluster, tick.QoSFromRule
	}
	lost.Errors = []tick.SourceError{{Source: "pods", Error: "no answer"}}
	const stays = "the cluster's pods are still unknown: everything stays unchanged"
	st := &State{}
	if a := st.step(lost, disabled()); len(a.Reasons) > 0 {
		t.Errorf("without suppression: %q", a.Reasons)
	}
	st.step(withBudget(4000), with(nil))
	if a := st.step(lost, disabled()); !hasReason(a, stays) || st.CPUs != "0,12,24,36" {
		t.Errorf("CPUs %s: %q", st.CPUs, a.Reasons)
	}
}

// While the node object cannot be read the CPUs that its annotations reserve are unknown: batch pods get none of them, whether suppression
// is on or was disabled meanwhile.
func TestReservedCPUsWhileTheNodeObjectIsUnread(t *testing.T) {
	read := withBudget(40000)
	read.Annotations = map[string]string{
		"node.koordinator.sh/reservation":         `{"reservedCPUs":"0,24"}`,
		"node.koordinator.sh/system-qos-resource": `{"cpuset":"12,36"}`,
	}
	unread := withBudget(40000)
	unread.Allocatable, unread.Errors = nil, []tick.SourceError{{Source: "node", Error: "no answer"}}
	a := new(State).step(unread, with(nil))
	if len(a.Cgroups) > 0 || !hasReason(a, "the node object could not be read: everything stays unchanged") {
		t.Errorf("never read: %s", text(a))
	}
	for name, strategies := range map[string]*sloconfig.Strategies{"on": with(nil), "disabled": disabled()} {
		st := &State{}
		for range 10 {
			st.step(read, with(nil))
		}
		before := st.CPUs
		a := st.step(unread, strategies)
		if len(a.Cgroups) > 0 || st.CPUs != before || !hasReason(a, "the node object could not be read: everything stays unchanged") {
			t.Errorf("%s: CPUs %s become %s: %s", name, before, st.CPUs, text(a))
		}
		for _, c := range st.step(read, strategies).Cgroups {
			if list := parse(c.CPUSetCPUs); !list.Intersection(parse("0,12,24,36")).IsEmpty() {
				t.Errorf("%s, read again: cgroup %s gets CPUs %s", name, c.Cgroup, c.CPUSetCPUs)
			}
		}
	}
}

// A batch pod whose batch resources were removed gets kubelet's values back.
func TestUndoBatchValues(t *testing.T) {
	st, s := &State{}, machine(service(1000), batchPod(amounts{1000, 2000, 1 << 30}))
	st.step(s, disabled())
	s.Pods[1] = batchPod(amounts{})
	s.Pods[1].Containers[0].Limits = &tick.Resources{MemoryBytes: new(8192.0)}
	s.Pods[1].Containers[0].Requests = &tick.Resources{MilliCPU: new(1000.0)}
	a := st.step(s, disabled())
	if got := values(of(t, a.Cgroups, own)); got != "1 -1 -1" {
		t.Errorf("the pod: %s", got)
	}
	if got := values(of(t, a.Cgroups, own+"/0")); got != "39 -1 8192" {
		t.Errorf("the container: %s", got)
	}
	s.Pods = s.Pods[:1]
	if st.step(s, disabled()); len(st.Advised) != 0 {
		t.Errorf("remembers %s", text(st.Advised))
	}
}

// The idle class is for the batch pods' own cgroups: kubelet writes its tier's weight at each start, which the kernel refuses while the
// tier is idle, so that kubelet would not start.
func TestIdle(t *testing.T) {
	on := with(func(s *sloconfig.Strategies) {
		s.QOS.BE.CPU = &sloconfig.CPUQOS{Enable: new(true), SchedIdle: new(int64(1))}
	})
	st, s := &State{}, machine(service(1000), batchPod(amounts{1000, 0, 1 << 30}), labelled("BE", "plain", 0))
	burstable := labelled("BE", "burstable", 0) // its native requests can be resized: kubelet then writes the weight
	burstable.KubernetesQOS = "Burstable"
	s.Pods = append(s.Pods, burstable)
	s.Tiers[1].CPUSetCPUs = "0-47"
	a := st.step(s, on)
	if w := of(t, a.Cgroups, own); w.CPUIdle == nil || !*w.CPUIdle || w.CPUWeight != nil {
		t.Errorf("a batch pod: desired %s", text(w))
	}
	if w := of(t, a.Cgroups, own+"/0"); w.CPUIdle != nil || w.CPUWeight == nil {
		t.Errorf("its container: desired %s", text(w))
	}
	for _, w := range append(a.Cgroups, a.Fallback...) {
		if w.CPUIdle != nil && w.Cgroup != own && w.Cgroup != tier+"/podplain" {
			t.Errorf("desired %s", text(w))
		}
	}
	for range 2 { // the kernel resets the weight to its default: the weight is desired again
		a = st.step(s, with(nil))
		if w := of(t, a.Cgroups, own); w.CPUIdle == nil || *w.CPUIdle || w.CPUWeight == nil || *w.CPUWeight != 39 {
			t.Errorf("after that the batch pod: desired %s", text(w))
		}
		if w := of(t, a.Cgroups, tier+"/podplain"); w.CPUIdle == nil || *w.CPUIdle || w.CPUWeight == nil || *w.CPUWeight != 1 {
			t.Errorf("after that a pod without batch resources: desired %s", text(w))
		}
	}
	for name, change := range map[string]func(*sloconfig.Strategies){
		"by default":    func(*sloconfig.Strategies) {},
		"no class":      func(s *sloconfig.Strategies) { s.QOS.BE = nil },
		"no settings":   func(s *sloconfig.Strategies) { s.QOS.BE.CPU = nil },
		"not set":       func(s *sloconfig.Strategies) { s.QOS.BE.CPU = &sloconfig.CPUQOS{} },
		"enabled alone": func(s *sloconfig.Strategies) { s.QOS.BE.CPU = &sloconfig.CPUQOS{Enable: new(true)} },
		"not idle": func(s *sloconfig.Strategies) {
			s.QOS.BE.CPU = &sloconfig.CPUQOS{Enable: new(true), SchedIdle: new(int64(0))}
		},
		"not enabled": func(s *sloconfig.Strategies) {
			s.QOS.BE.CPU = &sloconfig.CPUQOS{Enable: new(false), SchedIdle: new(int64(1))}
		},
		"another number": func(s *sloconfig.Strategies) {
			s.QOS.BE.CPU = &sloconfig.CPUQOS{Enable: new(true), SchedIdle: new(int64(2))}
		},
	} {
		a = new(State).step(s, with(change))
		for _, w := range a.Cgroups {
			if w.CPUIdle != nil {
				t.Errorf("%s: %s", name, text(w))
			}
		}
	}
}

// A state of an older version contains an idle tier: the idle class is undone, and the tier gets kubelet's weight again.
func TestIdleTierOfAnOlderVersion(t *testing.T) {
	on := with(func(s *sloconfig.Strategies) {
		s.QOS.BE.CPU = &sloconfig.CPUQOS{Enable: new(true), SchedIdle: new(int64(1))}
	})
	s := machine(service(1000), labelled("BE", "b", 0))
	st := &State{Tier: tier, Advised: advisedState(map[string]keys{tier: keyIdle})}
	for range 2 {
		if w := of(t, st.step(s, on).Cgroups, tier); w.CPUIdle == nil || *w.CPUIdle || w.CPUWeight == nil || *w.CPUWeight != 1 {
			t.Errorf("the tier: desired %s", text(w))
		}
	}
}

// Without kubelet's tiers, and on cgroups that a rule names, the cgroups themselves are idle; one of kubelet's that a rule names is only if
// it is a BestEffort pod's: isolate refuses the tiers in each tick, and kubelet could not write the weights of the others.
func TestIdleWithoutKubelet(t *testing.T) {
	on := with(func(s *sloconfig.Strategies) {
		s.QOS.BE.CPU = &sloconfig.CPUQOS{Enable: new(true), SchedIdle: new(int64(1))}
	})
	s := machine(service(1000), batchPod(amounts{1000, 0, 1 << 30}))
	s.Tiers = nil
	if w := of(t, new(State).step(s, on).Cgroups, own); w.CPUIdle == nil || w.CPUWeight != nil || w.MemoryMaxBytes == nil {
		t.Errorf("without a tier a pod: desired %s", text(w))
	}
	st := &State{}
	rules := plain(machine(rulePod(tick.QoSShared, "/web", 0), rulePod(tick.QoSReclaimed, "/spark", 0)))
	if w := of(t, st.step(rules, on).Cgroups, "/spark"); w.CPUIdle == nil || !*w.CPUIdle {
		t.Errorf("without a tier: %s", text(w))
	}
	a := st.step(rules, with(nil)) // the weight was not kubelet's: isolate's journal has it
	if w := of(t, a.Cgroups, "/spark"); w.CPUIdle == nil || *w.CPUIdle || w.CPUWeight != nil || of(t, a.Cgroups, "/web").Cgroup != "" {
		t.Errorf("after that: %s", text(a.Cgroups))
	}
	for at, isIdle := range map[string]bool{
		tier: false, "/kubepods/job": false, "/x/kubepods/job": false, "/kubepods/pod1": false, "/kubepods/burstable/pod1": false,
		"/kubepods/besteffort/pod1": true, "/spark": true, "/kubepods-job": true,
	} {
		a := new(State).step(machine(service(1000), rulePod(tick.QoSReclaimed, at, 0)), on)
		if w := of(t, a.Cgroups, at); (w.CPUIdle != nil) != isIdle || hasReason(a, "schedIdle is not applied to "+at+":") == isIdle {
			t.Errorf("a rule names %s: desired %s, reasons %q", at, text(w), a.Reasons)
		}
	}
}

func TestTierMoves(t *testing.T) {
	st, s := &State{}, withBudget(4000)
	st.step(s, with(nil))
	s.Tiers[1].Cgroup = "/kubepods.slice/kubepods-besteffort.slice"
	s.Pods[1].Cgroup = s.Tiers[1].Cgroup + "/kubepods-besteffort-podb.slice"
	s.Pods[1].Containers[0].Cgroup = s.Pods[1].Cgroup + "/cri-containerd-c.scope"
	a := st.step(s, with(nil))
	if len(a.Cgroups) != 3 || st.Tier != s.Tiers[1].Cgroup || len(st.Advised) != 3 || of(t, a.Cgroups, st.Tier).CPUSetCPUs == "" {
		t.Errorf("desired %s, remembers %s", text(a.Cgroups), text(st))
	}
}

// A value that is no longer desired is undone for ten minutes, and longer while no decision is possible. A state file of version 0.1 has
// keys without times: the ten minutes start with the first tick.
func TestHowLongAValueIsUndone(t *testing.T) {
	st := &State{}
	if err := tick.Unmarshal([]byte(`{"held":{"`+container+`":2,"/gone":null}}`), st); err != nil {
		t.Fatal(err)
	}
	s := machine(service(1000), labelled("BE", "b", 0))
	undoes := func(after time.Duration, s *tick.Sample, strategies *sloconfig.Strategies) bool {
		a := &tick.Advice{}
		st.Advise(&tick.Tick{V: 1, Node: "n", Time: time.Unix(1_767_225_600, 0).Add(after), Sample: s}, strategies, a, Settings{})
		return of(t, a.Cgroups, container).CPUMaxMilliCPU != nil
	}
	noUse := machine(service(1000), labelled("BE", "b", 0))
	noUse.CPU = nil
	for _, step := range []struct {
		after      time.Duration
		sample     *tick.Sample
		strategies *sloconfig.Strategies
		want       bool
	}{
		{0, s, disabled(), true},
		{revert.Duration, s, disabled(), true},
		{revert.Duration + time.Minute, noUse, with(nil), false}, // no decision: the quota stays
		{time.Hour, s, disabled(), true},
		{time.Hour + revert.Duration, s, disabled(), true},
		{time.Hour + revert.Duration + 1, s, disabled(), true}, // the last time
		{time.Hour + revert.Duration + 2, s, disabled(), false},
	} {
		if got := undoes(step.after, step.sample, step.strategies); got != step.want {
			t.Errorf("after %s: %t; want %t", step.after, got, step.want)
		}
	}
	data, err := tick.Marshal(State{Advised: advisedState(map[string]keys{container: keyQuota})})
	if err != nil {
		t.Fatal(err)
	}
	if again := (State{}); tick.Unmarshal(data, &again) != nil || again.Advised[container].Keys != keyQuota {
		t.Errorf("%s is read as %s", data, text(again))
	}
}

// advisedState returns the state of cgroups of which these keys were desired.
func advisedState(of map[string]keys) revert.Cgroups[advised, *advised] {
	list := revert.Cgroups[advised, *advised]{}
	for path, k := range of {
		list.Entry(path).Keys = k
	}
	return list
}
