package katalyst

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// nodesOf returns a topology of NUMA nodes of the given numbers of CPUs, without hyper-threads.
func nodesOf(sizes ...int) *tick.Topology {
	t, next := &tick.Topology{}, 0
	for id, size := range sizes {
		t.NUMANodes = append(t.NUMANodes, tick.TopologyNUMA{ID: id, CPUs: fmt.Sprintf("%d-%d", next, next+size-1)})
		next += size
	}
	for cpu := range next {
		t.Cores = append(t.Cores, fmt.Sprint(cpu))
	}
	t.CPUs = fmt.Sprintf("0-%d", next-1)
	return t
}

// ownCPUs returns the numbers of the dedicated pods' CPUs, by their names.
func ownCPUs(t *testing.T, a *tick.Advice) map[string]int {
	t.Helper()
	own := map[string]int{}
	for name, list := range poolsOf(a) {
		if pod, ok := strings.CutPrefix(name, tick.PoolDedicatedPrefix+"default/"); ok {
			set, err := cpus.Parse(list)
			if err != nil {
				t.Fatal(err)
			}
			own[pod] = set.Size()
		}
	}
	return own
}

// A dedicated pod gets all available CPUs and none beyond; a request is met by as few NUMA nodes as contain it.
func TestBoundsOfDedicatedCPUs(t *testing.T) {
	for _, c := range []struct {
		name     string
		topology *tick.Topology
		asks     []tick.Pod // one after the other
		want     map[string]int
	}{
		{"all but the floor and a core of the shared pool", nil, []tick.Pod{dedicated("db", 42000)}, map[string]int{"db": 42}},
		{"a core more", nil, []tick.Pod{dedicated("db", 43000)}, map[string]int{}},
		{"a whole core less is reverted", nil, []tick.Pod{dedicated("db", 4000), dedicated("db", 2000)}, map[string]int{"db": 2}},
		{"the other thread of a core is kept", nil, []tick.Pod{dedicated("db", 4000), dedicated("db", 3000)}, map[string]int{"db": 4}},
		{"as many as a node has", nil, []tick.Pod{alone("db", 24000)}, map[string]int{"db": 24}},
		{"as many as two nodes have", nodesOf(8, 8, 8, 8), []tick.Pod{alone("db", 16000)}, map[string]int{"db": 16}},
		{"one node fewer", nodesOf(8, 8, 8, 8), []tick.Pod{alone("db", 16000), alone("db", 8000)}, map[string]int{"db": 8}},
		{"no node fewer", nodesOf(8, 8, 8, 8), []tick.Pod{alone("db", 16000), alone("db", 9000)}, map[string]int{"db": 16}},
		{"a small node fewer", nodesOf(8, 8, 12, 12), []tick.Pod{alone("db", 20000), alone("db", 12000)}, map[string]int{"db": 12}},
		{"the smallest node that holds it", nodesOf(8, 20), []tick.Pod{alone("db", 8000)}, map[string]int{"db": 8}},
	} {
		d := New(Defaults())
		var a *tick.Advice
		for i, p := range c.asks {
			tk := at(float64(i), p)
			if c.topology != nil {
				tk.Sample.Topology = c.topology
			}
			a = d.Decide(tk)
		}
		if diff := cmp.Diff(c.want, ownCPUs(t, a)); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%q", c.name, diff, a.Reasons)
		}
	}
}

// A pod with NUMA nodes of its own keeps them while nothing changes, also if services need all the rest.
func TestExclusiveNodesAreKept(t *testing.T) {
	granted := 0
	for rest := 4; rest <= 16; rest++ {
		d := New(Defaults())
		var divisions [2]string
		for i := range divisions {
			tk := at(float64(i), alone("db", 8000))
			tk.Sample.Topology = nodesOf(8, rest)
			divisions[i] = fmt.Sprint(poolsOf(d.Decide(tk))[tick.PoolDedicatedPrefix+"default/db"], d.Nodes["n"].ownedNodes)
		}
		if divisions[0] != divisions[1] {
			t.Errorf("beside %d CPUs: %s at first, then %s", rest, divisions[0], divisions[1])
		}
		if divisions[0] == "0-7"+"0" {
			granted++
		}
	}
	if granted == 0 || granted == 13 {
		t.Errorf("granted beside %d of 13 sizes of the rest: the bound is not among them", granted)
	}
}

// If services need a part of the rest, a claim of all CPUs gets no NUMA nodes of its own.
func TestExclusiveRoomIsServicesToo(t *testing.T) {
	tk := at(0, alone("db", 43000))
	tk.Sample.Topology = nodesOf(43, 5)
	wantReason(t, New(Defaults()).Decide(tk), "dedicated pod default/db has 43 CPUs and no NUMA nodes of its own")
}

// A pod whose annotation is removed is no longer bound to memory, and the reason of one on a single node reports no other binding.
func TestNoLongerBound(t *testing.T) {
	d := New(Defaults())
	a := d.Decide(at(0, bound("db", 2000)))
	wantNoReason(t, a, "no single one has")
	if got := listsByCgroup(a.Cgroups)["db"]; got != "0,24 mems 0" {
		t.Errorf("db gets %q", got)
	}
	if got := listsByCgroup(d.Decide(at(1, dedicated("db", 2000))).Cgroups)["db"]; got != "0,24 mems 0-1" {
		t.Errorf("db gets %q; want all memory nodes again", got)
	}
	wantNoReason(t, New(Defaults()).Decide(at(0, alone("db", 24000))), "no single one has")
}

// The reserve is divided over the pools that have CPUs of their own: not over those without pods, nor those that need less than a core.
func TestReserveOfThePoolsThatCount(t *testing.T) {
	groups := []group{
		{name: tick.PoolShare, milliCPU: 1000}, {name: "big", milliCPU: 5000}, {name: "tiny", milliCPU: 100}, {name: "gone", isVacant: true},
	}
	wants, needs, sum := desiredUnits(groups, 4001, 20, 2)
	if diff := cmp.Diff([]int{2, 4, 0, 0}, wants); diff != "" || sum != 6 { // 2001m + 1100m, and 2000m + 5000m, in cores of two CPUs
		t.Errorf("a sum of %d, wants (-want +got):\n%s", sum, diff)
	}
	if diff := cmp.Diff([]float64{1.1, 5, 0, 0}, needs); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
	for i, want := range []int64{2001, 2000, 0, 0} {
		if groups[i].reserve != want {
			t.Errorf("pool %s has %d of the reserve; want %d", groups[i].name, groups[i].reserve, want)
		}
	}
}

// A limit of 0 means none, and the smallest of the others applies.
func TestLimitOf(t *testing.T) {
	for _, c := range []struct {
		pod, container *tick.Resources
		want           int64
	}{
		{nil, nil, tick.Unlimited},
		{&tick.Resources{MilliCPU: new(0.0)}, &tick.Resources{ReclaimedMilliCPU: new(0.0)}, tick.Unlimited},
		{&tick.Resources{MilliCPU: new(2000.0)}, &tick.Resources{MilliCPU: new(0.0)}, 2000},
		{&tick.Resources{MilliCPU: new(2000.0)}, &tick.Resources{ReclaimedMilliCPU: new(500.5)}, 501},
	} {
		p := reclaimed("b")
		p.Limits, p.Containers[0].Limits = c.pod, c.container
		if got := limitOf(&p, 0); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// A machine that lost most of its CPUs gives the containers that were in pools all that are left, but leaves containers with CPUs from
// kubelet alone.
func TestKubeletsContainersOnASmallMachine(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0, shared("a", 1), shared("s", 1), reclaimed("b")))
	tk := at(1, pinned(shared("a", 1), "1", 1000), shared("s", 1), reclaimed("b"))
	tk.Sample.Topology = &tick.Topology{CPUs: "0-3"}
	tk.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: "1"}
	got := listsByCgroup(d.Decide(tk).Cgroups)
	if diff := cmp.Diff(map[string]string{"s": "0,2-3", "besteffort/b": "0,2-3"}, got); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
}

// CPUs that hold-downs keep come from the spare ones, once.
func TestSpareCPUsAreUsedOnce(t *testing.T) {
	var groups []group
	for range 3 {
		groups = append(groups, group{hold: holdDown{LastNeed: start}, current: newCPUSet(cpus.New(0, 1, 2, 3, 4, 5, 6, 7))})
	}
	sizes := applyHoldDown(inputs{now: start, settings: Defaults()}, groups, []int{2, 2, 4}, 3, 2)
	if diff := cmp.Diff([]int{4, 3, 4}, sizes); diff != "" {
		t.Errorf("units (-want +got):\n%s", diff)
	}
}
