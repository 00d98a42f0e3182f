package katalyst

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// The reasons count the containers whose need was not read, by the value used instead.
func TestReasonsCountReplacedValues(t *testing.T) {
	p := func(f float64) *float64 { return &f }
	of := func(change func(*tick.Container)) tick.Pod {
		pod := shared("p", 1)
		change(&pod.Containers[0])
		return pod
	}
	for _, tt := range []struct {
		name string
		pod  tick.Pod
		want []string
	}{
		{"all was read", shared("a", 1), nil},
		{
			"a load is missing", of(func(c *tick.Container) { c.Load5, c.Requests = nil, &tick.Resources{MilliCPU: p(2000)} }),
			[]string{"2 shared containers counted by CPU request: use or load is missing or zero, or the pod is new or dedicated"},
		},
		{
			"nothing was read", of(func(c *tick.Container) { c.UsageMilliCPU, c.Load1, c.Load5 = nil, nil, nil }),
			[]string{"2 shared containers counted as 4000m each (default): no use, load or CPU request is known"},
		},
		{
			"rss is missing", of(func(c *tick.Container) { c.Memory, c.Requests = nil, &tick.Resources{MemoryBytes: p(77)} }),
			[]string{"2 shared containers counted by memory request: rss is missing or zero"},
		},
		{
			"rss is zero", of(func(c *tick.Container) {
				c.Memory, c.Requests = &tick.Memory{RSSBytes: p(0)}, &tick.Resources{MemoryBytes: p(77)}
			}),
			[]string{"2 shared containers counted by memory request: rss is missing or zero"},
		},
		{
			"no memory was read", of(func(c *tick.Container) { c.Memory = nil }),
			[]string{"2 shared containers counted as 8589934592 bytes each (default): no rss or memory request is known"},
		},
	} {
		other := tt.pod
		other.Name, other.Containers = "q", slices.Clone(other.Containers)
		e := needOf(tt.pod, other)
		if diff := cmp.Diff(tt.want, e.reasons(Defaults())); diff != "" || e.containers != 2 {
			t.Errorf("%s: %d containers (-want +got):\n%s", tt.name, e.containers, diff)
		}
	}
}

// A dedicated pod's memory is the larger of its request and its use; a terminating pod's is only its use.
func TestMemoryOfDedicatedPods(t *testing.T) {
	for _, tt := range []struct {
		rss, request float64
		ending       bool
		want         float64
	}{{5, 77, false, 77}, {77, 5, false, 77}, {5, 77, true, 5}} {
		pod := dedicated("db", 2000)
		pod.Terminating, pod.Containers[0].Memory = tt.ending, &tick.Memory{RSSBytes: &tt.rss}
		pod.Containers[0].Requests = &tick.Resources{MemoryBytes: &tt.request}
		if got := needOf(pod).memoryBytes; got != tt.want {
			t.Errorf("%+v: %v bytes", tt, got)
		}
	}
}

// A cgroup without containers is idle if it has no threads; if it has some its need is unknown.
func TestACgroupWithoutThreadsNeedsNothing(t *testing.T) {
	for threads, want := range map[float64]float64{0: 0, 2: 4000} {
		if got := needOf(tick.Pod{QoS: tick.QoSShared, Threads: &threads}).milliCPU; got != want {
			t.Errorf("%v threads need %vm, want %vm", threads, got, want)
		}
	}
}

// The rest of a pod's request is divided among the containers without a request of that resource.
func TestRequestsFallToContainersWithoutOne(t *testing.T) {
	p := func(f float64) *float64 { return &f }
	pod := tick.Pod{QoS: tick.QoSShared, Requests: &tick.Resources{MilliCPU: p(3000), MemoryBytes: p(100)}, Containers: []tick.Container{
		{Requests: &tick.Resources{MilliCPU: p(1000)}}, {Requests: &tick.Resources{MemoryBytes: p(40)}},
	}}
	if e := needOf(pod); e.milliCPU != 3000 || e.memoryBytes != 100 || e.unknown > 0 || e.rssUnknown > 0 {
		t.Errorf("need %+v", e)
	}
	pod.Requests.MilliCPU = p(1000) // nothing is left
	if e := needOf(pod); e.milliCPU != 5000 || e.unknown != 1 {
		t.Errorf("need %+v", e)
	}
}

// The machine's use outside of the confined pods counts in the common pool, also if there are others.
func TestSystemUseIsTheCommonPools(t *testing.T) {
	tk := at(0, shared("a", 1), pooled("b", "batch", 3))
	tk.Sample.CPU = &tick.NodeCPU{UsageMilliCPU: new(2000.0)}
	a := New(Defaults()).Decide(tk)
	wantReason(t, a, "share: reserve 2000m of 4000m (default) + need 1000m of 1 container + system 2000m = 5000m -> 6 CPUs")
	wantReason(t, a, "batch: reserve 2000m of 4000m (default) + need 3000m of 1 container = 5000m -> 6 CPUs")
	tk = at(0, shared("a", 1), pooled("b", "batch", 60))
	tk.Sample.CPU = &tick.NodeCPU{UsageMilliCPU: new(29_000.0)}
	if got := mustParse(t, poolsOf(New(Defaults()).Decide(tk))["share"]).Size(); got != 18 {
		t.Errorf("where there is too little for all the common pool has %d CPUs, want its proportion of 18", got)
	}
}

// A flag of an annotation is "true" or "false"; any other value is reported.
func TestFlagsOfAnAnnotation(t *testing.T) {
	for text, want := range map[string][]string{
		`{"numa_binding":"true"}`: nil, `{"numa_binding":"false"}`: nil, `{"numa_binding":""}`: nil, `{"numa_binding":null}`: nil, `{}`: nil,
		`{"numa_binding":"yes"}`: {`numa_binding is neither "true" nor "false"`},
		`{"numa_binding":true}`:  {`numa_binding is neither "true" nor "false"`},
	} {
		e := readEnhancement(text)
		if diff := cmp.Diff(want, e.faults); diff != "" || e.binding != (text == `{"numa_binding":"true"}`) {
			t.Errorf("%s: binding %t (-want +got):\n%s", text, e.binding, diff)
		}
	}
}

// If no CPU is left for the reclaimed pool its pods run on the shared pools' CPUs.
func TestWithoutAReclaimPoolReclaimedPodsRunEverywhere(t *testing.T) {
	s := Defaults()
	s.FloorMilliCPU = 0
	a := New(s).Decide(at(0, shared("a", 100), reclaimed("b")))
	wantReason(t, a, "no CPU is left for the reclaimed pool")
	for _, list := range [][]tick.Cgroup{a.Cgroups, a.Fallback} {
		if got := listsByCgroup(list)["besteffort/b"]; got != "0-47" {
			t.Errorf("the reclaimed pod runs on %q, want all CPUs", got)
		}
	}
}

// A dedicated pod gets whole cores if services have what they need: CPUs beyond its request are not taken from them.
func TestDedicatedPodsTakeNoMoreThanTheyRequestFromServices(t *testing.T) {
	for _, tt := range []struct {
		load     float64
		milliCPU float64
		want     string // CPUs of its own
		reason   string
	}{
		{38, 1000, "0,24", ""}, // 4 reserved, 38, and the floor of 4
		{39, 1000, "", "dedicated pod default/db requests 1 CPUs (2 in whole cores), and services need all but 1: it stays in the shared pool"},
		{39, 2000, "0,24", ""},
	} {
		a := New(Defaults()).Decide(at(0, shared("web", tt.load), dedicated("db", tt.milliCPU)))
		if got := poolsOf(a)["dedicated/default/db"]; got != tt.want {
			t.Errorf("%+v: it has %q", tt, got)
		}
		if tt.reason == "" {
			wantNoReason(t, a, "dedicated pod")
		} else {
			wantReason(t, a, tt.reason)
		}
	}
}

// A dedicated pod keeps its CPUs as long as a core is left beside them: CPUs may go offline.
func TestDedicatedPodsKeepNotTheLastCore(t *testing.T) {
	d := New(Defaults())
	pods := []tick.Pod{shared("web", 1), dedicated("db", 8000)}
	previousList := poolsOf(d.Decide(at(0, pods...)))["dedicated/default/db"]
	for _, step := range []struct{ rest, want string }{{"23,47", previousList}, {"", ""}} {
		tk := at(1, pods...)
		online := mustParse(t, previousList).Union(mustParse(t, step.rest))
		tk.Sample.Topology.CPUs = online.String()
		if got := poolsOf(d.Decide(tk)); got["dedicated/default/db"] != step.want || got["share"] == "" {
			t.Errorf("of CPUs %s: %v", online, got)
		}
	}
}

// A dedicated pod uses NUMA nodes alone as long as services have what they need on the others, to the exact core.
func TestNUMANodesAreItsOwnWhileServicesHaveTheRest(t *testing.T) {
	d := New(Defaults())
	for i, step := range []struct {
		load float64
		want string
	}{{16, "0-11,24-35"}, {16, "0-11,24-35"}, {17, "0,24"}} { // 4 reserved, 16, and the floor of 4
		a := d.Decide(at(float64(i), alone("db", 2000), shared("web", step.load)))
		if got := poolsOf(a)["dedicated/default/db"]; got != step.want {
			t.Errorf("step %d: it has %s, want %s", i, got, step.want)
		}
	}
	a := New(Defaults()).Decide(at(0, alone("db", 2000), shared("web", 30)))
	wantReason(t, a, "dedicated pod default/db has 2 CPUs and no NUMA nodes of its own: services need all but 10")
}
