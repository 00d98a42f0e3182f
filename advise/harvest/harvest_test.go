package harvest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/limits"
	"polder/lib/cpus"
	"polder/lib/tick"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// machine returns a sample of a machine of 16 CPUs in 8 cores, with a total use of the services, and a batch pod.
func machine(services float64) *tick.Sample {
	s := &tick.Sample{
		Topology:      &tick.Topology{CPUs: "0-15", NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-3,8-11"}, {ID: 1, CPUs: "4-7,12-15"}}},
		CPU:           &tick.NodeCPU{UsageMilliCPU: new(services + 3000)},
		Memory:        &tick.NodeMemory{TotalBytes: new(100e9), AvailableBytes: new(60e9)},
		CgroupVersion: 2,
		Pods:          []tick.Pod{podOf("web", tick.QoSShared, services), podOf("spark", tick.QoSReclaimed, 3000)},
	}
	for core := range 8 {
		s.Topology.Cores = append(s.Topology.Cores, fmt.Sprintf("%d,%d", core, core+8))
	}
	return s
}

func podOf(name, qos string, milliCPU float64) tick.Pod {
	return tick.Pod{
		UID: name, Namespace: "shop", Name: name, QoS: qos, QoSSource: tick.QoSFromRule, Cgroup: "/" + name, UsageMilliCPU: &milliCPU,
		Memory: &tick.Memory{RSSBytes: new(10e9), WorkingSetBytes: new(12e9)},
	}
}

// forget makes a pod's use unknown, as in the first tick of its container.
func forget(p *tick.Pod) {
	p.UsageMilliCPU, p.Containers = nil, []tick.Container{{Cgroup: p.Cgroup}}
}

func at(after time.Duration, s *tick.Sample) *tick.Tick {
	return &tick.Tick{V: 1, Node: "n", Time: start.Add(after), Sample: s}
}

// run decides once per minute, with each minute's use of the services, and returns the last advice.
func run(d *Decider, from time.Duration, minutes int, services func(i int) float64) (a *tick.Advice, end time.Duration) {
	for i := range minutes {
		a = d.Decide(at(from+time.Duration(i)*time.Minute, machine(services(i))))
	}
	return a, from + time.Duration(minutes)*time.Minute
}

func steady(milliCPU float64) func(int) float64 { return func(int) float64 { return milliCPU } }

func milli(t *testing.T, a *tick.Advice) int64 {
	t.Helper()
	if a.Reclaimed == nil || a.Reclaimed.MilliCPU == nil {
		t.Fatalf("nothing is offered: %q", a.Reasons)
	}
	return *a.Reclaimed.MilliCPU
}

// With a steady load, all that services do not use is offered except the least margin, once that is learned; less before.
func TestASteadyMachineIsOfferedWhole(t *testing.T) {
	d := New(Defaults())
	first, next := run(d, 0, 1, steady(4000))
	if got := milli(t, first); got != 16000-4000-1600 { // a tenth while nothing is known
		t.Errorf("first offer %dm", got)
	}
	last, _ := run(d, next, 24*60, steady(4000))
	if got := milli(t, last); got != 16000-4000-320 {
		t.Errorf("after a day %dm: %q", got, last.Reasons)
	}
	if len(last.Reclaimed.NUMANodes) != 2 {
		t.Errorf("NUMA nodes %+v", last.Reclaimed.NUMANodes)
	}
}

// Room is left for growth that recurs, and the reasons state how certain that is.
func TestGrowthIsLearnt(t *testing.T) {
	d := New(Defaults())
	bursts := func(i int) float64 {
		if i%90 == 0 { // rare enough to leave the level
			return 8000
		}
		return 4000
	}
	a, _ := run(d, 0, 24*60+80, bursts)
	got := milli(t, a)
	if got > 16000-8000+80 || got < 16000-8000-1000 {
		t.Errorf("offer %dm beside bursts to 8000m: %q", got, a.Reasons)
	}
	if !strings.Contains(a.Reasons[0], "spans of 5 minutes") || !strings.Contains(a.Reasons[1], `"shop/web"`) {
		t.Errorf("reasons %q", a.Reasons)
	}
}

// Unknown is not zero: without the machine's use, one pod of unknown use prevents a decision; with it, the machine's use counts, whichever
// pod it belongs to.
func TestUnknownUseIsNotZero(t *testing.T) {
	s := machine(4000)
	s.CPU = nil
	if got := milli(t, New(Defaults()).Decide(at(0, s))); got != 16000-4000-1600 {
		t.Errorf("from the pods' use %dm", got)
	}
	forget(&s.Pods[0])
	if a := New(Defaults()).Decide(at(0, s)); a.Reclaimed != nil || len(a.Cgroups) > 0 || !strings.Contains(a.Reasons[0], "unknown") {
		t.Errorf("offer %+v of a machine of which nothing is known: %q", a.Reclaimed, a.Reasons)
	}
	s = machine(4000)
	forget(&s.Pods[0])
	if got := milli(t, New(Defaults()).Decide(at(0, s))); got != 16000-4000-1600 {
		t.Errorf("beside a pod of unknown use %dm", got)
	}
	s = machine(4000)
	forget(&s.Pods[1]) // batch of unknown use may count as services'
	if got := milli(t, New(Defaults()).Decide(at(0, s))); got != 16000-7000-1600 {
		t.Errorf("beside batch of unknown use %dm", got)
	}
	for _, s := range []*tick.Sample{
		nil, {}, {Topology: &tick.Topology{CPUs: "0-15"}}, {Topology: &tick.Topology{CPUs: "x"}}, {Topology: machine(0).Topology, Fleet: &tick.Fleet{}},
	} {
		if a := New(Defaults()).Decide(at(0, s)); a.Reclaimed != nil || len(a.Reasons) == 0 {
			t.Errorf("offer %+v of %+v: %q", a.Reclaimed, s, a.Reasons)
		}
	}
}

// Without a sample, or with an old one, the offer does not change; it is withdrawn if that lasts.
func TestWithoutASampleNothingIsNew(t *testing.T) {
	d := New(Defaults())
	a, now := run(d, 0, 60, steady(4000))
	offered := milli(t, a)
	for _, minutes := range []int{0, 5, 10, 20} {
		next := d.Decide(at(now+time.Duration(minutes)*time.Minute, nil))
		if minutes == 20 && (next.Reclaimed != nil || next.Withdrawn == "") {
			t.Errorf("after 20 minutes without a sample: %+v, withdrawn %q", next.Reclaimed, next.Withdrawn)
		}
		if minutes < 20 && (!cmp.Equal(next.Reclaimed, a.Reclaimed) || next.Withdrawn != "") {
			t.Errorf("after %d minutes without a sample: %+v, withdrawn %q; want %+v", minutes, next.Reclaimed, next.Withdrawn, a.Reclaimed)
		}
		if until := "the last offer stays until 2026-01-01T01:14:00Z"; minutes < 20 && !strings.Contains(next.Reasons[0], until) {
			t.Errorf("after %d minutes without a sample: %q; want %q", minutes, next.Reasons, until)
		}
		if len(next.Fallback) == 0 {
			t.Errorf("after %d minutes without a sample there is no fallback", minutes)
		}
	}
	d = New(Defaults())
	_, now = run(d, 0, 60, steady(4000))
	old := d.Decide(at(now-30*time.Minute, machine(0)))
	if got := milli(t, old); got != offered {
		t.Errorf("an old tick makes %dm of %dm", got, offered)
	}
	if got := milli(t, d.Decide(at(now+time.Second, machine(4000)))); got != offered {
		t.Errorf("the tick after it makes %dm of %dm", got, offered)
	}
}

// After a pause with a state file the first reading, which has no rates, withdraws nothing, and repeats no offer from before a long pause.
func TestAFirstReadingAfterAPauseWithdrawsNothing(t *testing.T) {
	for _, tt := range []struct {
		pause    time.Duration
		isOffer  bool
		isBefore bool // an old state file, which does not have the last offer
	}{{staleAfter - time.Second, true, false}, {staleAfter, false, false}, {24 * time.Hour, false, false}, {time.Minute, false, true}} {
		d := New(Defaults())
		d.Decide(at(0, machine(4000)))
		if tt.isBefore {
			d.Nodes["n"].Reclaimed = nil
		}
		d = restarted(t, d)
		first := machine(4000)
		first.CPU = nil
		forget(&first.Pods[0])
		a := d.Decide(at(tt.pause, first))
		if (a.Reclaimed != nil) != tt.isOffer || a.Withdrawn != "" {
			t.Errorf("after %s: offer %+v, withdrawn %q", tt.pause, a.Reclaimed, a.Withdrawn)
		}
	}
}

// restarted returns a decider with the state of another one.
func restarted(t *testing.T, d *Decider) *Decider {
	t.Helper()
	state, err := tick.Marshal(d.State())
	if err != nil {
		t.Fatal(err)
	}
	d = New(d.Settings)
	if err := tick.Unmarshal(state, d.State()); err != nil {
		t.Fatal(err)
	}
	return d
}

// While the Node object cannot be read its last reservation counts, over a restart too. If none was ever known, batch is placed, nothing is
// offered, and the forecast learns nothing.
func TestNodeObjectUnread(t *testing.T) {
	unread := machine(4000)
	unread.Errors = []tick.SourceError{{Source: "node", Error: "gone"}}
	d := New(Defaults())
	first := d.Decide(at(0, unread))
	if first.Reclaimed != nil || first.Withdrawn != "" || len(first.Pools) == 0 || len(first.Cgroups) == 0 {
		t.Errorf("never read: offer %+v, withdrawn %q, pools %v", first.Reclaimed, first.Withdrawn, first.Pools)
	}
	never := "the Node object could not be read yet, so what it reserves is unknown: no new offer"
	if !slices.Contains(first.Reasons, never) {
		t.Errorf("%q; want %q", first.Reasons, never)
	}
	if n := d.Nodes["n"]; !n.CPU.SeenAt.IsZero() || !n.Memory.SeenAt.IsZero() {
		t.Errorf("the forecast has %+v", n.CPU)
	}

	read := machine(4000)
	read.Allocatable = &tick.Resources{MilliCPU: new(8000.0), MemoryBytes: new(30e9)}
	want := d.Decide(at(time.Second, read)).Reclaimed
	if *want.MilliCPU != 16000-4000-8000-1600 || *want.MemoryBytes != 20e9 {
		t.Errorf("offer %d, %d", *want.MilliCPU, *want.MemoryBytes)
	}
	d = restarted(t, d)
	a := d.Decide(at(2*time.Second, unread))
	if diff := cmp.Diff(want, a.Reclaimed); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
	last := "the Node object could not be read: its last reservation of 8000m and 70000000000 bytes still counts"
	if !slices.Contains(a.Reasons, last) {
		t.Errorf("%q; want %q", a.Reasons, last)
	}

	// The state of an older version does not have the reservation: its last offer stays for a while.
	d.Nodes["n"].Reservation = nil
	if a := d.Decide(at(3*time.Second, unread)); !cmp.Equal(a.Reclaimed, want) || len(a.Pools) == 0 {
		t.Errorf("never read, with an offer: %+v; want %+v", a.Reclaimed, want)
	}
	d.Nodes["n"].SeenAt = start.Add(staleAfter)
	a = d.Decide(at(staleAfter+3*time.Second, unread))
	if a.Reclaimed != nil || !strings.Contains(a.Withdrawn, "the Node object") || len(a.Pools) == 0 {
		t.Errorf("for long: offer %+v, withdrawn %q", a.Reclaimed, a.Withdrawn)
	}
}

// A restart with the state gives the same advice, tick by tick.
func TestARestartChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var uses []float64
	for range 400 {
		uses = append(uses, 3000+rng.Float64()*6000)
	}
	one, other := New(Defaults()), New(Defaults())
	for i, use := range uses {
		if i%37 == 0 {
			state, err := tick.Marshal(other.State())
			if err != nil {
				t.Fatal(err)
			}
			other = New(Defaults())
			if err := tick.Unmarshal(state, other.State()); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Duration(i) * 17 * time.Second
		want, _ := tick.Marshal(one.Decide(at(now, machine(use))))
		got, _ := tick.Marshal(other.Decide(at(now, machine(use))))
		if !bytes.Equal(got, want) {
			t.Fatalf("tick %d:\n%s\nwithout a restart:\n%s", i, got, want)
		}
	}
}

// Pods that come and go leave no state behind, and the state of a node is bounded.
func TestMemoryIsBounded(t *testing.T) {
	d := New(Defaults())
	maximum := 0
	for i := range 3000 {
		s := machine(4000)
		for p := range 40 {
			s.Pods = append(s.Pods, podOf(fmt.Sprintf("job-%d-%d", i, p), tick.QoSShared, 10))
		}
		s.Pods = append(s.Pods, podOf(strings.Repeat("x", 100_000), tick.QoSShared, 1))
		d.Decide(at(time.Duration(i)*time.Minute, s))
		if i%500 == 499 {
			state, err := tick.Marshal(d.State())
			if err != nil {
				t.Fatal(err)
			}
			maximum = max(maximum, len(state))
		}
	}
	if n := len(d.Nodes["n"].Pods.ByIdentity); n != 41 {
		t.Errorf("%d pods are remembered; want those that are there", n)
	}
	if maximum > 40_000 {
		t.Errorf("the state has %d bytes", maximum)
	}
	s := machine(4000)
	for p := range 3 * maxPods {
		s.Pods = append(s.Pods, podOf(fmt.Sprint("many-", p), tick.QoSShared, 1))
	}
	d.Decide(at(4000*time.Minute, s))
	if n := len(d.Nodes["n"].Pods.ByIdentity); n > maxPods || n < maxPods/2 {
		t.Errorf("%d pods are remembered; want %d at most", n, maxPods)
	}
}

// A new pod counts with its requests until its use is known; pods that ran when the node was first seen are not new, except those with a
// recent start time.
func TestNewPodsCountWithTheirRequests(t *testing.T) {
	d := New(Defaults())
	_, now := run(d, 0, 24*60, steady(4000))
	calm := d.Nodes["n"].Offered.Part
	s := machine(4000)
	young := podOf("young", tick.QoSShared, 500)
	young.Requests = &tick.Resources{MilliCPU: new(6500.0)}
	s.Pods = append(s.Pods, young)
	offer := func(minutes int) (milliCPU int64, reason string) {
		t.Helper()
		a := d.Decide(at(now, s))
		for range minutes {
			now += time.Minute
			a = d.Decide(at(now, s))
		}
		return milli(t, a), a.Reasons[0]
	}
	if got, reason := offer(9); got >= int64(calm*16000)-5500 || !strings.Contains(reason, "1 new pod beyond use 6000m") {
		t.Errorf("beside a new pod that requests 6 CPUs more than it uses: %dm, %s", got, reason)
	}
	if got, reason := offer(60); got < int64(calm*16000)-1000 || !strings.Contains(reason, "new pods 0") {
		t.Errorf("when it is known: %dm, %s", got, reason)
	}
	first := machine(4000)
	first.Pods[0].Requests = &tick.Resources{MilliCPU: new(9000.0)}
	if got := milli(t, New(Defaults()).Decide(at(0, first))); got != 16000-4000-1600 {
		t.Errorf("what was there before counts with its request: %dm", got)
	}
	first.Pods[0].StartTime = start.Add(-time.Minute).Format(time.RFC3339)
	if got := milli(t, New(Defaults()).Decide(at(0, first))); got != 16000-9000-1600 {
		t.Errorf("what has just started does not: %dm", got)
	}
}

// Memory: the services' largest uses count; page cache that can be dropped does not, nor batch's memory.
func TestMemory(t *testing.T) {
	d := New(Defaults())
	var a *tick.Advice
	for i := range 24 * 60 {
		s := machine(4000)
		if i == 24*60-30 { // half an hour ago
			s.Memory.AvailableBytes = new(50e9)
		}
		a = d.Decide(at(time.Duration(i)*time.Minute, s))
	}
	if got := *a.Reclaimed.MemoryBytes; got > 65e9 || got < 60e9 { // 100 - the level, between now's 30 and the hour's 40
		t.Errorf("memory offered %d: %q", got, a.Reasons)
	}
	s := machine(4000)
	s.Memory = nil
	if a := New(Defaults()).Decide(at(0, s)); a.Reclaimed.MemoryBytes != nil {
		t.Errorf("memory of an unknown total: %d", *a.Reclaimed.MemoryBytes)
	}
}

// Memory that the Node object reserves is not offered even if services use less, nor are the requests of new pods; the reason has the sum.
func TestReservedMemory(t *testing.T) {
	s := machine(4000)
	s.Memory.TotalBytes, s.Memory.AvailableBytes = new(100*gib), new(60*gib)
	for i := range s.Pods {
		s.Pods[i].Memory = &tick.Memory{RSSBytes: new(10 * gib), WorkingSetBytes: new(12 * gib)}
	}
	young := podOf("young", tick.QoSShared, 0)
	young.Memory.WorkingSetBytes = new(gib)
	young.StartTime, young.Requests = start.Format(time.RFC3339), &tick.Resources{MemoryBytes: new(6 * gib)}
	for _, tt := range []struct {
		name                  string
		capacity, allocatable *float64
		young                 bool
		want                  float64
		reason                string
	}{
		{"nothing is kept", nil, nil, false, 60 * gib, "memory: 100.0 GiB - services' level 30.0 GiB (half of the largest " +
			"use of 10 minutes, 30.0 GiB, and half of the hour's, 30.0 GiB) without reclaimable cache - " +
			"margin for growth 10.0 GiB (the history is shorter than 10 minutes) - new pods 0 -> 60.0 GiB"},
		{"less than services hold", nil, new(75 * gib), false, 60 * gib, ""},
		{"more", nil, new(55 * gib), false, 45 * gib, "services' level 45.0 GiB"},
		{"all", nil, new(0.0), false, 0, ""},
		{"the object's capacity", new(80 * gib), nil, false, 42 * gib, "memory: 80.0 GiB"},
		{"a new pod", nil, nil, true, 55 * gib, "requests of 1 new pod beyond use 5.0 GiB -> 55.0 GiB"},
	} {
		s := *s
		if tt.capacity != nil {
			s.Capacity = &tick.Resources{MemoryBytes: tt.capacity}
		}
		if tt.allocatable != nil {
			s.Allocatable = &tick.Resources{MemoryBytes: tt.allocatable}
		}
		if tt.young {
			s.Pods = append(slices.Clone(s.Pods), young)
		}
		a := New(Defaults()).Decide(at(0, &s))
		if got := float64(*a.Reclaimed.MemoryBytes); got < tt.want-16 || got > tt.want+16 {
			t.Errorf("%s: %.2f GiB; want %.2f", tt.name, got/gib, tt.want/gib)
		}
		if !strings.Contains(a.Reasons[2], tt.reason) {
			t.Errorf("%s: %q; want %q", tt.name, a.Reasons[2], tt.reason)
		}
	}
}

const gib = float64(1 << 30)

// The reason states the unused part of the system's reservation.
func TestReasonNamesReservedCPU(t *testing.T) {
	for allocatable, want := range map[float64]string{
		16000: "services use 4000m now; largest peaks", 15999.6: "services use 4000m now; largest peaks",
		14000: "services use 4000m now, and 2000m more are reserved for the system; largest peaks",
	} {
		s := machine(4000)
		s.Allocatable = &tick.Resources{MilliCPU: &allocatable}
		if got := New(Defaults()).Decide(at(0, s)).Reasons[1]; !strings.HasPrefix(got, want) {
			t.Errorf("of %vm allocatable: %q; want %q", allocatable, got, want)
		}
	}
}

// CPUs that kubelet gave away stay exclusive while its state cannot be read, and the reason states so. Until it was read once there is no
// decision.
func TestKubeletsStateUnread(t *testing.T) {
	const reason = "kubelet's state could not be read"
	d := New(Defaults())
	for i, step := range []struct {
		kubelet *tick.Kubelet
		unread  bool
		avail   string
		text    string
	}{
		{nil, true, "", " yet: the CPUs that it assigned exclusively are unknown: no decision"},
		{&tick.Kubelet{}, false, "0-15", ""},
		{nil, true, "0-15", ": it still counts as without exclusive CPUs"},
		{&tick.Kubelet{ExclusiveCPUs: "1-2,9-10"}, false, "0,3-8,11-15", ""},
		{nil, true, "0,3-8,11-15", `: CPUs "1-2,9-10" still count as exclusive`},
		{nil, false, "0-15", ""}, // there is no kubelet
		{nil, true, "", " yet: the CPUs that it assigned exclusively are unknown: no decision"},
	} {
		s := machine(4000)
		s.Kubelet = step.kubelet
		if step.unread {
			s.Errors = []tick.SourceError{{Source: "kubelet"}}
		}
		a := d.Decide(at(time.Duration(i)*time.Second, s))
		got := ""
		if len(a.Pools) > 0 {
			got = a.Pools[0].CPUs
		}
		text := strings.Join(a.Reasons, "\n")
		if got != step.avail || strings.Contains(text, reason) != (step.text != "") || !strings.Contains(text, step.text) {
			t.Errorf("step %d: batch and services have %q, want %q: %q", i, got, step.avail, a.Reasons)
		}
	}
}

// Batch starves if it has less than a tenth of a full machine, counted over all CPUs.
func TestBatchsFloorIsATenthOfTheMachine(t *testing.T) {
	for _, tt := range []struct {
		batch, all float64
		want       bool
	}{{1599, 15520, true}, {1600, 15520, false}, {1599, 15519, false}} {
		s := machine(tt.all - tt.batch)
		s.CPU.UsageMilliCPU, s.Pods[1].UsageMilliCPU = &tt.all, &tt.batch
		if a := New(Defaults()).Decide(at(0, s)); a.BatchStarved == nil || *a.BatchStarved != tt.want {
			t.Errorf("batch has %vm of %vm: batchStarved %v", tt.batch, tt.all, a.BatchStarved)
		}
	}
}

// CPUs that are reserved for the system, by allocatable or by list, or exclusive to a container are not offered.
func TestExclusiveAndReservedCPUsAreNotOffered(t *testing.T) {
	s := machine(4000)
	s.Allocatable = &tick.Resources{MilliCPU: new(14000.0), MemoryBytes: new(100e9)}
	if got := milli(t, New(Defaults()).Decide(at(0, s))); got != 16000-4000-2000-1600 {
		t.Errorf("with 2 CPUs kept for the system: %dm", got)
	}
	settings := Defaults()
	settings.ReservedCPUs = "0,8"
	a := New(settings).Decide(at(0, machine(4000)))
	if got := milli(t, a); got != 14000-4000-1400 {
		t.Errorf("with a reserved core: %dm", got)
	}
	if a.Pools[1].Name != tick.PoolReclaim || strings.HasPrefix(a.Pools[1].CPUs, "0") {
		t.Errorf("batch is on the reserved core: %+v", a.Pools)
	}
	s = machine(4000)
	s.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: "1-2,9-10"}
	s.Pods[0].Containers = []tick.Container{{
		Name: "c", Cgroup: "/web/c", CPUSetCPUs: "1-2,9-10", UsageMilliCPU: new(4000.0), Requests: &tick.Resources{MilliCPU: new(4000.0)},
	}}
	a = New(Defaults()).Decide(at(0, s))
	if got := milli(t, a); got != 12000-1200 { // the service uses only its own CPUs
		t.Errorf("beside a service with CPUs of its own: %dm, %q", got, a.Reasons)
	}
	for _, c := range a.Cgroups {
		set, _ := cpus.Parse(c.CPUSetCPUs)
		if exclusive, _ := cpus.Parse("1-2,9-10"); !set.Intersection(exclusive).IsEmpty() {
			t.Errorf("%s on the CPUs of another: %s", c.Cgroup, c.CPUSetCPUs)
		}
	}
}

// When kubelet assigns CPUs exclusively, or frees them, what services used before counts as that much CPU, not as a part of what there is
// now; nothing is learned as growth, and what was offered stays the same amount until it moves.
func TestCapacityChanges(t *testing.T) {
	d := New(Defaults())
	_, now := run(d, 0, 24*60, steady(4000))
	exclusive := machine(4000)
	exclusive.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: "4-7,12-15"}
	for _, step := range []struct {
		name    string
		sample  *tick.Sample
		minutes int
		offer   int64
		reason  string
	}{
		{"assigned", exclusive, 1, 8000 - 4000 - 160, "hour's, 4000m) - margin for growth 160m"},
		{"assigned for long", exclusive, 30, 8000 - 4000 - 160, "hour's, 4000m) - margin for growth 160m"},
		{"freed", machine(4000), 1, 8000 - 4000 - 160, "hour's, 4000m) - margin for growth 320m"},
		{"freed for long", machine(4000), 120, 16000 - 4000 - 320, "hour's, 4000m) - margin for growth 320m"},
	} {
		var a *tick.Advice
		for range step.minutes {
			a = d.Decide(at(now, step.sample))
			now += time.Minute
		}
		if got := milli(t, a); got != step.offer || !strings.Contains(a.Reasons[0], step.reason) {
			t.Errorf("%s: %dm is offered, %q; want %dm, %q", step.name, got, a.Reasons[0], step.offer, step.reason)
		}
	}
}

// TestLessThanAByteIsNoMachine: the services' use would become a part that is not a number, and the state of all later ticks.
func TestLessThanAByteIsNoMachine(t *testing.T) {
	d := New(Defaults())
	idle := machine(0)
	idle.Memory.AvailableBytes, idle.Pods = idle.Memory.TotalBytes, nil
	_ = d.Decide(at(0, idle))
	broken := machine(0)
	broken.Memory.TotalBytes, broken.Pods = new(1e-300), nil
	if a := d.Decide(at(time.Second, broken)); a.Reclaimed.MemoryBytes != nil {
		t.Errorf("offer of a machine of less than a byte: %d", *a.Reclaimed.MemoryBytes)
	}
	a, _ := run(d, time.Minute, 30, steady(4000))
	if a.Reclaimed.MemoryBytes == nil || *a.Reclaimed.MemoryBytes == 0 {
		t.Errorf("nothing is offered half an hour later: %q", a.Reasons)
	}
}

// withoutLimits returns the defaults without limits and protection of memory, for tests of batch's CPUs.
func withoutLimits() Settings {
	s := Defaults()
	s.Limits.Batch, s.Limits.Services = limits.None, limits.None
	return s
}

// cpusOf returns the CPU list of batch's cgroup.
func cpusOf(t *testing.T, list []tick.Cgroup) (batch cpus.Set) {
	t.Helper()
	for _, c := range list {
		if c.Cgroup != "/spark" {
			t.Errorf("%s is confined: %+v", c.Cgroup, c)
		}
		var err error
		if batch, err = cpus.Parse(c.CPUSetCPUs); err != nil {
			t.Fatal(err)
		}
	}
	return batch
}

// Batch leaves the services whole cores immediately, and takes them back after a delay; the services are not confined.
func TestBatchLeavesIdleCores(t *testing.T) {
	d := New(withoutLimits())
	size := func(second int, services float64) int {
		t.Helper()
		a := d.Decide(at(time.Duration(second)*time.Second, busy(services, 0)))
		batch := cpusOf(t, a.Cgroups)
		if floor := cpusOf(t, a.Fallback); floor.IsEmpty() || !floor.IsSubsetOf(batch) {
			t.Errorf("the fallback %s is not of %s", floor, batch)
		}
		for core := range 8 { // only whole cores
			if batch.Contains(core) != batch.Contains(core+8) {
				t.Errorf("batch on %s: half of a core", batch)
			}
		}
		for _, c := range a.Cgroups {
			if c.CPUIdle == nil || !*c.CPUIdle {
				t.Errorf("%s is not idle", c.Cgroup)
			}
		}
		return batch.Size()
	}
	if got := size(0, 3500); got != 16-4-2 { // use, and one idle core
		t.Errorf("first %d CPUs", got)
	}
	if got := size(1, 7500); got != 16-6-4 { // four more at once: the next burst may be equally large
		t.Errorf("in a burst %d CPUs", got)
	}
	if got := size(20, 3500); got != 16-8-4 { // none is idle, so that batch leaves more
		t.Errorf("after 19 seconds batch has %d CPUs", got)
	}
	for i := range 60 {
		size(21+i, 3500)
	}
	if got := size(3600, 3500); got != 16-4-2 {
		t.Errorf("after an hour batch has %d CPUs", got)
	}
	if got := size(3601, 1e12); got != 2 {
		t.Errorf("beside services that use all, batch has %d CPUs", got)
	}
}

// A small machine has no idle cores: batch is limited by its class. A confinement from when it was larger is widened.
func TestASmallMachine(t *testing.T) {
	small := func() *tick.Sample {
		s := machine(1000)
		s.Topology = &tick.Topology{CPUs: "0-3", Cores: []string{"0-1", "2-3"}}
		s.CPU.UsageMilliCPU = new(2000.0)
		s.Pods[1].UsageMilliCPU = new(1000.0)
		return s
	}
	a := New(withoutLimits()).Decide(at(0, small()))
	if len(a.Pools) > 0 || len(a.Cgroups) != 1 || a.Cgroups[0].CPUSetCPUs != "" || !*a.Cgroups[0].CPUIdle || milli(t, a) != 4000-1000-400 {
		t.Errorf("%+v, %q", a.Cgroups, a.Reasons)
	}
	d := New(withoutLimits())
	d.Decide(at(0, machine(1000)))
	a = d.Decide(at(time.Second, small()))
	if len(a.Cgroups) != 1 || a.Cgroups[0].CPUSetCPUs != "0-3" {
		t.Errorf("what was confined is not widened: %+v", a.Cgroups)
	}
	d.Reboot()
	if a = d.Decide(at(2*time.Second, small())); a.Cgroups[0].CPUSetCPUs != "" {
		t.Errorf("what another run of the kernel had is undone: %+v", a.Cgroups)
	}
}

// The offer falls at once if the services have no headroom, else in steps of a minute, and rises after a delay.
func TestOfferMovesSlowly(t *testing.T) {
	s := Defaults()
	o := offer{}
	var got []float64
	for _, step := range []struct{ minute, can, use float64 }{
		{0, 0.8, 0.1},
		{0.1, 0.6, 0.1},
		{0.2, 0.6, 0.1},
		{1.2, 0.6, 0.1},
		{1.3, 0.6, 0.35},
		{1.4, 0.597, 0.35},
		{2, 0.9, 0.1},
		{4, 0.9, 0.1},
		{6.5, 0.9, 0.1},
		{7, 0.9, 0.1},
		{12, 0.9, 0.1},
	} {
		o.follow(start.Add(time.Duration(step.minute*float64(time.Minute))), step.can, step.use, s)
		got = append(got, o.Part)
	}
	want := []float64{0.8, 0.75, 0.75, 0.7, 0.6, 0.6, 0.6, 0.6, 0.65, 0.65, 0.7}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })); diff != "" {
		t.Errorf("offers (-want +got):\n%s", diff)
	}
}

// A forecast starts over after a long gap of the stream, and continues after its clock was set back.
func TestForecastAndTheClock(t *testing.T) {
	f := forecast{}
	for i := range 60 {
		f.observe(start.Add(time.Duration(i)*time.Minute), 0.5)
	}
	if l := f.level(f.SeenAt); l.part != 0.5 || l.isWarmingUp {
		t.Errorf("level %+v", l)
	}
	f.observe(start.Add(5*time.Hour), 0.1)
	if l := f.level(f.SeenAt); l.part != 0.1 || !l.isWarmingUp {
		t.Errorf("level %+v after hours without a sample", l)
	}
	back := start.Add(time.Hour)
	if f.observe(back, 0.2) {
		t.Error("an old tick was learnt from")
	}
	if !f.observe(back.Add(time.Minute), 0.2) || f.level(f.SeenAt).part != 0.2 {
		t.Errorf("level %+v after the clock was set back", f.level(f.SeenAt))
	}
	for i := range 100_000 { // one tick per second, for a day
		f.observe(back.Add(time.Duration(i)*time.Second), 0.2)
	}
	if len(f.Hour) > maxMinutes || len(f.Spans) > maxSpans {
		t.Errorf("%d minutes and %d spans are remembered", len(f.Hour), len(f.Spans))
	}
	// One tick per second and one per minute give the same for a steady use, whose noise within a minute is not a peak.
	if l := f.level(f.SeenAt); l.shortMax < 0.199 || l.shortMax > 0.201 {
		t.Errorf("level %+v", l)
	}
}
