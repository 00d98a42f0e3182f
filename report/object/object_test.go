package object

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// guide is the guide's node: 48 CPUs in two sockets.
func guide() *tick.Tick {
	p := tick.Ptr[int64]
	f := tick.Ptr[float64]
	return &tick.Tick{
		Sample: &tick.Sample{
			Topology: &tick.Topology{
				Sockets:   []string{"0-11,24-35", "12-23,36-47"},
				NUMANodes: []tick.TopologyNUMA{{ID: 1, CPUs: "12-23,36-47", MemoryBytes: f(100313305088)}, {ID: 0, CPUs: "0-11,24-35", MemoryBytes: f(100313305088)}},
			},
			Pods: []tick.Pod{
				{
					UID: "u2", Namespace: "default", Name: "near", QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: f(1001)},
					Containers: []tick.Container{{CPUSetCPUs: "12-15"}},
				},
				{
					UID: "u1", Namespace: "default", Name: "far", QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: f(2001), ReclaimedMemoryBytes: f(1 << 30)},
					Containers: []tick.Container{{CPUSetCPUs: "0-10"}, {CPUSetCPUs: "12-21"}},
				},
				{UID: "u3", Namespace: "default", Name: "service", QoS: tick.QoSShared, Requests: &tick.Resources{MilliCPU: f(2000)}},
				{UID: "u4", Namespace: "default", Name: "over", QoS: tick.QoSReclaimed, Phase: "Succeeded", Requests: &tick.Resources{ReclaimedMilliCPU: f(1)}},
				{UID: "u5", Name: "a cgroup", QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: f(1)}},
				{UID: "u6", Namespace: "default", Name: "asks for nothing", QoS: tick.QoSReclaimed, Requests: &tick.Resources{}},
			},
		},
		Advice: &tick.Advice{Reclaimed: &tick.Reclaimed{
			MilliCPU: p(44000), MemoryBytes: p(195257901056),
			NUMANodes: []tick.ReclaimedNUMA{{ID: 0, MilliCPU: p(22500), MemoryBytes: p(97628950528)}, {ID: 1, MilliCPU: p(21500)}},
		}},
	}
}

func TestCNRStatus(t *testing.T) {
	got, err := json.MarshalIndent(CNRStatus("n1", Read(guide())), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "apiVersion": "node.katalyst.kubewharf.io/v1alpha1",
  "kind": "CustomNodeResource",
  "metadata": {"name": "n1"},
  "status": {
    "resourceAllocatable": {"katalyst.kubewharf.io/reclaimed_memory": "195257901056", "katalyst.kubewharf.io/reclaimed_millicpu": "44k"},
    "resourceCapacity": {"katalyst.kubewharf.io/reclaimed_memory": "195257901056", "katalyst.kubewharf.io/reclaimed_millicpu": "44k"},
    "resources": {
      "allocatable": {"resource.katalyst.kubewharf.io/reclaimed_memory": "195257901056", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "44k"},
      "capacity": {"resource.katalyst.kubewharf.io/reclaimed_memory": "195257901056", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "44k"}
    },
    "topologyZone": [
      {"type": "Socket", "name": "0", "resources": {}, "children": [{
        "type": "Numa", "name": "0",
        "resources": {
          "allocatable": {"cpu": "24", "memory": "100313305088", "resource.katalyst.kubewharf.io/reclaimed_memory": "97628950528", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "22500"},
          "capacity": {"cpu": "24", "memory": "100313305088", "resource.katalyst.kubewharf.io/reclaimed_memory": "97628950528", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "22500"}
        },
        "allocations": [
          {"consumer": "default/far/u1", "requests": {"resource.katalyst.kubewharf.io/reclaimed_memory": "536870912", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "1001"}}
        ]
      }]},
      {"type": "Socket", "name": "1", "resources": {}, "children": [{
        "type": "Numa", "name": "1",
        "resources": {
          "allocatable": {"cpu": "24", "memory": "100313305088", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "21500"},
          "capacity": {"cpu": "24", "memory": "100313305088", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "21500"}
        },
        "allocations": [
          {"consumer": "default/far/u1", "requests": {"resource.katalyst.kubewharf.io/reclaimed_memory": "536870912", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "1k"}},
          {"consumer": "default/near/u2", "requests": {"resource.katalyst.kubewharf.io/reclaimed_millicpu": "1001"}}
        ]
      }]}
    ]
  }
}`
	if d := cmp.Diff(decode(t, want), decode(t, string(got))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// Machines with unknown parts, or without sockets of whole NUMA nodes.
func TestZones(t *testing.T) {
	for _, tt := range []struct {
		name     string
		topology tick.Topology
		want     string // type name of each zone, children in brackets
	}{
		{"no topology", tick.Topology{}, ""},
		{"one NUMA node over two sockets", tick.Topology{Sockets: []string{"0-1", "2-3"}, NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-3"}}}, "Numa0"},
		{"memory without CPUs", tick.Topology{Sockets: []string{"0-3"}, NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-3"}, {ID: 2, CPUs: ""}}}, "Socket0[Numa0] Numa2"},
		{"two NUMA nodes a socket", tick.Topology{Sockets: []string{"0-3"}, NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-1"}, {ID: 1, CPUs: "2-3"}}}, "Socket0[Numa0 Numa1]"},
		{"lists that are none", tick.Topology{Sockets: []string{"x"}, NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-99999999"}, {ID: 1, CPUs: "1"}, {ID: 1, CPUs: "2"}}}, "Numa1"},
	} {
		tk := &tick.Tick{Sample: &tick.Sample{Topology: &tt.topology}, Advice: &tick.Advice{Reclaimed: &tick.Reclaimed{MilliCPU: tick.Ptr[int64](1)}}}
		zone, _ := at(CNRStatus("n", Read(tk)), "status", "topologyZone").([]any)
		if got := brief(zone); got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}

func brief(zones []any) string {
	var words []string
	for _, z := range zones {
		m, _ := z.(map[string]any)
		word := fmt.Sprint(m["type"], m["name"])
		if children, ok := m["children"].([]any); ok {
			word += "[" + brief(children) + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestReadIsCareful(t *testing.T) {
	tk := guide()
	tk.Advice.Reclaimed.MilliCPU, tk.Advice.Reclaimed.MemoryBytes = tick.Ptr[int64](-5), tick.Ptr[int64](1<<62)
	tk.Sample.Pods[0].Requests.ReclaimedMilliCPU = new(1e300)
	tk.Sample.Pods[1].Requests.ReclaimedMilliCPU = new(-1.0)
	for i := range 2 * maxConsumers {
		tk.Sample.Pods = append(tk.Sample.Pods, tick.Pod{UID: fmt.Sprint(i), Namespace: "d", Name: "p", QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: new(1.0)}})
	}
	f := Read(tk)
	if *f.Reclaimed.MilliCPU != 0 || *f.Reclaimed.MemoryBytes != largest || len(f.Consumers) != maxConsumers || f.Taints != nil {
		t.Errorf("%d, %d, %d pods, taints %v", *f.Reclaimed.MilliCPU, *f.Reclaimed.MemoryBytes, len(f.Consumers), f.Taints)
	}
	tk.Advice = nil
	if f := Read(tk); !f.Empty() {
		t.Errorf("no advice: %+v", f.Reclaimed)
	}
	taint := tick.Taint{Key: "k", Effect: "NoSchedule"}
	for _, tt := range []struct {
		name string
		e    *tick.Eviction
		want []tick.Taint
	}{
		{"none", nil, nil},
		{"no taints", &tick.Eviction{}, []tick.Taint{}},
		{"a taint", &tick.Eviction{Taints: []tick.Taint{taint}}, []tick.Taint{taint}},
		{"a dry run", &tick.Eviction{Taints: []tick.Taint{taint}, DryRun: true}, []tick.Taint{}},
		{"refused", &tick.Eviction{Refused: "old"}, nil},
	} {
		if d := cmp.Diff(tt.want, Read(&tick.Tick{Eviction: tt.e}).Taints); d != "" {
			t.Errorf("eviction: %s (-want +got):\n%s", tt.name, d)
		}
	}
}

func TestNodePatch(t *testing.T) {
	for _, tt := range []struct {
		f    Figures
		want string
	}{
		{of(44000, 195257901056), `{"resource.katalyst.kubewharf.io/reclaimed_memory":"195257901056","resource.katalyst.kubewharf.io/reclaimed_millicpu":"44k"}`},
		{of(0, 0), `{"resource.katalyst.kubewharf.io/reclaimed_memory":"0","resource.katalyst.kubewharf.io/reclaimed_millicpu":"0"}`},
		{of(42500, -1), `{"resource.katalyst.kubewharf.io/reclaimed_memory":null,"resource.katalyst.kubewharf.io/reclaimed_millicpu":"42500"}`},
		{of(-1, -1), `{"resource.katalyst.kubewharf.io/reclaimed_memory":null,"resource.katalyst.kubewharf.io/reclaimed_millicpu":null}`},
	} {
		got, err := json.Marshal(NodePatch(Figures{Dialect: Katalyst, Reclaimed: tt.f.Reclaimed}.Resources(Prefix)))
		if want := `{"status":{"allocatable":` + tt.want + `,"capacity":` + tt.want + `}}`; err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}

func TestNodeHolds(t *testing.T) {
	const c, m = ReclaimedMilliCPU, ReclaimedMemory
	node := func(capacity, allocatable map[string]any) map[string]any {
		return map[string]any{"status": map[string]any{"capacity": capacity, "allocatable": allocatable}}
	}
	full := map[string]any{c: "44k", m: "1Gi", "cpu": "48"}
	for _, tt := range []struct {
		name string
		node map[string]any
		f    Figures
		want bool
	}{
		{"both", node(full, full), of(44000, 1<<30), true},
		{"other amounts", node(full, full), of(42000, 1<<30), false},
		{"more than is known", node(full, full), of(44000, -1), false},
		{"kubelet has set it to zero", node(full, map[string]any{c: "0", m: "0"}), of(44000, 1<<30), false},
		{"dropped from one", node(full, map[string]any{"cpu": "48"}), of(44000, 1<<30), false},
		{"nothing is to be there", node(full, full), of(-1, -1), false},
		{"nothing is there", node(map[string]any{"cpu": "48"}, nil), of(-1, -1), true},
		{"no node", nil, of(1, 1), false},
	} {
		if got := NodeHolds(tt.node, Figures{Dialect: Katalyst, Reclaimed: tt.f.Reclaimed}.Resources(Prefix)); got != tt.want {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
}

func TestTaints(t *testing.T) {
	theirs := map[string]any{"key": "team/x", "effect": "NoSchedule", "value": "v"}
	cnr := map[string]any{"spec": map[string]any{"taints": []any{theirs}}, "metadata": map[string]any{}}
	a, b := tick.Taint{Key: "p/A", Effect: "NoSchedule"}, tick.Taint{Key: "p/B", Effect: "NoExecute"}
	// write changes the object like the patch.
	write := func(taints Taints) {
		if err := taints.Patch().apply(cnr); err != nil {
			t.Fatal(err)
		}
	}
	ours := func(key, effect, since string) map[string]any {
		return map[string]any{"key": key, "effect": effect, "qosLevel": "reclaimed_cores", "timeAdded": since}
	}
	const first, second = "2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z"
	for _, step := range []struct {
		name    string
		at      time.Time
		desired []tick.Taint
		write   bool
		want    []any
	}{
		{"none desired", noon, nil, false, []any{theirs}},
		{"one", noon, []tick.Taint{a}, true, []any{theirs, ours("p/A", "NoSchedule", first)}},
		{"the same later", noon.Add(time.Hour), []tick.Taint{a}, false, []any{theirs, ours("p/A", "NoSchedule", first)}},
		{"two, one is named twice", noon.Add(time.Hour), []tick.Taint{b, a, b}, true, []any{theirs, ours("p/A", "NoSchedule", first), ours("p/B", "NoExecute", second)}},
		{"one that another program has set", noon, []tick.Taint{b, {Key: "team/x", Effect: "NoSchedule"}}, true, []any{theirs, ours("p/B", "NoExecute", second)}},
		{"none again", noon, []tick.Taint{}, true, []any{theirs}},
		{"keys that cannot be", noon, []tick.Taint{{Key: "", Effect: "x"}, {Key: "a,b", Effect: "x"}}, false, []any{theirs}},
	} {
		present := TaintsOf(cnr)
		next := present.Want(step.desired, step.at)
		if write := !next.Equal(present); write != step.write {
			t.Errorf("%s: to be written: %v; want %v", step.name, write, step.write)
		}
		if step.write {
			write(next)
		}
		if d := cmp.Diff(step.want, TaintsOf(cnr).list); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
}

func TestCNRWithdrawal(t *testing.T) {
	o := CNRStatus("n", Read(guide()))
	status, _ := o["status"].(map[string]any)
	status["conditions"] = []any{"theirs"}
	allocatable, _ := at(o, "status", "resources", "allocatable").(map[string]any)
	allocatable["theirs"] = "1"
	gpu := map[string]any{"type": "GPU", "name": "0"}
	zones, _ := status["topologyZone"].([]any)
	status["topologyZone"] = append(zones, gpu)
	if CNRHolds(o, Figures{}) || !CNRHolds(o, Read(guide())) {
		t.Error("an object with figures holds them, and does not hold nothing")
	}
	if err := CNRWithdrawal(o).apply(o); err != nil {
		t.Fatal(err)
	}
	left := map[string]any{
		"conditions": []any{"theirs"}, "topologyZone": []any{gpu}, "resourceAllocatable": map[string]any{}, "resourceCapacity": map[string]any{},
		"resources": map[string]any{"allocatable": map[string]any{"theirs": "1"}, "capacity": map[string]any{}},
	}
	if d := cmp.Diff(left, o["status"]); d != "" {
		t.Errorf("left (-want +got):\n%s", d)
	}
	if CNRWithdrawal(o) != nil || !CNRHolds(o, Figures{}) {
		t.Error("there is still something to withdraw")
	}
}
