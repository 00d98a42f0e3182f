package class

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// small is a machine of 2 CPUs whose floor is a tenth.
var small = Machine{MilliCPU: 2000, FloorMilliCPU: 200, CgroupVersion: 2}

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at returns a tick some seconds after the start, on a machine with the total use all, which includes batch's.
func at(seconds int, totalUse, batchUse float64) *tick.Tick {
	return &tick.Tick{Node: "n", Time: begin.Add(time.Duration(seconds) * time.Second), Sample: &tick.Sample{
		CPU: &tick.NodeCPU{UsageMilliCPU: &totalUse},
		Pods: []tick.Pod{
			{UID: "b", QoS: tick.QoSReclaimed, Cgroup: "/batch", UsageMilliCPU: &batchUse},
			{UID: "w", QoS: tick.QoSShared, Cgroup: "/web"},
			{UID: "gone", QoS: tick.QoSReclaimed, Cgroup: "/gone", Missing: tick.MissingCgroup},
		},
	}}
}

// entryOf returns the desired values of a cgroup in the advice and its fallback; both must be equal.
func entryOf(t *testing.T, a *tick.Advice, cgroup string) *tick.Cgroup {
	t.Helper()
	find := func(list []tick.Cgroup) *tick.Cgroup {
		var found *tick.Cgroup
		for i := range list {
			if list[i].Cgroup == cgroup {
				if found != nil {
					t.Errorf("%s is named twice: %+v", cgroup, list)
				}
				found = &list[i]
			}
		}
		return found
	}
	current, fallback := find(a.Cgroups), find(a.Fallback)
	if (current == nil) != (fallback == nil) {
		t.Errorf("%s: advice %+v, fallback %+v", cgroup, current, fallback)
	}
	return current
}

func wantClass(t *testing.T, a *tick.Advice, idle bool, weight int64) {
	t.Helper()
	c := entryOf(t, a, "/batch")
	if c == nil || c.CPUIdle == nil || *c.CPUIdle != idle || c.CPUWeight == nil || *c.CPUWeight != weight {
		t.Errorf("want cpuIdle %t and cpuWeight %d; is %+v; %q", idle, weight, c, a.Reasons)
	}
}

func TestBatchPodsAreIdleAndServicesAreNot(t *testing.T) {
	a := &tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/batch", CPUSetCPUs: "0"}}}
	var st *State
	st = st.Advise(at(0, 100, 50), a, Settings{Class: Idle}, small)
	wantClass(t, a, true, 1)
	if c := entryOf(t, a, "/batch"); c.CPUSetCPUs != "0" && len(a.Cgroups) != 1 {
		t.Errorf("what the policy wants is lost: %+v", a.Cgroups)
	}
	if entryOf(t, a, "/web") != nil || entryOf(t, a, "/gone") != nil {
		t.Errorf("others are named: %+v", a.Cgroups)
	}
	if st == nil || st.Set["/batch"] != Idle {
		t.Errorf("remembered: %+v", st)
	}
	if diff := cmp.Diff([]string{"batch class idle: 1 pod"}, a.Reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

// TestAPolicysWeightIsForKernelsWithoutTheIdleClass: it stays beside cpu.idle; the weights of the class and of the floor replace it.
func TestAPolicysWeightIsForKernelsWithoutTheIdleClass(t *testing.T) {
	for _, tt := range []struct {
		class   string
		relieve bool
		want    int64
	}{{Idle, false, 50}, {Idle, true, 12}, {Weight, false, 1}, {Weight, true, 12}} {
		st := &State{}
		if tt.relieve {
			st.RelievedAt, st.Weight = begin, 12
		}
		a := &tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/batch", CPUWeight: new(int64(50))}}}
		st.Advise(at(1, 2000, 200), a, Settings{Class: tt.class}, small)
		if got := *a.Cgroups[0].CPUWeight; got != tt.want {
			t.Errorf("%+v: weight %d", tt, got)
		}
	}
}

// TestClassIsUndone: for a pod that is a service now, and for all pods if no class is desired any more.
func TestClassIsUndone(t *testing.T) {
	for _, class := range []string{Idle, Weight} {
		var st *State
		st = st.Advise(at(0, 100, 50), &tick.Advice{}, Settings{Class: class}, small)
		now := at(1, 100, 50)
		now.Sample.Pods[0].QoS = tick.QoSShared
		for _, next := range []struct {
			class string
			tick  *tick.Tick
		}{{class, now}, {None, at(2, 100, 50)}, {None, at(3, 100, 50)}} {
			a := &tick.Advice{}
			st = st.Advise(next.tick, a, Settings{Class: next.class}, small)
			c := entryOf(t, a, "/batch")
			switch {
			case c == nil:
				t.Fatalf("%s, %+v: nothing undoes it", class, next)
			case class == Idle && (c.CPUIdle == nil || *c.CPUIdle || c.CPUWeight != nil):
				t.Errorf("%+v; want the idle class off and the weight isolate's to restore", c)
			case class == Weight && (c.CPUIdle != nil || c.CPUWeight == nil || *c.CPUWeight != 100):
				t.Errorf("%+v; want the kernel's default weight", c)
			}
		}
		gone := at(4, 100, 0)
		gone.Sample.Pods = gone.Sample.Pods[1:]
		if st = st.Advise(gone, &tick.Advice{}, Settings{Class: None}, small); st != nil {
			t.Errorf("remembered without a cgroup: %+v", st)
		}
	}
}

// TestACgroupIsNamedOnce: with two pods of one cgroup, and a cgroup that is not a path.
func TestACgroupIsNamedOnce(t *testing.T) {
	in := at(0, 100, 50)
	in.Sample.Pods = append(in.Sample.Pods, in.Sample.Pods[0], tick.Pod{QoS: tick.QoSReclaimed, Cgroup: "batch"})
	a := &tick.Advice{}
	var st *State
	st.Advise(in, a, Settings{Class: Idle}, small)
	if len(a.Cgroups) != 1 || len(a.Fallback) != 1 {
		t.Errorf("named: %+v", a.Cgroups)
	}
}

// TestDefaultIsByTheKindOfPod: a batch cgroup is idle; pods in kubelet's tiers are left alone if Koordinator's schedIdle decides.
func TestDefaultIsByTheKindOfPod(t *testing.T) {
	for cgroup, onHosts := range map[string]string{
		"/batch.slice": Idle, "/batch": Idle, "/grid/jobs/1": Idle, "/kubepods-jobs": Idle, "/batch.slice/my-kubepods-job.service": Idle,
		"/kubepods/besteffort/pod1": None, "/node/kubepods/besteffort/pod1": None,
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podabc.slice":                           None,
		"/node.slice/node-kubepods.slice/node-kubepods-besteffort.slice/node-kubepods-besteffort-podabc.slice": None,
	} {
		p := tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: cgroup}
		if got := Of("", &p); got != Idle {
			t.Errorf("%s: class %s, want the idle class", cgroup, got)
		}
		if got := Of(IdleOnHosts, &p); got != onHosts {
			t.Errorf("%s: class %s on hosts alone, want %s", cgroup, got, onHosts)
		}
		if got := Of(Weight, &p); got != Weight {
			t.Errorf("%s: class %s, want what was set", cgroup, got)
		}
	}
	for _, source := range []string{"", tick.QoSFromKatalyst, tick.QoSFromKoordinator, tick.QoSFromKubernetes} {
		p := tick.Pod{QoS: tick.QoSReclaimed, QoSSource: source, Cgroup: "/pods/1"}
		if byDefault, onHosts := Of("", &p), Of(IdleOnHosts, &p); byDefault != Idle || onHosts != None {
			t.Errorf("source %q: class %s, on hosts alone %s; want the idle class and none", source, byDefault, onHosts)
		}
	}
}

// TestPodsThatCanBeResizedHaveNoClass: kubelet writes their weight, which the kernel refuses for an idle cgroup.
func TestPodsThatCanBeResizedHaveNoClass(t *testing.T) {
	pod := tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKatalyst, KubernetesQOS: "Burstable", Cgroup: "/kubepods/burstable/pod1"}
	for _, setting := range []string{"", Idle, Weight} {
		if got := Of(setting, &pod); got != None {
			t.Errorf("%q: class %s, want none", setting, got)
		}
		unknown := tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/kubepods/burstable/pod1"}
		if got := Of(setting, &unknown); got != None {
			t.Errorf("%q: class %s of a pod in kubelet's tier burstable without a cluster, want none", setting, got)
		}
	}
}

// TestBatchCgroups: cgroups above reclaimed pods that contain nothing else have the pods' class, so that services beside them get
// the CPU first; those that contain a service, are kubelet's, or are not paths have none.
func TestBatchCgroups(t *testing.T) {
	in := at(0, 100, 50)
	in.Sample.Pods = append(in.Sample.Pods,
		tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/grid/jobs/1"},
		tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/mixed/1"},
		tick.Pod{QoS: tick.QoSShared, QoSSource: tick.QoSFromRule, Cgroup: "/mixed/web"})
	in.Sample.BatchCgroups = []string{"/grid", "/grid/jobs", "/mixed", "/", "", "grid", "/kubepods/besteffort", "/n.slice/n-kubepods.slice"}
	a := &tick.Advice{}
	var st *State
	st = st.Advise(in, a, Settings{}, small)
	for _, cgroup := range []string{"/grid", "/grid/jobs", "/grid/jobs/1", "/mixed/1"} {
		if c := entryOf(t, a, cgroup); c == nil || c.CPUIdle == nil || !*c.CPUIdle {
			t.Errorf("%s: %+v; want cpuIdle", cgroup, c)
		}
	}
	for _, cgroup := range []string{"/mixed", "/mixed/web", "/", "", "grid", "/kubepods/besteffort", "/n.slice/n-kubepods.slice"} {
		if c := entryOf(t, a, cgroup); c != nil {
			t.Errorf("%s is advised: %+v", cgroup, c)
		}
	}
	if want := "batch class idle: 3 pods and 2 batch cgroups"; !slices.Contains(a.Reasons, want) {
		t.Errorf("reasons %q; want %q", a.Reasons, want)
	}
	a = &tick.Advice{}
	st.Advise(in, a, Settings{Class: None}, small)
	for _, cgroup := range []string{"/grid", "/grid/jobs"} {
		if c := entryOf(t, a, cgroup); c == nil || c.CPUIdle == nil || *c.CPUIdle {
			t.Errorf("%s without a class: %+v; want it undone", cgroup, c)
		}
	}
}

// TestReasonNamesCgroupWithBatchAndServices: for the kernel's own threads the two are one sibling. Batch in a top-level cgroup, alone below
// one, or in kubelet's cgroups is not named, nor is a pod that was batch before.
func TestReasonNamesCgroupWithBatchAndServices(t *testing.T) {
	const lab = "batch class: 1 batch cgroup below a cgroup that also contains services (/lab): the services can wait long for kernel threads " +
		"(disk, network), whatever the class; move batch to a top-level cgroup"
	for name, tt := range map[string]struct {
		cgroup string
		alone  []string
		class  string
		want   bool
	}{
		"at the top":                       {"/batch", nil, "", false},
		"below an unknown one":             {"/jobs/1", nil, "", false},
		"below one of its own at the top":  {"/grid/1", []string{"/grid"}, "", false},
		"below one with services":          {"/lab/1", nil, "", true},
		"its own, below one with services": {"/lab/grid/1", []string{"/lab/grid"}, "", true},
		"two levels below":                 {"/lab/grid/1", nil, "", true},
		"by weight":                        {"/lab/1", nil, Weight, true},
		"without a class":                  {"/lab/1", nil, None, false},
		"kubelet's":                        {"/kubepods/besteffort/podb", nil, Idle, false},
		"kubelet's slice":                  {"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podb.slice", nil, Idle, false},
	} {
		in := at(0, 100, 50)
		in.Sample.Pods[0].Cgroup, in.Sample.Pods[0].QoSSource, in.Sample.BatchCgroups = tt.cgroup, tick.QoSFromRule, tt.alone
		for _, service := range []string{"/lab/web", "/kubepods/besteffort/podw", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podw.slice"} {
			in.Sample.Pods = append(in.Sample.Pods, tick.Pod{UID: service, QoS: tick.QoSShared, Cgroup: service})
		}
		a := &tick.Advice{}
		var st *State
		st = st.Advise(in, a, Settings{Class: tt.class}, small)
		if slices.Contains(a.Reasons, lab) != tt.want {
			t.Errorf("%s: reasons %q; named should be %t", name, a.Reasons, tt.want)
		}
		in.Sample.Pods[0].QoS, in.Sample.BatchCgroups = tick.QoSShared, nil
		a = &tick.Advice{}
		if st.Advise(in, a, Settings{Class: tt.class}, small); len(a.Reasons) > 0 {
			t.Errorf("%s, a service by now: reasons %q", name, a.Reasons)
		}
	}
}

// TestClassIsUndoneWhenBatchLeftTheCgroup: the next pod in it is not in batch's class, whether a service joined or the last job ended.
func TestClassIsUndoneWhenBatchLeftTheCgroup(t *testing.T) {
	with := at(0, 100, 50)
	with.Sample.Pods[0].Cgroup, with.Sample.Pods[0].QoSSource, with.Sample.BatchCgroups = "/grid/1", tick.QoSFromRule, []string{"/grid"}
	var st *State
	st = st.Advise(with, &tick.Advice{}, Settings{}, small)
	encoded, err := json.Marshal(st) // also across a restart
	if err != nil {
		t.Fatal(err)
	}
	st = nil
	if err := json.Unmarshal(encoded, &st); err != nil {
		t.Fatal(err)
	}
	left := at(1, 100, 50)
	left.Sample.Pods = left.Sample.Pods[1:]
	const gap = 3600 // seconds without a tick
	for _, step := range []struct {
		seconds  int
		released bool
	}{{gap, true}, {gap + 1, true}, {gap - 1, true}, {gap + 58, true}, {gap + 59, false}, {gap + 60, false}} {
		left.Time = begin.Add(time.Duration(step.seconds) * time.Second)
		a := &tick.Advice{}
		st = st.Advise(left, a, Settings{}, small)
		c := entryOf(t, a, "/grid")
		if step.released != (c != nil) || c != nil && (c.CPUIdle == nil || *c.CPUIdle) {
			t.Errorf("after %d s: %+v", step.seconds, c)
		}
	}
	if st != nil {
		t.Errorf("remembered: %+v", st)
	}
}

// TestReasonNamesTheFirstCgroupWithServices: by name, so that the reason does not depend on the order of the pods.
func TestReasonNamesTheFirstCgroupWithServices(t *testing.T) {
	for _, order := range [][]string{{"/a", "/b"}, {"/b", "/a"}} {
		in := at(0, 100, 50)
		in.Sample.Pods = nil
		for _, parent := range order {
			in.Sample.Pods = append(in.Sample.Pods,
				tick.Pod{UID: parent, QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: parent + "/job"},
				tick.Pod{UID: parent + "s", QoS: tick.QoSShared, Cgroup: parent + "/web"})
		}
		a := &tick.Advice{}
		var st *State
		st.Advise(in, a, Settings{}, small)
		if text := strings.Join(a.Reasons, "\n"); !strings.Contains(text, "2 batch cgroups below a cgroup that also contains services (/a):") {
			t.Errorf("in the order %q: %s", order, text)
		}
	}
}
