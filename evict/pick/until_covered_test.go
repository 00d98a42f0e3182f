package pick

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/rule"
	"polder/lib/evictconfig"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// koordinatorFinding is a finding of one of Koordinator's rules, with the given need.
func koordinatorFinding(name string, need float64, candidates ...rule.Candidate) rule.Finding {
	f := finding(name, 75, 70, candidates...)
	f.Need, f.UntilCovered, f.SharedCooldown, f.Reason, f.GracePeriodSeconds = need, true, "koordinator memory", "because of "+name, nil
	return f
}

// A finding with an explicit need evicts pods at one tick until the need is covered.
func TestUntilCovered(t *testing.T) {
	a, b, c := candidate(pod("a"), 10), candidate(pod("b"), 5), candidate(pod("c"), 4)
	limits := func(change func(*Limits)) Limits {
		l := defaultLimits(Unlimited)
		l.PerRuleUntilCovered = Unlimited
		change(&l)
		return l
	}
	none := func(*Limits) {}
	empty := func() *State { return stateWith(nil, nil, nil) }
	inProgress := func(f rule.Finding, x ...rule.Candidate) rule.Finding {
		f.Others = x
		return f
	}
	for _, tt := range []struct {
		name     string
		findings []rule.Finding
		limits   Limits
		state    *State
		want     []string
		limited  []ReachedLimit
	}{
		{"one is enough", []rule.Finding{koordinatorFinding("MemoryEvict", 10, a, b, c)}, limits(none), empty(), []string{"a"}, nil},
		{"just not", []rule.Finding{koordinatorFinding("MemoryEvict", 10.5, a, b, c)}, limits(none), empty(), []string{"a", "b"}, nil},
		{"all of them", []rule.Finding{koordinatorFinding("MemoryEvict", 100, a, b, c)}, limits(none), empty(), []string{"a", "b", "c"}, nil},
		{"its value does not show the need", []rule.Finding{changed(koordinatorFinding("MemoryEvict", 100, a, b, c), func(f *rule.Finding) { f.Value = f.Threshold })}, limits(none), empty(), []string{"a", "b", "c"}, nil},
		{"nor under a threshold", []rule.Finding{changed(koordinatorFinding("BECPUEvict", 11, a, b, c), func(f *rule.Finding) { f.Below, f.Value, f.Threshold = true, 60, 60 })}, limits(none), empty(), []string{"a", "b"}, nil},
		{"as many as per-rule allows, if set", []rule.Finding{koordinatorFinding("MemoryEvict", 100, a, b, c)}, limits(func(l *Limits) { l.PerRuleUntilCovered = 2 }), empty(), []string{"a", "b"}, []ReachedLimit{{"MemoryEvict", LimitPerRule}}},
		{"as many as burst allows", []rule.Finding{koordinatorFinding("MemoryEvict", 100, a, b, c)}, limits(func(l *Limits) { l.PerTick = 1 }), empty(), []string{"a"}, []ReachedLimit{{"MemoryEvict", LimitBurst}}},
		{"as many as per-hour allows", []rule.Finding{koordinatorFinding("MemoryEvict", 100, a, b, c)}, limits(func(l *Limits) { l.PerHour = 2 }), empty(), []string{"a", "b"}, []ReachedLimit{{"MemoryEvict", LimitPerHour}}},
		{"evictions in progress count", []rule.Finding{koordinatorFinding("MemoryEvict", 12, a, b, c)}, limits(none), stateWith([]string{"uid-a"}, nil, nil), []string{"b"}, nil},
		{"and can be enough", []rule.Finding{koordinatorFinding("MemoryEvict", 10, a, b, c)}, limits(none), stateWith([]string{"uid-a"}, nil, nil), nil, nil},
		{"a pod that releases nothing is not evicted", []rule.Finding{koordinatorFinding("MemoryEvict", 100, candidate(pod("z"), 0), b)}, limits(none), empty(), []string{"b"}, nil},
		{"a victim of one rule counts for the next", []rule.Finding{koordinatorFinding("BEMemoryEvict", 8, a), koordinatorFinding("MemoryEvict", 12, a, b, c)}, limits(none), empty(), []string{"a", "b"}, nil},
		{"also if the next could not choose it", []rule.Finding{koordinatorFinding("BEMemoryEvict", 8, a), inProgress(koordinatorFinding("MemoryEvict", 10, b, c), a)}, limits(none), empty(), []string{"a"}, nil},
		{"by its release for the next", []rule.Finding{koordinatorFinding("BEMemoryEvict", 8, a), inProgress(koordinatorFinding("MemoryEvict", 10, b, c), candidate(a.Pod, 3))}, limits(none), empty(), []string{"a", "b", "c"}, nil},
		{"counted once", []rule.Finding{koordinatorFinding("BEMemoryEvict", 8, a), inProgress(koordinatorFinding("MemoryEvict", 12, b, c), a)}, limits(none), empty(), []string{"a", "b"}, nil},
	} {
		round := Choose(now, tt.findings, tt.limits, tt.state)
		if tt.want == nil {
			tt.want = []string{}
		}
		if d := cmp.Diff(tt.want, names(round.Victims)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
		if d := cmp.Diff(tt.limited, round.ReachedLimits); d != "" {
			t.Errorf("%s: limits (-want +got):\n%s", tt.name, d)
		}
	}
}

// A shared cooldown begins whichever rule evicts a pod, and at one tick no rule delays another.
func TestSharedCooldown(t *testing.T) {
	a, b := candidate(pod("a"), 10), candidate(pod("b"), 5)
	l := unlimited()
	l.PerRuleUntilCovered = Unlimited
	m := stateWith(nil, nil, nil)
	both := []rule.Finding{koordinatorFinding("BEMemoryEvict", 10, a), koordinatorFinding("MemoryEvict", 5, b)}
	round := Choose(now, both, l, m)
	if d := cmp.Diff([]string{"a", "b"}, names(round.Victims)); d != "" {
		t.Fatalf("at one tick (-want +got):\n%s", d)
	}
	m.RecordRequest(round.Victims[0], now)
	later := now.Add(30 * time.Second)
	if v := Choose(later, both[1:], l, m); len(v.Victims) > 0 || v.Verdicts[0].CooldownLeft != 30*time.Second {
		t.Errorf("in the cooldown: %v, left %s", names(v.Victims), v.Verdicts[0].CooldownLeft)
	}
	other := koordinatorFinding("BECPUEvict", 5, b)
	other.SharedCooldown = "koordinator cpu"
	if v := Choose(later, []rule.Finding{other}, l, m); len(v.Victims) != 1 {
		t.Error("CPU is in the cooldown of memory")
	}
	// A refusal ends the cooldown.
	m.Refuse("uid-a", "refused", later, time.Minute)
	if v := Choose(later, both[1:], l, m); len(v.Victims) != 1 {
		t.Error("in a cooldown after a refusal")
	}
}

// If a pod is evicted for several findings, Koordinator's wording contains only the first one, because it is an event's text.
func TestJoinedTexts(t *testing.T) {
	a := candidate(pod("a"), 10)
	first, second := koordinatorFinding("BEMemoryEvict", 10, a), koordinatorFinding("MemoryEvict", 20, a)
	katalystFinding := finding("memory-pressure-eviction-plugin", 20, 10, a)
	l := unlimited()
	l.PerRuleUntilCovered = Unlimited
	for _, tt := range []struct {
		findings        []rule.Finding
		reason, message string
		rules           []string
		grace           *int64
	}{
		{[]rule.Finding{first, second}, "because of BEMemoryEvict", "m", []string{"BEMemoryEvict", "MemoryEvict"}, nil},
		{[]rule.Finding{first, katalystFinding}, "because of BEMemoryEvict", "m", []string{"BEMemoryEvict", "memory-pressure-eviction-plugin"}, nil},
		{[]rule.Finding{katalystFinding, first}, "met threshold in scope: s from plugin: memory-pressure-eviction-plugin; because of BEMemoryEvict", "m; m", []string{"memory-pressure-eviction-plugin", "BEMemoryEvict"}, nil},
		{[]rule.Finding{katalystFinding}, "met threshold in scope: s from plugin: memory-pressure-eviction-plugin", "m", []string{"memory-pressure-eviction-plugin"}, new(int64(60))},
	} {
		round := Choose(now, tt.findings, l, stateWith(nil, nil, nil))
		if len(round.Victims) != 1 {
			t.Fatalf("%v are evicted", names(round.Victims))
		}
		v := round.Victims[0]
		if v.Eviction.Reason != tt.reason || v.Eviction.Message != tt.message || cmp.Diff(tt.rules, v.Rules) != "" || cmp.Diff(tt.grace, v.Eviction.GracePeriodSeconds) != "" {
			t.Errorf("%+v; want %+v", v, tt)
		}
	}
}

// A candidate with a threshold of its own is evicted only while the value exceeds it, whatever the others' are.
func TestOwnThreshold(t *testing.T) {
	big, touchy := candidate(pod("big"), 4), candidate(pod("touchy"), 0.1)
	big.Threshold, touchy.Threshold = 5, 0.01
	for name, tt := range map[string]struct {
		ends *State
		want []string
	}{
		"nothing ends":            {stateWith(nil, nil, nil), []string{"big"}},
		"another pod is ending":   {stateWith([]string{"uid-small"}, nil, nil), []string{"touchy"}},
		"the candidate is ending": {stateWith([]string{"uid-big"}, nil, nil), []string{"touchy"}},
	} {
		f := finding("suppression", 6, 0.01, big, touchy)
		f.Others = []rule.Candidate{candidate(pod("small"), 2)}
		for _, hard := range []bool{false, true} {
			f.Hard = hard
			got := names(Choose(now, []rule.Finding{f}, defaultLimits(1), tt.ends).Victims)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s, hard %v (-want +got):\n%s", name, hard, d)
			}
		}
	}
}

// A refusal does not cancel the cooldown after another pod's eviction: neither if that pod has ended since, nor if the refused pod was
// asked again later because its first answer was lost.
func TestRefusalKeepsOtherCooldown(t *testing.T) {
	const span = 20 * time.Second
	limits := unlimited()
	limits.PerRuleUntilCovered = Unlimited
	a, b, c := pod("a"), pod("b"), pod("c")
	find := func(need float64, list ...rule.Candidate) []rule.Finding {
		f := koordinatorFinding("CPUEvict", need, list...)
		f.SharedCooldown, f.Cooldown = "koordinator cpu", span
		return []rule.Finding{f}
	}
	begin := func() *State {
		m := stateWith(nil, nil, nil)
		round := Choose(now, find(50, candidate(a, 30), candidate(b, 20)), limits, m)
		for _, v := range round.Victims {
			m.RecordRequest(v, now)
		}
		if got := names(round.Victims); len(got) != 2 {
			t.Fatalf("victims %v; want both pods", got)
		}
		m.InProgress[a.UID].Eviction.State = tick.StateCreated
		return m
	}
	later := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	check := func(name string, m *State, at time.Time, want time.Duration, list ...rule.Candidate) {
		t.Helper()
		round := Choose(at, find(100, list...), limits, m)
		if left := m.CooldownLeft("koordinator cpu", at, span); left != want || len(round.Victims) > 0 {
			t.Errorf("%s: %s of the cooldown left, victims %v; want %s, and none", name, left, names(round.Victims), want)
		}
	}

	m := begin()
	m.Observe(later(3), &tick.Sample{}, Pods{map[string]*tick.Pod{b.UID: b, c.UID: c}, true})
	m.Refuse(b.UID, "a budget", later(10), 30*time.Second)
	check("a has ended", m, later(10), 10*time.Second, candidate(b, 20), candidate(c, 10))

	m = begin()
	m.InProgress.NoAnswer(b.UID, "no answer", later(1))
	round := Choose(later(5), find(50, candidate(a, 30), candidate(b, 20)), limits, m)
	if got := names(round.Victims); len(got) != 1 || got[0] != "b" {
		t.Fatalf("victims %v; want b again", got)
	}
	m.RecordRequest(round.Victims[0], later(5))
	m.Refuse(b.UID, "a budget", later(7), 0)
	check("b was asked again", m, later(7), 13*time.Second, candidate(a, 30), candidate(b, 20), candidate(c, 10))
}

// BEMemoryEvict and MemoryEvict have one need: if the pod that the first evicts may release any amount, because its memory is unknown,
// the second evicts none, neither at the same tick nor while that eviction is in progress.
func TestUnknownVictimOfTwoMemoryRules(t *testing.T) {
	const gib = 1 << 30
	koordinatorPod := func(name, class string, priority int64) tick.Pod {
		p := *pod(name)
		p.QoSSource, p.Phase, p.Priority = tick.QoSFromKoordinator, "Running", &priority
		p.Labels = map[string]string{qos.KoordinatorClass: class}
		p.Containers = []tick.Container{{Name: "main", Cgroup: p.Cgroup + "/main"}}
		return p
	}
	strategies := sloconfig.Defaults()
	strategies.Threshold.Enable, strategies.Threshold.EvictEnabledPriorityThreshold = new(true), new(int64(7999))
	s := rule.Settings{Settings: evictconfig.Defaults()}
	s.Strategies = &strategies
	rules, err := rule.Select([]string{"BEMemoryEvict", "MemoryEvict"})
	if err != nil {
		t.Fatal(err)
	}
	first, second := rules[0].New(), rules[1].New()
	limits, m := unlimited(), stateWith(nil, nil, nil)
	limits.PerRuleUntilCovered = 1
	var got []string
	for i := range 12 {
		permitted := koordinatorPod("permitted", qos.LS, 7500)
		permitted.QoS, permitted.Labels[qos.EvictionEnabled] = tick.QoSShared, "true"
		permitted.Memory = &tick.Memory{RSSBytes: new(20.0 * gib)}
		x := &tick.Tick{Node: "node-1", Time: now.Add(time.Duration(i) * time.Second), Sample: &tick.Sample{
			IntervalSeconds: new(1.0),
			Memory:          &tick.NodeMemory{TotalBytes: new(100.0 * gib), AvailableBytes: new(25.0 * gib)},
			Capacity:        &tick.Resources{MilliCPU: new(8000.0), MemoryBytes: new(100.0 * gib)},
			Pods:            []tick.Pod{koordinatorPod("unknown", qos.BE, 5000), permitted},
		}}
		m.Observe(x.Time, x.Sample, Pods{map[string]*tick.Pod{"uid-unknown": &x.Sample.Pods[0], "uid-permitted": &x.Sample.Pods[1]}, true})
		findings := append(first.Measure(&s, x).Findings, second.Measure(&s, x).Findings...)
		for _, v := range Choose(x.Time, findings, limits, m).Victims {
			got = append(got, v.Pod.Name)
			m.RecordRequest(v, x.Time)
		}
	}
	if len(got) != 1 || got[0] != "unknown" {
		t.Errorf("victims %v; want the pod of unknown memory alone", got)
	}
}
