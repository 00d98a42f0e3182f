package guard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/advise/class"
	"polder/lib/cpus"
	"polder/lib/tick"
)

func web(permille, milliCPU float64) tick.Pod {
	p := tick.Pod{UID: "web", Namespace: "shop", Name: "web", QoS: tick.QoSShared, Cgroup: "/web", UsageMilliCPU: &milliCPU}
	if permille >= 0 {
		p.CPUWaitPermille = &permille
	}
	return p
}

func job(name string, milliCPU float64) tick.Pod {
	p := tick.Pod{UID: name, Name: name, QoS: tick.QoSReclaimed, Cgroup: "/" + name}
	if milliCPU >= 0 {
		p.UsageMilliCPU = &milliCPU
	}
	return p
}

// fixture runs a guard on generated samples, one per second.
type fixture struct {
	st      *State
	now     time.Time
	set     Settings
	version int
	cpu     *tick.NodeCPU
	policy  tick.Advice // the policy's advice in each tick
}

func (r *fixture) tick(pods ...tick.Pod) *tick.Advice {
	if r.now.IsZero() {
		r.now, r.set.Mode, r.set.MarginPermille = begin, On, DefaultMarginPermille
	}
	r.now = r.now.Add(time.Second)
	m := class.Machine{MilliCPU: 8000, FloorMilliCPU: 800, CgroupVersion: r.version}
	x := &tick.Tick{V: 1, Node: "n", Time: r.now, Sample: &tick.Sample{
		CgroupVersion: r.version, CPU: r.cpu, Topology: &tick.Topology{CPUs: "0-7", Cores: []string{"0,4", "1,5", "2,6", "3,7"}}, Pods: pods,
	}}
	a := r.policy
	r.st = r.st.Advise(x, &a, r.set, m)
	return &a
}

func (r *fixture) times(n int, pods ...tick.Pod) (a *tick.Advice) {
	for range n {
		a = r.tick(pods...)
	}
	return a
}

// kinds returns the steps in force.
func (r *fixture) kinds() string {
	var list []string
	for i := range r.st.Steps {
		list = append(list, r.st.Steps[i].Kind)
	}
	return strings.Join(list, " ")
}

// observations returns how many waitings for a CPU count as the service's own.
func (r *fixture) observations() (sum float64) {
	for _, history := range r.st.Services {
		for _, counts := range history.CPU {
			sum += counts.Sum()
		}
	}
	return sum
}

func hasReason(a *tick.Advice, part string) bool {
	return strings.Contains(strings.Join(a.Reasons, "\n"), part)
}

// entries formats the desired keys of cgroups.
func entries(list []tick.Cgroup) string {
	var out []string
	for _, c := range list {
		text := c.Cgroup
		if c.CPUSetCPUs != "" {
			text += " " + c.CPUSetCPUs
		}
		if c.CPUMaxMilliCPU != nil {
			text += fmt.Sprintf(" %dm", *c.CPUMaxMilliCPU)
		}
		if c.MemoryHighBytes != nil {
			text += fmt.Sprintf(" %dMi", *c.MemoryHighBytes>>20)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestStepsAndTheirCauses(t *testing.T) {
	r := &fixture{policy: tick.Advice{
		Cgroups:  []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "0-7"}, {Cgroup: "/web", CPUSetCPUs: "0-7"}},
		Fallback: []tick.Cgroup{{Cgroup: "/job", CPUSetCPUs: "3,7"}},
	}}
	r.times(60, web(0, 1000), job("job", 0)) // alone
	var got []string
	for range 36 {
		a := r.tick(web(300, 1000), job("job", 6000))
		if text := entries(a.Cgroups[:1]) + " | " + entries(a.Fallback); len(got) == 0 || got[len(got)-1] != text {
			got = append(got, text)
		}
	}
	want := []string{
		"/job 0-7 | /job 3,7",
		"/job 0-1,3-5,7 | /job 3,7", // whole cores, including the floor's
		"/job 0,3-4,7 | /job 3,7",
		"/job 3,7 | /job 3,7",
		"/job 3,7 4267m | /job 3,7 4267m",
		"/job 3,7 2534m | /job 3,7 2534m",
		"/job 3,7 800m | /job 3,7 800m",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("what batch has, and in the fallback (-want +got):\n%s", d)
	}
	a := r.tick(web(300, 1000), job("job", 6000))
	for _, part := range []string{
		`guard: step 1: CPUs taken from batch (1 of 3) at 12:01:06, ` +
			`because service "shop/web" waited for a CPU for 300 ms per second, target 20 ms`,
		"guard: step 6: quota taken from batch (3 of 3) at",
		`guard: service "shop/web" waits for a CPU for 300 ms per second, target 20 ms: no further step is possible`,
	} {
		if !hasReason(a, part) {
			t.Errorf("reasons:\n%s\nwant: %s", strings.Join(a.Reasons, "\n"), part)
		}
	}
	if got := entries(a.Cgroups[1:]); got != "/web 0-7" {
		t.Errorf("the service's cgroup: %s; want what the policy wants", got)
	}
	// The waiting did not fall: batch is not the cause, and that waiting counts as the service's own from now on.
	for i := 0; i < 10 && !hasReason(a, "all steps are reverted"); i++ {
		a = r.tick(web(300, 1000), job("job", 800))
	}
	if !hasReason(a, "batch is not the cause, all steps are reverted") || entries(a.Cgroups[:1]) != "/job 0-7 -1m" || r.kinds() != "" {
		t.Errorf("all steps had no effect: %s, reasons %v; want all steps reverted", entries(a.Cgroups[:1]), a.Reasons)
	}
	if a = r.times(300, web(300, 1000), job("job", 6000)); r.kinds() != "" || hasReason(a, "waits") {
		t.Errorf("five minutes later: %q, %v; want no step", r.kinds(), a.Reasons)
	}
	if got := entries(r.policy.Cgroups); got != "/job 0-7, /web 0-7" {
		t.Errorf("the policy's own list became %s", got)
	}
}

// Batch that uses almost nothing is not the cause; if its use is unknown nothing is taken either.
func TestNoStepWithoutACause(t *testing.T) {
	for _, tt := range []struct {
		name   string
		batch  []tick.Pod
		reason string
	}{
		{"absent", []tick.Pod{job("job", 100)}, "batch uses almost nothing: batch is not the cause"},
		{"unknown", []tick.Pod{job("job", -1)}, "batch's use is unknown: no step"},
		{"none", nil, ""},
	} {
		r := &fixture{}
		a := r.times(9, append(tt.batch, web(300, 1000))...) // later this counts as the service's own waiting
		if r.kinds() != "" || !hasReason(a, tt.reason) {
			t.Errorf("%s: steps %q, reasons %v; want none, and %q", tt.name, r.kinds(), a.Reasons, tt.reason)
		}
	}
}

// Steps stay for a minute while the services' waiting is unknown, and are then reverted one by one.
func TestUnknownWaiting(t *testing.T) {
	r := &fixture{}
	a := r.times(10, web(-1, 1000), job("job", 6000))
	if !hasReason(a, "guard: the services' waiting is unknown: no step is taken") {
		t.Errorf("reasons %v", a.Reasons)
	}
	r.times(13, web(300, 1000), job("job", 6000))
	if got := r.kinds(); got != "quota quota" {
		t.Fatalf("steps %q; want two", got)
	}
	a = r.times(59, web(-1, 1000), job("job", 6000))
	if got := r.kinds(); got != "quota quota" || !hasReason(a, "steps stay for") {
		t.Errorf("after 59 s: %q, %v; want both steps still", got, a.Reasons)
	}
	r.times(2, web(-1, 1000), job("job", 6000))
	if got := r.kinds(); got != "quota" {
		t.Errorf("after 61 s: %q; want one step less", got)
	}
	a = r.times(30, web(-1, 1000), job("job", 6000))
	if r.kinds() != "" || entries(a.Cgroups) != "/job -1m" {
		t.Errorf("later: %q, %s; want none, and no quota", r.kinds(), entries(a.Cgroups))
	}
}

// Steps stay for a minute when the last service has ended, and are then reverted one by one.
func TestTheLastServiceEnds(t *testing.T) {
	r := &fixture{}
	r.times(13, web(300, 1000), job("job", 6000))
	r.times(59, job("job", 6000))
	if got := r.kinds(); got != "quota quota" {
		t.Errorf("after 59 s: %q; want two", got)
	}
	if a := r.times(32, job("job", 6000)); r.kinds() != "" || entries(a.Cgroups) != "/job -1m" {
		t.Errorf("later: %q, %s; want none, and no quota", r.kinds(), entries(a.Cgroups))
	}
}

// What a service waits beside a job's first tick is not its own, even if nothing was left to take from a job that has ended since, or the
// waiting was unknown meanwhile.
func TestANewJobAfterAllSteps(t *testing.T) {
	for name, between := range map[string][]tick.Pod{
		"the job has ended": {web(1, 1000)}, "unknown": {web(-1, 1000), job("job", 6000)},
	} {
		r := &fixture{}
		for seconds := 0; r.st == nil || r.st.ExhaustedSince.IsZero(); seconds++ {
			if r.tick(web(300, 1000), job("job", 6000)); seconds > 60 {
				t.Fatal("there is always something left to take")
			}
		}
		r.times(30, between...)
		before := r.observations()
		r.tick(web(500, 1000), job("next", 6000))
		if after := r.observations(); after != before {
			t.Errorf("%s: %v observations of the service's own waiting, after the job's first tick %v", name, before, after)
		}
	}
}

// A service that is known and calm does not revert the steps that another one needed whose waiting is unknown now.
func TestUnknownCause(t *testing.T) {
	r := &fixture{}
	calm := web(0, 100)
	calm.UID, calm.Name, calm.Cgroup = "calm", "calm", "/calm"
	r.times(13, web(300, 1000), calm, job("job", 6000))
	if got := r.kinds(); got != "quota quota" {
		t.Fatalf("steps %q; want two", got)
	}
	a := r.times(59, web(-1, 1000), calm, job("job", 6000))
	if got := r.kinds(); got != "quota quota" || !hasReason(a, `", which caused the last step, is unknown for`) {
		t.Errorf("after 59 s: %q, %v; want both steps still", got, a.Reasons)
	}
	r.times(120, web(-1, 1000), calm, job("job", 6000))
	if got := r.kinds(); got != "" {
		t.Errorf("after three minutes: %q; want no step", got)
	}
}

// The guard tightens the policy's values, and never loosens them.
func TestThePolicysValuesHoldWhereTheyAreTighter(t *testing.T) {
	r := &fixture{policy: tick.Advice{
		Cgroups:  []tick.Cgroup{{Cgroup: "/job", CPUMaxMilliCPU: new(int64(900))}},
		Fallback: []tick.Cgroup{{Cgroup: "/job", CPUMaxMilliCPU: new(int64(100))}},
	}}
	r.times(13, web(300, 1000), job("job", 900))
	r.policy.Cgroups = []tick.Cgroup{{Cgroup: "/job", CPUMaxMilliCPU: new(int64(50))}}
	a := r.tick(web(300, 1000), job("job", 900))
	if got := entries(a.Cgroups) + " | " + entries(a.Fallback); got != "/job 50m | /job 100m" {
		t.Errorf("%s; want the policy's", got)
	}
	r.policy.Cgroups = []tick.Cgroup{{Cgroup: "/job", CPUMaxMilliCPU: new(int64(8000))}}
	a = r.tick(web(300, 1000), job("job", 900))
	if got := entries(a.Cgroups); got != "/job 367m" { // two of three steps from 900m to the fallback's 100m
		t.Errorf("%s; want the guard's", got)
	}
	// When the guard is switched off its values are undone, until the pod is gone.
	r.set.Mode = Off
	r.policy = tick.Advice{}
	if got := entries(r.tick(web(300, 1000), job("job", 900)).Cgroups); got != "/job -1m" {
		t.Errorf("switched off: %s; want no quota", got)
	}
	for range 61 {
		a = r.tick(web(300, 1000))
	}
	if len(a.Cgroups) > 0 || r.st != nil && len(r.st.Batch) > 0 {
		t.Errorf("the pod ended a minute ago: %s, %v; want nothing", entries(a.Cgroups), r.st.Batch)
	}
}

// A quota that the policy desires of a tier with only batch is lowered there, and not also below it.
func TestQuotaOfATier(t *testing.T) {
	const tier = "/kubepods/besteffort"
	pod := func(name, path, class string) tick.Pod {
		return tick.Pod{UID: name, Name: name, QoS: class, Cgroup: path, UsageMilliCPU: new(2000.0), Containers: []tick.Container{{Cgroup: path + "/c", UsageMilliCPU: new(2000.0)}}}
	}
	a, b := pod("a", tier+"/poda", tick.QoSReclaimed), pod("b", tier+"/podb", tick.QoSReclaimed)
	r := &fixture{policy: tick.Advice{Cgroups: []tick.Cgroup{{Cgroup: tier, CPUMaxMilliCPU: new(int64(5000))}}}}
	got := entries(r.times(8, web(300, 1000), a, b).Cgroups)
	if want := tier + " 2934m"; got != want { // a third of the way from 4000m to 800m
		t.Errorf("batch alone in the tier: %s; want %s", got, want)
	}
	r = &fixture{policy: r.policy}
	got = entries(r.times(8, web(300, 1000), a, b, pod("s", tier+"/pods", tick.QoSShared)).Cgroups)
	if want := tier + " 5000m, " + tier + "/poda/c 1467m, " + tier + "/podb/c 1467m"; got != want {
		t.Errorf("beside a service: %s; want %s", got, want)
	}
}

// After the steps a cgroup has the quota of its limit again; without a known limit an administrator's own, if there is one.
func TestUndoneQuota(t *testing.T) {
	for limit, want := range map[float64]tick.Cgroup{
		0:    {Cgroup: "/job", CPUMaxMilliCPU: new(int64(tick.Unlimited)), CPUMaxTighterOnly: true},
		7000: {Cgroup: "/job", CPUMaxMilliCPU: new(int64(7000))},
	} {
		batch := job("job", 6000)
		if limit > 0 {
			batch.Limits = &tick.Resources{MilliCPU: &limit}
		}
		r := &fixture{}
		r.times(60, web(0, 1000), job("job", 0)) // alone
		if r.times(6, web(300, 1000), batch); r.kinds() == "" {
			t.Fatal("no step was taken")
		}
		var undone []tick.Cgroup
		for range 600 {
			undone = r.times(1, web(0, 1000), batch).Cgroups
			if r.kinds() == "" {
				break
			}
		}
		if d := cmp.Diff([]tick.Cgroup{want}, undone); d != "" {
			t.Errorf("limit %g (-want +got):\n%s", limit, d)
		}
	}
}

// Memory is taken if services wait for memory or I/O, on version 2, never more than a step below a pod's use.
func TestStepsOfMemory(t *testing.T) {
	waits := web(0, 1000)
	waits.MemoryPressure = &tick.Pressure{Some: &tick.PressureLine{Avg10: 30}}
	holds := func(mebi float64) tick.Pod {
		p := job("job", 700) // below the floor: no quota can be taken
		p.Memory = &tick.Memory{UsageBytes: new(mebi * (1 << 20))}
		return p
	}
	r := &fixture{version: 2}
	var got []string
	for _, x := range []struct {
		ticks int
		mebi  float64
	}{{7, 1000}, {6, 1000}, {1, 900}, {1, 5000}} {
		got = append(got, entries(r.times(x.ticks, waits, holds(x.mebi)).Cgroups))
	}
	if d := cmp.Diff([]string{"/job 1000Mi", "/job 900Mi", "/job 900Mi", "/job 4500Mi"}, got); d != "" {
		t.Errorf("memory.high (-want +got):\n%s", d)
	}
	a := r.times(300, web(0, 1000), holds(1000))
	if len(a.Cgroups) != 1 || r.kinds() != "" || *a.Cgroups[0].MemoryHighBytes != tick.Unlimited || !a.Cgroups[0].MemoryTighterOnly {
		t.Errorf("after the steps: %+v, %q; want the original memory.high", a.Cgroups, r.kinds())
	}
	r = &fixture{version: 1}
	if a := r.times(30, waits, holds(1000)); r.kinds() != "" || len(a.Cgroups) > 0 {
		t.Errorf("version 1: %s", entries(a.Cgroups))
	}
	r = &fixture{version: 2}
	if a := r.times(30, web(300, 1000), holds(1000)); r.kinds() != "" || len(a.Cgroups) > 0 {
		t.Errorf("waiting for CPUs: %s", entries(a.Cgroups))
	}
}

// The node's PSI includes batch's waiting: it is used only with a configured target, and if nothing better is known.
func TestNodePressureWithoutServicePressure(t *testing.T) {
	for _, tt := range []struct {
		target float64
		want   string
	}{{0, ""}, {400, ""}, {200, "quota"}} {
		r := &fixture{cpu: &tick.NodeCPU{Pressure: &tick.Pressure{Some: &tick.PressureLine{Avg10: 30}}}, set: Settings{TargetPermille: tt.target}}
		r.times(66, web(-1, 1000), job("job", 6000))
		if got := r.kinds(); got != tt.want {
			t.Errorf("target %v: steps %q; want %q", tt.target, got, tt.want)
		}
	}
}

// A reboot discards what was set, but not the services' history; absent services are forgotten after an hour.
func TestServicesAndCgroupsAreForgotten(t *testing.T) {
	r := &fixture{}
	r.times(60, web(0, 1000), job("job", 0))
	r.times(13, web(300, 1000), job("job", 6000))
	r.st = r.st.Reboot()
	if r.kinds() != "" || len(r.st.Batch) > 0 || len(r.st.Services) != 1 {
		t.Errorf("after another start of the machine: %+v; want the service alone", r.st)
	}
	if (*State)(nil).Reboot() != nil {
		t.Error("a state of nothing became one")
	}
	r.times(1, job("job", 6000))
	r.now = r.now.Add(2 * time.Hour)
	r.times(1, job("job", 6000))
	if r.st != nil && len(r.st.Services) > 0 {
		t.Errorf("services %v; want none", r.st.Services)
	}
}

// A clock that is set back changes only times.
func TestClockSetBack(t *testing.T) {
	r := &fixture{}
	r.times(60, web(0, 1000), job("job", 0))
	r.times(8, web(300, 1000), job("job", 6000))
	if got := r.kinds(); got != "quota" {
		t.Fatalf("steps %q; want one", got)
	}
	r.now = r.now.Add(-24 * time.Hour)
	r.times(4, web(300, 1000), job("job", 6000))
	if got := r.kinds(); got != "quota" {
		t.Errorf("steps %q; want the one", got)
	}
	r.times(40, web(0, 1000), job("job", 6000))
	if got := r.kinds(); got != "" {
		t.Errorf("steps %q after 40 s of calm; want none", got)
	}
}

// Narrowed lists are never empty, keep the floor, and are subsets of the list of one step less.
func TestNarrowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := &view{sample: &tick.Sample{Topology: &tick.Topology{CPUs: "0-15", Cores: []string{"0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14"}}}}
		set := func(label string, from []int) cpus.Set {
			return cpus.New(rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, len(from), rapid.ID[int]).Draw(t, label)...)
		}
		parent := set("parent", []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
		child := set("child", parent.List())
		floor := set("floor", child.List())
		m := class.Machine{FloorMilliCPU: int64(rapid.IntRange(0, 20_000).Draw(t, "floor milli"))}
		before := child
		for steps := range stepsOf[kindCPUs] + 1 {
			one := mustParse(t, v.narrowed(child.String(), floor.String(), m, steps))
			if one.IsEmpty() || !one.IsSubsetOf(before) || !floor.IsSubsetOf(one) {
				t.Fatalf("%d steps of %s with floor %s: %s, after %s", steps, child, floor, one, before)
			}
			before = one
		}
		if !before.Equals(floor) {
			t.Fatalf("all steps of %s with floor %s: %s", child, floor, before)
		}
		if alone := mustParse(t, v.narrowed(child.String(), "", m, 3)); alone.IsEmpty() || !alone.IsSubsetOf(child) {
			t.Fatalf("without a floor: %s", alone)
		}
	})
}

func mustParse(t *rapid.T, list string) cpus.Set {
	set, err := cpus.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
