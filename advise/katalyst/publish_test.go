package katalyst

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/class"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// A reboot discards the state of cgroups; dedicated pods keep their CPUs.
func TestARebootForgetsCgroups(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0, dedicated("db", 2000), shared("web", 1), reclaimed("b")))
	d.Nodes["null"] = nil // null in a state file
	d.Nodes["n"].Class = &class.State{}
	d.Reboot()
	n := d.Nodes["n"]
	if n.HadPools || n.Class != nil || n.Fallback != nil || n.RampUpEnds != nil || n.Dedicated["default/db"] == "" {
		t.Errorf("remembered: %+v", n)
	}
}

// CPUs that are reserved for the system are not subtracted from the offer again if the node's allocatable excludes them.
func TestReservedCPUsAreNotTakenTwice(t *testing.T) {
	s := Defaults()
	s.ReservedCPUs = "0-1,24-25"
	tk := at(0, shared("a", 1))
	want := *New(s).Decide(tk).Reclaimed.MilliCPU
	tk.Sample.Allocatable = &tick.Resources{MilliCPU: new(44_000.0)}
	a := New(s).Decide(tk)
	if got := *a.Reclaimed.MilliCPU; got != want || got != 38_000 {
		t.Errorf("%dm are offered, want %dm: %q", got, want, a.Reasons)
	}
	wantNoReason(t, a, "the node's allocatable is")
}

// The memory that is offered is at most the node's allocatable less the other pods' part, because kubelet limits all pods to that. What
// runs outside of the pods uses the reservation first.
func TestAllocatableBoundsTheOfferOfMemory(t *testing.T) {
	const total, gib = 195924424 * 1024, 1 << 30
	web, agent := shared("web", 1), shared("agent", 1)
	web.Containers[0].Memory.RSSBytes, agent.Memory = new(float64(10*gib)), &tick.Memory{RSSBytes: new(float64(2 * gib))}
	agent.QoS = tick.QoSSystem
	for _, c := range []struct {
		name              string
		allocatable, want int64
		outside           float64 // used outside of the pods, on a node whose kubelet is not visible
	}{
		{"kubelet's default reservation is within the reserve", total - 100<<20, total - 17*gib, 0},
		{"a reservation as large as the reserve", total - 5*gib, total - 17*gib, 0},
		{"a larger one", total - 20*gib, total - 32*gib, 0},
		{"no more than the pods use", 11 * gib, 0, 0},
		{"without kubelet's cgroups, within the reservation", total - 20*gib, total - 30*gib, 10 * gib},
		{"without kubelet's cgroups, beyond it", total - 20*gib, total - 40*gib, 25 * gib},
	} {
		tk := at(0, web, agent)
		tk.Sample.Allocatable = &tick.Resources{MemoryBytes: new(float64(c.allocatable))}
		if c.outside == 0 {
			tk.Sample.Tiers = []tick.Tier{{Name: tick.TierPods, Cgroup: "/kubepods"}}
			tk.Sample.Pods[1].Cgroup = "/kubepods/podagent"
		} else {
			tk.Sample.Memory.AvailableBytes = new(total - 10*gib - c.outside)
		}
		a := New(Defaults()).Decide(tk)
		if got := *a.Reclaimed.MemoryBytes; got != c.want {
			t.Errorf("%s: %d bytes are offered, want %d: %q", c.name, got, c.want, a.Reasons)
		}
		if text := fmt.Sprintf("the node's allocatable is %d bytes", c.allocatable); c.want < total-17*gib && c.want != total-40*gib {
			wantReason(t, a, text)
		} else {
			wantNoReason(t, a, text)
		}
	}
}

// If no memory can be offered the reason states so, and otherwise not.
func TestTheReasonForNoMemory(t *testing.T) {
	const none = ": none is offered"
	tk := at(0, shared("a", 1))
	wantNoReason(t, New(Defaults()).Decide(tk), none)
	tk.Sample.Memory.TotalBytes = new(float64(5 << 30))
	wantReason(t, New(Defaults()).Decide(tk), "memory: 5368709120 bytes are no more than the reserve of 5368709120 (default) and the shared containers' 1"+none)
}

// An amount up to the negligible one is not offered; one unit more is.
func TestWhatIsNegligible(t *testing.T) {
	whole := *New(Defaults()).Decide(at(0, shared("a", 1))).Reclaimed
	for config, want := range map[string][2]int64{
		`{"minIgnoredReclaimedResourceForReport":{"cpu":"20"}}`:     {0, 0}, // per NUMA node
		`{"minIgnoredReclaimedResourceForReport":{"cpu":"19999m"}}`: {*whole.MilliCPU, *whole.MemoryBytes},
	} {
		tk := at(0, shared("a", 1))
		tk.Sample.Topology.NUMANodes = []tick.TopologyNUMA{{ID: 0, CPUs: "0-47"}}
		tk.Sample.Config = configured(config)
		s := Defaults()
		s.FloorMilliCPU, s.ReserveMilliCPU = 20_000, 27_000
		got := New(s).Decide(tk).Reclaimed
		if *got.MilliCPU != min(want[0], 20_000) || *got.MemoryBytes != want[1] {
			t.Errorf("%s: %dm and %d bytes, want %v", config, *got.MilliCPU, *got.MemoryBytes, want)
		}
	}
}

// smallNode returns a tick of four CPUs.
func smallNode(pods ...tick.Pod) *tick.Tick {
	tk := at(0, pods...)
	tk.Sample.Topology = &tick.Topology{CPUs: "0-3"}
	return tk
}

// On a small machine, too, exclusive CPUs and those beyond allocatable are not offered.
func TestQuotaChangesOnlyBatch(t *testing.T) {
	tk := smallNode(reclaimed("b"))
	tk.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: "3"}
	tk.Sample.Allocatable = &tick.Resources{MilliCPU: new(3500.0)}
	a := New(Defaults()).Decide(tk) // the reserve is a tenth of allocatable
	if got := *a.Reclaimed.MilliCPU; got != 3500-1000-350 {
		t.Errorf("%dm are offered: %q", got, a.Reasons)
	}
}

// On a small machine, too, batch runs neither on reserved CPUs nor on kubelet's exclusive ones; its list is widened when these are free
// again.
func TestBatchOnASmallMachineHasNoReservedCPUs(t *testing.T) {
	s := Defaults()
	s.ReservedCPUs = "0"
	for _, tt := range []struct {
		settings             Settings // without reserved CPUs, or with one
		exclusive, list, end string   // kubelet's CPUs in the first tick, batch's list in it and in the next one
	}{{Defaults(), "", "", ""}, {s, "", "1-3", "1-3"}, {Defaults(), "3", "0-2", "0-3"}, {s, "3", "1-2", "1-3"}} {
		d, tk := New(tt.settings), smallNode(reclaimed("b"), fromRule("r"), shared("web", 1))
		tk.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: tt.exclusive}
		for _, want := range []string{tt.list, tt.end} {
			a := d.Decide(tk)
			for _, list := range [][]tick.Cgroup{a.Cgroups, a.Fallback} {
				for i := range list {
					if c := &list[i]; c.CPUSetCPUs != want || strings.HasSuffix(c.Cgroup, "web") {
						t.Errorf("%s on a machine of %+v: CPUs %q; want %q", c.Cgroup, tt, c.CPUSetCPUs, want)
					}
				}
			}
			if want != "" && len(a.Cgroups) < 2 || want != "" && len(a.Fallback) < 2 {
				t.Errorf("%d cgroups, %d in the fallback; want each batch pod's", len(a.Cgroups), len(a.Fallback))
			}
			tk.Sample.Kubelet.ExclusiveCPUs, tk.Time = "", tk.Time.Add(time.Second)
		}
	}
}

// A quota is divided by the pods' requests, and a pod's part equally over its containers.
func TestQuotaIsDividedByRequests(t *testing.T) {
	one, two := reclaimed("one"), reclaimed("two")
	one.Requests = &tick.Resources{ReclaimedMilliCPU: new(2000.0)}
	two.Requests = &tick.Resources{ReclaimedMilliCPU: new(0.0), MilliCPU: new(4000.0)}
	two.Containers = append(two.Containers, tick.Container{Cgroup: "/kubepods/besteffort/two-too"})
	a := New(Defaults()).Decide(smallNode(one, two)) // 4000m less a tenth
	want := []tick.Cgroup{
		{Cgroup: "/kubepods/besteffort/one", CPUMaxMilliCPU: new(int64(1200))},
		{Cgroup: "/kubepods/besteffort/two", CPUMaxMilliCPU: new(int64(1200))},
		{Cgroup: "/kubepods/besteffort/two-too", CPUMaxMilliCPU: new(int64(1200))},
	}
	if diff := cmp.Diff(want, a.Cgroups); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
}

// The reason states what limits batch on a small machine.
func TestReasonNamesHowBatchIsLimited(t *testing.T) {
	for _, tt := range []struct {
		limit, class string
		pods         []tick.Pod
		want         string
	}{
		{"", "", nil, "reclaimed pods are limited by their scheduling class"},
		{LimitClass, class.Weight, nil, "reclaimed pods are limited by their scheduling class"},
		{LimitQuota, "", nil, "reclaimed pods are limited by quota"},
		{"", class.None, nil, "reclaimed pods are limited by quota"},
		{"", "", []tick.Pod{reclaimed("b")}, "reclaimed pods are limited by quota"},
		{"", "", []tick.Pod{fromRule("r")}, "reclaimed pods are limited by their scheduling class"},
		{"", "", []tick.Pod{reclaimed("b"), fromRule("r")}, "reclaimed pods are limited, some by quota and some by their scheduling class"},
	} {
		s := Defaults()
		s.Limit, s.Class.Class = tt.limit, tt.class
		wantReason(t, New(s).Decide(smallNode(tt.pods...)), tt.want)
	}
}

// On a small machine, too, nothing is decided while the API server's pods are unknown.
func TestPodsThatAreUnknownOnASmallMachine(t *testing.T) {
	d := New(Defaults())
	d.Decide(smallNode(shared("web", 1), reclaimed("b")))
	lost := smallNode(shared("web", 1))
	lost.Sample.Pods[0].QoSSource, lost.Sample.Pods[0].Missing = tick.QoSFromRule, tick.MissingCluster
	lost.Sample.Errors = []tick.SourceError{{Source: "pods", Error: "never read"}}
	if a := d.Decide(lost); a.Reclaimed != nil {
		t.Errorf("decided: %+v", a.Reclaimed)
	}
}

// What a reclaimed pod uses does not lower the offer on its NUMA node, and no node offers more memory than it has.
func TestOfferedMemoryOfNUMANodes(t *testing.T) {
	const gib = 1 << 30
	total := 195924424.0 * 1024 / 2 // of each of two nodes
	offered := int64(195924424*1024 - 5*gib - 1)
	for _, c := range []struct {
		name string
		free [2]float64 // GiB
		used [2]float64 // of them by a reclaimed pod, GiB
		want [2]int64
	}{
		{"all is free", [2]float64{90, 90}, [2]float64{}, [2]int64{offered/2 + 1, offered / 2}},
		{"a reclaimed pod uses its part of one node", [2]float64{10, 90}, [2]float64{80, 0}, [2]int64{offered/2 + 1, offered / 2}},
		{"the page cache fills one node", [2]float64{1, 90}, [2]float64{}, [2]int64{offered - int64(total), int64(total)}},
	} {
		batch := reclaimed("batch")
		tk := at(0, shared("a", 1), batch)
		for i := range tk.Sample.Topology.NUMANodes {
			memory := &tick.NUMAMemory{TotalBytes: &total, FreeBytes: new(c.free[i] * gib)}
			tk.Sample.NUMANodes = append(tk.Sample.NUMANodes, tick.NUMASample{ID: i, Memory: memory})
			used := tick.NUMABytes{ID: i, Bytes: c.used[i] * gib}
			tk.Sample.Pods[1].Containers[0].NUMAMemory = append(tk.Sample.Pods[1].Containers[0].NUMAMemory, used)
		}
		a := New(Defaults()).Decide(tk)
		for i, numa := range a.Reclaimed.NUMANodes {
			if got := *numa.MemoryBytes; got != c.want[i] {
				t.Errorf("%s: node %d: %d bytes; want %d of %d", c.name, i, got, c.want[i], *a.Reclaimed.MemoryBytes)
			}
		}
	}
}

// Memory is divided by what is free on each NUMA node, also on one without CPUs. One that a dedicated pod uses alone gets none. If what is
// free on a node is unknown, nothing is divided: unknown is not 0.
func TestMemoryIsDividedByWhatIsFree(t *testing.T) {
	const isUnknown = "the free memory of node 1 is unknown"
	free := func(ids ...int) (list []tick.NUMASample) {
		for _, id := range ids {
			list = append(list, tick.NUMASample{ID: id, Memory: &tick.NUMAMemory{FreeBytes: new(float64(100 * (id + 1)))}})
		}
		return list
	}
	topology := nodesOf(4, 4)
	topology.NUMANodes = append(topology.NUMANodes, tick.TopologyNUMA{ID: 2})
	machine := shapeOf(t, topology, "", "")
	for _, tt := range []struct {
		name   string
		sample []tick.NUMASample
		owned  cpus.Set
		want   map[int]int64 // -1 if the node's part is unknown
		reason string
	}{
		{"both", free(0, 1), cpus.New(), map[int]int64{0: 200, 1: 400}, ""},
		{"and one without CPUs", free(0, 1, 2), cpus.New(), map[int]int64{0: 100, 1: 200, 2: 300}, ""},
		{"one is a dedicated pod's", free(0, 1, 2), cpus.New(1), map[int]int64{0: 150, 1: 0, 2: 450}, ""},
		{"one is unknown", free(0), cpus.New(), map[int]int64{0: -1, 1: -1}, isUnknown},
		{"of one no memory is known", append(free(0), tick.NUMASample{ID: 1}), cpus.New(), map[int]int64{0: -1, 1: -1}, isUnknown},
		{"one without CPUs is unknown", append(free(0, 1), tick.NUMASample{ID: 2}), cpus.New(), map[int]int64{0: 200, 1: 400}, ""},
		{"none is known", nil, cpus.New(), map[int]int64{0: -1, 1: -1}, ""},
	} {
		in := inputs{sample: &tick.Sample{NUMANodes: tt.sample}, shape: machine}
		nodes, reason := splitMemory(in, tick.Reclaimed{
			MemoryBytes: new(int64(600)), NUMANodes: []tick.ReclaimedNUMA{{ID: 0, MilliCPU: new(int64(1))}, {ID: 1, MilliCPU: new(int64(1))}},
		}, tt.owned)
		got := map[int]int64{}
		for _, n := range nodes {
			got[n.ID] = -1
			if n.MemoryBytes != nil {
				got[n.ID] = *n.MemoryBytes
			}
			if n.ID == 2 && (n.MilliCPU == nil || *n.MilliCPU != 0) {
				t.Errorf("%s: a node without CPUs offers %v", tt.name, n.MilliCPU)
			}
		}
		if !maps.Equal(got, tt.want) || !strings.HasSuffix(reason, tt.reason) || (reason == "") != (tt.reason == "") {
			t.Errorf("%s: %v, %q; want %v, %q", tt.name, got, reason, tt.want, tt.reason)
		}
	}
}

// A tick without rates is a first reading if services run of which no use is known, or if the machine's use counts, because no kubelet
// reserves CPUs for it, and is unknown. Nothing is decided then: unknown is not 0.
func TestFirstReading(t *testing.T) {
	web := func(usage, load *float64) tick.Pod {
		return tick.Pod{QoS: tick.QoSShared, Containers: []tick.Container{{}, {UsageMilliCPU: usage, Load1: load}}}
	}
	tiers := []tick.Tier{{Name: tick.TierPods, Cgroup: "/kubepods"}}
	batch := tick.Pod{QoS: tick.QoSReclaimed, UsageMilliCPU: new(1.0)}
	for _, tt := range []struct {
		name  string
		pods  []tick.Pod
		tiers []tick.Tier
		cpu   *tick.NodeCPU
		want  bool
	}{
		{"services of unknown use", []tick.Pod{web(nil, nil), batch}, tiers, nil, true},
		{"services of unknown use beside a known machine", []tick.Pod{web(nil, nil)}, nil, &tick.NodeCPU{UsageMilliCPU: new(1.0)}, true},
		{"the use of one is known", []tick.Pod{web(nil, nil), web(new(0.0), nil)}, nil, nil, false},
		{"the load of one is known", []tick.Pod{web(nil, new(0.0))}, nil, nil, false},
		{"no services, and a kubelet", []tick.Pod{batch}, tiers, nil, false},
		{"no services and no kubelet", []tick.Pod{batch}, nil, nil, true},
		{"no services and no kubelet, but a known machine", []tick.Pod{batch}, nil, &tick.NodeCPU{UsageMilliCPU: new(1.0)}, false},
	} {
		if got := isFirstReading(&tick.Sample{Pods: tt.pods, Tiers: tt.tiers, CPU: tt.cpu}); got != tt.want {
			t.Errorf("%s: %t; want %t", tt.name, got, tt.want)
		}
	}
}
