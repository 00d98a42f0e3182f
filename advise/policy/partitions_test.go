package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

func tickWith(partitions []tick.Partition, pods ...string) *tick.Tick {
	t := &tick.Tick{Sample: &tick.Sample{
		Topology: &tick.Topology{
			CPUs: "0-7", Cores: []string{"0-1", "2-3", "4-5", "6-7"}, Sockets: []string{"0-7"}, L3: []string{"0-3", "4-7"},
			NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-3"}, {ID: 1, CPUs: "4-7"}},
		},
		Capacity:    &tick.Resources{MilliCPU: new(7800.0)},
		Allocatable: &tick.Resources{MilliCPU: new(7500.0), MemoryBytes: new(5.0)},
		Partitions:  partitions,
	}}
	for _, cgroup := range pods {
		t.Sample.Pods = append(t.Sample.Pods, tick.Pod{Cgroup: cgroup})
	}
	return t
}

// Which NUMA nodes the pods of another partition use is unknown, and so is the use of the others there.
func TestUseOfNUMANodesBesideAPartition(t *testing.T) {
	in := tickWith([]tick.Partition{{Cgroup: "/own", CPUs: "2-4"}}, "/own/pod", "/batch")
	in.Sample.NUMANodes = []tick.NUMASample{{ID: 0, UsageMilliCPU: new(900.0)}, {ID: 1, UsageMilliCPU: new(100.0)}}
	for _, used := range []float64{0, 500} {
		in.Sample.Pods[0].UsageMilliCPU = &used
		seen, _ := WithoutPartitions(in)
		if isKnown := seen.Sample.NUMANodes[0].UsageMilliCPU != nil; isKnown != (used == 0) || in.Sample.NUMANodes[0].UsageMilliCPU == nil {
			t.Errorf("the partition uses %vm: known %t", used, isKnown)
		}
	}
}

// A policy sees no CPU of another cgroup's partition, and its advice contains none.
func TestPartitionCPUsAreInNoPool(t *testing.T) {
	in := tickWith([]tick.Partition{{Cgroup: "/own", CPUs: "2-4"}}, "/own/pod", "/batch", "")
	before, _ := tick.Marshal(in)
	seen, finish := WithoutPartitions(in)
	want := &tick.Topology{
		CPUs: "0-1,5-7", Cores: []string{"0-1", "5", "6-7"}, Sockets: []string{"0-1,5-7"}, L3: []string{"0-1", "5-7"},
		NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-1"}, {ID: 1, CPUs: "5-7"}},
	}
	if diff := cmp.Diff(want, seen.Sample.Topology); diff != "" {
		t.Errorf("topology (-want +got):\n%s", diff)
	}
	if c, a := *seen.Sample.Capacity.MilliCPU, *seen.Sample.Allocatable.MilliCPU; c != 4800 || a != 4500 {
		t.Errorf("capacity %v, allocatable %v; want 4800, 4500", c, a)
	}
	advised := []tick.Cgroup{
		{Cgroup: "/own/pod", CPUSetCPUs: "5", CPUSetMems: "0", CPUWeight: new(int64(5))},
		{Cgroup: "/own/pod/a", CPUSetCPUs: "5"},
		{Cgroup: "/own/pod/b", CPUSetMems: "1"},
		{Cgroup: "/ownx", CPUSetCPUs: "5"},
	}
	out := &tick.Advice{Cgroups: advised, Fallback: advised}
	finish(out)
	left := []tick.Cgroup{
		{Cgroup: "/own/pod", CPUWeight: new(int64(5))}, {Cgroup: "/own/pod/a"}, {Cgroup: "/own/pod/b"}, {Cgroup: "/ownx", CPUSetCPUs: "5"},
	}
	if diff := cmp.Diff(left, out.Cgroups) + cmp.Diff(left, out.Fallback); diff != "" || advised[0].CPUSetCPUs != "5" {
		t.Errorf("advice (-want +got), what the policy keeps is %q:\n%s", advised[0].CPUSetCPUs, diff)
	}
	if diff := cmp.Diff([]string{`CPUs "2-4" are in no pool: they belong to the CPU partition "/own"`}, out.Reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if after, _ := tick.Marshal(in); string(after) != string(before) {
		t.Errorf("the tick is now %s", after)
	}
}

// If the pods are in a partition themselves its CPUs are theirs, and no others.
func TestPodsInAPartitionHaveItsCPUs(t *testing.T) {
	partitions := []tick.Partition{{Cgroup: "/kubepods", CPUs: "2-7"}, {Cgroup: "/kubepods/rt", CPUs: "7"}}
	seen, finish := WithoutPartitions(tickWith(partitions, "/kubepods/a", "/kubepods/rt"))
	if got := seen.Sample.Topology.CPUs; got != "2-6" {
		t.Errorf("the policy sees CPUs %s; want 2-6", got)
	}
	if c, a := *seen.Sample.Capacity.MilliCPU, *seen.Sample.Allocatable.MilliCPU; c != 5000 || a != 5000 {
		t.Errorf("capacity %v, allocatable %v; want what is left", c, a)
	}
	out := &tick.Advice{}
	finish(out)
	if text := strings.Join(out.Reasons, "; "); !strings.Contains(text, "CPUs 0-1 are in no pool") || !strings.Contains(text, "/kubepods/rt") {
		t.Errorf("reasons %q", out.Reasons)
	}
	// A pod's own partition is not the partition that all pods are in.
	if seen, _ := WithoutPartitions(tickWith([]tick.Partition{{Cgroup: "/a", CPUs: "0-3"}}, "/a")); seen.Sample.Topology.CPUs != "4-7" {
		t.Errorf("beside the partition of a pod the policy sees CPUs %s; want 4-7", seen.Sample.Topology.CPUs)
	}
}

// On a host with systemd the rules make cgroups of class system beside kubelet's: kubelet's pods are in the partition nevertheless, and
// what the host's programs use is not use of its CPUs.
func TestHostProgramsAreOutsideOfThePodsPartition(t *testing.T) {
	host := tick.Pod{QoS: tick.QoSSystem, QoSSource: tick.QoSFromRule, Cgroup: "/system.slice", UsageMilliCPU: new(1500.0)}
	pod := tick.Pod{
		QoS: tick.QoSShared, QoSSource: tick.QoSFromKubernetes, Cgroup: "/kubepods.slice/kubepods-poda.slice", UsageMilliCPU: new(300.0),
	}
	with := func(change func(*tick.Pod)) *tick.Tick {
		in := tickWith([]tick.Partition{{Cgroup: "/kubepods.slice", CPUs: "2-7"}})
		outside := host
		if change != nil {
			change(&outside)
		}
		in.Sample.CPU = &tick.NodeCPU{UsageMilliCPU: new(2000.0)}
		in.Sample.Pods = []tick.Pod{outside, pod}
		return in
	}
	seen, finish := WithoutPartitions(with(nil))
	if got := seen.Sample.Topology.CPUs; got != "2-7" {
		t.Errorf("the policy sees CPUs %s; want 2-7", got)
	}
	pods := seen.Sample.Pods
	use := [...]float64{*seen.Sample.CPU.UsageMilliCPU, *pods[0].UsageMilliCPU, *pods[1].UsageMilliCPU}
	if want := [...]float64{500, 0, 300}; use != want {
		t.Errorf("use of the node and of the pods %v; want %v", use, want)
	}
	out := &tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: pod.Cgroup, CPUSetCPUs: "4-5"}}}
	finish(out)
	if want := "CPUs 0-1 are in no pool: the pods are in a CPU partition without them"; strings.Join(out.Reasons, "; ") != want {
		t.Errorf("reasons %q; want %q", out.Reasons, want)
	}
	if out.Cgroups[0].CPUSetCPUs != "4-5" {
		t.Errorf("the pod has CPUs %q; want 4-5", out.Cgroups[0].CPUSetCPUs)
	}
	for name, change := range map[string]func(*tick.Pod){
		"a service of a rule":               func(p *tick.Pod) { p.QoS = tick.QoSShared },
		"a system pod of Kubernetes":        func(p *tick.Pod) { p.QoSSource = tick.QoSFromKatalyst },
		"a system pod in kubelet's cgroups": func(p *tick.Pod) { p.Cgroup = "/a.slice/a-kubepods.slice/x" },
		"one by the cgroupfs driver":        func(p *tick.Pod) { p.Cgroup = "/kubepods/podx" },
	} {
		if seen, _ := WithoutPartitions(with(change)); seen.Sample.Topology.CPUs != "0-1" {
			t.Errorf("%s outside: the policy sees CPUs %s; want 0-1", name, seen.Sample.Topology.CPUs)
		}
	}
	alike := with(func(p *tick.Pod) { p.Cgroup = "/system.slice/my-kubepods.service" })
	if seen, _ := WithoutPartitions(alike); seen.Sample.Topology.CPUs != "2-7" {
		t.Errorf("beside a service with kubelet's name in its own the policy sees CPUs %s; want 2-7", seen.Sample.Topology.CPUs)
	}
	in := with(nil)
	in.Sample.Pods = in.Sample.Pods[:1]
	if seen, _ := WithoutPartitions(in); seen.Sample.Topology.CPUs != "0-1" {
		t.Errorf("without pods the policy sees CPUs %s; want 0-1", seen.Sample.Topology.CPUs)
	}
}

func TestWithoutPartitionsNothingChanges(t *testing.T) {
	in := tickWith(nil, "/a")
	if seen, _ := WithoutPartitions(in); seen != in {
		t.Error("a tick without partitions was changed")
	}
	if seen, finish := WithoutPartitions(&tick.Tick{}); seen.Sample != nil {
		t.Error("a sample came from nowhere")
	} else {
		finish(&tick.Advice{})
	}
}
