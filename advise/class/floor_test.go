package class

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

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

// TestStarvingBeforeAPause: batch that starved before some time without a tick, and starves after it, has not starved for all of it.
func TestStarvingBeforeAPause(t *testing.T) {
	for _, tt := range []struct {
		seconds  []int
		interval float64
		starved  bool
	}{{[]int{0, 1, 61}, 1, false}, {[]int{0, 1, 61, 70}, 1, false}, {[]int{0, 1, 61, 71}, 1, true}, {[]int{0, 60}, 60, true}} {
		var st *State
		var a *tick.Advice
		for _, second := range tt.seconds {
			in := at(second, 2000, 20)
			in.Sample.PeriodSeconds = &tt.interval
			a = &tick.Advice{}
			st = st.Advise(in, a, Settings{Class: Idle}, small)
		}
		t.Log(tt.seconds)
		wantClass(t, a, !tt.starved, map[bool]int64{true: 12, false: 1}[tt.starved])
	}
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

// TestUnknownUseIsNotStarving: an unknown value is not 0. It begins no floor's weight, and ends none.
func TestUnknownUseIsNotStarving(t *testing.T) {
	for _, tt := range []struct {
		st     *State
		isIdle bool
		weight int64
	}{{nil, true, 1}, {&State{RelievedAt: begin, Weight: 24}, false, 24}} {
		for seconds := range 60 {
			now := at(seconds, 2000, 0)
			if seconds%2 == 0 {
				now.Sample.Pods[0].UsageMilliCPU = nil
			} else {
				now.Sample.CPU = nil
			}
			a := &tick.Advice{}
			tt.st = tt.st.Advise(now, a, Settings{Class: Idle}, small)
			wantClass(t, a, tt.isIdle, tt.weight)
			if a.BatchStarved != nil {
				t.Errorf("batchStarved is %v, of what is unknown", *a.BatchStarved)
			}
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

// TestOnlyBatchWithWorkStarves: batch that sleeps does not, and neither does a busy thread that has a CPU for itself on a machine with a
// floor of many CPUs.
func TestOnlyBatchWithWorkStarves(t *testing.T) {
	large := Machine{MilliCPU: 48_000, FloorMilliCPU: 4800, CgroupVersion: 2}
	for name, tt := range map[string]struct {
		machine Machine
		use     float64
		load    *float64
		starves bool
		reason  string
	}{
		"it sleeps": {small, 0, new(0.0), false, ""},
		"it has slept, and wakes": {
			small, 0, new(0.1), true,
			"batch starves: it has 0m of the 50m that its runnable threads need (its floor is 200m) on a full machine",
		},
		"a thread that hardly runs":  {small, 4, new(1.0), true, "batch starves: it has 4m of its floor of 200m on a full machine"},
		"its load is unknown":        {small, 4, nil, true, "batch starves: it has 4m of its floor of 200m on a full machine"},
		"one busy thread":            {large, 990, new(1.0), false, ""},
		"one thread that often runs": {large, 500, new(1.0), false, ""},
		"one that seldom runs": {
			large, 499, new(1.0), true,
			"batch starves: it has 499m of the 500m that its runnable threads need (its floor is 4800m) on a full machine",
		},
		"many threads at the floor": {large, 4800, new(48.0), false, ""},
		"many threads below it":     {large, 4799, new(48.0), true, "batch starves: it has 4799m of its floor of 4800m on a full machine"},
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
