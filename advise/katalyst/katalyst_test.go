package katalyst

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/lib/cpus"
	"polder/lib/tick"
)

var start = time.Date(2023, 1, 3, 16, 18, 31, 0, time.UTC)

// guideTopology returns the guide's 48-CPU node.
func guideTopology() *tick.Topology {
	t := &tick.Topology{CPUs: "0-47", NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-11,24-35"}, {ID: 1, CPUs: "12-23,36-47"}}}
	for i := range 24 {
		t.Cores = append(t.Cores, fmt.Sprintf("%d,%d", i, i+24))
	}
	return t
}

// at makes a tick of the guide's node.
func at(seconds float64, pods ...tick.Pod) *tick.Tick {
	return &tick.Tick{V: 1, Node: "n", Time: start.Add(time.Duration(seconds * float64(time.Second))), Sample: &tick.Sample{
		IntervalSeconds: new(1.0),
		Topology:        guideTopology(),
		Memory:          &tick.NodeMemory{TotalBytes: new(195924424.0 * 1024)},
		Pods:            pods,
	}}
}

// shared makes a shared pod of one container with use and loads in cores.
func shared(name string, cores float64) tick.Pod {
	return tick.Pod{Namespace: "default", Name: name, QoS: tick.QoSShared, StartTime: "2023-01-03T10:00:00Z", Containers: []tick.Container{{
		Cgroup: "/kubepods/" + name, UsageMilliCPU: new(cores * 1000), Load1: &cores, Load5: &cores,
		Memory: &tick.Memory{RSSBytes: new(1.0)},
	}}}
}

func reclaimed(name string) tick.Pod {
	return tick.Pod{Namespace: "default", Name: name, QoS: tick.QoSReclaimed, Containers: []tick.Container{{Cgroup: "/kubepods/besteffort/" + name}}}
}

func dedicated(name string, milliCPU float64) tick.Pod {
	return tick.Pod{
		Namespace: "default", Name: name, QoS: tick.QoSDedicated, Requests: &tick.Resources{MilliCPU: &milliCPU},
		Containers: []tick.Container{{Cgroup: "/kubepods/" + name}},
	}
}

func poolsOf(a *tick.Advice) map[string]string {
	m := map[string]string{}
	for _, p := range a.Pools {
		m[p.Name] = p.CPUs
	}
	return m
}

// The guide's numbers, and the time after the peak: 30 s after the last need the shared pool releases 2 CPUs, and no more in the next 30 s.
func TestGuide(t *testing.T) {
	d := New(Defaults())
	for _, step := range []struct {
		seconds, cores float64
		milliCPU       int64
		share, reclaim string
		reason         string
	}{
		{0, 0, 44000, "11,23,35,47", "0-10,12-22,24-34,36-46", "-> 4 CPUs"},
		{1, 1, 42000, "11,22-23,35,46-47", "0-10,12-21,24-34,36-45", "reserve 4000m (default) + need 1000m of 1 container = 5000m -> 6 CPUs"},
		{2, 3, 40000, "10-11,22-23,34-35,46-47", "0-9,12-21,24-33,36-45", "-> 8 CPUs"},
		{3, 40, 4000, "1-11,13-23,25-35,37-47", "0,12,24,36", "-> 44 CPUs"},
		{4, 60, 4000, "1-11,13-23,25-35,37-47", "0,12,24,36", "keeps its floor of 4 CPUs (default)"},
		{5, 1, 4000, "1-11,13-23,25-35,37-47", "0,12,24,36", "hold-down: 44 CPUs for 29s more (hold 30s: default)"},
		{33.9, 1, 4000, "1-11,13-23,25-35,37-47", "0,12,24,36", "hold-down: 44 CPUs for 1s more"},
		{34, 1, 6000, "2-11,13-23,26-35,37-47", "0-1,12,24-25,36", "6 CPUs are needed: it shrinks by 2 per step (shrink-step: default)"},
		{35, 1, 6000, "2-11,13-23,26-35,37-47", "0-1,12,24-25,36", "hold-down: 42 CPUs for 29s more"},
		{64, 1, 8000, "2-11,14-23,26-35,38-47", "0-1,12-13,24-25,36-37", "shrinks by 2"},
		{65, 40, 4000, "1-11,13-23,25-35,37-47", "0,12,24,36", "-> 44 CPUs"},
	} {
		tk := at(step.seconds)
		if step.cores > 0 {
			tk = at(step.seconds, shared("a", step.cores))
		}
		a := d.Decide(tk)
		pools := poolsOf(a)
		if *a.Reclaimed.MilliCPU != step.milliCPU || pools["share"] != step.share || pools["reclaim"] != step.reclaim {
			t.Errorf("at %vs with %v cores: reclaimed %d, share %s | %s; want %d, %s | %s",
				step.seconds, step.cores, *a.Reclaimed.MilliCPU, pools["share"], pools["reclaim"], step.milliCPU, step.share, step.reclaim)
		}
		if !strings.Contains(strings.Join(a.Reasons, "\n"), step.reason) {
			t.Errorf("at %vs: reasons %q; want %q among them", step.seconds, a.Reasons, step.reason)
		}
	}
	if bytes := *d.Decide(at(66)).Reclaimed.MemoryBytes; bytes != 195257901056 {
		t.Errorf("reclaimed memory = %d; want the guide's 195257901056", bytes)
	}
}

func TestNeed(t *testing.T) {
	p := func(f float64) *float64 { return &f }
	for _, c := range []struct {
		name     string
		pod      tick.Pod
		milliCPU float64
		bytes    float64
	}{
		{"the largest of use and loads", tick.Pod{UsageMilliCPU: p(100), Load1: p(3), Load5: p(2), Memory: &tick.Memory{RSSBytes: p(5)}}, 3000, 5},
		{"all known: the request does not count", tick.Pod{UsageMilliCPU: p(100), Load1: p(0.1), Load5: p(0.1), Requests: &tick.Resources{MilliCPU: p(2000)}, Memory: &tick.Memory{RSSBytes: p(5)}}, 100, 5},
		{"one zero: the request counts too", tick.Pod{UsageMilliCPU: p(100), Load1: p(0), Load5: p(0.1), Requests: &tick.Resources{MilliCPU: p(2000)}, Memory: &tick.Memory{RSSBytes: p(5)}}, 2000, 5},
		{"one missing: the request counts too", tick.Pod{UsageMilliCPU: p(100), Load1: p(0.1), Requests: &tick.Resources{MilliCPU: p(2000)}, Memory: &tick.Memory{RSSBytes: p(5)}}, 2000, 5},
		{"one missing: a smaller request does not", tick.Pod{UsageMilliCPU: p(2500), Load1: p(0.1), Requests: &tick.Resources{MilliCPU: p(2000)}, Memory: &tick.Memory{RSSBytes: p(5)}}, 2500, 5},
		{"nothing is known", tick.Pod{}, 4000, 8 << 30},
		{"negative is unknown", tick.Pod{UsageMilliCPU: p(-1), Load1: p(-5), Memory: &tick.Memory{RSSBytes: p(-5)}, Requests: &tick.Resources{MilliCPU: p(-3), MemoryBytes: p(-1)}}, 4000, 8 << 30},
		{"no rss: the memory request", tick.Pod{UsageMilliCPU: p(1), Load1: p(1), Load5: p(1), Requests: &tick.Resources{MemoryBytes: p(77)}}, 1000, 77},
		{"the pod's request falls to the containers without one", tick.Pod{
			Requests:   &tick.Resources{MilliCPU: p(3000)},
			Containers: []tick.Container{{Requests: &tick.Resources{MilliCPU: p(1000)}}, {}, {}},
		}, 3000, 3 * (8 << 30)},
		{"huge numbers stay finite", tick.Pod{UsageMilliCPU: p(1e308), Load1: p(1e308), Load5: p(1), Memory: &tick.Memory{RSSBytes: p(1e308)}}, 1 << 53, 1 << 53},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.pod.QoS = tick.QoSShared
			e := needOf(c.pod)
			if e.milliCPU != c.milliCPU || e.memoryBytes != c.bytes {
				t.Errorf("need = %vm, %v bytes; want %vm, %v bytes", e.milliCPU, e.memoryBytes, c.milliCPU, c.bytes)
			}
		})
	}
	done := shared("done", 5)
	done.Phase = "Succeeded"
	if e := needOf(reclaimed("b"), tick.Pod{QoS: tick.QoSSystem}, done); e.milliCPU != 0 || e.memoryBytes != 0 {
		t.Errorf("need of reclaimed, system and finished pods = %+v; want nothing", e)
	}
}

func TestDedicated(t *testing.T) {
	d := New(Defaults())
	a := d.Decide(at(0, shared("a", 1), dedicated("db", 3500), reclaimed("b")))
	want := map[string]string{
		"share":                "11,22-23,35,46-47",
		"reclaim":              "2-10,12-21,26-34,36-45",
		"dedicated/default/db": "0-1,24-25",
	}
	if diff := cmp.Diff(want, poolsOf(a)); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if *a.Reclaimed.MilliCPU != 38000 {
		t.Errorf("reclaimed = %d; want 38000", *a.Reclaimed.MilliCPU)
	}
	wantCgroups := []tick.Cgroup{
		{Cgroup: "/kubepods/a", CPUSetCPUs: "11,22-23,35,46-47"},
		{Cgroup: "/kubepods/db", CPUSetCPUs: "0-1,24-25"},
		{Cgroup: "/kubepods/besteffort/b", CPUSetCPUs: "2-10,12-21,26-34,36-45"},
	}
	if diff := cmp.Diff(wantCgroups, a.Cgroups); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
	wantFallback := []tick.Cgroup{
		{Cgroup: "/kubepods/a", CPUSetCPUs: "3-11,13-23,27-35,37-47"},
		{Cgroup: "/kubepods/db", CPUSetCPUs: "0-1,24-25"},
		{Cgroup: "/kubepods/besteffort/b", CPUSetCPUs: "2,12,26,36"},
	}
	if diff := cmp.Diff(wantFallback, a.Fallback); diff != "" {
		t.Errorf("fallback (-want +got):\n%s", diff)
	}

	// A second one comes first by name: the first one keeps its CPUs.
	a = d.Decide(at(1, shared("a", 1), dedicated("db", 3500), dedicated("cache", 22000)))
	if pools := poolsOf(a); pools["dedicated/default/db"] != "0-1,24-25" || pools["dedicated/default/cache"] != "12-22,36-46" {
		t.Errorf("pools = %v; want db where it was and cache on NUMA node 1", pools)
	}
	// One whose request cannot be met stays with the shared pods and is counted there.
	a = d.Decide(at(2, dedicated("huge", 47000)))
	if pools := poolsOf(a); pools["share"] != "1-11,13-23,25-35,37-47" || !strings.Contains(strings.Join(a.Reasons, "\n"), "dedicated pod default/huge requests 47 CPUs") {
		t.Errorf("pools = %v, reasons %q; want huge in the shared pool", pools, a.Reasons)
	}
}

func TestReservedCPUs(t *testing.T) {
	s := Defaults()
	s.ReservedCPUs = "0,24"
	a := New(s).Decide(at(0))
	want := map[string]string{"reserve": "0,24", "share": "11,23,35,47", "reclaim": "1-10,12-22,25-34,36-46"}
	if diff := cmp.Diff(want, poolsOf(a)); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

func TestAllocatableBoundsTheOffer(t *testing.T) {
	tk := at(0)
	tk.Sample.Allocatable = &tick.Resources{MilliCPU: new(46500.0)}
	if a := New(Defaults()).Decide(tk); *a.Reclaimed.MilliCPU != 42500 {
		t.Errorf("reclaimed = %d; want the allocatable 46500 less the shared 4000", *a.Reclaimed.MilliCPU)
	}
}

func TestQuotaOnSmallMachines(t *testing.T) {
	small := func(seconds, cores float64) *tick.Tick {
		limited := reclaimed("limited")
		limited.Limits = &tick.Resources{MilliCPU: new(50.0)}
		tk := at(seconds, shared("web", cores), reclaimed("batch"), limited)
		tk.Sample.Topology = &tick.Topology{CPUs: "0-1", Cores: []string{"0", "1"}}
		tk.Sample.Memory.TotalBytes = new(10e9)
		return tk
	}
	d := New(Defaults())
	for _, step := range []struct {
		seconds, cores float64
		milliCPU       int64
	}{
		{0, 0.1234, 1676}, // 2000 - 200 - 123.4, the shared side rounded up to a milli-CPU
		{1, 1.5, 300},
		{2, 5, 200}, // the floor
		{3, 0.1, 200},
		{32, 0.1, 1700}, // after the hold-down; at most 2 cores, so all at once
	} {
		a := d.Decide(small(step.seconds, step.cores))
		if *a.Reclaimed.MilliCPU != step.milliCPU || len(a.Pools) != 0 {
			t.Errorf("at %vs with %v cores: reclaimed = %d, pools %v; want %d and none", step.seconds, step.cores, *a.Reclaimed.MilliCPU, a.Pools, step.milliCPU)
		}
		want := []tick.Cgroup{
			{Cgroup: "/kubepods/besteffort/batch", CPUMaxMilliCPU: new(step.milliCPU / 2)},
			{Cgroup: "/kubepods/besteffort/limited", CPUMaxMilliCPU: new(int64(50))},
		}
		if diff := cmp.Diff(want, a.Cgroups); diff != "" {
			t.Errorf("at %vs: cgroups (-want +got):\n%s", step.seconds, diff)
		}
		if got := *a.Fallback[0].CPUMaxMilliCPU; got != 100 {
			t.Errorf("fallback quota = %d; want half of the floor of 200", got)
		}
	}
	if got := *d.Decide(small(40, 0.1)).Reclaimed.MemoryBytes; got != 9e9-1 {
		t.Errorf("reclaimed memory = %d; want 10e9 less a tenth and 1 byte of rss", got)
	}
}

// CPUs go offline under the pools until the machine is small, and come back.
func TestAQuotaIsWithinEachContainersOwnLimit(t *testing.T) {
	small := &tick.Topology{CPUs: "0-3", Cores: []string{"0-1", "2-3"}}
	pod := reclaimed("b")
	pod.Containers = []tick.Container{
		{Name: "a", Cgroup: "/kubepods/burstable/podb/a", Limits: &tick.Resources{MilliCPU: new(100.0)}},
		{Name: "c", Cgroup: "/kubepods/burstable/podb/c", Limits: &tick.Resources{ReclaimedMilliCPU: new(300.0), MilliCPU: new(2000.0)}},
	}
	pod.Limits = &tick.Resources{MilliCPU: new(2100.0)}
	tk := at(0, pod)
	tk.Sample.Topology = small
	d := New(Defaults())
	within := func(when string, list []tick.Cgroup) {
		for _, c := range list {
			maximum := map[string]int64{"/kubepods/burstable/podb/a": 100, "/kubepods/burstable/podb/c": 300}[c.Cgroup]
			if q := c.CPUMaxMilliCPU; q == nil || *q == tick.Unlimited || *q > maximum {
				t.Errorf("%s: %s has the quota %v, and the limit %d", when, c.Cgroup, q, maximum)
			}
		}
	}
	a := d.Decide(tk)
	within("by quota", a.Cgroups)
	within("the fallback", a.Fallback)
	again := at(1, pod)
	within("with pools again", d.Decide(again).Cgroups)
}

func TestBetweenPoolsAndQuota(t *testing.T) {
	d := New(Defaults())
	tk := at(0, shared("a", 1), reclaimed("b"))
	tk.Sample.Topology = &tick.Topology{CPUs: "0-7"}
	if a := d.Decide(tk); poolsOf(a)["share"] != "4-7" { // the floor bounds 5 to 4
		t.Fatalf("pools = %v; want share 4-7", a.Pools)
	}
	tk.Time, tk.Sample.Topology = tk.Time.Add(time.Second), &tick.Topology{CPUs: "0-6"}
	a := d.Decide(tk)
	want := []tick.Cgroup{
		{Cgroup: "/kubepods/a", CPUSetCPUs: "0-6"},
		{Cgroup: "/kubepods/besteffort/b", CPUSetCPUs: "0-6", CPUMaxMilliCPU: new(int64(7000 - 1700))},
	}
	if diff := cmp.Diff(want, a.Cgroups); diff != "" {
		t.Errorf("on 7 CPUs: cgroups (-want +got):\n%s", diff)
	}
	tk.Time, tk.Sample.Topology = tk.Time.Add(time.Second), &tick.Topology{CPUs: "0-7"}
	a = d.Decide(tk)
	if got := a.Cgroups[1]; got.CPUMaxMilliCPU == nil || *got.CPUMaxMilliCPU != tick.Unlimited || got.CPUSetCPUs != "0-3" {
		t.Errorf("on 8 CPUs again: %+v; want the pool and no quota", got)
	}
}

func TestNoSampleNoDecision(t *testing.T) {
	d := New(Defaults())
	before := d.Decide(at(0, reclaimed("b")))
	bare := &tick.Tick{V: 1, Node: "n", Time: start}
	noTopology := at(1)
	noTopology.Sample.Topology = nil
	offline := at(1)
	offline.Sample.Topology = &tick.Topology{CPUs: ""}
	first := at(1, tick.Pod{Name: "a", QoS: tick.QoSShared})
	first.Sample.IntervalSeconds = nil
	withoutPods := at(1) // a plain host, on which what runs outside of pods counts
	withoutPods.Sample.IntervalSeconds, withoutPods.Sample.CPU = nil, nil
	for name, tk := range map[string]*tick.Tick{
		"bare": bare, "no topology": noTopology, "nothing online": offline, "first reading": first, "first reading without pods": withoutPods,
	} {
		a := d.Decide(tk)
		if a.Reclaimed != nil || a.Pools != nil || a.Cgroups != nil || len(a.Reasons) == 0 {
			t.Errorf("%s: advice = %+v; want reasons alone", name, a)
		}
		if diff := cmp.Diff(before.Fallback, a.Fallback); diff != "" {
			t.Errorf("%s: the fallback is not kept (-want +got):\n%s", name, diff)
		}
	}
}

func TestClockSetBack(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(3600, shared("a", 40)))
	d.Decide(at(0, shared("a", 1))) // an hour earlier
	a := d.Decide(at(31, shared("a", 1)))
	if *a.Reclaimed.MilliCPU != 6000 {
		t.Errorf("reclaimed = %d; want 6000: the hold counts from the clock's step, not for an hour", *a.Reclaimed.MilliCPU)
	}
}

func TestStateContinues(t *testing.T) {
	one := New(Defaults())
	one.Decide(at(0, shared("a", 40), dedicated("db", 2000)))
	data, err := tick.Marshal(one.State())
	if err != nil {
		t.Fatal(err)
	}
	other := New(Defaults())
	if err := tick.Unmarshal(data, other.State()); err != nil {
		t.Fatal(err)
	}
	next := at(10, shared("a", 1), dedicated("db", 2000))
	if diff := cmp.Diff(one.Decide(next), other.Decide(next)); diff != "" {
		t.Errorf("advice after a restart (-one run +two):\n%s", diff)
	}
}

// For any machine and load: the offer exists, is finite and not negative, and the shared pool has CPUs.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Custom(func(t *rapid.T) *float64 {
			if rapid.Bool().Draw(t, "missing") {
				return nil
			}
			f := rapid.OneOf(rapid.Float64Range(-10, 200), rapid.Float64()).Filter(func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }).Draw(t, "number")
			return &f
		})
		pod := rapid.Custom(func(t *rapid.T) tick.Pod {
			name := rapid.StringMatching(`[a-e]`).Draw(t, "name")
			return tick.Pod{
				Name: name, Cgroup: "/" + name,
				QoS:           rapid.SampledFrom([]string{"shared", "reclaimed", "dedicated", "system", ""}).Draw(t, "qos"),
				UsageMilliCPU: number.Draw(t, "usage"), Load1: number.Draw(t, "load1"), Load5: number.Draw(t, "load5"),
				Memory:   &tick.Memory{RSSBytes: number.Draw(t, "rss")},
				Requests: &tick.Resources{MilliCPU: number.Draw(t, "request"), MemoryBytes: number.Draw(t, "memory request")},
				Limits:   &tick.Resources{MilliCPU: number.Draw(t, "limit")},
			}
		})
		s := Defaults()
		s.ReserveMilliCPU = rapid.Int64Range(-1, 60000).Draw(t, "reserve")
		s.FloorMilliCPU = rapid.Int64Range(-1, 60000).Draw(t, "floor")
		d := New(s)
		now := start
		for range rapid.IntRange(1, 8).Draw(t, "ticks") {
			now = now.Add(time.Duration(rapid.IntRange(-100, 100).Draw(t, "seconds")) * time.Second)
			all := rapid.IntRange(1, 64).Draw(t, "CPUs")
			threads := rapid.IntRange(1, 4).Draw(t, "threads")
			topology := &tick.Topology{CPUs: fmt.Sprintf("0-%d", all-1)}
			for c := 0; c < all; c += threads {
				topology.Cores = append(topology.Cores, fmt.Sprintf("%d-%d", c, min(c+threads, all)-1))
			}
			total := number.Draw(t, "total bytes")
			tk := &tick.Tick{V: 1, Node: "n", Time: now, Sample: &tick.Sample{
				IntervalSeconds: new(1.0), Topology: topology,
				Memory: &tick.NodeMemory{TotalBytes: total}, Pods: rapid.SliceOfN(pod, 0, 6).Draw(t, "pods"),
			}}
			check(t, tk, d.Decide(tk), all, total)
		}
	})
}

func check(t *rapid.T, tk *tick.Tick, a *tick.Advice, all int, total *float64) {
	if _, err := tick.Marshal(a); err != nil {
		t.Fatalf("advice cannot be written: %v", err)
	}
	if m := *a.Reclaimed.MilliCPU; m < 0 || m > int64(all)*1000 {
		t.Fatalf("reclaimed %d milli-CPU of %d CPUs", m, all)
	}
	if b := a.Reclaimed.MemoryBytes; b != nil && (*b < 0 || float64(*b) > *total) {
		t.Fatalf("reclaimed %d bytes of %v", *b, *total)
	}
	pools, seen := poolsOf(a), cpus.Set{}
	for name, list := range pools {
		set, err := cpus.Parse(list)
		if err != nil {
			t.Fatalf("pool %s: %v", name, err)
		}
		if !set.Intersection(seen).IsEmpty() {
			t.Fatalf("pools overlap: %v", pools)
		}
		seen = seen.Union(set)
	}
	if len(pools) > 0 && (pools["share"] == "" || seen.Size() != all) {
		t.Fatalf("pools %v of %d CPUs: the shared one is empty or CPUs are lost", pools, all)
	}
	if len(a.Reasons) == 0 {
		t.Fatalf("no reasons")
	}
	for _, c := range slices.Concat(a.Cgroups, a.Fallback) {
		if c.CPUSetCPUs == "" && c.CPUMaxMilliCPU == nil && c.CPUIdle == nil {
			t.Fatalf("cgroup %s wants nothing: %+v of %+v", c.Cgroup, a, tk)
		}
		if q := c.CPUMaxMilliCPU; q != nil && *q != tick.Unlimited && *q <= 0 {
			t.Fatalf("cgroup %s gets a quota of %d", c.Cgroup, *q)
		}
	}
}
