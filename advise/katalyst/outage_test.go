package katalyst

import (
	"testing"

	"polder/lib/tick"
)

// Nothing is decided until the API server has listed the pods, because all would count as shared.
func TestPodsUnknownToTheCluster(t *testing.T) {
	d := New(Defaults())
	before := d.Decide(at(0, dedicated("d", 8000), shared("a", 1), reclaimed("b")))
	previousCPUs := poolsOf(before)["dedicated/default/d"]
	if previousCPUs == "" {
		t.Fatalf("no pool of its own: %v", poolsOf(before))
	}
	unknown := func(name string) tick.Pod {
		p := shared(name, 1)
		p.QoSSource, p.Missing = tick.QoSFromRule, tick.MissingCluster
		return p
	}
	tk := at(5, unknown("d"), unknown("a"), unknown("b"))
	tk.Sample.Errors = []tick.SourceError{{Source: "pods", Error: "never read"}}
	a := d.Decide(tk)
	wantReason(t, a, "the cluster's pods are still unknown: no decision")
	if len(a.Cgroups) > 0 || a.Reclaimed != nil {
		t.Errorf("decided: %+v", a)
	}
	if got := poolsOf(d.Decide(at(10, dedicated("d", 8000), shared("a", 1), reclaimed("b"))))["dedicated/default/d"]; got != previousCPUs {
		t.Errorf("the dedicated pod has %s after the outage; want its %s", got, previousCPUs)
	}
	tk = at(15, unknown("x")) // the list was read, and one cgroup has no pod
	if a := d.Decide(tk); a.Reclaimed == nil {
		t.Errorf("no decision: %v", a.Reasons)
	}
}

// CPUs that kubelet gave away stay exclusive while its state cannot be read. Until it was read once there is no decision.
func TestKubeletStateUnread(t *testing.T) {
	d := New(Defaults())
	tk := at(0, shared("a", 1))
	tk.Sample.Errors = []tick.SourceError{{Source: "kubelet", Error: "no permission"}}
	never := d.Decide(tk)
	wantReason(t, never, "kubelet's state could not be read yet: the CPUs that it assigned exclusively are unknown: no decision")
	if never.Reclaimed != nil || len(never.Pools) > 0 {
		t.Errorf("decided: %+v", never)
	}
	tk = at(0, shared("a", 1))
	tk.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: "0-9,24-33"}
	want := *d.Decide(tk).Reclaimed.MilliCPU
	tk = at(5, shared("a", 1))
	tk.Sample.Errors = []tick.SourceError{{Source: "kubelet", Error: "gone"}}
	a := d.Decide(tk)
	if *a.Reclaimed.MilliCPU != want {
		t.Errorf("offered %d; want %d as before", *a.Reclaimed.MilliCPU, want)
	}
	wantReason(t, a, "kubelet's state could not be read")
	if got := *d.Decide(at(10, shared("a", 1))).Reclaimed.MilliCPU; got != want+20000 {
		t.Errorf("without a kubelet %d is offered; want its 20 CPUs more than %d", got, want)
	}
}

// While the Node object cannot be read its last reservation counts, over a restart too. If none was ever known, the pools are divided and
// nothing is offered.
func TestNodeObjectUnread(t *testing.T) {
	unread := func(seconds float64) *tick.Tick {
		tk := at(seconds, shared("a", 1), reclaimed("b"))
		tk.Sample.Errors = []tick.SourceError{{Source: "node", Error: "gone"}}
		return tk
	}
	d := New(Defaults())
	first := d.Decide(unread(0))
	if first.Reclaimed != nil || poolsOf(first)["reclaim"] == "" || len(first.Cgroups) == 0 {
		t.Errorf("never read: offered %+v, pools %v", first.Reclaimed, poolsOf(first))
	}
	wantReason(t, first, "the Node object could not be read yet, so what it reserves is unknown: no offer")

	tk := at(5, shared("a", 1), reclaimed("b"))
	tk.Sample.Allocatable = &tick.Resources{MilliCPU: new(40000.0)}
	want := *d.Decide(tk).Reclaimed.MilliCPU
	if want != 34000 {
		t.Fatalf("offered %d; want 42000 without the 8000 that are reserved", want)
	}
	d = restarted(t, d)
	a := d.Decide(unread(10))
	if a.Reclaimed == nil || *a.Reclaimed.MilliCPU != want {
		t.Errorf("unread: offered %+v; want %d as before", a.Reclaimed, want)
	}
	wantReason(t, a, "the Node object could not be read: its last reservation of 8000m")
	if got := *d.Decide(at(15, shared("a", 1), reclaimed("b"))).Reclaimed.MilliCPU; got != 42000 {
		t.Errorf("without a cluster %d is offered; want 42000", got)
	}
}

// A dedicated pod that would leave the others no core loses its own.
func TestDedicatedLeavesACore(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0, dedicated("d", 40000), shared("a", 1)))
	tk := at(5, dedicated("d", 40000), shared("a", 1))
	tk.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: "4-11,28-35"}
	a := d.Decide(tk)
	if poolsOf(a)["share"] == "" {
		t.Errorf("no pool for the services: %v, %v", poolsOf(a), a.Reasons)
	}
}

// CPUs that are reserved for the system are not offered by quota either, and if nothing is left a configured minimum does not offer
// anything.
func TestOfferOfNothing(t *testing.T) {
	s := Defaults()
	s.ReservedCPUs = "0-1"
	tk := at(0, reclaimed("b"))
	tk.Sample.Topology = &tick.Topology{CPUs: "0-3"}
	if got := *New(s).Decide(tk).Reclaimed.MilliCPU; got > 2000 {
		t.Errorf("%d of the 2000m that are not reserved are offered", got)
	}
	tk = at(0, reclaimed("b"))
	tk.Sample.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: "0-47"}
	tk.Sample.Config = configured(`{"minReclaimedResourceForReport":{"cpu":"4"}}`)
	if got := *New(Defaults()).Decide(tk).Reclaimed.MilliCPU; got != 0 {
		t.Errorf("%d is offered where kubelet assigned all CPUs", got)
	}
}

// A pod with only its sandbox is not confined by its own cgroup, because nothing would widen that again; a pod of the rules, which is a
// single cgroup, is.
func TestSandboxAlone(t *testing.T) {
	for _, cpus := range []string{"0-47", "0-3"} {
		pods := []tick.Pod{shared("a", 1), reclaimed("b"), shared("c", 1)}
		for i, source := range []string{tick.QoSFromKatalyst, tick.QoSFromKubernetes, tick.QoSFromRule} {
			pods[i].QoSSource, pods[i].Cgroup, pods[i].Containers = source, "/kubepods/pod"+pods[i].Name, nil
		}
		pods[0].StartTime = ""
		tk := at(0, append(pods, reclaimed("d"))...)
		tk.Sample.Topology.CPUs = cpus
		if cpus == "0-3" {
			tk.Sample.Topology = &tick.Topology{CPUs: cpus}
		}
		for _, c := range New(Defaults()).Decide(tk).Cgroups {
			if c.Cgroup == "/kubepods/poda" || c.Cgroup == "/kubepods/podb" {
				t.Errorf("on CPUs %s: %+v is wanted of a pod without containers", cpus, c)
			}
		}
	}
}

// A state file of null contains no nodes.
func TestNullState(t *testing.T) {
	for _, text := range []string{`null`, `{"n":null}`, `{"n":{}}`} {
		d := New(Defaults())
		if err := tick.Unmarshal([]byte(text), d.State()); err != nil {
			t.Fatal(err)
		}
		if a := d.Decide(at(0, shared("a", 1), reclaimed("b"))); a.Reclaimed == nil {
			t.Errorf("%s: no decision: %v", text, a.Reasons)
		}
	}
}
