package pick

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/rule"
	"polder/lib/tick"
)

// changed returns a finding with a change.
func changed(f rule.Finding, change func(*rule.Finding)) rule.Finding {
	f.Candidates = slices.Clone(f.Candidates)
	change(&f)
	return f
}

func TestChoose(t *testing.T) {
	a, b, c := candidate(pod("a"), 10), candidate(pod("b"), 5), candidate(pod("c"), 5)
	system := candidate(pod("system"), 99)
	system.Pod.QoS = tick.QoSSystem
	over := finding("r", 20, 10, c, b, a)
	far := finding("r", 40, 10, c, b, a)
	other := finding("q", 20, 10, b)
	tolerant := func(tolerance, since time.Duration) rule.Finding {
		return changed(over, func(f *rule.Finding) {
			f.Tolerance, f.Since = tolerance, now.Add(-since).Format(time.RFC3339Nano)
		})
	}
	below := func(value float64) rule.Finding {
		return changed(finding("r", value, 30, c, b, a), func(f *rule.Finding) { f.Below, f.Met = true, value < 30 })
	}
	limits := func(change func(*Limits)) Limits { l := usual(3); change(&l); return l }
	elsewhere := candidate(pod("z"), 10)
	elsewhere.Pod.Namespace = "other"
	hour := func(uids ...string) *Memory {
		m := remembers(nil, nil, nil)
		for _, uid := range uids {
			m.Hour.Add(uid, "default", now.Add(-time.Minute))
		}
		return m
	}
	fresh := remembers(nil, nil, nil)
	for _, tt := range []struct {
		name     string
		findings []rule.Finding
		limits   Limits
		memory   *Memory
		want     []string
		limited  []Limited
	}{
		{"the first by rank", []rule.Finding{over}, usual(3), fresh, []string{"a"}, nil},
		{"equal ones by name", []rule.Finding{finding("r", 12, 10, c, b)}, usual(3), fresh, []string{"b"}, nil},
		{"not met", []rule.Finding{finding("r", 10, 10, a)}, usual(3), fresh, nil, nil},
		{"met by its history, not now", []rule.Finding{changed(finding("r", 10, 10, a), func(f *rule.Finding) { f.Met = true })}, usual(3), fresh, nil, nil},
		{"measured at an earlier tick", []rule.Finding{changed(over, func(f *rule.Finding) { f.Waits = "waits" })}, usual(3), fresh, nil, nil},
		{"nobody eligible", []rule.Finding{finding("r", 20, 10, system)}, usual(3), fresh, nil, nil},
		{"no candidates", []rule.Finding{finding("r", 20, 10)}, usual(3), fresh, nil, nil},
		{"the protected one is passed over", []rule.Finding{finding("r", 14, 10, system, b)}, usual(3), fresh, []string{"b"}, nil},
		{"who releases nothing does not go", []rule.Finding{finding("r", 20, 10, candidate(pod("z"), 0))}, usual(3), fresh, nil, nil},
		{"not known what it releases", []rule.Finding{finding("r", 20, 10, candidate(pod("z"), math.NaN()))}, usual(3), fresh, nil, nil},
		{"listed twice", []rule.Finding{finding("r", 99, 10, a, a)}, free(), fresh, []string{"a"}, nil},
		{"no value", []rule.Finding{changed(over, func(f *rule.Finding) { f.Value = math.NaN() })}, usual(3), fresh, nil, nil},

		{"no second one for the same need", []rule.Finding{over}, usual(3), remembers([]string{"uid-a"}, nil, nil), nil, nil},
		{"exactly enough is on its way", []rule.Finding{over}, usual(3), remembers([]string{"uid-b", "uid-c"}, nil, nil), nil, nil},
		{"the first was not enough", []rule.Finding{over}, usual(3), remembers([]string{"uid-b"}, nil, nil), []string{"a"}, nil},
		{"one that nobody knows the release of counts for all", []rule.Finding{finding("r", 99, 10, a, candidate(pod("z"), math.Inf(1)))}, usual(3), remembers([]string{"uid-z"}, nil, nil), nil, nil},
		{"spared after a failure", []rule.Finding{finding("r", 14, 10, a, b)}, usual(3), remembers(nil, []string{"uid-a"}, nil), []string{"b"}, nil},
		{"cooldown", []rule.Finding{over}, usual(3), remembers(nil, nil, []string{"r"}), nil, nil},
		{"another rule's cooldown", []rule.Finding{over}, usual(3), remembers(nil, nil, []string{"q"}), []string{"a"}, nil},

		{"below", []rule.Finding{below(21)}, usual(3), fresh, []string{"a"}, nil},
		{"below, at the threshold", []rule.Finding{below(30)}, usual(3), fresh, nil, nil},
		{"below, enough is on its way", []rule.Finding{below(21)}, usual(3), remembers([]string{"uid-a"}, nil, nil), nil, nil},
		{"below, not quite enough", []rule.Finding{below(19)}, usual(3), remembers([]string{"uid-a"}, nil, nil), []string{"b"}, nil},
		{"below, several", []rule.Finding{below(14)}, free(), fresh, []string{"a", "b", "c"}, nil},

		{"not for long enough", []rule.Finding{tolerant(15*time.Second, 15*time.Second-1)}, usual(3), fresh, nil, nil},
		{"just long enough", []rule.Finding{tolerant(15*time.Second, 15*time.Second)}, usual(3), fresh, []string{"a"}, nil},
		{"not known since when", []rule.Finding{changed(over, func(f *rule.Finding) { f.Tolerance = 1 })}, usual(3), fresh, nil, nil},
		{"since a time to come", []rule.Finding{tolerant(time.Second, -time.Hour)}, usual(3), fresh, nil, nil},
		{"a break in between", []rule.Finding{tolerant(15*time.Second, time.Hour)}, usual(3), &Memory{Steady: Steady{Start: now.Add(-14 * time.Second), Last: now}}, nil, nil},

		{"one a rule and round", []rule.Finding{far}, usual(3), fresh, []string{"a"}, []Limited{{"r", LimitPerRule}}},
		{"two a rule and round", []rule.Finding{far}, limits(func(l *Limits) { l.PerRule = 2 }), fresh, []string{"a", "b"}, []Limited{{"r", LimitPerRule}}},
		{"no more than needed", []rule.Finding{over}, free(), fresh, []string{"a"}, nil},
		{"no more than needed and one", []rule.Finding{finding("r", 20.5, 10, c, b, a)}, free(), fresh, []string{"a", "b"}, nil},
		{"all are not enough", []rule.Finding{far}, free(), fresh, []string{"a", "b", "c"}, nil},
		{"one a rule over its findings", []rule.Finding{over, finding("r", 50, 10, c)}, usual(3), fresh, []string{"a"}, []Limited{{"r", LimitPerRule}}},
		{"two rules", []rule.Finding{over, other}, usual(3), fresh, []string{"a", "b"}, nil},
		{"who is evicted for one rule counts for the other", []rule.Finding{over, finding("q", 20, 10, a, b)}, usual(3), fresh, []string{"a"}, nil},
		{"burst", []rule.Finding{over, other}, usual(1), fresh, []string{"a"}, []Limited{{"q", LimitBurst}}},
		{"burst 0", []rule.Finding{over}, usual(0), fresh, nil, []Limited{{"r", LimitBurst}}},
		{"no burst", []rule.Finding{over, other}, usual(Unlimited), fresh, []string{"a", "b"}, nil},
		{"the hour is full", []rule.Finding{over}, limits(func(l *Limits) { l.PerHour = 2 }), hour("x", "y"), nil, []Limited{{"r", LimitPerHour}}},
		{"one left in the hour", []rule.Finding{far}, limits(func(l *Limits) { l.PerHour, l.PerRule = 2, 3 }), hour("x"), []string{"a"}, []Limited{{"r", LimitPerHour}}},
		{"the same pod, restarted", []rule.Finding{over}, limits(func(l *Limits) { l.PerHour = 1 }), hour("uid-a"), nil, []Limited{{"r", LimitPerHour}}},
		{"the namespace is full", []rule.Finding{over}, limits(func(l *Limits) { l.PerNamespace = 1 }), hour("x"), nil, []Limited{{"r", LimitPerNamespace}}},
		{"one of the namespace in a round", []rule.Finding{far}, limits(func(l *Limits) { l.PerNamespace, l.PerRule = 1, 3 }), fresh, []string{"a"}, []Limited{{"r", LimitPerNamespace}}},
		{"two in the hour in a round", []rule.Finding{far}, limits(func(l *Limits) { l.PerHour, l.PerRule = 2, 3 }), fresh, []string{"a", "b"}, []Limited{{"r", LimitPerHour}}},
		{"another namespace is not", []rule.Finding{finding("r", 20, 10, a, elsewhere)}, limits(func(l *Limits) { l.PerNamespace = 1 }), hour("x"), []string{"z"}, []Limited{{"r", LimitPerNamespace}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Choose(now, tt.findings, tt.limits, tt.memory)
			if d := cmp.Diff(append([]string{}, tt.want...), names(r.Victims)); d != "" {
				t.Errorf("victims (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.limited, r.Limited); d != "" {
				t.Errorf("limits (-want +got):\n%s", d)
			}
		})
	}
}

// soft is a finding whose candidates wait in the queue.
func soft(name string, value, threshold float64, candidates ...rule.Candidate) rule.Finding {
	return changed(finding(name, value, threshold, candidates...), func(f *rule.Finding) { f.Hard = false })
}

func TestChooseSoft(t *testing.T) {
	one := func(name, qos string, priority *int64) rule.Candidate {
		p := pod(name)
		p.QoS, p.Priority = qos, priority
		return candidate(p, 5)
	}
	low, high := new(int64(1)), new(int64(9))
	shared, cheap := one("shared", tick.QoSShared, low), one("cheap", tick.QoSReclaimed, low)
	dear, none := one("dear", tick.QoSReclaimed, high), one("none", tick.QoSReclaimed, nil)
	large := candidate(cheap.Pod, 9)
	twin := one("twin", tick.QoSReclaimed, low)
	hard := finding("h", 14, 10, dear)
	for _, tt := range []struct {
		name     string
		findings []rule.Finding
		limits   Limits
		want     []string
		queue    []string
	}{
		{"one a round", []rule.Finding{soft("r", 99, 10, cheap, twin, none)}, free(), []string{"none"}, []string{"uid-cheap", "uid-none", "uid-twin"}},
		{"one over all findings", []rule.Finding{soft("r", 99, 10, dear), soft("q", 99, 10, cheap)}, free(), []string{"cheap"}, []string{"uid-cheap", "uid-dear"}},
		{"reclaimed ones first", []rule.Finding{soft("r", 99, 10, shared), soft("q", 99, 10, dear)}, free(), []string{"dear"}, []string{"uid-dear", "uid-shared"}},
		{"without a priority first", []rule.Finding{soft("r", 99, 10, cheap), soft("q", 99, 10, none)}, free(), []string{"none"}, []string{"uid-cheap", "uid-none"}},
		{"then by rank", []rule.Finding{soft("r", 99, 10, twin, large)}, free(), []string{"cheap"}, []string{"uid-cheap", "uid-twin"}},
		{"then by name", []rule.Finding{soft("r", 99, 10, twin, cheap)}, free(), []string{"cheap"}, []string{"uid-cheap", "uid-twin"}},
		{"after the hard ones", []rule.Finding{soft("r", 99, 10, cheap), hard}, usual(3), []string{"dear", "cheap"}, []string{"uid-cheap"}},
		{"burst counts both", []rule.Finding{soft("r", 99, 10, cheap), hard}, usual(1), []string{"dear"}, []string{"uid-cheap"}},
		{"so does the rule's own limit", []rule.Finding{soft("h", 99, 10, cheap), hard}, usual(3), []string{"dear"}, []string{"uid-cheap"}},
		{"who is evicted anyway counts", []rule.Finding{soft("r", 14, 10, cheap, dear), hard}, free(), []string{"dear"}, nil},
		{"not past the threshold", []rule.Finding{soft("r", 10, 10, cheap)}, free(), nil, nil},
		{"a taint alone", []rule.Finding{soft("r", 99, 10)}, free(), nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Choose(now, tt.findings, tt.limits, remembers(nil, nil, nil))
			if d := cmp.Diff(append([]string{}, tt.want...), names(r.Victims)); d != "" {
				t.Errorf("victims (-want +got):\n%s", d)
			}
			var queue []string
			for uid, since := range r.Queue {
				if queue = append(queue, uid); !since.Equal(now) {
					t.Errorf("%s waits since %s; want now", uid, since)
				}
			}
			slices.Sort(queue)
			if d := cmp.Diff(tt.queue, queue); d != "" {
				t.Errorf("queue (-want +got):\n%s", d)
			}
		})
	}
}

// A pod that is named again keeps its time, one that is not is removed, and a future time is dropped.
func TestQueue(t *testing.T) {
	m := remembers(nil, nil, nil)
	before := now.Add(-time.Minute)
	m.Queue = Queue{"uid-a": before, "uid-b": before, "uid-c": now.Add(time.Hour)}
	r := Choose(now, []rule.Finding{soft("r", 99, 10, candidate(pod("a"), 1), candidate(pod("c"), 1), candidate(pod("d"), 1))}, usual(0), m)
	if d := cmp.Diff(Queue{"uid-a": before, "uid-c": now, "uid-d": now}, r.Queue); d != "" {
		t.Errorf("queue (-want +got):\n%s", d)
	}
}

func TestChooseJoins(t *testing.T) {
	p := pod("a")
	second := finding("q", 9, 1, candidate(p, 1))
	second.GracePeriodSeconds, second.Message = nil, "n"
	want := []tick.PodEviction{{
		UID: "uid-a", Namespace: "default", Name: "a", Rule: "r", Scope: "s",
		Reason:  "met threshold in scope: s from plugin: r; met threshold in scope: s from plugin: q",
		Message: "m; n",
	}}
	for _, hard := range []bool{true, false} {
		first := finding("r", 9, 1, candidate(p, 1))
		first.Hard, second.Hard = hard, hard
		victims := Choose(now, []rule.Finding{first, second}, usual(1), remembers(nil, nil, nil)).Victims
		if len(victims) != 1 {
			t.Fatalf("victims %v; want one", names(victims))
		}
		if d := cmp.Diff(want, []tick.PodEviction{victims[0].Eviction}); d != "" {
			t.Errorf("hard %t: eviction (-want +got):\n%s", hard, d)
		}
		if d := cmp.Diff([]string{"r", "q"}, victims[0].Rules); d != "" {
			t.Errorf("hard %t: rules (-want +got):\n%s", hard, d)
		}
	}
	// A candidate's own grace period takes precedence over its finding's.
	own := candidate(p, 1)
	own.GracePeriodSeconds = new(int64(1))
	if v := Choose(now, []rule.Finding{finding("r", 9, 1, own)}, usual(1), remembers(nil, nil, nil)).Victims[0]; *v.Eviction.GracePeriodSeconds != 1 {
		t.Errorf("grace period %d s; want the candidate's 1", *v.Eviction.GracePeriodSeconds)
	}
	// The second rule prefers b, but a, which is evicted anyway, suffices for it.
	a, b := candidate(p, 5), candidate(pod("b"), 9)
	victims := Choose(now, []rule.Finding{finding("r", 14, 10, a), finding("q", 14, 10, b, a)}, usual(3), remembers(nil, nil, nil)).Victims
	if d := cmp.Diff([]string{"a"}, names(victims)); d != "" {
		t.Errorf("victims (-want +got):\n%s", d)
	}
}

// A pod that another client deletes counts as released, and is no victim.
func TestChooseTerminating(t *testing.T) {
	a, b := pod("a"), pod("b")
	a.Terminating = true
	for _, tt := range []struct {
		value float64
		want  string
	}{{14, ""}, {16, "b"}} {
		got := ""
		for _, v := range Choose(now, []rule.Finding{finding("r", tt.value, 10, candidate(a, 5), candidate(b, 5))}, free(), remembers(nil, nil, nil)).Victims {
			got += v.Pod.Name
		}
		if got != tt.want {
			t.Errorf("value %v, threshold 10, 5 of it terminating: victims %q; want %q", tt.value, got, tt.want)
		}
	}
}

// A pod that never finishes terminating does not count as released forever, whichever client has deleted it.
func TestTerminatesForEver(t *testing.T) {
	a, b := pod("a"), pod("b")
	a.Terminating = true
	f := []rule.Finding{finding("r", 14, 10, candidate(a, 5), candidate(b, 5))}
	present := map[string]*tick.Pod{a.UID: a, b.UID: b}
	for _, tt := range []struct {
		name     string
		memory   func() *Memory
		at       time.Duration // after the first observation
		released bool
	}{
		{"deleted by somebody", func() *Memory { return remembers(nil, nil, nil) }, 5 * time.Minute, true},
		{"deleted by somebody, long ago", func() *Memory { return remembers(nil, nil, nil) }, 5*time.Minute + time.Second, false},
		{"asked, and did not go", hung, time.Second, false},
		{"asked, and did not go, long ago", hung, time.Hour, false},
		{"refused by a budget, and deleted by somebody since", func() *Memory { return remembers(nil, []string{a.UID}, nil) }, time.Second, true},
		{"asked, with a long grace period of its own", func() *Memory { return awaited(time.Hour) }, 5 * time.Minute, true},
		{"asked, with a long grace period of its own, long ago", func() *Memory { return awaited(time.Hour) }, 5*time.Minute + time.Second, false},
	} {
		m := tt.memory()
		for d := time.Duration(0); d < tt.at; d += min(time.Minute, tt.at-d) {
			m.Observe(now.Add(d), &tick.Sample{}, present, true)
			data, err := tick.Marshal(m) // also across a restart
			if m = new(Memory); err != nil || tick.Unmarshal(data, m) != nil {
				t.Fatal("not read back", err)
			}
			m.Init()
		}
		m.Observe(now.Add(tt.at), &tick.Sample{}, present, true)
		want := []string{"b"}
		if tt.released {
			want = []string{}
		}
		if d := cmp.Diff(want, names(Choose(now.Add(tt.at), f, free(), m).Victims)); d != "" {
			t.Errorf("%s: victims (-want +got):\n%s", tt.name, d)
		}
	}
	// The sample may show its termination late.
	m, late := hung(), now.Add(SpareFor-time.Second)
	m.Observe(late, &tick.Sample{}, present, true)
	m.Observe(late.Add(2*time.Second), &tick.Sample{}, present, true)
	if d := cmp.Diff([]string{"b"}, names(Choose(late.Add(2*time.Second), f, free(), m).Victims)); d != "" {
		t.Errorf("seen late: victims (-want +got):\n%s", d)
	}
	m = remembers(nil, nil, nil)
	m.Observe(now, &tick.Sample{}, present, true)
	m.Observe(now.Add(time.Second), &tick.Sample{}, map[string]*tick.Pod{}, true)
	if len(m.Ending) > 0 {
		t.Errorf("pods that have gone are remembered: %v", m.Ending)
	}
}

// hung is a memory in which a's end was requested, and a still exists.
func hung() *Memory {
	m := awaited(0)
	m.InProgress.Fail("uid-a", "still there", now, 0)
	return m
}

// awaited is a memory in which a's end was requested, with a grace period of its own.
func awaited(grace time.Duration) *Memory {
	m := remembers(nil, nil, nil)
	m.Take(Victim{Pod: pod("a"), Eviction: tick.PodEviction{UID: "uid-a"}}, now)
	m.InProgress["uid-a"].Eviction.State = tick.StateCreated
	m.InProgress["uid-a"].OwnGrace = grace
	return m
}

// A pod that is no candidate counts all the same while its eviction is in progress.
func TestChooseLeaving(t *testing.T) {
	a, b, c := pod("a"), pod("b"), pod("c")
	a.Terminating = true
	f := finding("r", 19, 10, candidate(c, 5))
	f.Others = []rule.Candidate{candidate(a, 5), candidate(b, 5)}
	for _, tt := range []struct {
		going []string
		want  []string
	}{{nil, []string{"c"}}, {[]string{b.UID}, []string{}}} {
		if d := cmp.Diff(tt.want, names(Choose(now, []rule.Finding{f}, free(), remembers(tt.going, nil, nil)).Victims)); d != "" {
			t.Errorf("going %v: victims (-want +got):\n%s", tt.going, d)
		}
	}
}

// An eviction for one scope begins no cooldown of the rule's others.
func TestCooldownsByScope(t *testing.T) {
	soft := finding("r", 20, 10, candidate(pod("a"), 9))
	soft.Scope, soft.Hard = "soft", false
	hard := finding("r", 20, 10, candidate(pod("b"), 9))
	m := remembers(nil, nil, nil)
	m.Take(Choose(now, []rule.Finding{soft}, usual(1), m).Victims[0], now)
	round := Choose(now.Add(time.Second), []rule.Finding{soft, hard}, usual(1), m)
	if d := cmp.Diff([]string{"b"}, names(round.Victims)); d != "" {
		t.Errorf("victims after a soft eviction (-want +got):\n%s", d)
	}
	if left := round.Verdicts[0].CooldownLeft; left != 59*time.Second {
		t.Errorf("the soft scope's cooldown lasts %s more; want 59 s", left)
	}
}

// A rule in dry run reports which pods would be evicted, takes nothing from the others, and counts their victims.
func TestChooseDryRun(t *testing.T) {
	a, b, c := candidate(pod("a"), 5), candidate(pod("b"), 5), candidate(pod("c"), 5)
	tried := func(f rule.Finding) rule.Finding {
		return changed(f, func(f *rule.Finding) { f.DryRun = true })
	}
	for _, tt := range []struct {
		name        string
		findings    []rule.Finding
		limits      Limits
		want, would []string
	}{
		{"alone", []rule.Finding{tried(finding("r", 14, 10, a))}, usual(0), nil, []string{"a"}},
		{"soft", []rule.Finding{tried(soft("r", 99, 10, a, b))}, usual(0), nil, []string{"a"}},
		{"its own limit holds", []rule.Finding{tried(finding("r", 99, 10, a, b))}, usual(0), nil, []string{"a"}},
		{"uses nothing up", []rule.Finding{tried(finding("r", 99, 10, a)), finding("q", 99, 10, b)}, usual(1), []string{"b"}, []string{"a"}},
		{"counts who really goes", []rule.Finding{tried(finding("r", 14, 10, a, b)), finding("q", 99, 10, b)}, usual(3), []string{"b"}, nil},
		{"who would be evicted does not count", []rule.Finding{tried(finding("r", 14, 10, a)), finding("q", 14, 10, a, c)}, usual(3), []string{"a"}, nil},
	} {
		r := Choose(now, tt.findings, tt.limits, remembers(nil, nil, nil))
		if d := cmp.Diff(append([]string{}, tt.want...), names(r.Victims)); d != "" {
			t.Errorf("%s: victims (-want +got):\n%s", tt.name, d)
		}
		if d := cmp.Diff(append([]string{}, tt.would...), names(r.Would)); d != "" {
			t.Errorf("%s: would be evicted (-want +got):\n%s", tt.name, d)
		}
		if len(r.Limited) > 0 && tt.findings[0].DryRun && len(tt.findings) == 1 {
			t.Errorf("%s: limits %v reached by a trial", tt.name, r.Limited)
		}
	}
}
