package katalyst

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/class"
	"polder/lib/tick"
)

// A reboot discards the state of cgroups; dedicated pods keep their CPUs.
func TestARebootForgetsCgroups(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0, dedicated("db", 2000), shared("web", 1), reclaimed("b")))
	d.Nodes["null"] = nil // null in a state file
	d.Reboot()
	n := d.Nodes["n"]
	if n.HadPools || n.Fallback != nil || n.RampUpEnds != nil || n.Dedicated["default/db"] == "" {
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
