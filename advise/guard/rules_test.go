package guard

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"testing"
	"time"

	"polder/advise/class"
	"polder/advise/policy"
	"polder/lib/tick"
)

// A verdict compares the mean waiting of the last few ticks, which starts again each time that a service exceeds its target.
func TestMeanOfTheWaiting(t *testing.T) {
	st, now := &State{}, begin
	for i, tt := range []struct{ permille, want float64 }{{100, 100}, {190, 130}, {40, 100}, {0, 0}, {50, 50}} {
		var worst *waiting
		if tt.permille > 0 {
			worst = &waiting{name: "web", resource: resourceCPU, permille: tt.permille, target: 20}
		}
		now = now.Add(time.Second)
		st.decide(now, &tick.Advice{}, &view{pods: 1, batchKnown: true}, worst, "")
		if math.Abs(st.MeanPermille-tt.want) > 1e-9 {
			t.Errorf("tick %d: mean %v; want %v", i, st.MeanPermille, tt.want)
		}
	}
}

// The next step is of disks only if a service waits for I/O, of CPUs only if batch itself has a list, and of no kind more often than its
// maximum.
func TestWhichStepIsNext(t *testing.T) {
	lists := &tick.Advice{
		Cgroups:  []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "0-7"}, {Cgroup: "/web", CPUSetCPUs: "0-7"}},
		Fallback: []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "0"}},
	}
	services := &tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/web", CPUSetCPUs: "0-7"}}}
	steps := func(kinds ...string) (list []step) {
		for _, kind := range kinds {
			for range stepsOf[kind] {
				list = append(list, step{Kind: kind})
			}
		}
		return list
	}
	for name, tt := range map[string]struct {
		resource string
		version  int
		advice   *tick.Advice
		steps    []step
		want     string
	}{
		"I/O":                                     {resourceIO, 2, lists, nil, kindDisk},
		"I/O on version 1":                        {resourceIO, 1, lists, nil, kindCPUs},
		"I/O, all of disks is taken":              {resourceIO, 2, lists, steps(kindDisk), kindCPUs},
		"a CPU, though batch uses disks":          {resourceCPU, 2, lists, nil, kindCPUs},
		"memory, though batch uses disks":         {resourceMemory, 2, lists, nil, kindCPUs},
		"a CPU, all CPUs are taken":               {resourceCPU, 2, lists, steps(kindCPUs), kindQuota},
		"a CPU, and services alone have lists":    {resourceCPU, 2, services, nil, kindQuota},
		"a CPU, all is taken but memory":          {resourceCPU, 2, lists, steps(kindCPUs, kindQuota), ""},
		"memory, all is taken but memory":         {resourceMemory, 2, lists, steps(kindCPUs, kindQuota), kindMemory},
		"memory on version 1, all else is taken":  {resourceMemory, 1, lists, steps(kindCPUs, kindQuota), ""},
		"I/O, all is taken but memory":            {resourceIO, 2, lists, steps(kindDisk, kindCPUs, kindQuota), kindMemory},
		"I/O, all is taken":                       {resourceIO, 2, lists, steps(kindDisk, kindCPUs, kindQuota, kindMemory), ""},
		"nothing, for it waits no longer than so": {"", 2, lists, nil, ""},
	} {
		p := job("job", 6000)
		p.Memory = &tick.Memory{UsageBytes: new(float64(1 << 30))}
		p.IO = &tick.IO{WriteBytesPerSecond: new(float64(300 << 20))}
		v := newView(&tick.Sample{Topology: &tick.Topology{CPUs: "0-7"}, Pods: []tick.Pod{p, web(300, 1000)}})
		worst := &waiting{resource: tt.resource, permille: 300, target: 20}
		if tt.resource == "" {
			worst.target = 300
		}
		st := &State{Steps: tt.steps}
		if got := st.nextKind(tt.advice, &v, worst, Settings{Disk: On}, class.Machine{MilliCPU: 8000, FloorMilliCPU: 800, CgroupVersion: tt.version}); got != tt.want {
			t.Errorf("%s: %q; want %q", name, got, tt.want)
		}
	}
}

// If the policy has no floor, batch keeps whole cores for its floor, at least one.
func TestTheFloorWithoutAPolicysList(t *testing.T) {
	v := &view{sample: &tick.Sample{Topology: &tick.Topology{CPUs: "0-7", Cores: []string{"0,4", "1,5", "2,6", "3,7"}}}}
	for milli, want := range map[int64]string{0: "0,4", 1: "0,4", 2000: "0,4", 2001: "0-1,4-5", 3000: "0-1,4-5"} {
		if got := v.narrowed("0-7", "", class.Machine{FloorMilliCPU: milli}, stepsOf[kindCPUs]); got != want {
			t.Errorf("%dm: %s; want %s", milli, got, want)
		}
	}
	for _, list := range []string{"", "x"} {
		if got := v.narrowed(list, "0", class.Machine{}, 1); got != list {
			t.Errorf("of %q: %q", list, got)
		}
	}
	if got := v.narrowed("0-7", "0", class.Machine{}, 0); got != "0-7" {
		t.Errorf("without a step: %s", got)
	}
}

// A first step of quota has an effect if batch uses more than its floor and than the smallest quota of the kernel.
func TestCanLowerQuota(t *testing.T) {
	m := class.Machine{FloorMilliCPU: 800}
	for _, tt := range []struct {
		use    float64
		groups int
		want   bool
	}{{810, 1, false}, {811, 1, true}, {5000, 0, false}} {
		v := &view{sample: &tick.Sample{}, batchUse: tt.use, groups: make([]group, tt.groups)}
		if got := (&State{}).canLowerQuota(&tick.Advice{}, v, m); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	for _, tt := range []struct {
		base, floor int64
		want        bool
	}{{801, 800, true}, {800, 800, false}} {
		st := &State{Steps: []step{{Kind: kindQuota}}, Batch: map[string]*applied{"/b": {Base: tt.base, Floor: tt.floor}}}
		v := &view{sample: &tick.Sample{}, groups: []group{{cgroup: "/new"}, {cgroup: "/b"}}}
		if got := st.canLowerQuota(&tick.Advice{}, v, m); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// If the services have used less than at the step for half a minute, the first hold-down applies instead of the one in force.
func TestAFallenLoadShortensTheHoldDown(t *testing.T) {
	for _, tt := range []struct {
		fallen, calm time.Duration // ago; 0 means not
		want         bool          // reverted
	}{
		{30 * time.Second, 30 * time.Second, true},
		{30*time.Second - 1, time.Minute, false},
		{time.Minute, 30*time.Second - 1, false},
		{0, time.Minute, false},
		{0, time.Hour, true},
		{time.Minute, 0, false},
	} {
		st := &State{Hold: time.Hour, Steps: []step{{Kind: kindCPUs}}, NeededAt: begin}
		if tt.fallen > 0 {
			st.LoadFellSince = begin.Add(-tt.fallen)
		}
		if tt.calm > 0 {
			st.CalmSince = begin.Add(-tt.calm)
		}
		st.revertWhenDue(begin, &tick.Advice{})
		if (len(st.Steps) == 0) != tt.want {
			t.Errorf("%+v: %d steps left", tt, len(st.Steps))
		}
		if tt.want && st.RevertedAt.IsZero() == (tt.fallen == 0) {
			t.Errorf("%+v: a relapse counts from %s", tt, st.RevertedAt)
		}
	}
}

// The target of a service with history is its own waiting plus the margin; up to half the margin a step may be reverted.
func TestTargetOfAServiceThatIsKnown(t *testing.T) {
	var st State
	var one *service
	for range minObservations {
		one = st.learn(&waiting{permille: 200, level: 1, pod: &tick.Pod{UID: "u"}}, one, time.Time{}, begin)
	}
	own, _ := one.ownWaiting(0, 1)
	s := Settings{MarginPermille: 20}
	if w := one.compare(0, 1, 500, s); w.target != own+20 || w.revertBelow != own+10 {
		t.Errorf("at its level: target %v, calm up to %v; it waits %v by itself", w.target, w.revertBelow, own)
	}
	if w := one.compare(0, 2, 500, s); w.target != 2*own+20 || math.Abs(w.revertBelow-revertPart*(2*own+20)) > 1e-9 {
		t.Errorf("a level higher: target %v, calm up to %v; it waits %v by itself", w.target, w.revertBelow, own)
	}
}

// A waiting that batch did not cause counts as the service's own from then on, whatever else was observed.
func TestWaitingNotCausedByBatchIsLearned(t *testing.T) {
	for _, seen := range []int{0, 5, 500} {
		pod := &tick.Pod{UID: "u"}
		var st State
		var one *service
		for range seen {
			one = st.learn(&waiting{permille: 1, level: 1, pod: pod}, one, time.Time{}, begin)
		}
		w := &waiting{permille: 300, level: 1, pod: pod}
		st.learnAsOwn(w, begin)
		if own, sure := st.Services["u"].ownWaiting(0, 1); !sure || own < 270 || own > 360 {
			t.Errorf("seen %d times before: %v, %v; want some 300", seen, own, sure)
		}
		if sum, maximum := st.Services["u"].CPU[1].Sum(), float64(seen)*1.05+minObservations+1; sum > maximum {
			t.Errorf("seen %d times before: counts as %v; want %v at most", seen, sum, maximum)
		}
		w.level = 3 // a level without history
		st.learnAsOwn(w, begin)
		if own, sure := st.Services["u"].ownWaiting(0, 3); !sure || own < 270 || own > 360 {
			t.Errorf("at another level: %v, %v; want some 300", own, sure)
		}
	}
}

// Only time in which something is learned ages older observations: at most ten seconds from one observation to the next.
func TestOlderWaitingsCountLessByTheTimeOfLearning(t *testing.T) {
	for gap, factor := range map[time.Duration]float64{
		0: 1, 5 * time.Second: math.Exp2(-5.0 / 1800), settleTime: math.Exp2(-10.0 / 1800), time.Hour: math.Exp2(-10.0 / 1800), -time.Hour: 1,
	} {
		var st State
		w := &waiting{permille: 5, pod: &tick.Pod{UID: "u"}}
		one := st.learn(w, nil, time.Time{}, begin)
		st.learn(w, one, begin, begin.Add(gap))
		if got, want := one.CPU[0].Sum(), factor+1; math.Abs(got-want) > 1e-4 {
			t.Errorf("after %s: counts as %v; want %v", gap, got, want)
		}
	}
}

// The number of remembered services is bounded.
func TestTheMostServices(t *testing.T) {
	st := &State{}
	for i := range maxServices + 1 {
		w := &waiting{pod: &tick.Pod{UID: strconv.Itoa(i)}}
		if one := st.learn(w, nil, time.Time{}, begin); (one != nil) != (i < maxServices) {
			t.Errorf("service %d is remembered: %v", i, one != nil)
		}
	}
	if st.expire(begin); len(st.Services) != maxServices {
		t.Errorf("%d are left", len(st.Services))
	}
}

// A service's waiting beside batch that the cluster has deleted, but that still runs or reads and writes, is not its own.
func TestDeletedBatchThatRuns(t *testing.T) {
	writing := writes(100e6)
	writing.Missing, writing.UsageMilliCPU = tick.MissingCluster, new(0.0)
	computing, unknown := job("deleted", 6000), job("deleted", -1)
	computing.Missing, unknown.Missing = tick.MissingCluster, tick.MissingCluster
	for name, deleted := range map[string]tick.Pod{"it computes": computing, "its use is unknown": unknown, "it writes": writing} {
		r := &fixture{}
		r.times(60, web(300, 1000), job("job", 5), deleted)
		if r.st.hasLearned() {
			t.Errorf("%s: the service's waiting is learned as its own", name)
		}
	}
}

// A pod that does not exist, or that the API server does not know, is not batch, even if its cgroup is named.
func TestMissingPodIsNotBatch(t *testing.T) {
	gone := job("gone", 5)
	gone.Missing = tick.MissingCgroup
	v := newView(&tick.Sample{Pods: []tick.Pod{job("job", 5), gone}})
	for path, want := range map[string]bool{"/job": true, "/gone": false, "/": false, "": false} {
		if got := v.hasOnlyBatch(path); got != want && path != "/gone" || v.isBatch(path) != want {
			t.Errorf("%q: batch alone %v, batch %v", path, got, v.isBatch(path))
		}
	}
}

// A batch pod that runs nothing, as one whose image cannot be pulled, uses 0: it must not hide what the others use. One whose first reading
// has no rate is unknown.
func TestIdleBatchPodIsKnown(t *testing.T) {
	waiting, first := job("waiting", -1), job("first", -1)
	waiting.Namespace = "shop"
	first.Namespace, first.Containers = "shop", []tick.Container{{Cgroup: "/first/c"}}
	for _, tt := range []struct {
		pod  tick.Pod
		want bool
	}{{waiting, true}, {first, false}} {
		v := newView(&tick.Sample{Pods: []tick.Pod{job("job", 5000), tt.pod}})
		if v.batchKnown != tt.want || v.batchUse != 5000 {
			t.Errorf("beside %s batch's use is %vm, known %v; want 5000m, %v", tt.pod.Name, v.batchUse, v.batchKnown, tt.want)
		}
	}
}

// The use of batch within a cgroup whose quota the policy sets counts there, in whatever order the pods come.
func TestQuotaGroupsInAnyOrder(t *testing.T) {
	limited, plain := job("limited", 1900), job("plain", 1500)
	for _, pods := range [][]tick.Pod{{limited, plain}, {plain, limited}} {
		v := newView(&tick.Sample{Pods: pods})
		a := &tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/limited", CPUMaxMilliCPU: new(int64(2000))}}}
		got := map[string]float64{}
		for _, g := range quotaGroups(draft{policy.NewDraft(a)}, &v) {
			got[g.cgroup] = g.use
		}
		if want := map[string]float64{"/limited": 1900, "/plain": 1500}; !maps.Equal(got, want) {
			t.Errorf("%s first: %v; want %v", pods[0].Name, got, want)
		}
	}
}

// A service that its own CPU limit throttles waits for the next period: nothing is taken from batch for that, and no step is reverted.
func TestWaitingForOwnLimit(t *testing.T) {
	throttled := func(percent float64) tick.Pod {
		p := web(600, 1000)
		p.Containers = []tick.Container{{Cgroup: "/web", UsageMilliCPU: new(1000.0), ThrottledPercent: &percent}}
		return p
	}
	r := &fixture{policy: tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "0-7"}}}}
	r.times(60, throttled(40), job("job", 0))
	if n := r.observations(); n > 0 {
		t.Errorf("%v observations of a throttled service count as its own waiting; want none", n)
	}
	r.times(60, web(0, 1000), job("job", 0))
	if a := r.times(60, throttled(40), job("job", 6000)); r.kinds() != "" || !hasReason(a, "waiting is unknown: no step is taken") {
		t.Errorf("throttled: steps %q, reasons %q; want no step", r.kinds(), a.Reasons)
	}
	r.times(7, throttled(0), job("job", 6000))
	if r.kinds() != kindCPUs {
		t.Errorf("not throttled: steps %q; want one", r.kinds())
	}
	r.times(50, throttled(40), job("job", 4000))
	if r.kinds() != kindCPUs {
		t.Errorf("throttled again: steps %q; want the same one", r.kinds())
	}

	// The node's own waiting includes that of throttled services and of batch, so it takes their place only if nothing was measured.
	r = &fixture{set: Settings{TargetPermille: 20}, cpu: &tick.NodeCPU{Pressure: &tick.Pressure{Some: &tick.PressureLine{Avg10: 90}}}}
	r.times(10, web(0, 1000), job("job", 6000))
	if r.times(90, throttled(40), job("job", 6000)); r.kinds() != "" {
		t.Errorf("throttled, beside a node that waits: steps %q; want none", r.kinds())
	}
}

// Only services' waiting leads to steps: batch waits for CPUs by design, the more the further its quota falls.
func TestBatchThatWaitsTakesNoSteps(t *testing.T) {
	waits := job("job", 6000)
	waits.CPUWaitPermille = new(900.0)
	r := &fixture{set: Settings{TargetPermille: 20}}
	r.times(60, web(0, 1000), waits)
	if a := r.tick(web(0, 1000), waits); r.kinds() != "" || hasReason(a, "waits for a CPU") {
		t.Errorf("steps %q, reasons %q; want none", r.kinds(), a.Reasons)
	}
}

// The services' use is the sum of all of them, and unknown if that of one is, or if there is none.
func TestServicesUse(t *testing.T) {
	unknown := web(0, 0)
	unknown.UsageMilliCPU, unknown.Containers = nil, []tick.Container{{Cgroup: "/web/c"}} // its first reading, without a rate
	for name, tt := range map[string]struct {
		pods []tick.Pod
		want float64
	}{
		"the sum":          {[]tick.Pod{web(0, 100), job("job", 5000), web(0, 50)}, 150},
		"the first is not": {[]tick.Pod{unknown, web(0, 50)}, -1},
		"the last is not":  {[]tick.Pod{web(0, 100), unknown}, -1},
		"batch's is not":   {[]tick.Pod{web(0, 100), job("job", -1)}, 100},
		"no service":       {[]tick.Pod{job("job", 5000)}, -1},
	} {
		v := newView(&tick.Sample{Pods: tt.pods})
		if got := v.knownServiceUse(); got != tt.want {
			t.Errorf("%s: %v; want %v", name, got, tt.want)
		}
	}
}

// TestPauseWithoutTicks: what was counted from the first of some consecutive ticks does not go on after some time without a tick.
func TestPauseWithoutTicks(t *testing.T) {
	batch := job("job", 6000)
	pause := func(r *fixture) { r.now = r.now.Add(5 * time.Minute) }
	prepare := func(steps bool) *fixture {
		r := &fixture{}
		r.times(60, web(0, 1000), job("job", 0))
		if steps {
			r.times(8, web(300, 1000), batch)
			if r.kinds() != kindQuota {
				t.Fatalf("steps %q; want one of quota", r.kinds())
			}
		}
		return r
	}

	r := prepare(false)
	r.times(2, web(300, 1000), batch)
	pause(r)
	if r.times(5, web(300, 1000), batch); r.kinds() != "" {
		t.Errorf("steps %q, 4 s after the pause", r.kinds())
	}
	if r.times(1, web(300, 1000), batch); r.kinds() != kindQuota {
		t.Errorf("steps %q, 5 s after the pause; want one", r.kinds())
	}

	for what, first := range map[string]tick.Pod{"calm": web(0, 1000), "unknown": web(-1, 1000), "too long": web(300, 1000)} {
		r = prepare(true)
		r.times(5, web(0, 1000), batch)
		pause(r)
		r.tick(first, batch)
		if r.times(20, web(0, 1000), batch); r.kinds() != kindQuota {
			t.Errorf("steps %q, 20 s after a pause whose first tick is %s; want one", r.kinds(), what)
		}
	}

	r = prepare(false)
	r.times(10, web(300, 1000), batch)
	r.times(1, web(0, 1000), job("job", 0))
	before := r.observations()
	pause(r)
	if r.times(10, web(300, 1000), job("job", 0)); r.observations() != before {
		t.Errorf("%v waitings were learned within 10 s after the pause", r.observations()-before)
	}
}

// TestShortJobsBesideALongOne: a job of which a first reading knows no use starts in every tick. What is known of batch's use is more than
// almost nothing, so that the guard takes its steps; where it is not, batch may not be the cause.
func TestShortJobsBesideALongOne(t *testing.T) {
	for long, want := range map[float64]string{6000: kindQuota, 100: ""} {
		r := &fixture{}
		r.times(60, web(0, 1000), job("long", 0))
		var a *tick.Advice
		for i := range 8 {
			a = r.tick(web(300, 1000), job("long", long), job(fmt.Sprintf("short%d", i), -1))
		}
		if r.kinds() != want {
			t.Errorf("batch of %.0fm and a new job: steps %q; want %q: %q", long, r.kinds(), want, a.Reasons)
		}
	}
}
