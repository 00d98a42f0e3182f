package policy

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// A value that is missing, negative or NaN becomes 0, and none exceeds the range in which int64 and float64 agree.
func TestAmount(t *testing.T) {
	if got := Amount(nil); got != 0 {
		t.Errorf("what is missing is %v", got)
	}
	for in, want := range map[float64]float64{-1: 0, 0: 0, 0.5: 0.5, math.NaN(): 0, math.Inf(1): 1 << 53, 1 << 60: 1 << 53} {
		if got := Amount(&in); got != want {
			t.Errorf("%v is %v, want %v", in, got, want)
		}
	}
}

// The pods are unknown if the API server knows none of them and its pods could not be read; not if it knows one.
func TestPodsUnknown(t *testing.T) {
	unread := []tick.SourceError{{Source: "node"}, {Source: "pods"}}
	lost := tick.Pod{QoSSource: tick.QoSFromRule, Missing: tick.MissingCluster}
	ruled, known := tick.Pod{QoSSource: tick.QoSFromRule}, tick.Pod{QoSSource: tick.QoSFromKubernetes}
	for _, tt := range []struct {
		name   string
		pods   []tick.Pod
		errors []tick.SourceError
		want   bool
	}{
		{"none is known", []tick.Pod{ruled, lost}, unread, true},
		{"one is", []tick.Pod{lost, known}, unread, false},
		{"the pods were read", []tick.Pod{lost}, unread[:1], false},
		{"there are cgroups of rules alone", []tick.Pod{ruled}, unread, false},
		{"there is none", nil, unread, false},
	} {
		if got := PodsUnknown(&tick.Sample{Pods: tt.pods, Errors: tt.errors}); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// A pod is identified by its UID, else by its name, else by its cgroup.
func TestIdentity(t *testing.T) {
	for want, p := range map[string]tick.Pod{
		"u":  {UID: "u", Namespace: "a", Name: "b", Cgroup: "/c"},
		"a/": {Namespace: "a", Cgroup: "/c"},
		"/b": {Name: "b", Cgroup: "/c"},
		"/c": {Cgroup: "/c"},
	} {
		if got := Identity(&p); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}

// A pod's cgroups are its containers'; its own if it lists none, except for a pod of Kubernetes, whose containers will follow.
func TestCgroupsOfAPod(t *testing.T) {
	containers := []tick.Container{{Cgroup: "/p/a"}, {}, {Cgroup: "/p/b"}}
	for _, tt := range []struct {
		name string
		pod  tick.Pod
		want []string
	}{
		{"containers", tick.Pod{QoSSource: tick.QoSFromKatalyst, Cgroup: "/p", Containers: containers}, []string{"/p/a", "", "/p/b"}},
		{"containers unknown to the cluster", tick.Pod{Missing: tick.MissingCluster, Cgroup: "/p", Containers: containers}, []string{"/p/a", "", "/p/b"}},
		{"a cgroup of a rule", tick.Pod{QoSSource: tick.QoSFromRule, Cgroup: "/p"}, []string{"/p"}},
		{"a cgroup whose class has no source", tick.Pod{Cgroup: "/p"}, []string{"/p"}},
		{"a pod of Kubernetes", tick.Pod{QoSSource: tick.QoSFromKatalyst, Cgroup: "/p"}, []string{""}},
		{"one unknown to the cluster", tick.Pod{QoSSource: tick.QoSFromRule, Missing: tick.MissingCluster, Cgroup: "/p"}, []string{""}},
	} {
		var got []string
		for i := range Cgroups(&tt.pod) {
			got = append(got, Cgroup(&tt.pod, i))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A container has exclusive CPUs if all in its list are kubelet's exclusive ones, and as many as it requests.
func TestExclusiveCPUsOfContainers(t *testing.T) {
	exclusive := cpus.New(2, 3, 4)
	request := func(milliCPU float64) *tick.Resources { return &tick.Resources{MilliCPU: &milliCPU} }
	for _, tt := range []struct {
		list      string
		requests  *tick.Resources
		exclusive int
		want      bool
	}{
		{"2-3", request(2000), 2, true},
		{"2-3", nil, 2, true},
		{"2-3", &tick.Resources{}, 2, true},
		{"2-3", request(1000), 2, false}, // Polder wrote the list, and kubelet has given those CPUs away since
		{"1-2", request(2000), 0, false},
		{"", request(0), 0, false},
		{"", nil, 0, false},
		{"x", nil, 0, false},
	} {
		exclusive := ExclusiveCount(tt.list, exclusive)
		if got := HasExclusiveCPUs(&tick.Container{Requests: tt.requests}, exclusive); exclusive != tt.exclusive || got != tt.want {
			t.Errorf("%q: %d CPUs, %t; want %d, %t", tt.list, exclusive, got, tt.exclusive, tt.want)
		}
	}
}

// Two topologies are the same if nothing that a policy reads differs.
func TestSameTopology(t *testing.T) {
	machine := func(change func(*tick.Topology)) *tick.Topology {
		m := &tick.Topology{
			CPUs: "0-3", Cores: []string{"0-1", "2-3"}, L3: []string{"0-3"},
			NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-1", MemoryBytes: new(5.0)}, {ID: 1, CPUs: "2-3"}},
		}
		change(m)
		return m
	}
	for name, change := range map[string]func(*tick.Topology){
		"":               func(*tick.Topology) {},
		"online":         func(m *tick.Topology) { m.CPUs = "0-2" },
		"cores":          func(m *tick.Topology) { m.Cores = []string{"0,2", "1,3"} },
		"sockets":        func(m *tick.Topology) { m.Sockets = []string{"0-3"} },
		"caches":         func(m *tick.Topology) { m.L3 = nil },
		"a node":         func(m *tick.Topology) { m.NUMANodes = m.NUMANodes[:1] },
		"its number":     func(m *tick.Topology) { m.NUMANodes[0].ID = 2 },
		"its CPUs":       func(m *tick.Topology) { m.NUMANodes[0].CPUs = "0" },
		"its memory":     func(m *tick.Topology) { m.NUMANodes[0].MemoryBytes = new(6.0) },
		"memory unknown": func(m *tick.Topology) { m.NUMANodes[0].MemoryBytes = nil },
		"memory known":   func(m *tick.Topology) { m.NUMANodes[1].MemoryBytes = new(0.0) },
	} {
		if got := SameTopology(machine(func(*tick.Topology) {}), machine(change)); got != (name == "") {
			t.Errorf("%q differs: the same is %t", name, got)
		}
	}
}

// A total is divided without losing any, in proportion, and a weight of 0 gets nothing.
func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		total   int64
		weights []uint64
		want    []int64
	}{
		{7, []uint64{1, 1, 1}, []int64{3, 2, 2}},
		{5, []uint64{0, 1, 2}, []int64{0, 2, 3}},
		{10, []uint64{0, 3, 0}, []int64{0, 10, 0}},
		{0, []uint64{1, 2}, []int64{0, 0}},
		{1<<53 + 1, []uint64{1 << 53, 1 << 53}, []int64{1<<52 + 1, 1 << 52}},
		// The weights' sum overflows.
		{1000, append(slices.Repeat([]uint64{1 << 53}, 2048), 1), append(slices.Repeat([]int64{1}, 1000), make([]int64, 1049)...)},
		{9, []uint64{math.MaxUint64, math.MaxUint64, 1}, []int64{5, 4, 0}},
	} {
		if diff := cmp.Diff(tt.want, Split(tt.total, tt.weights)); diff != "" {
			t.Errorf("%d by %v (-want +got):\n%s", tt.total, tt.weights, diff)
		}
	}
}

// The Node object's memory applies if it has any, else the machine's total.
func TestMachineBytes(t *testing.T) {
	total := &tick.NodeMemory{TotalBytes: new(9.0)}
	for _, tt := range []struct {
		capacity *tick.Resources
		memory   *tick.NodeMemory
		want     float64
	}{
		{&tick.Resources{MemoryBytes: new(5.0)}, total, 5},
		{&tick.Resources{MilliCPU: new(5.0)}, total, 9},
		{nil, total, 9},
		{nil, nil, 0},
		{nil, &tick.NodeMemory{}, 0},
		{nil, &tick.NodeMemory{TotalBytes: new(1e-300)}, 0},
	} {
		if got := MachineBytes(&tick.Sample{Capacity: tt.capacity, Memory: tt.memory}); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt, got, tt.want)
		}
	}
}
