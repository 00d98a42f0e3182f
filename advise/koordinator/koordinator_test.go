package koordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"polder/advise/class"
	"polder/advise/cold"
	"polder/advise/disk"
	"polder/advise/guard"
	"polder/advise/limits"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// nodeTick returns a tick of a node of 16 CPUs, two pods, and kubelet's tier of BestEffort pods.
func nodeTick(second int, change ...func(*tick.Sample)) *tick.Tick {
	s := &tick.Sample{
		IntervalSeconds: new(1.0),
		Topology:        &tick.Topology{CPUs: "0-15", Cores: []string{"0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15"}, NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-15", MemoryBytes: new(64e9)}}},
		Capacity:        &tick.Resources{MilliCPU: new(16000.0), MemoryBytes: new(64e9)},
		Allocatable:     &tick.Resources{MilliCPU: new(15500.0), MemoryBytes: new(60e9)},
		CPU:             &tick.NodeCPU{UsageMilliCPU: new(4000.0 + float64(second%7)*100)},
		Memory:          &tick.NodeMemory{TotalBytes: new(64e9), FreeBytes: new(20e9), AvailableBytes: new(30e9)},
		CgroupVersion:   2,
		Tiers:           []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "/kubepods/besteffort", CPUSetCPUs: "0-15", CPUMaxMilliCPU: tick.Ptr(int64(tick.Unlimited))}},
		Kubelet:         &tick.Kubelet{CPUManagerPolicy: "none"},
		Labels:          map[string]string{"kubernetes.io/hostname": "n"},
		Pods: []tick.Pod{
			{
				UID: "a", Namespace: "default", Name: "web", QoS: tick.QoSShared, QoSSource: tick.QoSFromKoordinator, KubernetesQOS: "Burstable", Phase: "Running", Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
				Requests: &tick.Resources{MilliCPU: new(4000.0), MemoryBytes: new(8e9)}, Cgroup: "/kubepods/burstable/poda", UsageMilliCPU: new(2000.0), Memory: &tick.Memory{RSSBytes: new(4e9)},
				Containers: []tick.Container{{Name: "web", Cgroup: "/kubepods/burstable/poda/c", UsageMilliCPU: new(2000.0), CPUSetCPUs: "0-15"}},
			},
			{
				UID: "b", Namespace: "default", Name: "spark", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKoordinator, KubernetesQOS: "BestEffort", Phase: "Running", Labels: map[string]string{"koordinator.sh/qosClass": "BE"},
				Requests: &tick.Resources{ReclaimedMilliCPU: new(1000.0), ReclaimedMemoryBytes: new(1e9)}, Limits: &tick.Resources{ReclaimedMilliCPU: new(1000.0), ReclaimedMemoryBytes: new(1e9)},
				Cgroup: "/kubepods/besteffort/podb", UsageMilliCPU: new(800.0), Memory: &tick.Memory{RSSBytes: new(5e8)},
				Containers: []tick.Container{{
					Name: "spark", Cgroup: "/kubepods/besteffort/podb/c", UsageMilliCPU: new(800.0), CPUSetCPUs: "0-15",
					Requests: &tick.Resources{ReclaimedMilliCPU: new(1000.0), ReclaimedMemoryBytes: new(1e9)}, Limits: &tick.Resources{ReclaimedMilliCPU: new(1000.0), ReclaimedMemoryBytes: new(1e9)},
				}},
			},
		},
	}
	for _, f := range change {
		f(s)
	}
	return &tick.Tick{V: 1, Node: "n", Time: start.Add(time.Duration(second) * time.Second), Sample: s}
}

func encoded(t testing.TB, v any) string {
	t.Helper()
	text, err := tick.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The source of the strategies: the tick, else the last known ones while the ConfigMap cannot be read, else the shipped ones.
func TestStrategies(t *testing.T) {
	config := func(text string) func(*tick.Sample) { return func(s *tick.Sample) { s.Config = tick.Raw(text) } }
	unread := func(s *tick.Sample) { s.Errors = []tick.SourceError{{Source: "config", Error: "no"}} }
	d := New(Defaults())
	at := 0
	expect := func(what string, want int64, reason string, change ...func(*tick.Sample)) {
		t.Helper()
		at++
		a := d.Decide(nodeTick(7*at, change...))
		got := int64(-1)
		if a.Reclaimed != nil {
			got = *a.Reclaimed.MilliCPU
		}
		if got != want || !strings.Contains(strings.Join(a.Reasons, "\n"), reason) {
			t.Errorf("%s: batch-cpu = %d; want %d and %q: %q", what, got, want, reason, a.Reasons)
		}
	}
	// 16000 less the system's 1200 and the pod's 2000, and less the margin.
	expect("the ConfigMap is not read yet", -1, "strategies: the ConfigMap could not be read yet (sample.errors), and there are no earlier ones: no decision", unread)
	expect("it is not our JSON, and there are no earlier ones", -1, "there are no earlier ones: no decision", config(`{"koordinator":7}`))
	expect("none is read", 16000-6400-1200-2000, "cpuReclaimThresholdPercent 60")
	expect("and now it cannot be read", 16000-6400-1200-2000, "the last valid ones of defaults stay in force", unread)
	expect("and still not", 16000-6400-1200-2000, "the last valid ones of defaults stay in force", unread)
	if a := d.Decide(&tick.Tick{V: 1, Node: "n", Time: start.Add(time.Duration(7*at) * time.Second)}); a.Reclaimed == nil || len(a.Fallback) == 0 || strings.Contains(strings.Join(a.Reasons, "\n"), "no decision") {
		t.Errorf("without a sample: %+v", a)
	}
	expect("none is read again", 16000-6400-1200-2000, "cpuReclaimThresholdPercent 60")
	expect("read", 16000-3200-1200-2000, "cpuReclaimThresholdPercent 80", config(`{"koordinator":{"from":"k/c","colocation":{"enable":true,"cpuReclaimThresholdPercent":80}}}`))
	expect("not read any more", 16000-3200-1200-2000, "the last valid ones of k/c stay in force", unread)
	expect("with a fault", 16000-3200-1200-2000, "the last valid ones of k/c stay in force", config(`{"koordinator":{"colocation":{"enable":"yes"}}}`))
	expect("with a fault of another source", 16000-3200-1200-2000, "", config(`{"koordinator":{"from":"k/c","colocation":{"enable":true,"cpuReclaimThresholdPercent":80}}}`), func(s *tick.Sample) { s.Errors = []tick.SourceError{{Source: "psi", Error: "no"}} })
	expect("changed", 16000-4800-1200-2000, "cpuReclaimThresholdPercent 70", config(`{"koordinator":{"from":"k/c","colocation":{"enable":true,"cpuReclaimThresholdPercent":70}}}`))
	expect("defaults: it is disabled", -1, "colocation is disabled", config(`{"koordinator":{"from":"k/c"}}`))
	expect("Katalyst's alone", 16000-6400-1200-2000, "cpuReclaimThresholdPercent 60", config(`{"adminQoSConfiguration":{}}`))

	// The state contains them.
	kept := New(Defaults())
	kept.Decide(nodeTick(0, config(`{"koordinator":{"from":"k/c","colocation":{"enable":true,"cpuReclaimThresholdPercent":80}}}`)))
	d = New(Defaults())
	if err := tick.Unmarshal([]byte(encoded(t, kept.State())), d.State()); err != nil {
		t.Fatal(err)
	}
	expect("after a restart, not read yet", 16000-3200-1200-2000, "stay in force", unread)
}

// Without a sample nothing is decided, and the last fallback stays.
func TestNoSample(t *testing.T) {
	d := New(Defaults())
	if a := d.Decide(&tick.Tick{V: 1, Node: "n", Time: start}); a.Reclaimed != nil || len(a.Reasons) != 1 || a.Reasons[0] != "no sample: no decision" {
		t.Errorf("first: %+v", a)
	}
	config := func(s *tick.Sample) {
		shipped := sloconfig.Shipped()
		s.Config = tick.Raw(`{"koordinator":` + encoded(t, &shipped) + `}`)
	}
	before := d.Decide(nodeTick(1, config))
	if len(before.Fallback) == 0 || before.Reclaimed == nil {
		t.Fatalf("no fallback or offer: %+v", before)
	}
	silent := d.Decide(&tick.Tick{V: 1, Node: "n", Time: start.Add(2 * time.Second)})
	if encoded(t, silent.Fallback) != encoded(t, before.Fallback) || len(silent.Cgroups) != 0 {
		t.Errorf("fallback %s; want %s; cgroups %v", encoded(t, silent.Fallback), encoded(t, before.Fallback), silent.Cgroups)
	}
	if silent.Reclaimed == nil || *silent.Reclaimed.MilliCPU != *before.Reclaimed.MilliCPU {
		t.Errorf("the last offer does not stay: %+v", silent)
	}
}

// While the topology is invalid or missing, the last fallback stays.
func TestBadTopology(t *testing.T) {
	d := New(Defaults())
	before := d.Decide(nodeTick(1))
	if len(before.Fallback) == 0 {
		t.Fatalf("no fallback: %+v", before)
	}
	for second, change := range []func(*tick.Sample){
		func(s *tick.Sample) { s.Topology.CPUs = "0-15x" },
		func(s *tick.Sample) { s.Topology.CPUs = "" },
		func(s *tick.Sample) { s.Topology = nil },
	} {
		if a := d.Decide(nodeTick(2+second, change)); encoded(t, a.Fallback) != encoded(t, before.Fallback) {
			t.Errorf("%d: fallback %s; want %s", second, encoded(t, a.Fallback), encoded(t, before.Fallback))
		}
	}
}

// A batch pod that became a service: the undo of its quota yields to the burst's quota, permanently.
func TestBatchPodBecomesService(t *testing.T) {
	d := New(Defaults())
	config := func(s *tick.Sample) {
		s.Config = tick.Raw(`{"koordinator":{"from":"k/c","colocation":{"enable":true},"resourceThreshold":{"enable":true,"cpuSuppressPolicy":"cfsQuota"},"cpuBurst":{"policy":"auto","cpuBurstPercent":1000,"cfsQuotaBurstPercent":300,"cfsQuotaBurstPeriodSeconds":-1,"sharePoolThresholdPercent":50}}}`)
	}
	service := func(s *tick.Sample) {
		config(s)
		p := &s.Pods[1]
		p.Labels["koordinator.sh/qosClass"], p.KubernetesQOS, p.QoS = "LS", "Burstable", tick.QoSShared
		p.Limits = &tick.Resources{MilliCPU: new(1000.0)}
		p.Containers[0].Limits, p.Containers[0].ThrottledPercent = p.Limits, new(50.0)
	}
	for second := range 3 {
		d.Decide(nodeTick(second, config))
	}
	grown := int64(0)
	for second := 3; second < 30; second++ {
		a := d.Decide(nodeTick(second, service))
		for _, reason := range a.Reasons {
			if strings.Contains(reason, "is desired as") {
				t.Fatalf("second %d: %s", second, reason)
			}
		}
		for _, c := range a.Cgroups {
			if c.Cgroup == "/kubepods/besteffort/podb/c" && c.CPUMaxMilliCPU != nil {
				grown = *c.CPUMaxMilliCPU
			}
		}
	}
	if grown != 3000 {
		t.Errorf("the quota has grown to %dm; want 3000m", grown)
	}
}

// A state file of null contains no nodes.
func TestNullState(t *testing.T) {
	for _, text := range []string{`null`, `{"n":null}`, `{"n":{}}`} {
		d := New(Defaults())
		if err := tick.Unmarshal([]byte(text), d.State()); err != nil {
			t.Fatal(err)
		}
		if a := d.Decide(nodeTick(1)); a.Reclaimed == nil {
			t.Errorf("%s: %+v", text, a)
		}
	}
}

// A fleet's sample has no use of the node: the offer of the node's own pipe is not withdrawn for that.
func TestFleet(t *testing.T) {
	d := New(Defaults())
	for _, second := range []int{0, 3600} {
		a := d.Decide(&tick.Tick{V: 1, Node: "n", Time: start.Add(time.Duration(second) * time.Second), Sample: &tick.Sample{IntervalSeconds: new(1.0), Agent: &tick.Agent{}, Fleet: &tick.Fleet{}}})
		if a.Withdrawn != "" || a.Reclaimed != nil || len(a.Reasons) == 0 {
			t.Errorf("after %d s: %+v", second, a)
		}
	}
}

// The same recording gives the same advice, also if the tool is restarted in between.
func TestReplay(t *testing.T) {
	one, other := New(Defaults()), New(Defaults())
	for second := range 400 {
		if second == 200 {
			next := New(Defaults())
			if err := tick.Unmarshal([]byte(encoded(t, other.State())), next.State()); err != nil {
				t.Fatal(err)
			}
			other = next
		}
		a, b := encoded(t, one.Decide(nodeTick(second))), encoded(t, other.Decide(nodeTick(second)))
		if a != b {
			t.Fatalf("second %d:\n%s\n%s", second, a, b)
		}
	}
}

// Values that several parts of the policy desire of one cgroup become one entry.
func TestEachCgroupOnce(t *testing.T) {
	d := New(Defaults())
	config := func(s *tick.Sample) {
		s.Config = tick.Raw(`{"koordinator":{"from":"k/c","colocation":{"enable":true},"resourceThreshold":{"enable":true},"resourceQOS":{"beClass":{"memoryQOS":{"enable":true,"minLimitPercent":50,"throttlingPercent":80}}}}}`)
	}
	var a *tick.Advice
	for second := range 3 {
		a = d.Decide(nodeTick(second, config))
	}
	both := 0
	for _, list := range [][]tick.Cgroup{a.Cgroups, a.Fallback} {
		for i := range list {
			if i > 0 && list[i-1].Cgroup >= list[i].Cgroup {
				t.Errorf("%s stands behind %s", list[i].Cgroup, list[i-1].Cgroup)
			}
		}
	}
	for _, c := range a.Cgroups {
		if (c.CPUWeight != nil || c.CPUSetCPUs != "") && c.MemoryMinBytes != nil {
			both++
		}
	}
	if both == 0 {
		t.Errorf("no cgroup has keys of both suppression and memory QoS: %s", encoded(t, a))
	}
}

// Each cgroup is listed once, parents before their children.
func TestMerge(t *testing.T) {
	a := &tick.Advice{}
	got := merge([]tick.Cgroup{
		{Cgroup: "/b/c", CPUWeight: new(int64(2))},
		{Cgroup: ""},
		{Cgroup: "relative"},
		{Cgroup: "/b", CPUSetCPUs: "0-3", CPUMaxMilliCPU: new(int64(-1))},
		{Cgroup: "/b", MemoryLowBytes: new(int64(4096)), CPUIdle: new(true)},
		{Cgroup: "/b/c", MemoryMaxBytes: new(int64(-1))},
	}, a)
	want := `[{"cgroup":"/b","cpusetCPUs":"0-3","cpuMaxMilliCPU":-1,"cpuIdle":true,"memoryLowBytes":4096},{"cgroup":"/b/c","cpuWeight":2,"memoryMaxBytes":-1}]`
	if encoded(t, got) != want || len(a.Reasons) != 0 {
		t.Errorf("%s %q; want %s", encoded(t, got), a.Reasons, want)
	}

	n := func(v int64) *int64 { return &v }
	for _, c := range []struct {
		x, y   tick.Cgroup
		want   string
		reason string
	}{
		{tick.Cgroup{CPUMaxMilliCPU: n(-1)}, tick.Cgroup{CPUMaxMilliCPU: n(500)}, `"cpuMaxMilliCPU":500`, "cpuMaxMilliCPU is desired as -1 and as 500: 500 applies"},
		{tick.Cgroup{CPUMaxMilliCPU: n(400)}, tick.Cgroup{CPUMaxMilliCPU: n(-1)}, `"cpuMaxMilliCPU":400`, "400 applies"},
		{tick.Cgroup{MemoryHighBytes: n(4096)}, tick.Cgroup{MemoryHighBytes: n(8192)}, `"memoryHighBytes":4096`, "4096 applies"},
		{tick.Cgroup{MemoryMaxBytes: n(8192)}, tick.Cgroup{MemoryMaxBytes: n(4096)}, `"memoryMaxBytes":4096`, "4096 applies"},
		{tick.Cgroup{MemoryMinBytes: n(8192)}, tick.Cgroup{MemoryMinBytes: n(0)}, `"memoryMinBytes":0`, "0 applies"},
		{tick.Cgroup{MemoryWmarkMinAdjPercent: n(-25)}, tick.Cgroup{MemoryWmarkMinAdjPercent: n(50)}, `"memoryWmarkMinAdjPercent":-25`, "-25 applies"},
		{tick.Cgroup{CPUWeight: n(7)}, tick.Cgroup{CPUWeight: n(7)}, `"cpuWeight":7`, ""},
		{tick.Cgroup{CPUSetCPUs: "0-3"}, tick.Cgroup{CPUSetCPUs: "2-9"}, `"cpusetCPUs":"2-3"`, "2-3 applies"},
		{tick.Cgroup{CPUSetCPUs: "0-3"}, tick.Cgroup{CPUSetCPUs: "8-9"}, `"cpusetCPUs":"8-9"`, "8-9 applies"},
		{tick.Cgroup{CPUSetCPUs: "0-3"}, tick.Cgroup{CPUSetCPUs: "0-3"}, `"cpusetCPUs":"0-3"`, ""},
		{tick.Cgroup{CPUSetMems: "0"}, tick.Cgroup{CPUSetMems: "x"}, `"cpusetMems":"0"`, "0 applies"},
		{tick.Cgroup{CPUIdle: new(false)}, tick.Cgroup{CPUIdle: new(true)}, `"cpuIdle":true`, "true applies"},
	} {
		c.x.Cgroup, c.y.Cgroup = "/a", "/a"
		a := &tick.Advice{}
		got := encoded(t, merge([]tick.Cgroup{c.x, c.y}, a))
		if got != `[{"cgroup":"/a",`+c.want+`}]` || (len(a.Reasons) == 0) != (c.reason == "") || c.reason != "" && !strings.Contains(a.Reasons[0], c.reason) {
			t.Errorf("%s, %q; want %s, %q", got, a.Reasons, c.want, c.reason)
		}
	}
}

func TestReasonsAreBounded(t *testing.T) {
	var reasons []string
	for i := range 1000 {
		reasons = append(reasons, fmt.Sprint(i))
	}
	if got := limitReasons(reasons); len(got) != maxReasons+1 || got[maxReasons] != "and 940 more" {
		t.Errorf("%d reasons, the last is %q", len(got), got[len(got)-1])
	}
}

// A reboot discards the state of cgroups; the history of the pods' use stays.
func TestARebootForgetsCgroups(t *testing.T) {
	d := New(Defaults())
	d.Decide(nodeTick(0))
	d.Decide(nodeTick(1))
	d.Nodes["null"] = nil // null in a state file
	n := d.Nodes["n"]
	if len(n.Suppress.Advised) == 0 || len(n.Fallback) == 0 || n.Batch.KnownAt.IsZero() {
		t.Fatalf("remembered: %+v", n)
	}
	n.Suppress.ExclusiveCPUs.CPUs, n.Class = "3", &class.State{}
	d.Reboot()
	if len(n.Suppress.Advised) > 0 || len(n.Fallback) > 0 || n.Class != nil ||
		n.Batch.KnownAt.IsZero() || n.Suppress.ExclusiveCPUs.CPUs != "3" {
		t.Errorf("remembered: %+v", n)
	}
}

// Batch pods' floor is a tenth of the machine, if that is known.
func TestFloorOfTheMachine(t *testing.T) {
	for _, tt := range []struct {
		sample *tick.Sample
		want   class.Machine
	}{
		{nil, class.Machine{}},
		{&tick.Sample{CgroupVersion: 2}, class.Machine{CgroupVersion: 2}},
		{&tick.Sample{Topology: &tick.Topology{CPUs: "x"}}, class.Machine{}},
		{&tick.Sample{Topology: &tick.Topology{CPUs: "0-15"}}, class.Machine{MilliCPU: 16_000, FloorMilliCPU: 1600}},
	} {
		if got := machineOf(tt.sample); got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.sample, got, tt.want)
		}
	}
}

// A quota that only undoes an earlier one yields to one that is desired of the same cgroup, and of no other.
func TestUndoneQuotaYields(t *testing.T) {
	quota := func(cgroup string) tick.Cgroup {
		return tick.Cgroup{Cgroup: cgroup, CPUMaxMilliCPU: new(int64(5))}
	}
	entries := []tick.Cgroup{quota("/a"), quota("/b"), quota("/c")}
	dropUndoneQuotas(entries, []tick.Cgroup{quota("/a"), quota("/b"), {Cgroup: "/c"}}, func(cgroup string) bool { return cgroup != "/b" })
	for i, want := range []bool{false, true, true} {
		if got := entries[i].CPUMaxMilliCPU != nil; got != want {
			t.Errorf("%s has a quota: %t", entries[i].Cgroup, got)
		}
	}
}

// The number of remembered nodes is bounded: the one that was last seen longest ago is dropped.
func TestNodesAreBounded(t *testing.T) {
	d := New(Defaults())
	for i := range tick.MaxNodes {
		d.Nodes[fmt.Sprint(i)] = &node{SeenAt: start.Add(time.Duration(i) * time.Second)}
	}
	d.Decide(&tick.Tick{V: 1, Node: "new", Time: start})
	if len(d.Nodes) != tick.MaxNodes || d.Nodes["0"] != nil || d.Nodes["new"] == nil {
		t.Errorf("%d nodes, the oldest %v", len(d.Nodes), d.Nodes["0"])
	}
}

// While the cluster's pods are unknown all of them count as shared: nothing that was set of batch is undone, and the state and the fallback
// stay.
func TestUnknownPodsUndoNothing(t *testing.T) {
	settings := Settings{
		Class: class.Settings{Class: class.Idle}, Guard: guard.Settings{Mode: guard.On}, Limits: limits.Settings{Batch: limits.Cap},
		Cold: cold.Settings{Mode: cold.Reclaim},
		Disk: disk.Settings{Share: disk.Idle, Limits: []tick.DiskLimit{{Disk: "sda", ReadsPerSecond: new(int64(100))}}},
	}
	batchOnHost := func(s *tick.Sample) { // also batch outside of Kubernetes
		s.Pods = append(s.Pods, tick.Pod{
			UID: "/batch", Name: "batch", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/batch", UsageMilliCPU: new(100.0),
		})
		for i := range s.Pods {
			s.Pods[i].IO = &tick.IO{}
			s.Pods[i].Memory = &tick.Memory{UsageBytes: new(1e9), RSSBytes: new(1e9), RefaultBytesPerSecond: new(0.0)}
			s.Pods[i].MemoryPressure = &tick.Pressure{Some: &tick.PressureLine{}}
		}
		s.MemoryReclaim = &tick.ReclaimClock{Boot: "1"}
	}
	unknown := func(s *tick.Sample) {
		for i := range s.Pods[:2] {
			p := &s.Pods[i]
			p.QoS, p.QoSSource, p.Missing = tick.QoSShared, tick.QoSFromRule, tick.MissingCluster
			p.Labels, p.Requests, p.Limits = nil, nil, nil
		}
		s.Errors = []tick.SourceError{{Source: "pods", Error: "never read"}}
	}
	d := New(settings)
	d.Decide(nodeTick(0, batchOnHost))
	n := d.Nodes["n"]
	const step = `{"kind":"quota","at":"2026-03-01T12:00:00Z","service":"default/web","resource":"a CPU"}`
	const batch = `{"/kubepods/besteffort/podb/c":{"quota":true,"base":800,"floor":100}}`
	const state = `{"steps":[` + step + `],"batch":` + batch + `,"known":"2026-03-01T12:00:00Z"}`
	if err := tick.Unmarshal([]byte(state), &n.Guard); err != nil {
		t.Fatal(err)
	}
	d.Decide(nodeTick(1, batchOnHost))
	stateOf := func() string { return encoded(t, []any{n.Class, n.Disk, n.Guard, n.Limits, n.Cold, n.Fallback}) }
	before := stateOf()
	if n.Class == nil || n.Disk == nil || len(n.Guard.Batch) == 0 || n.Limits == nil || n.Cold == nil || len(n.Fallback) == 0 {
		t.Fatalf("state %s", before)
	}
	for _, second := range []int{2, 3, 60, 600} {
		a := d.Decide(nodeTick(second, batchOnHost, unknown))
		if got := encoded(t, a.Cgroups); got != "[]" && got != "null" {
			t.Errorf("second %d: advised %s", second, got)
		}
		if got := stateOf(); got != before {
			t.Errorf("second %d: state\n%s\nbecame\n%s", second, before, got)
		}
		if got, want := encoded(t, a.Fallback), encoded(t, n.Fallback); got != want {
			t.Errorf("second %d: fallback %s; want %s", second, got, want)
		}
		if text := strings.Join(a.Reasons, "\n"); !strings.Contains(text, "guard steps stay unchanged") {
			t.Errorf("second %d: reasons %q", second, a.Reasons)
		}
	}
	if a := d.Decide(nodeTick(601, batchOnHost)); !strings.Contains(encoded(t, a.Cgroups), `"ioWeight":1`) {
		t.Errorf("after the outage: %s", encoded(t, a.Cgroups))
	}
}

// Without the topology, and until kubelet's state was read once, only batch's class and the guard are decided, and a reason says so.
func TestUnknownMachine(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*tick.Sample)
		unknown string
	}{
		"no topology": {func(s *tick.Sample) { s.Topology = nil }, "no topology in the sample"},
		"kubelet's state was never read": {func(s *tick.Sample) {
			s.Kubelet, s.Errors = nil, []tick.SourceError{{Source: "kubelet", Error: "no permission"}}
		}, "kubelet's state could not be read yet"},
	} {
		t.Run(name, func(t *testing.T) {
			d := New(Settings{
				Limits: limits.Settings{Batch: limits.Cap},
				Disk:   disk.Settings{Limits: []tick.DiskLimit{{Disk: "sda", ReadsPerSecond: new(int64(100))}}},
			})
			for second := range 3 {
				a := d.Decide(nodeTick(second, c.change))
				if text := encoded(t, a.Cgroups); strings.Contains(text, "memoryMaxBytes") || strings.Contains(text, "ioMax") {
					t.Errorf("second %d: limits %s", second, text)
				}
				reasons := strings.Join(a.Reasons, "\n")
				const want = "batch's disk limits and memory limits stay unchanged"
				if !strings.Contains(reasons, want) || !strings.Contains(reasons, c.unknown) {
					t.Errorf("second %d: reasons %q; want %q and %q", second, a.Reasons, c.unknown, want)
				}
			}
			decided := d.Decide(nodeTick(3))
			if text := strings.Join(decided.Reasons, "\n"); strings.Contains(text, "stay unchanged") {
				t.Errorf("with all inputs: reasons %q", decided.Reasons)
			}
		})
	}
}
