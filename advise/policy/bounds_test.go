package policy

import (
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// The older limit stays if it is tighter; none is larger than any limit.
func TestTighter(t *testing.T) {
	for _, tt := range []struct {
		old         *int64
		limit, want int64
	}{
		{nil, 5, 5},
		{nil, tick.Unlimited, tick.Unlimited},
		{new(int64(3)), 5, 3},
		{new(int64(5)), 3, 3},
		{new(int64(0)), 5, 0},
		{new(int64(5)), tick.Unlimited, 5},
		{new(int64(tick.Unlimited)), 5, 5},
		{new(int64(5)), 0, 0},
	} {
		if got := Tighter(tt.old, tt.limit); *got != tt.want {
			t.Errorf("%v and %d: %d; want %d", tt.old, tt.limit, *got, tt.want)
		}
	}
	old := new(int64(5))
	if Tighter(old, 5) != old {
		t.Error("the same limit is another one")
	}
}

// An entry that a layer changes is listed once in each list, and Unset sets a value only if nothing is advised for it.
func TestDraft(t *testing.T) {
	a := &tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: new(int64(5))}}, Fallback: []tick.Cgroup{{Cgroup: "/b"}}}
	d := NewDraft(a)
	quota := func(c *tick.Cgroup) **int64 { return &c.CPUMaxMilliCPU }
	for range 2 {
		d.SetIfUnset("/a", quota, 7)
		d.SetIfUnset("/b", quota, 8)
	}
	if len(a.Cgroups) != 1 || len(a.Fallback) != 1 || a.Fallback[0].CPUMaxMilliCPU != nil {
		t.Errorf("the advice was changed before its time: %+v", a)
	}
	d.Finish(a)
	show := func(list []tick.Cgroup) (text string) {
		for _, c := range list {
			text += c.Cgroup + "=" + string(rune('0'+*c.CPUMaxMilliCPU)) + " "
		}
		return text
	}
	if got := show(a.Cgroups) + "| " + show(a.Fallback); got != "/a=5 /b=8 | /b=8 /a=7 " {
		t.Errorf("%s", got)
	}
	if d.FallbackOf("/c") != nil || d.FallbackOf("/a") == nil {
		t.Error("what the fallback has is not found, or what it has not is")
	}
}

// A tier is confined only if that is safe; a tier that was confined is widened again and remembered.
func TestConfineTier(t *testing.T) {
	const tier = "/kubepods/besteffort"
	lists := BatchLists{Batch: "0-3", Floor: "0", All: "0-7"}
	pod := func(class, at string) tick.Pod { return tick.Pod{QoS: class, Cgroup: at, Namespace: "n", Name: "p"} }
	batch := pod(tick.QoSReclaimed, tier+"/podb")
	confined := []string{tier + " 0-3", tier + " 0"}
	widened := []string{tier + " 0-7", tier + " 0-7"}
	pending := pod(tick.QoSShared, "")
	pending.Missing = tick.MissingCgroup
	requests := pending
	requests.Requests = &tick.Resources{MemoryBytes: new(1.0)}
	byContainer := pod(tick.QoSReclaimed, "")
	byContainer.Containers = []tick.Container{{Cgroup: tier + "/podb/c"}}
	alike := pod(tick.QoSReclaimed, "/user.slice"+tier+"/podb")
	ended := pod(tick.QoSShared, tier+"/pode")
	ended.Phase = "Failed"
	for name, tt := range map[string]struct {
		pods    []tick.Pod
		before  string
		version int
		kubelet *tick.Kubelet
		lists   BatchLists
		want    []string // in the advice and in its fallback
		why     string
	}{
		"version 2":                           {[]tick.Pod{batch}, "", 2, nil, lists, confined, ""},
		"by a container's cgroup":             {[]tick.Pod{byContainer}, "", 2, nil, lists, confined, ""},
		"version 1, no CPU manager":           {[]tick.Pod{batch}, "", 1, &tick.Kubelet{CPUManagerPolicy: "none"}, lists, confined, ""},
		"version 1, static":                   {[]tick.Pod{batch}, "", 1, &tick.Kubelet{CPUManagerPolicy: "static"}, lists, nil, "policy \"static\""},
		"version 1, unknown":                  {[]tick.Pod{batch}, "", 1, &tick.Kubelet{}, lists, nil, "is unknown"},
		"version 1, no kubelet":               {[]tick.Pod{batch}, "", 1, nil, lists, nil, "is unknown"},
		"no pool":                             {[]tick.Pod{batch}, "", 2, nil, BatchLists{All: "0-7"}, nil, "there is no reclaim pool"},
		"no pool any more":                    {[]tick.Pod{batch}, tier, 2, nil, BatchLists{All: "0-7"}, widened, "there is no reclaim pool"},
		"a service in it":                     {[]tick.Pod{batch, pod(tick.QoSShared, tier+"/pods")}, "", 2, nil, lists, nil, "pod \"n/p\" in it"},
		"a service in it now":                 {[]tick.Pod{batch, pod(tick.QoSShared, tier+"/pods")}, tier, 2, nil, lists, widened, "pod \"n/p\" in it"},
		"a service that will be in it":        {[]tick.Pod{batch, pending}, "", 2, nil, lists, nil, "pod \"n/p\" in it"},
		"a service that will be elsewhere":    {[]tick.Pod{batch, requests}, "", 2, nil, lists, confined, ""},
		"a service elsewhere":                 {[]tick.Pod{batch, pod(tick.QoSShared, "/kubepods/burstable/pods")}, "", 2, nil, lists, confined, ""},
		"a service that has ended":            {[]tick.Pod{batch, ended}, "", 2, nil, lists, confined, ""},
		"two tiers":                           {[]tick.Pod{batch, alike}, "", 2, nil, lists, nil, "more than one"},
		"two pods of one tier":                {[]tick.Pod{batch, batch}, "", 2, nil, lists, confined, ""},
		"no pod in it now":                    {nil, tier, 2, nil, lists, confined, ""},
		"never a pod in it":                   {nil, "", 2, nil, lists, nil, ""},
		"never a pod in it, and a service":    {[]tick.Pod{pod(tick.QoSShared, "/kubepods/burstable/pods")}, "", 2, nil, lists, nil, ""},
		"another tier was confined before it": {[]tick.Pod{batch}, "/old", 2, nil, lists, append([]string{"/old 0-7"}, tier+" 0-3", "/old 0-7", tier+" 0"), ""},
	} {
		a := &tick.Advice{}
		after := ConfineTier(a, &tick.Sample{Pods: tt.pods, CgroupVersion: tt.version, Kubelet: tt.kubelet}, tt.before, tt.lists)
		var got []string
		for _, c := range append(append([]tick.Cgroup(nil), a.Cgroups...), a.Fallback...) {
			got = append(got, c.Cgroup+" "+c.CPUSetCPUs)
		}
		if strings.Join(got, ", ") != strings.Join(tt.want, ", ") {
			t.Errorf("%s: desired %q; want %q: %q", name, got, tt.want, a.Reasons)
		}
		if text := strings.Join(a.Reasons, "\n"); !strings.Contains(text, tt.why) || (text == "") != (tt.why == "") {
			t.Errorf("%s: reasons %q; want %q", name, a.Reasons, tt.why)
		}
		remembered := tt.before
		if tt.why == "" && len(tt.want) > 0 {
			remembered = tier
		}
		if after != remembered {
			t.Errorf("%s: remembered %q; want %q", name, after, remembered)
		}
	}
}

// If it is known which tier is kubelet's, another cgroup of that name changes nothing, neither beside it nor alone.
func TestConfineTierBesideOneLikeIt(t *testing.T) {
	const tier, alike = "/kubepods/besteffort", "/user.slice/kubepods/besteffort"
	lists := BatchLists{Batch: "0-3", Floor: "0", All: "0-7"}
	kubelets := []tick.Tier{{Name: tick.TierBestEffort, Cgroup: tier}}
	batch := tick.Pod{QoS: tick.QoSReclaimed, Cgroup: tier + "/pod1"}
	for _, class := range []string{tick.QoSReclaimed, tick.QoSShared} {
		job := tick.Pod{QoS: class, Cgroup: alike + "/pod1", Namespace: "n", Name: "p", Requests: &tick.Resources{MilliCPU: new(1.0)}}
		for _, pods := range [][]tick.Pod{{batch, job}, {job, batch}} {
			a := &tick.Advice{}
			after := ConfineTier(a, &tick.Sample{Pods: pods, Tiers: kubelets, CgroupVersion: 2}, "", lists)
			if after != tier || len(a.Cgroups) != 1 || a.Cgroups[0].Cgroup != tier || a.Cgroups[0].CPUSetCPUs != "0-3" || len(a.Reasons) > 0 {
				t.Errorf("%s: %+v, %q", class, a.Cgroups, a.Reasons)
			}
		}
		a := &tick.Advice{}
		sample := &tick.Sample{Pods: []tick.Pod{job}, Tiers: kubelets, CgroupVersion: 2}
		if after := ConfineTier(a, sample, "", lists); after != "" || len(a.Cgroups) > 0 {
			t.Errorf("%s alone: %+v, %q", class, a.Cgroups, a.Reasons)
		}
	}
}

// The use of pods in other partitions is not the node's use, unless it is unknown; the input tick is not changed.
func TestUseInAnothersPartitionIsNotTheNodes(t *testing.T) {
	for _, tt := range []struct {
		cpu  *tick.NodeCPU
		use  float64
		want *float64
	}{
		{nil, 500, nil},
		{&tick.NodeCPU{}, 500, nil},
		{&tick.NodeCPU{UsageMilliCPU: new(2000.0)}, 500, new(1500.0)},
		{&tick.NodeCPU{UsageMilliCPU: new(300.0)}, 500, new(0.0)},
		{&tick.NodeCPU{UsageMilliCPU: new(2000.0)}, 0, new(2000.0)},
	} {
		s := &tick.Sample{CPU: tt.cpu, Pods: []tick.Pod{
			{Cgroup: "/part/a", UsageMilliCPU: &tt.use}, {Cgroup: "/other", UsageMilliCPU: new(700.0), Requests: &tick.Resources{MilliCPU: new(1.0)}},
		}}
		before := s.Pods
		clearPods(s, func(cgroup string) bool { return cgroup == "/part/a" })
		got := (*float64)(nil)
		if s.CPU != nil {
			got = s.CPU.UsageMilliCPU
		}
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%+v less %v: %v; want %v", tt.cpu, tt.use, got, tt.want)
		}
		if *before[0].UsageMilliCPU != tt.use || *s.Pods[1].Requests.MilliCPU != 1 || &before[0] == &s.Pods[0] {
			t.Error("the tick that came in was changed, or a pod outside the partition")
		}
	}
}

// A shape is rebuilt if the topology or one of the lists differs.
func TestShapeIsOf(t *testing.T) {
	top := &tick.Topology{CPUs: "0-3", Cores: []string{"0,2", "1,3"}}
	s, err := NewShape(top, "0", "1")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Avail.String(); got != "2-3" {
		t.Errorf("left are %s", got)
	}
	if !s.IsOf(&tick.Topology{CPUs: "0-3", Cores: []string{"0,2", "1,3"}}, "0", "1") {
		t.Error("the same is another one")
	}
	if s.IsOf(top, "", "1") || s.IsOf(top, "0", "") || s.IsOf(&tick.Topology{CPUs: "0-2"}, "0", "1") || (*Shape)(nil).IsOf(top, "0", "1") {
		t.Error("another one is the same")
	}
	for _, lists := range [][3]string{{"x", "", ""}, {"0-3", "x", ""}, {"0-3", "", "x"}} {
		if _, err := NewShape(&tick.Topology{CPUs: lists[0]}, lists[1], lists[2]); err == nil {
			t.Errorf("%q is a shape", lists)
		}
	}
}

// The last known CPUs that kubelet gave away apply only while its state cannot be read. If it was never read they are unknown, also after
// there was no kubelet; a state file without IsKnown has them if its list is not empty.
func TestExclusiveCPUs(t *testing.T) {
	unread := []tick.SourceError{{Source: "kubelet", Error: "no"}}
	for _, tt := range []struct {
		kubelet *tick.Kubelet
		errors  []tick.SourceError
		last    string
		want    string
		reason  string
		err     string
	}{
		{&tick.Kubelet{ExclusiveCPUs: "4"}, nil, `{"given":"5"}`, `{"given":"4","givenKnown":true}`, "", ""},
		{&tick.Kubelet{}, unread, `{"given":"5"}`, `{"givenKnown":true}`, "", ""},
		{nil, unread, `{"given":"5","givenKnown":true}`, `{"given":"5","givenKnown":true}`, `CPUs "5" still count as exclusive`, ""},
		{nil, unread, `{"given":"5"}`, `{"given":"5"}`, `CPUs "5" still count as exclusive`, ""},
		{nil, unread, `{"givenKnown":true}`, `{"givenKnown":true}`, "still counts as without exclusive CPUs", ""},
		{nil, unread, `{}`, `{}`, "", "could not be read yet"},
		{nil, nil, `{"given":"5","givenKnown":true}`, `{}`, "", ""},
		{nil, nil, `{}`, `{}`, "", ""},
	} {
		var e ExclusiveCPUs
		if err := tick.Unmarshal([]byte(tt.last), &e); err != nil {
			t.Fatal(err)
		}
		reason, err := e.Observe(&tick.Sample{Kubelet: tt.kubelet, Errors: tt.errors})
		got, _ := tick.Marshal(e)
		if string(got) != tt.want || !strings.Contains(reason, tt.reason) || (reason == "") != (tt.reason == "") {
			t.Errorf("%+v: %s, %q", tt, got, reason)
		}
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%+v: error %v", tt, err)
		}
	}
}

type testNode struct {
	At       time.Time
	Rebooted bool
}

func (r *testNode) LastUsed() time.Time { return r.At }
func (r *testNode) Reboot()             { r.Rebooted = true }

// The state of a node is available the next time, also if a state file had null for it or for all.
func TestBaseKeepsState(t *testing.T) {
	b := NewBase[int, testNode](5)
	b.Node("a").At = time.Unix(7, 0)
	b.Nodes["null"] = nil
	if b.Reboot(); !b.Node("a").Rebooted || b.Node("a").At != time.Unix(7, 0) || b.Node("null") == nil || b.Node("null").Rebooted {
		t.Errorf("%+v", b.Nodes)
	}
	b.Nodes = nil
	if b.Node("a") == nil || len(b.Nodes) != 1 {
		t.Errorf("%+v", b.Nodes)
	}
}

// A pod in another partition needs none of the pools' CPUs and is not dedicated; a batch pod stays one, and its limits and memory stay.
func TestAPodInAnothersPartitionNeedsNoCPU(t *testing.T) {
	for class, want := range map[string]string{
		tick.QoSDedicated: tick.QoSShared, tick.QoSShared: tick.QoSShared, tick.QoSReclaimed: tick.QoSReclaimed, tick.QoSSystem: tick.QoSSystem,
	} {
		own := &tick.Resources{MilliCPU: new(4000.0), MemoryBytes: new(5.0)}
		p := tick.Pod{QoS: class, Requests: own, Limits: own, UsageMilliCPU: new(7.0), Containers: []tick.Container{{Limits: own}}}
		clearCPUNeed(&p)
		if p.QoS != want || *p.Requests.MilliCPU != 0 || *p.Requests.MemoryBytes != 5 || *p.Limits.MilliCPU != 4000 || *p.UsageMilliCPU != 0 {
			t.Errorf("of class %s: %+v", class, p)
		}
		if c := p.Containers[0]; *c.Requests.MilliCPU != 0 || *c.UsageMilliCPU != 0 || *c.Limits.MilliCPU != 4000 || *own.MilliCPU != 4000 {
			t.Errorf("of class %s: container %+v", class, c)
		}
	}
}

// A node's unknown CPU stays unknown, and a known one is between 0 and the CPUs that are left.
func TestCPUOfANodeWithoutAPartition(t *testing.T) {
	if got := subtractCPU(nil, 1000, 5000); got != nil {
		t.Errorf("of nothing known: %+v", got)
	}
	if got := subtractCPU(&tick.Resources{MemoryBytes: new(5.0)}, 1000, 5000); got.MilliCPU != nil {
		t.Errorf("of memory alone: %+v", got)
	}
	for _, tt := range [][3]float64{{8000, 5000, 5000}, {4000, 5000, 3000}, {500, 5000, 0}} {
		if got := subtractCPU(&tick.Resources{MilliCPU: &tt[0]}, 1000, tt[1]); *got.MilliCPU != tt[2] {
			t.Errorf("%v: %v", tt, *got.MilliCPU)
		}
	}
}
