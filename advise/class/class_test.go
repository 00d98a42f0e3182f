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

// TestFloorIsKept: batch that starves on a full machine gets the floor's weight after some time, keeps it until the services leave room,
// and then is idle again.
func TestFloorIsKept(t *testing.T) {
	var st *State
	step := func(seconds int, all, batch float64) *tick.Advice {
		a := &tick.Advice{}
		st = st.Advise(at(seconds, all, batch), a, Settings{Class: Idle}, small)
		if want := all == 2000 && batch < 200; a.BatchStarved == nil || *a.BatchStarved != want {
			t.Errorf("after %d s, with %vm of %vm: batchStarved is not %v", seconds, batch, all, want)
		}
		return a
	}
	wantClass(t, step(0, 2000, 20), true, 1)
	a := step(9, 2000, 20)
	wantClass(t, a, true, 1)
	if !strings.Contains(strings.Join(a.Reasons, "\n"), "batch starves: it has 20m of its floor of 200m on a full machine, for 9s") {
		t.Errorf("reasons %q", a.Reasons)
	}
	wantClass(t, step(10, 2000, 20), false, 12) // 12 / 112 of 2000m is 214m
	wantClass(t, step(39, 600, 200), false, 12) // there is room, but not long enough
	wantClass(t, step(60, 2000, 214), false, 12)
	wantClass(t, step(61, 2000, 399), false, 12) // services use 1601m: less than twice the floor is left
	wantClass(t, step(62, 1500, 0), true, 1)
	wantClass(t, step(63, 2000, 150), true, 1)
	wantClass(t, step(72, 2000, 250), true, 1) // it had its floor in between
	wantClass(t, step(74, 2000, 150), true, 1)
	wantClass(t, step(83, 2000, 150), true, 1)
	wantClass(t, step(84, 2000, 150), false, 12)
}

// TestBatchStarvesBelowItsFloorOnAFullMachine: full from 97 % on, and below the floor, not at it. Without a floor it is unknown.
func TestBatchStarvesBelowItsFloorOnAFullMachine(t *testing.T) {
	for _, tt := range []struct {
		all, batch float64
		want       bool
	}{{1940, 199, true}, {1939, 199, false}, {1940, 200, false}} {
		a := &tick.Advice{}
		st := &State{StarvingSince: begin}
		st.Advise(at(10, tt.all, tt.batch), a, Settings{Class: Idle}, small)
		wantClass(t, a, !tt.want, map[bool]int64{true: 12, false: 1}[tt.want])
		if a.BatchStarved == nil || *a.BatchStarved != tt.want {
			t.Errorf("batch has %vm of %vm in use: batchStarved is not %t", tt.batch, tt.all, tt.want)
		}
	}
	a := &tick.Advice{}
	new(State).Advise(at(0, 2000, 0), a, Settings{Class: Idle}, Machine{})
	if a.BatchStarved != nil {
		t.Errorf("batchStarved is %t on a machine whose floor is unknown", *a.BatchStarved)
	}
}

// TestFloorsWeightEnds: after 30 s, if the services leave twice the floor; batch's own use does not count as the services'.
func TestFloorsWeightEnds(t *testing.T) {
	for _, tt := range []struct {
		seconds    int
		all, batch float64
		ends       bool
	}{{29, 600, 200, false}, {30, 600, 200, true}, {30, 2000, 399, false}, {30, 2000, 400, true}} {
		a := &tick.Advice{}
		st := &State{RelievedAt: begin, Weight: 12}
		st.Advise(at(tt.seconds, tt.all, tt.batch), a, Settings{Class: Idle}, small)
		wantClass(t, a, tt.ends, map[bool]int64{true: 1, false: 12}[tt.ends])
		if tt.batch == 399 {
			want := "batch class: weight 12 until the services leave 400m: they use 1601m of 2000m, batch has 399m of its floor of 200m"
			if diff := cmp.Diff([]string{want}, a.Reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
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
		"/batch.slice": Idle, "/batch": Idle, "/grid/jobs/1": Idle,
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

// TestStarvingUnderKubelet: it is reported, and the pods stay idle, because their weights only count among themselves. Batch outside of
// kubelet's cgroups still gets the weight of its floor.
func TestStarvingUnderKubelet(t *testing.T) {
	const pod = "/kubepods/besteffort/pod1"
	for _, both := range []bool{false, true} {
		var st *State
		var a *tick.Advice
		for _, second := range []int{0, 10, 20} {
			in := at(second, 2000, 100)
			beside := in.Sample.Pods[0]
			in.Sample.Pods[0].Cgroup = pod
			if both {
				in.Sample.Pods = append(in.Sample.Pods, beside)
				in.Sample.Pods[0].UsageMilliCPU = new(50.0)
			}
			a = &tick.Advice{}
			st = st.Advise(in, a, Settings{}, small)
			if a.BatchStarved == nil || !*a.BatchStarved {
				t.Errorf("batchStarved is not true: %+v", a)
			}
			if c := entryOf(t, a, pod); c == nil || !*c.CPUIdle || *c.CPUWeight != 1 {
				t.Errorf("after %d s: %+v, want the idle class", second, c)
			}
			if !both && !strings.HasPrefix(a.Reasons[0], "batch starves: it has 100m of its floor of 200m") {
				t.Errorf("reasons %q do not name it", a.Reasons)
			}
		}
		if both {
			wantClass(t, a, false, 24) // doubled once, because batch has less than nine tenths of its floor
		}
	}
}

// TestWeightFollowsTheFloor: beside many busy siblings the first weight is too small, and later too large.
func TestWeightFollowsTheFloor(t *testing.T) {
	var st *State
	for _, step := range []struct {
		seconds    int
		all, batch float64
		idle       bool
		weight     int64
	}{
		{0, 2000, 0, true, 1},
		{10, 2000, 0, false, 12},
		{11, 2000, 20, false, 24},
		{12, 2000, 60, false, 48},
		{13, 2000, 120, false, 96},
		{14, 2000, 170, false, 100},
		{15, 2000, 179, false, 100},
		{16, 2000, 180, false, 100},
		{17, 1000, 10, false, 100},
		{18, 2000, 500, false, 50},
		{19, 2000, 400, false, 50},
		{20, 2000, 401, false, 25},
		{21, 2000, 900, false, 12},
		{22, 2000, 900, false, 12},
		{23, 2000, 180, false, 12},
	} {
		a := &tick.Advice{}
		st = st.Advise(at(step.seconds, step.all, step.batch), a, Settings{Class: Idle}, small)
		if c := entryOf(t, a, "/batch"); *c.CPUIdle != step.idle || *c.CPUWeight != step.weight {
			t.Errorf("%+v: cpuIdle %t, cpuWeight %d", step, *c.CPUIdle, *c.CPUWeight)
		}
	}
}

// TestUnknownUseIsNotStarving: an unknown value is not 0.
func TestUnknownUseIsNotStarving(t *testing.T) {
	var st *State
	for seconds := range 60 {
		now := at(seconds, 2000, 0)
		if seconds%2 == 0 {
			now.Sample.Pods[0].UsageMilliCPU = nil
		} else {
			now.Sample.CPU = nil
		}
		a := &tick.Advice{}
		st = st.Advise(now, a, Settings{Class: Idle}, small)
		wantClass(t, a, true, 1)
		if a.BatchStarved != nil {
			t.Errorf("batchStarved is %v, of what is unknown", *a.BatchStarved)
		}
	}
}

// TestFloorWeight: the weight gives the floor beside one busy sibling, on version 1 after isolate's conversion to shares.
func TestFloorWeight(t *testing.T) {
	for _, tt := range []struct {
		m    Machine
		want int64
	}{
		{Machine{2000, 200, 2}, 12},
		{Machine{2000, 200, 1}, 18}, // about 114 shares of 1024
		{Machine{48000, 4000, 2}, 10},
		{Machine{4000, 4000, 2}, 100}, // never more than the services' weight
		{Machine{0, 4000, 2}, 100},
		{Machine{48000, 1, 2}, 1},
	} {
		if got := tt.m.floorWeight(); got != tt.want {
			t.Errorf("%+v: weight %d, want %d", tt.m, got, tt.want)
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

// TestAClockSetBackEndsTheFloorsWeight: a time in the future is ignored, otherwise batch would keep the weight until then.
func TestAClockSetBackEndsTheFloorsWeight(t *testing.T) {
	for _, tt := range []struct {
		st      State
		relieve bool
	}{
		{State{RelievedAt: begin.Add(2 * time.Second), Weight: 12}, false},
		{State{RelievedAt: begin.Add(time.Second), Weight: 12}, true},
		{State{RelievedAt: begin, Weight: 12, StarvingSince: begin.Add(2 * time.Second)}, false},
	} {
		a := &tick.Advice{}
		st := tt.st
		st.Advise(at(1, 2000, 200), a, Settings{Class: Idle}, small)
		wantClass(t, a, !tt.relieve, map[bool]int64{true: 12, false: 1}[tt.relieve])
		if st.RelievedAt.IsZero() == tt.relieve {
			t.Errorf("%+v: relieved at %s", tt.st, st.RelievedAt)
		}
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

// TestIdlePodHidesNoStarving: a batch pod that runs nothing, as one whose image cannot be pulled, uses 0.
func TestIdlePodHidesNoStarving(t *testing.T) {
	now := at(0, 2000, 0)
	waiting := tick.Pod{UID: "waiting", Namespace: "shop", Name: "waiting", QoS: tick.QoSReclaimed, Cgroup: "/waiting"}
	now.Sample.Pods = append(now.Sample.Pods, waiting)
	a := &tick.Advice{}
	var st *State
	st.Advise(now, a, Settings{Class: Idle}, small)
	if a.BatchStarved == nil || !*a.BatchStarved {
		t.Errorf("batchStarved is %v; want true: batch uses 0 of a full machine", a.BatchStarved)
	}
}

// TestOnlyBatchWithWorkStarves: batch that sleeps does not, and neither does a busy thread that has a CPU for itself on a machine with a floor
// of many CPUs.
func TestOnlyBatchWithWorkStarves(t *testing.T) {
	large := Machine{MilliCPU: 48_000, FloorMilliCPU: 4800, CgroupVersion: 2}
	for name, tt := range map[string]struct {
		machine Machine
		use     float64
		load    *float64
		starves bool
		reason  string
	}{
		"it sleeps":                  {small, 0, new(0.0), false, ""},
		"it has slept, and wakes":    {small, 0, new(0.1), true, "batch starves: it has 0m of the 50m that its runnable threads need (its floor is 200m) on a full machine"},
		"a thread that hardly runs":  {small, 4, new(1.0), true, "batch starves: it has 4m of its floor of 200m on a full machine"},
		"its load is unknown":        {small, 4, nil, true, "batch starves: it has 4m of its floor of 200m on a full machine"},
		"one busy thread":            {large, 990, new(1.0), false, ""},
		"one thread that often runs": {large, 500, new(1.0), false, ""},
		"one that seldom runs":       {large, 499, new(1.0), true, "batch starves: it has 499m of the 500m that its runnable threads need (its floor is 4800m) on a full machine"},
		"many threads at the floor":  {large, 4800, new(48.0), false, ""},
		"many threads below it":      {large, 4799, new(48.0), true, "batch starves: it has 4799m of its floor of 4800m on a full machine"},
	} {
		x := at(0, float64(tt.machine.MilliCPU), tt.use)
		x.Sample.Pods[0].Load1 = tt.load
		var a tick.Advice
		var st *State
		st.Advise(x, &a, Settings{Class: Idle}, tt.machine)
		if a.BatchStarved == nil || *a.BatchStarved != tt.starves || !strings.HasPrefix(a.Reasons[0], tt.reason) {
			t.Errorf("%s: starved %v, reasons %q; want %t, %q", name, a.BatchStarved, a.Reasons, tt.starves, tt.reason)
		}
	}
}

// TestWeightOfSleepingBatch: while batch sleeps its weight does not rise, so that it does not wake with that of a service.
func TestWeightOfSleepingBatch(t *testing.T) {
	st := &State{RelievedAt: begin, Weight: 12}
	for i := range 20 {
		x := at(i, 2000, 0)
		x.Sample.Pods[0].Load1 = new(0.0)
		st = st.Advise(x, &tick.Advice{}, Settings{Class: Idle}, small)
	}
	if st.Weight != 12 {
		t.Errorf("the weight is %d; want 12", st.Weight)
	}
}
