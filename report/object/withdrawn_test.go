package object

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// amounts formats them as "4000 100", with a dash for unknown ones.
func (a Amounts) String() string {
	text := func(v *int64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	return text(a.MilliCPU) + " " + text(a.MemoryBytes)
}

func tainted(effect string, keys ...string) func(*Figures) {
	return func(f *Figures) {
		f.Taints = []tick.Taint{}
		for _, k := range keys {
			f.Taints = append(f.Taints, tick.Taint{Key: k, Effect: effect})
		}
	}
}

func requesting(milli, bytes int64) func(*Figures) {
	return func(f *Figures) { f.Requested = &Offer{Reclaimed: of(milli, bytes).Reclaimed} }
}

func TestHold(t *testing.T) {
	const cpu, ready = "node.katalyst.kubewharf.io/CPUPressure", "NoSchedule"
	for _, tt := range []struct {
		name      string
		f         Figures
		published Amounts
		want      string
		held      bool
	}{
		{"unknown taints", of(44000, 100).with(requesting(2000, 10)), Amounts{}, "44000 100", false},
		{"no taint", of(44000, 100).with(tainted(ready)).with(requesting(2000, 10)), Amounts{}, "44000 100", false},
		{"a taint", of(44000, 100).with(tainted(ready, cpu)).with(requesting(2000, 10)), of(44000, 100).Reclaimed, "2000 10", true},
		{"no pods", of(44000, 100).with(tainted(ready, cpu)).with(requesting(0, 0)), of(44000, 100).Reclaimed, "0 0", true},
		{"pods that request more than the offer", of(44000, 100).with(tainted(ready, cpu)).with(requesting(50000, 200)), Amounts{}, "44000 100", true},
		{"one of each", of(44000, 100).with(tainted(ready, cpu)).with(requesting(50000, 10)), Amounts{}, "44000 10", true},
		{"CPU alone is offered", of(44000, -1).with(tainted(ready, cpu)).with(requesting(2000, 10)), Amounts{}, "2000 -", true},
		{"nothing is offered", of(-1, -1).with(tainted(ready, cpu)).with(requesting(2000, 10)), Amounts{}, "- -", true},
		{"the pods are not known: as published", of(44000, 100).with(tainted(ready, cpu)), of(42000, 90).Reclaimed, "42000 90", true},
		{"the pods are not known, and the offer shrinks", of(40000, 80).with(tainted(ready, cpu)), of(42000, 90).Reclaimed, "40000 80", true},
		{"the pods are not known, and nothing is published", of(44000, 100).with(tainted(ready, cpu)), Amounts{}, "- -", true},
		{"evicts, too", of(44000, 100).with(tainted("NoExecute", cpu)).with(requesting(2000, 10)), Amounts{}, "2000 10", true},
		{"for reclaimed pods", of(44000, 100).with(tainted("NoScheduleForReclaimedTasks", cpu)).with(requesting(2000, 10)), Amounts{}, "2000 10", true},
		{"a wish", of(44000, 100).with(tainted("PreferNoSchedule", cpu)).with(requesting(2000, 10)), Amounts{}, "44000 100", false},
		{"another program's key", of(44000, 100).with(tainted(ready, "team/x", "node.kubernetes.io/unschedulable")).with(requesting(2000, 10)), Amounts{}, "44000 100", false},
		{"the second of them", of(44000, 100).with(tainted(ready, "team/x", cpu)).with(requesting(2000, 10)), Amounts{}, "2000 10", true},
	} {
		got := tt.f.LimitByTaint(Offer{Reclaimed: tt.published})
		if got.Reclaimed.String() != tt.want || got.ReducedByTaint != tt.held || (got.Note != "") != tt.held {
			t.Errorf("%s: %s, held %v, %q; want %s, %v", tt.name, got.Reclaimed, got.ReducedByTaint, got.Note, tt.want, tt.held)
		}
	}
}

// A taint limits the offer of mid resources as it does that of the reclaimed ones: to the requests, or to what is published.
func TestMidUnderATaint(t *testing.T) {
	mid := tick.Pod{
		UID: "m", Namespace: "grid", Name: "m", QoS: tick.QoSReclaimed,
		Requests: &tick.Resources{MidMilliCPU: new(1500.0), MidMemoryBytes: new(300.0)},
	}
	advice := &tick.Advice{
		Policy:    string(Koordinator),
		Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(10000)), MemoryBytes: new(int64(1000))},
		Mid:       &tick.Reclaimed{MilliCPU: new(int64(6000)), MemoryBytes: new(int64(600))},
	}
	node := decode(t, `{"status":{"allocatable":{
		"kubernetes.io/batch-cpu":"100","kubernetes.io/mid-cpu":"2000","kubernetes.io/mid-memory":"500"}}}`)
	for _, tt := range []struct {
		name, effect  string
		pods          []tick.Pod
		unread        bool
		reclaimed, of string
	}{
		{"no taint", "PreferNoSchedule", []tick.Pod{mid}, false, "10000 1000", "6000 600"},
		{"a mid pod", "NoSchedule", []tick.Pod{mid}, false, "0 0", "1500 300"},
		{"no pod", "NoSchedule", nil, false, "0 0", "0 0"},
		{"unknown pods", "NoSchedule", nil, true, "100 -", "2000 500"},
	} {
		s := &tick.Sample{Pods: tt.pods}
		if tt.unread {
			s.Errors = []tick.SourceError{{Source: "pods"}}
		}
		f := Read(&tick.Tick{Sample: s, Advice: advice, Eviction: &tick.Eviction{
			Taints: []tick.Taint{{Key: TaintPrefix + "MemoryPressure", Effect: tt.effect}},
		}})
		got := f.LimitByTaint(NodeOffer(node, Koordinator, "kubernetes.io"))
		if got.Reclaimed.String() != tt.reclaimed || got.Mid.String() != tt.of {
			t.Errorf("%s: reclaimed %s, mid %s; want %s, %s", tt.name, got.Reclaimed, got.Mid, tt.reclaimed, tt.of)
		}
	}
}

// A loss because of a taint is written at once, however small, and so is its end.
func TestHeldIsUrgent(t *testing.T) {
	rules := Rules{MinChange: 0.05, MinInterval: 30 * time.Second, Resync: 5 * time.Minute}
	held := func(f *Figures) { f.ReducedByTaint = true }
	for _, tt := range []struct {
		name     string
		from, to Figures
		want     Due
	}{
		{"held, a trifle less", of(44000, 100), of(43999, 100).with(held), FiguresChanged},
		{"held, and still a trifle less", of(44000, 100).with(held), of(43999, 100).with(held), FiguresChanged},
		{"held, memory a trifle less", of(44000, 1<<30).with(held), of(44000, 1<<30-1).with(held), FiguresChanged},
		{"held, a little more", of(44000, 100).with(held), of(44001, 100).with(held), NotDue},
		{"held, and nothing is less", of(44000, 100), of(44000, 100).with(held), NotDue},
		{"free again, a little more", of(43999, 100).with(held), of(44000, 100), FiguresChanged},
		{"free again, and nothing is more", of(44000, 100).with(held), of(44000, 100), NotDue},
		{"free, a trifle less", of(44000, 100), of(43999, 100), NotDue},
	} {
		if got := rules.Next(Written{&tt.from, noon}, tt.to, true, noon); got != tt.want {
			t.Errorf("%s: %d; want %d", tt.name, got, tt.want)
		}
	}
}

func TestRequested(t *testing.T) {
	f := tick.Ptr[float64]
	pod := func(uid string, milli, bytes float64, change ...func(*tick.Pod)) tick.Pod {
		p := tick.Pod{UID: uid, Namespace: "d", Name: uid, QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: f(milli), ReclaimedMemoryBytes: f(bytes)}}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	for _, tt := range []struct {
		name string
		tick tick.Tick
		want string // empty where it is not known
	}{
		{"no sample", tick.Tick{}, ""},
		{"no pods", tick.Tick{Sample: &tick.Sample{}}, "0 0"},
		{"two", tick.Tick{Sample: &tick.Sample{Pods: []tick.Pod{pod("a", 1000, 10), pod("b", 500, 5)}}}, "1500 15"},
		{"without a topology", tick.Tick{Sample: &tick.Sample{Pods: []tick.Pod{pod("a", 1000, 10)}}}, "1000 10"},
		{"the list is stale", tick.Tick{Sample: &tick.Sample{Pods: []tick.Pod{pod("a", 1000, 10)}, Errors: []tick.SourceError{{Source: "memory", Error: "x"}, {Source: "pods", Error: "API server not reachable"}}}}, ""},
		{"something else could not be read", tick.Tick{Sample: &tick.Sample{Pods: []tick.Pod{pod("a", 1000, 10)}, Errors: []tick.SourceError{{Source: "node", Error: "x"}}}}, "1000 10"},
		{"those that do not count", tick.Tick{Sample: &tick.Sample{Pods: []tick.Pod{
			pod("a", 1000, 10),
			pod("a", 1000, 10), // named twice
			pod("b", 7, 7, func(p *tick.Pod) { p.QoS = tick.QoSShared }),
			pod("c", 7, 7, func(p *tick.Pod) { p.Phase = "Succeeded" }),
			pod("d", 7, 7, func(p *tick.Pod) { p.Phase = "Failed" }),
			pod("e", 7, 7, func(p *tick.Pod) { p.Missing = tick.MissingCluster }),
			pod("f", 7, 7, func(p *tick.Pod) { p.Namespace = "" }),
			pod("g", 7, 7, func(p *tick.Pod) { p.Terminating = true }),
			pod("h", 7, 7, func(p *tick.Pod) { p.Requests = nil }),
			pod("i", 500, 5, func(p *tick.Pod) { p.Missing, p.Phase = tick.MissingCgroup, "Pending" }), // bound, not started
		}}}, "1500 15"},
		{"amounts that are none", tick.Tick{Sample: &tick.Sample{Pods: []tick.Pod{pod("a", -1, 1e300), pod("b", 500, 5)}}}, "500 5"},
		{"no end of it", tick.Tick{Sample: &tick.Sample{Pods: []tick.Pod{pod("a", 1<<53, 1), pod("b", 1<<53, 1)}}}, fmt.Sprint(int64(1<<53), " 2")},
		{"evicted just now", tick.Tick{
			Sample: &tick.Sample{Pods: []tick.Pod{pod("a", 1000, 10), pod("b", 500, 5), pod("c", 100, 1), pod("d", 10, 1)}},
			Eviction: &tick.Eviction{Evictions: []tick.PodEviction{
				{UID: "a", State: tick.StateRequested},
				{UID: "b", State: tick.StateCreated},
				{UID: "c", State: tick.StateFailed},
				{UID: "d", State: tick.StateWouldEvict},
			}},
		}, "110 2"},
		{"evicted in a dry run", tick.Tick{
			Sample:   &tick.Sample{Pods: []tick.Pod{pod("a", 1000, 10)}},
			Eviction: &tick.Eviction{DryRun: true, Evictions: []tick.PodEviction{{UID: "a", State: tick.StateRequested}}},
		}, "1000 10"},
	} {
		got := ""
		if r := Read(&tt.tick).Requested; r != nil {
			got = r.Reclaimed.String()
		}
		if got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
	var m Memory
	m.Take(of(44000, 100).with(requesting(2000, 10)), noon)
	if f := m.Now(noon, time.Minute); f.Requested == nil || f.Requested.Reclaimed.String() != "2000 10" {
		t.Errorf("known: %v", f.Requested)
	}
	m.Take(of(44000, 100), noon.Add(time.Second))
	if f := m.Now(noon.Add(time.Second), time.Minute); f.Requested != nil {
		t.Errorf("the pods of the previous tick count: %v", f.Requested)
	}
}

func TestMark(t *testing.T) {
	for _, tt := range []struct{ node, want string }{
		{`{}`, ""},
		{`{"metadata":{"annotations":{"a":"b"}}}`, ""},
		{`{"metadata":{"annotations":{"polder/withdrawn":7}}}`, ""},
		{`{"metadata":{"annotations":{"polder/withdrawn":""}}}`, "no reason given"},
		{`{"metadata":{"annotations":{"polder/withdrawn":"agent not ready for 10m"}}}`, "agent not ready for 10m"},
	} {
		if got := Mark(decode(t, tt.node)); got != tt.want {
			t.Errorf("%s: %q; want %q", tt.node, got, tt.want)
		}
	}
	f := Read(guide()).with(tainted("NoSchedule", "a"))
	got := f.Withdrawn(strings.Repeat("ä", 1000))
	if !got.Empty() || got.NeedsNoContent() || got.Zones != nil || got.Consumers != nil || len(got.Taints) != 1 || len([]rune(got.Note)) > 300 {
		t.Errorf("%+v", got)
	}
}

func TestNodeTaints(t *testing.T) {
	const ours = TaintPrefix
	for _, tt := range []struct {
		name   string
		taints []tick.Taint
		want   []tick.Taint
		unfit  string
	}{
		{"unknown ones", nil, nil, ""},
		{"none", []tick.Taint{}, []tick.Taint{}, ""},
		{
			"the three effects",
			[]tick.Taint{{Key: ours + "a", Effect: "NoSchedule"}, {Key: ours + "a", Effect: "PreferNoSchedule"}, {Key: ours + "a", Effect: "NoExecute"}},
			[]tick.Taint{{Key: ours + "a", Effect: "NoSchedule"}, {Key: ours + "a", Effect: "PreferNoSchedule"}, {Key: ours + "a", Effect: "NoExecute"}},
			"",
		},
		{
			"one that Nodes do not have",
			[]tick.Taint{{Key: ours + "a", Effect: "NoScheduleForReclaimedTasks"}, {Key: ours + "b", Effect: "NoSchedule"}},
			[]tick.Taint{{Key: ours + "b", Effect: "NoSchedule"}},
			ours + "a:NoScheduleForReclaimedTasks",
		},
		{
			"keys of others",
			[]tick.Taint{{Key: "node.kubernetes.io/unreachable", Effect: "NoExecute"}, {Key: "a", Effect: "NoSchedule"}},
			[]tick.Taint{},
			"node.kubernetes.io/unreachable:NoExecute, a:NoSchedule",
		},
		{
			"keys that no server takes",
			[]tick.Taint{{Key: ours, Effect: "NoSchedule"}, {Key: ours + "a/b", Effect: "NoSchedule"}, {Key: ours + "-a", Effect: "NoSchedule"}, {Key: ours + "a,b", Effect: "NoSchedule"}, {Key: ours + strings.Repeat("a", 64), Effect: "NoSchedule"}},
			[]tick.Taint{},
			ours + ":NoSchedule",
		},
	} {
		got := Figures{Taints: tt.taints, Reclaimed: of(1, 1).Reclaimed}.NodeTaints()
		if d := cmp.Diff(tt.want, got.Taints); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
		if !strings.Contains(got.Note, tt.unfit) || (got.Note == "") != (tt.unfit == "") || !got.Empty() || got.IsIntended != (tt.taints != nil) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	node := decode(t, `{"metadata":{},"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"}]}}`)
	if err := NodeTaintsOf(node).Want([]tick.Taint{{Key: ours + "a", Effect: "NoSchedule"}}, noon).Patch().apply(node); err != nil {
		t.Fatal(err)
	}
	want := decode(t, `{"metadata":{"annotations":{"polder/taints":"node.katalyst.kubewharf.io/a:NoSchedule"}},"spec":{"taints":[
		{"key":"node.kubernetes.io/not-ready","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"},
		{"key":"node.katalyst.kubewharf.io/a","effect":"NoSchedule","timeAdded":"2026-11-21T12:00:00Z"}]}}`)
	if d := cmp.Diff(want, node); d != "" {
		t.Errorf("a Node (-want +got):\n%s", d)
	}
}

func TestNodeOffer(t *testing.T) {
	for _, tt := range []struct{ node, want string }{
		{`{}`, "- -"},
		{`{"status":{"allocatable":{"cpu":"48"}}}`, "- -"},
		{`{"status":{"capacity":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"50k"},"allocatable":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"44k","resource.katalyst.kubewharf.io/reclaimed_memory":"1Gi"}}}`, "44000 1073741824"},
		{`{"status":{"allocatable":{"resource.katalyst.kubewharf.io/reclaimed_millicpu":"many","resource.katalyst.kubewharf.io/reclaimed_memory":"-1"}}}`, "- -"},
	} {
		if got := NodeOffer(decode(t, tt.node), Katalyst, Prefix).Reclaimed.String(); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.node, got, tt.want)
		}
	}
}
