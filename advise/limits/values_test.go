package limits

import (
	"math"
	"strings"
	"testing"
	"time"

	"polder/advise/policy"
	"polder/lib/tick"
)

// An invalid limit, or one of more than any machine has, means none; a quota is at least the kernel's least.
func TestLimitsOfAPodsSpec(t *testing.T) {
	for limit, want := range map[float64]int64{
		-1: tick.Unlimited, 0: tick.Unlimited, 0.5: policy.MinQuotaMilliCPU, 1500.2: 1501,
		maxMilliCPU: maxMilliCPU, maxMilliCPU + 1: tick.Unlimited,
	} {
		if got := quotaOf(&limit); got != want {
			t.Errorf("quota of %v: %d; want %d", limit, got, want)
		}
	}
	for limit, want := range map[float64]int64{
		-1: tick.Unlimited, 0: tick.Unlimited, 0.9: tick.Unlimited, 1: 1, maxBytes: maxBytes, 2 * maxBytes: tick.Unlimited,
	} {
		if got := bytesOf(&limit); got != want {
			t.Errorf("bytes of %v: %d; want %d", limit, got, want)
		}
	}
	none := math.NaN()
	if quotaOf(nil) != tick.Unlimited || bytesOf(nil) != tick.Unlimited || quotaOf(&none) != tick.Unlimited || bytesOf(&none) != tick.Unlimited {
		t.Error("what is unknown, or no number, is a limit")
	}
	for _, tt := range [][3]int64{{5, 3, 3}, {3, 5, 3}, {5, tick.Unlimited, 5}, {tick.Unlimited, 5, 5}, {tick.Unlimited, tick.Unlimited, tick.Unlimited}, {5, 0, 0}} {
		if got := smaller(tt[0], tt[1]); got != tt[2] {
			t.Errorf("the smaller of %d and %d: %d", tt[0], tt[1], got)
		}
	}
}

// A value does not follow changes of up to a thirty-second, unless it is below the smallest safe value.
func TestSteadyValue(t *testing.T) {
	for _, tt := range []struct {
		previous, now int64
		minimum       float64
		want          int64
	}{{3200, 3300, 0, 3200}, {3200, 3301, 0, 3301}, {3200, 3100, 0, 3200}, {3200, 3099, 0, 3099}, {3200, 3250, 3200, 3200}, {3200, 3250, 3201, 3250}, {0, 5, 0, 5}} {
		if got := steadyValue(tt.previous, tt.now, tt.minimum); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// kubelet limits a pod only if it limits each of its containers: an undo restores that limit, and no wider one.
func TestKubeletsLimitsOfAPod(t *testing.T) {
	limits := func(milli, bytes float64) *tick.Resources {
		r := &tick.Resources{}
		if milli > 0 {
			r.MilliCPU = &milli
		}
		if bytes > 0 {
			r.MemoryBytes = &bytes
		}
		return r
	}
	none := kubeletLimits{tick.Unlimited, tick.Unlimited}
	for name, tt := range map[string]struct {
		containers []*tick.Resources
		want       kubeletLimits
	}{
		"no containers":            {nil, kubeletLimits{3000, 4096}},
		"all are limited":          {[]*tick.Resources{limits(1000, 2048), limits(2000, 2048)}, kubeletLimits{3000, 4096}},
		"one has no CPU limit":     {[]*tick.Resources{limits(1000, 2048), limits(0, 2048)}, kubeletLimits{tick.Unlimited, 4096}},
		"the first has none":       {[]*tick.Resources{limits(0, 2048), limits(1000, 2048)}, kubeletLimits{tick.Unlimited, 4096}},
		"one has no memory limit":  {[]*tick.Resources{limits(1000, 2048), limits(1000, 0)}, kubeletLimits{3000, tick.Unlimited}},
		"one has no limits at all": {[]*tick.Resources{nil, limits(1000, 2048)}, none},
	} {
		p := tick.Pod{Cgroup: "/p", Limits: limits(3000, 4096)}
		for i, l := range tt.containers {
			p.Containers = append(p.Containers, tick.Container{Cgroup: "/p/" + string(rune('a'+i)), Limits: l})
		}
		w := round{tick: &tick.Tick{Sample: &tick.Sample{Pods: []tick.Pod{p, {Cgroup: "/gone", Missing: tick.MissingCgroup}}}}, pods: map[string]kubeletLimits{}}
		if w.readPods(); w.pods["/p"] != tt.want || len(w.pods) != 1+len(tt.containers) {
			t.Errorf("%s: %+v; want %+v", name, w.pods, tt.want)
		}
		for i, l := range tt.containers {
			if got := w.pods[p.Containers[i].Cgroup]; got != kubeletLimitsOf(l) {
				t.Errorf("%s: container %d has %+v", name, i, got)
			}
		}
	}
}

// A pod has a quota of its own if each of its containers has a CPU limit, in any order; a pod that does not exist has none.
func TestAPodsOwnQuota(t *testing.T) {
	const pod = "/kubepods/besteffort/podj"
	milli := func(v float64) *tick.Resources { return &tick.Resources{ReclaimedMilliCPU: &v} }
	memory := &tick.Resources{ReclaimedMemoryBytes: new(1.0 * gib)}
	for name, tt := range map[string]struct {
		limits []*tick.Resources
		change func(*tick.Pod)
		want   string
	}{
		"both":               {[]*tick.Resources{milli(2000), milli(500)}, nil, "cpu 2500"},
		"the second has not": {[]*tick.Resources{milli(2000), memory}, nil, ""},
		"the first has not":  {[]*tick.Resources{memory, milli(2000)}, nil, ""},
		"ended":              {[]*tick.Resources{milli(2000)}, func(p *tick.Pod) { p.Phase = "Failed" }, ""},
		"deleted":            {[]*tick.Resources{milli(2000)}, func(p *tick.Pod) { p.Missing = tick.MissingCluster }, "cpu 2000"},
		"without a cgroup":   {[]*tick.Resources{milli(2000)}, func(p *tick.Pod) { p.Missing = tick.MissingCgroup }, ""},
		"of unknown class": {[]*tick.Resources{milli(2000)}, func(p *tick.Pod) {
			p.QoSSource, p.Missing = tick.QoSFromRule, tick.MissingCluster
		}, ""},
		"a service": {[]*tick.Resources{milli(2000)}, func(p *tick.Pod) { p.QoS = tick.QoSShared }, ""},
	} {
		r := newRun(t)
		r.settings = Settings{Own: true, Batch: None, Services: None}
		*r.job() = tick.Pod{UID: "j", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKatalyst, Cgroup: pod}
		for i, l := range tt.limits {
			r.job().Containers = append(r.job().Containers, tick.Container{Name: "c", Cgroup: pod + "/" + string(rune('a'+i)), Limits: l})
		}
		if tt.change != nil {
			tt.change(r.job())
		}
		if r.tickAfter(1); r.entryText(pod) != tt.want {
			t.Errorf("%s: %q; want %q", name, r.entryText(pod), tt.want)
		}
	}
}

// A batch pod that was deleted from the cluster keeps its limits while its processes run.
func TestDeletedBatchKeepsItsLimits(t *testing.T) {
	const pod, container = "/kubepods/besteffort/podj", "/kubepods/besteffort/podj/a"
	r := newRun(t)
	r.settings.Services = None
	limits := &tick.Resources{ReclaimedMilliCPU: new(2000.0), ReclaimedMemoryBytes: new(1.0 * gib)}
	*r.job() = tick.Pod{
		UID: "j", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKatalyst, Cgroup: pod, Memory: memoryUse(gib / 2),
		Containers: []tick.Container{{Name: "a", Cgroup: container, Memory: memoryUse(gib / 2), Limits: limits}},
	}
	for _, missing := range []string{"", tick.MissingCluster, tick.MissingCluster} {
		r.job().Missing = missing
		r.tickAfter(1).want(container, "max 1024")
		if text := r.entryText(pod); !strings.HasPrefix(text, "cpu 2000") {
			t.Errorf("missing %q: %s", missing, text)
		}
	}
}

// A value that was advised and no longer is, is undone, key by key; a key that two parts undo is undone.
func TestKeys(t *testing.T) {
	for _, tt := range []struct{ one, other, without, and keys }{
		{keys{CPU: true, Low: true}, keys{CPU: true, High: true}, keys{Low: true}, keys{CPU: true, High: true, Low: true}},
		{keys{High: true, Max: true}, keys{Max: true}, keys{High: true}, keys{High: true, Max: true}},
		{keys{CPU: true}, keys{}, keys{CPU: true}, keys{CPU: true}},
		{keys{}, keys{CPU: true, High: true, Max: true, Low: true}, keys{}, keys{CPU: true, High: true, Max: true, Low: true}},
	} {
		if got := tt.one.without(tt.other); got != tt.without {
			t.Errorf("%+v without %+v: %+v", tt.one, tt.other, got)
		}
		if got := tt.one.union(tt.other); got != tt.and {
			t.Errorf("%+v and %+v: %+v", tt.one, tt.other, got)
		}
	}
}

// A tick of a fleet, or of an agent that was away, contains nothing of this machine's cgroups.
func TestFleetTicksChangeNothing(t *testing.T) {
	for name, change := range map[string]func(*tick.Sample){
		"fleet": func(s *tick.Sample) { s.Fleet = new(tick.Fleet) }, "agent": func(s *tick.Sample) { s.Agent = new(tick.Agent) },
	} {
		r := newRun(t)
		change(&r.sample)
		if r.tickAfter(1); len(r.advice.Cgroups)+len(r.advice.Reasons) > 0 || r.st != nil {
			t.Errorf("%s: %+v", name, r.advice)
		}
	}
}

// A state file's numbers are bounded by what a machine has.
func TestAStateFilesNumbersAreBounded(t *testing.T) {
	st := &State{CapBytes: -1, MinPossibleBytes: math.MaxInt64, Set: map[string]*cgroupState{
		"/a": {Own: values{CPU: 500, High: -5, Max: math.MaxInt64}, Cap: values{CPU: 7}}, "/b": {Own: values{CPU: -1}},
		"/c": {Own: values{CPU: math.MaxInt64}}, "d": {}, "/null": nil,
	}}
	st.sanitize(begin)
	if st.CapBytes != 0 || st.MinPossibleBytes != maxBytes || len(st.Set) != 3 || st.Set["/b"].Own.CPU != 0 || st.Set["/c"].Own.CPU != maxMilliCPU {
		t.Errorf("%+v", st)
	}
	if a := st.Set["/a"]; a.Own != (values{CPU: 500, Max: maxBytes}) || a.Cap != (values{}) {
		t.Errorf("%+v", a)
	}
}

// If memory.high throttles batch for ten seconds without effect, it stays at batch's use for a minute; a decrease of the use by a part of a
// step counts as an effect.
func TestWhenHighHasNoEffect(t *testing.T) {
	const goal = 100.0
	previous := eventHistory{High: 5, Use: 200, Since: begin.Add(-stuckAfter), HighAt: begin}
	for name, tt := range map[string]struct {
		change func(x *eventHistory)
		use    float64
		stays  bool    // at the use
		from   float64 // the use of the next comparison
	}{
		"stuck":                       {func(*eventHistory) {}, 200, true, 200},
		"stuck, and a little less":    {func(*eventHistory) {}, 200*(1-progressPart) + 0.1, true, 200},
		"it fell by enough":           {func(*eventHistory) {}, 200 * (1 - progressPart), false, 200 * (1 - progressPart)},
		"at the goal":                 {func(*eventHistory) {}, goal, false, 0},
		"not for long enough":         {func(x *eventHistory) { x.Since = begin.Add(1 - stuckAfter) }, 200, false, 200},
		"nothing met memory.high":     {func(x *eventHistory) { x.HighAt = time.Time{} }, 200, false, 200},
		"as long ago as that":         {func(x *eventHistory) { x.HighAt = begin.Add(-stuckAfter) }, 200, true, 200},
		"longer ago":                  {func(x *eventHistory) { x.HighAt = begin.Add(-stuckAfter - 1) }, 200, false, 200},
		"nothing was kept below it":   {func(x *eventHistory) { x.Use = 0 }, 200, false, 200},
		"the minute is not over":      {func(x *eventHistory) { x.Until = begin.Add(1) }, 150, true, 200},
		"the minute is over":          {func(x *eventHistory) { x.Until = begin }, 150, false, 150},
		"no longer over, in a minute": {func(x *eventHistory) { x.Until = begin.Add(1) }, goal, false, 0},
	} {
		before := previous
		tt.change(&before)
		w := &round{
			state: &State{Set: map[string]*cgroupState{"/b": {Events: &before}}},
			tick: &tick.Tick{Time: begin, Sample: &tick.Sample{
				Pods: []tick.Pod{{Cgroup: "/a"}, {Cgroup: "/b", MemoryEvents: &tick.MemoryEvents{High: 5, OOMKill: 3}}},
			}},
		}
		x := w.updateEvents(&cappedCgroup{path: "/b", use: tt.use}, goal)
		if x == nil || begin.Before(x.Until) != tt.stays || x.Use != tt.from || x.killed != 3 {
			t.Errorf("%s: %+v; want it to stay: %v, from %v", name, x, tt.stays, tt.from)
		}
	}
}

// If a service's memory is unknown its protection stays, and so does all protection if the machine's memory is unknown.
func TestProtectionOfUnknownMemoryStays(t *testing.T) {
	for name, hide := range map[string]func(r *run){
		"the machine's":   func(r *run) { r.sample.Memory = nil },
		"of no size":      func(r *run) { r.sample.Memory.TotalBytes = nil },
		"the service's":   func(r *run) { r.sample.Pods[1].Memory = nil },
		"no number of it": func(r *run) { r.sample.Pods[1].Memory.WorkingSetBytes = new(math.NaN()) },
	} {
		r := newRun(t)
		r.settings.Batch = None
		r.tickAfter(1)
		hide(r)
		for range 2 {
			r.tickAfter(90).want("/web.slice/web", "low 10240")
			r.want("/web.slice", "low 10240")
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// A path that is not clean is not a cgroup's, and one that is too deep is left alone.
func TestOnlyCleanPathsAreProtected(t *testing.T) {
	for path, want := range map[string]bool{
		"/web": true, "/web/../batch": false, "/web/": false, "web": false,
		strings.Repeat("/a", maxDepth): true, strings.Repeat("/a", maxDepth+1): false,
	} {
		r := newRun(t)
		r.settings.Batch = None
		r.sample.Pods[1].Cgroup = path
		if got := r.tickAfter(1).entryText(path) != ""; got != want {
			t.Errorf("%.40s: protected %v", path, got)
		}
	}
}

// A policy that sets memory.min protects memory itself, too.
func TestThePolicysMinimumHolds(t *testing.T) {
	r := newRun(t)
	r.policyCgroups = []tick.Cgroup{{Cgroup: "/x", MemoryMinBytes: new(int64(gib))}}
	r.tickAfter(1).want("/web.slice/web", "")
	r.hasReason("the policy protects memory itself")
}

// A working set of 0 is known: its protection becomes free.
func TestAWorkingSetOfNothingIsKnown(t *testing.T) {
	r := newRun(t)
	r.settings.Batch = None
	r.tickAfter(1).want("/web.slice/web", "low 10240")
	r.sample.Pods[1].Memory = memoryUse(0)
	if got := r.tickAfter(1).entryText("/web.slice/web"); got == "low 10240" {
		t.Errorf("the protection stays: %q", r.advice.Reasons)
	}
	if reasons := strings.Join(r.advice.Reasons, "\n"); strings.Contains(reasons, "is unknown") {
		t.Errorf("reasons %q", reasons)
	}
}
