package guard

import (
	"fmt"
	"math"
	"testing"
	"time"

	"polder/advise/class"
	"polder/advise/policy"
	"polder/lib/tick"
)

// A waiting that is not a valid part of the time is unknown, neither long nor short.
func TestWaitingOutOfBoundsIsUnknown(t *testing.T) {
	pressure := func(avg10 float64) *tick.Pressure { return &tick.Pressure{Some: &tick.PressureLine{Avg10: avg10}} }
	for wait, want := range map[float64]float64{-1: 300, 0: 0, 5: 5, maxPermille: maxPermille, 1e9: maxPermille, 1e10: 300} {
		if got := waitingsOf(&tick.Pod{CPUWaitPermille: &wait, CPUPressure: pressure(30)}); got != [3]float64{want, -1, -1} {
			t.Errorf("a waiting of %v: %v; want %v", wait, got, want)
		}
	}
}

// The levels of a service's use double from 50 milli-CPU on, and there is a last one.
func TestLevelOfAServicesUse(t *testing.T) {
	for use, want := range map[float64]int{-1: 0, 0: 0, 50: 0, 51: 1, 100: 1, 101: 2, 50 << 11: 11, 1e12: 11} {
		if got := levelOf(&use); got != want {
			t.Errorf("%vm: level %d; want %d", use, got, want)
		}
	}
	if got := levelOf(nil); got != -1 {
		t.Errorf("unknown: level %d; want -1", got)
	}
}

// The service that counts is the one that waits longest relative to its own target, in any order.
func TestTheLongestWaitingIsAgainstItsTarget(t *testing.T) {
	w := func(name string, permille, target, calm float64) waiting {
		return waiting{permille: permille, target: target, revertBelow: calm, pod: &tick.Pod{Namespace: "n", Name: name}}
	}
	for _, tt := range []struct {
		first, second waiting
		want          string
	}{
		{w("a", 200, 100, 80), w("b", 100, 20, 10), "n/b"},
		{w("b", 100, 20, 10), w("a", 200, 100, 80), "n/b"},
		{w("a", 200, 100, 80), w("b", 40, 20, 10), "n/a"}, // as long as the first
		{w("a", 80, 100, 80), w("b", 10, 20, 10), ""},     // both are calm
		{w("a", 81, 100, 80), w("b", 10, 20, 10), "n/a"},
	} {
		worst := worse(worse(nil, tt.first), tt.second)
		got := ""
		if worst != nil {
			got = worst.name
		}
		if got != tt.want {
			t.Errorf("%v and %v: %q; want %q", &tt.first, &tt.second, got, tt.want)
		}
	}
}

// A configured target applies; else that of a service without history is 10 %, unless it waits less than half the margin.
func TestTargetOfAServiceThatIsNotKnown(t *testing.T) {
	for _, tt := range []struct{ set, permille, target, calm float64 }{
		{0, 10, 20, 10}, {0, 10.5, 100, 80}, {0, 500, 100, 80}, {50, 5, 50, 40}, {50, 500, 50, 40},
	} {
		w := (*service)(nil).compare(0, 0, tt.permille, Settings{TargetPermille: tt.set, MarginPermille: 20})
		if w.target != tt.target || w.revertBelow != tt.calm {
			t.Errorf("%+v: target %v, calm up to %v", tt, w.target, w.revertBelow)
		}
	}
}

// A service that was observed ten times at a level of its use has a waiting of its own there; at a higher level it may wait twice as long
// for each level between, and at a lower or unknown one as long.
func TestAServicesOwnWaiting(t *testing.T) {
	var st State
	w := &waiting{permille: 50, resourceIndex: 0, level: 1, pod: &tick.Pod{UID: "u"}}
	var one *service
	for range minObservations - 1 {
		one = st.learn(w, one, time.Time{}, begin)
	}
	if got, sure := one.ownWaiting(0, 1); got != 0 || sure {
		t.Errorf("seen nine times: %v, %v; want nothing known", got, sure)
	}
	one = st.learn(w, one, time.Time{}, begin)
	at, sure := one.ownWaiting(0, 1)
	if !sure || at < 50 || at > 60 {
		t.Errorf("seen ten times: %v, %v; want some 50", at, sure)
	}
	for level, want := range map[int]float64{-1: at, 0: at, 2: 2 * at, 4: 8 * at} {
		if got, sure := one.ownWaiting(0, level); got != want || sure {
			t.Errorf("level %d: %v, %v; want %v, which is not sure", level, got, sure, want)
		}
	}
	if got, sure := one.ownWaiting(1, 1); got != 0 || sure {
		t.Errorf("of memory: %v, %v; want nothing known", got, sure)
	}
}

// Values of a state file are brought within their bounds.
func TestAStateFilesNumbersAreBounded(t *testing.T) {
	for hold, want := range map[time.Duration]time.Duration{
		-1: firstHold, 0: firstHold, firstHold + 1: firstHold + 1, maxHold: maxHold, 48 * time.Hour: maxHold,
	} {
		st := &State{Hold: hold}
		if st.sanitize(begin); st.Hold != want {
			t.Errorf("hold-down %s became %s; want %s", hold, st.Hold, want)
		}
	}
	for ticks, want := range map[int]int{-5: 0, 2: 2, 99: takeTicks} {
		st := &State{OverTicks: ticks}
		if st.sanitize(begin); st.OverTicks != want {
			t.Errorf("%d ticks became %d; want %d", ticks, st.OverTicks, want)
		}
	}
	for _, tt := range []struct{ hold, ahead, want time.Duration }{
		{firstHold, firstHold, firstHold},
		{firstHold, firstHold + 1, firstHold}, // the clock was set back
		{0, time.Hour, firstHold},
		{4 * firstHold, time.Hour, 4 * firstHold},
		{maxHold + 1, maxHold + 1, maxHold},
		{firstHold, -time.Second, -time.Second},
	} {
		st := &State{Hold: tt.hold, NoStepUntil: begin.Add(tt.ahead)}
		if st.sanitize(begin); !st.NoStepUntil.Equal(begin.Add(tt.want)) {
			t.Errorf("hold-down %s, no step is taken for %s: became %s; want %s", tt.hold, tt.ahead, st.NoStepUntil.Sub(begin), tt.want)
		}
	}
	none := &State{}
	if none.sanitize(begin); !none.NoStepUntil.IsZero() {
		t.Errorf("no step is taken until %s; want the zero time", none.NoStepUntil)
	}
	st := &State{
		Batch: map[string]*applied{"/a": {Base: -1, Floor: 1 << 60, Bytes: 1 << 60, Rates: rates{-1, 1 << 60, 5}}, "/b": nil},
		Steps: []step{{Kind: kindCPUs}, {Kind: "x"}, {Kind: kindCPUs}, {Kind: kindCPUs}, {Kind: kindMemory}, {Kind: kindCPUs}},
	}
	st.sanitize(begin)
	if got, want := *st.Batch["/a"], (applied{Floor: maxMilliCPU, Bytes: 1 << 53, Rates: rates{0, maxRate, 5}}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
	if got := st.stepsTaken(kindCPUs); got != 3 || len(st.Steps) != 4 {
		t.Errorf("%d steps of CPUs, %d in all; want 3 and 4", got, len(st.Steps))
	}
}

// The hold-down doubles, up to a day, if a step is taken again within ten minutes or within the hold-down after a revert. The first step of
// another load has the first hold-down.
func TestHoldDownDoublesAfterARepeatedStep(t *testing.T) {
	for _, tt := range []struct {
		hold, ago time.Duration // ago 0: none was reverted
		steps     int
		want      time.Duration
	}{
		{30 * time.Second, 10*time.Minute - 1, 2, time.Minute},
		{30 * time.Second, 10 * time.Minute, 2, 30 * time.Second},
		{time.Hour, time.Hour - 1, 1, 2 * time.Hour},
		{time.Hour, time.Hour, 2, time.Hour},
		{time.Hour, time.Hour, 1, firstHold},
		{20 * time.Hour, time.Minute, 1, maxHold},
		{time.Hour, 0, 1, firstHold},
		{time.Hour, 0, 2, time.Hour},
	} {
		st := &State{Hold: tt.hold, Steps: make([]step, tt.steps)}
		if tt.ago > 0 {
			st.RevertedAt = begin.Add(-tt.ago)
		}
		if st.updateHold(begin); st.Hold != tt.want {
			t.Errorf("%+v: hold-down %s", tt, st.Hold)
		}
	}
}

// The load has changed if the services use less than three quarters of their use at the last step, as far as that is known.
func TestWhenTheLoadHasFallen(t *testing.T) {
	for _, tt := range []struct {
		previous, current float64
		want              bool
	}{{1000, 749, true}, {1000, 750, false}, {1000, 0, true}, {1000, -1, false}, {0, 0, false}, {-1, 100, false}} {
		st, v := &State{Steps: []step{{Use: 1}, {Use: tt.previous}}}, &view{services: 1, serviceUse: tt.current}
		if got := st.loadFell(v); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A step of disk leaves a part of the excess over the least, and never less than the least.
func TestDiskRatesAfterSteps(t *testing.T) {
	previous := rates{301 << 20, 0, 32, 35}
	for steps, want := range []rates{
		{301 << 20, 1 << 20, 32, 35}, {201 << 20, 1 << 20, 32, 34}, {101 << 20, 1 << 20, 32, 33}, minDiskRates, minDiskRates,
	} {
		if got := previous.afterSteps(steps); got != want {
			t.Errorf("%d steps: %v; want %v", steps, got, want)
		}
	}
}

// Batch uses disks if its total exceeds the least of one kind.
func TestBatchUsesDisksOverTheLeast(t *testing.T) {
	for _, tt := range []struct {
		disks []rates
		want  bool
	}{
		{nil, false},
		{[]rates{minDiskRates}, false},
		{[]rates{{1<<20 + 1}}, true},
		{[]rates{{0, 0, 0, 33}}, true},
		{[]rates{{0, 600 << 10}, {0, 600 << 10}}, true},
	} {
		v := &view{disks: map[string]rates{}}
		for i, r := range tt.disks {
			v.disks[fmt.Sprint("/", i)] = r
		}
		if got := v.usesDisks(); got != tt.want {
			t.Errorf("%v: %v", tt.disks, got)
		}
	}
}

// A pod's rates are known if one of them is; NaN becomes 0, and a rate that no disk can have is bounded.
func TestRatesOfAPod(t *testing.T) {
	for _, tt := range []struct {
		io    *tick.IO
		want  rates
		known bool
	}{
		{nil, rates{}, false},
		{&tick.IO{}, rates{}, false},
		{&tick.IO{ReadsPerSecond: new(7.9)}, rates{0, 0, 7, 0}, true},
		{&tick.IO{ReadBytesPerSecond: new(-1.0), WriteBytesPerSecond: new(1e300), WritesPerSecond: new(math.NaN())}, rates{0, 1e12, 0, 0}, true},
	} {
		got, known := ratesOf(tt.io)
		if tt.want[1] > 0 { // more than any disk can do
			if got[1] <= 0 || got[1] > maxRate {
				t.Errorf("%+v: %v", tt.io, got)
			}
			got[1] = tt.want[1]
		}
		if got != tt.want || known != tt.known {
			t.Errorf("%+v: %v, %v; want %v, %v", tt.io, got, known, tt.want, tt.known)
		}
	}
}

// No step leaves a batch pod less memory than 128 MiB.
func TestBatchKeepsTheLeastMemory(t *testing.T) {
	waits := web(0, 1000)
	waits.MemoryPressure = &tick.Pressure{Some: &tick.PressureLine{Avg10: 30}}
	for mebi, want := range map[float64]string{64: "/job 128Mi, /job 128Mi", 130: "/job 130Mi, /job 128Mi"} {
		p := job("job", 700)
		p.Memory = &tick.Memory{UsageBytes: new(mebi * (1 << 20))}
		r := &fixture{version: 2}
		first := entries(r.times(7, waits, p).Cgroups)
		if got := first + ", " + entries(r.times(6, waits, p).Cgroups); got != want {
			t.Errorf("%v MiB: %s; want %s", mebi, got, want)
		}
	}
}

// Batch's floor is divided by use; a cgroup that uses almost nothing keeps a quarter of an equal part, and the policy's fallback is the
// floor if there is one.
func TestFloorAndBase(t *testing.T) {
	for _, tt := range []struct {
		name               string
		use, limit         float64
		fallback           *int64
		floor, base, machs int64
	}{
		{"three quarters of the use", 3000, 0, nil, 600, 3000, 800},
		{"a quarter", 1000, 0, nil, 200, 1000, 800},
		{"almost nothing", 100, 0, nil, 100, 100, 800},
		{"nothing", 0, 0, nil, 100, 100, 800},
		{"unknown", -1, 0, nil, 100, 100, 800},
		{"within its limit", 3000, 2000, nil, 600, 2000, 800},
		{"a limit under the floor", 3000, 500, nil, 600, 600, 800},
		{"a floor of almost nothing", 0, 0, nil, policy.MinQuotaMilliCPU, policy.MinQuotaMilliCPU, 8},
		{"the policy's floor", 3000, 0, new(int64(50)), 50, 3000, 800},
		{"no quota in the fallback", 3000, 0, new(int64(tick.Unlimited)), 600, 3000, 800},
	} {
		d := draft{policy.NewDraft(&tick.Advice{Fallback: []tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: tt.fallback}}})}
		floor, base := d.floorAndBase(&group{cgroup: "/a", use: tt.use, limit: tt.limit}, 4000, 2, class.Machine{FloorMilliCPU: tt.machs})
		if floor != tt.floor || base != tt.base {
			t.Errorf("%s: floor %dm of %dm; want %dm of %dm", tt.name, floor, base, tt.floor, tt.base)
		}
	}
}

// Services that were absent for more than an hour are forgotten, and a time in the future becomes now.
func TestServicesAreForgottenAfterAnHour(t *testing.T) {
	st := &State{Services: map[string]*service{
		"here": {SeenAt: begin.Add(-forgetAfter)}, "gone": {SeenAt: begin.Add(-forgetAfter - 1)}, "null": nil,
		"ahead": {SeenAt: begin.Add(1), LearnedAt: begin},
	}}
	st.expire(begin)
	ahead := st.Services["ahead"]
	if len(st.Services) != 2 || st.Services["here"] == nil || !ahead.SeenAt.Equal(begin) || !ahead.LearnedAt.IsZero() {
		t.Errorf("left: %+v", st.Services)
	}
}

// The waiting of every running pod that is not batch counts, whether the API server knows the pod or not.
func TestIsService(t *testing.T) {
	for _, tt := range []struct {
		pod  tick.Pod
		want bool
	}{
		{tick.Pod{QoS: tick.QoSShared}, true},
		{tick.Pod{QoS: tick.QoSShared, Missing: tick.MissingCluster}, true},
		{tick.Pod{QoS: tick.QoSShared, Missing: tick.MissingCgroup}, false},
		{tick.Pod{QoS: tick.QoSShared, Phase: "Succeeded"}, false},
		{tick.Pod{QoS: tick.QoSReclaimed}, false},
	} {
		if got := isService(&tt.pod); got != tt.want {
			t.Errorf("%+v: %v", tt.pod, got)
		}
	}
}

// Nothing is taken from a batch pod that does not exist, that the cluster has deleted, or whose cgroup cannot be named. The use of a
// deleted one that still runs counts.
func TestViewOfBatch(t *testing.T) {
	use := 100.0
	pod := func(cgroup, missing string) tick.Pod {
		return tick.Pod{QoS: tick.QoSReclaimed, Cgroup: cgroup, Missing: missing, UsageMilliCPU: &use}
	}
	v := newView(&tick.Sample{Pods: []tick.Pod{
		pod("/a", ""), pod("/", ""), pod("b", ""), pod("/c", tick.MissingCluster), pod("/d", tick.MissingCgroup),
	}})
	if v.pods != 2 || v.batchUse != 300 || len(v.groups) != 1 || len(v.podCgroups) != 1 || !v.podCgroups["/a"] {
		t.Errorf("%d pods, use %vm, groups %+v, disks of %v; want that of /a, and the use of the top and /c as well",
			v.pods, v.batchUse, v.groups, v.podCgroups)
	}
}

// hasLearned reports whether a waiting counts as a service's own.
func (st *State) hasLearned() bool {
	for _, s := range st.Services {
		if len(s.CPU)+len(s.Memory)+len(s.IO) > 0 {
			return true
		}
	}
	return false
}

// A service's waiting while batch is at its floor, if it is long, counts as its own after some time; a short one teaches nothing, because
// batch still runs beside it.
func TestWhatIsLearnedAtBatchsFloor(t *testing.T) {
	for _, tt := range []struct {
		name      string
		waits     float64
		exhausted time.Duration // since when no further step is possible; 0 if one is
		want      bool
	}{
		{"a long waiting", 300, learnAfter, true},
		{"a long waiting, not for long", 300, learnAfter - time.Second, false},
		{"a long waiting, and there is something left to take", 300, 0, false},
		{"a waiting over half of the margin", DefaultMarginPermille/2 + 1, learnAfter, false},
		{"a waiting at its target", firstTargetPermille, learnAfter, false},
		{"a short waiting", 1, learnAfter, false},
	} {
		st := &State{}
		if tt.exhausted > 0 {
			st.ExhaustedSince = begin.Add(-tt.exhausted)
		}
		x := &tick.Tick{Time: begin, Sample: &tick.Sample{Pods: []tick.Pod{web(tt.waits, 1000)}}}
		v := &view{batchKnown: true, batchUse: 6000}
		w := st.compare(x, &tick.Advice{}, v, Settings{MarginPermille: DefaultMarginPermille}, class.Machine{MilliCPU: 8000})
		if got := st.hasLearned(); got != tt.want {
			t.Errorf("%s: learned is %t, %+v", tt.name, got, w)
		}
	}
}
