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
	exceeded := finding("r", 20, 10, c, b, a)
	farExceeded := finding("r", 40, 10, c, b, a)
	other := finding("q", 20, 10, b)
	tolerant := func(tolerance, since time.Duration) rule.Finding {
		return changed(exceeded, func(f *rule.Finding) {
			f.Tolerance, f.Since = tolerance, now.Add(-since).Format(time.RFC3339Nano)
		})
	}
	below := func(value float64) rule.Finding {
		return changed(finding("r", value, 30, c, b, a), func(f *rule.Finding) { f.Below, f.Met = true, value < 30 })
	}
	limits := func(change func(*Limits)) Limits { l := defaultLimits(3); change(&l); return l }
	otherNamespace := candidate(pod("z"), 10)
	otherNamespace.Pod.Namespace = "other"
	hour := func(uids ...string) *State {
		m := stateWith(nil, nil, nil)
		for _, uid := range uids {
			m.LastHour.Add(uid, "default", now.Add(-time.Minute))
		}
		return m
	}
	empty := stateWith(nil, nil, nil)
	for _, tt := range []struct {
		name     string
		findings []rule.Finding
		limits   Limits
		state    *State
		want     []string
		limited  []ReachedLimit
	}{
		{"the first by rank", []rule.Finding{exceeded}, defaultLimits(3), empty, []string{"a"}, nil},
		{"equal ones by name", []rule.Finding{finding("r", 12, 10, c, b)}, defaultLimits(3), empty, []string{"b"}, nil},
		{"not met", []rule.Finding{finding("r", 10, 10, a)}, defaultLimits(3), empty, nil, nil},
		{"met by its history, not now", []rule.Finding{changed(finding("r", 10, 10, a), func(f *rule.Finding) { f.Met = true })}, defaultLimits(3), empty, nil, nil},
		{"measured at an earlier tick", []rule.Finding{changed(exceeded, func(f *rule.Finding) { f.WhyWait = "waits" })}, defaultLimits(3), empty, nil, nil},
		{"no eligible candidate", []rule.Finding{finding("r", 20, 10, system)}, defaultLimits(3), empty, nil, nil},
		{"no candidates", []rule.Finding{finding("r", 20, 10)}, defaultLimits(3), empty, nil, nil},
		{"the protected one is skipped", []rule.Finding{finding("r", 14, 10, system, b)}, defaultLimits(3), empty, []string{"b"}, nil},
		{"a pod that releases nothing is not evicted", []rule.Finding{finding("r", 20, 10, candidate(pod("z"), 0))}, defaultLimits(3), empty, nil, nil},
		{"unknown release", []rule.Finding{finding("r", 20, 10, candidate(pod("z"), math.NaN()))}, defaultLimits(3), empty, nil, nil},
		{"listed twice", []rule.Finding{finding("r", 99, 10, a, a)}, unlimited(), empty, []string{"a"}, nil},
		{"no value", []rule.Finding{changed(exceeded, func(f *rule.Finding) { f.Value = math.NaN() })}, defaultLimits(3), empty, nil, nil},

		{"no second one for the same need", []rule.Finding{exceeded}, defaultLimits(3), stateWith([]string{"uid-a"}, nil, nil), nil, nil},
		{"exactly enough is in progress", []rule.Finding{exceeded}, defaultLimits(3), stateWith([]string{"uid-b", "uid-c"}, nil, nil), nil, nil},
		{"the first was not enough", []rule.Finding{exceeded}, defaultLimits(3), stateWith([]string{"uid-b"}, nil, nil), []string{"a"}, nil},
		{"a pod with unknown release counts for all", []rule.Finding{finding("r", 99, 10, a, candidate(pod("z"), math.Inf(1)))}, defaultLimits(3), stateWith([]string{"uid-z"}, nil, nil), nil, nil},
		{"excluded after a failure", []rule.Finding{finding("r", 14, 10, a, b)}, defaultLimits(3), stateWith(nil, []string{"uid-a"}, nil), []string{"b"}, nil},
		{"cooldown", []rule.Finding{exceeded}, defaultLimits(3), stateWith(nil, nil, []string{"r"}), nil, nil},
		{"another rule's cooldown", []rule.Finding{exceeded}, defaultLimits(3), stateWith(nil, nil, []string{"q"}), []string{"a"}, nil},

		{"below", []rule.Finding{below(21)}, defaultLimits(3), empty, []string{"a"}, nil},
		{"below, at the threshold", []rule.Finding{below(30)}, defaultLimits(3), empty, nil, nil},
		{"below, enough is in progress", []rule.Finding{below(21)}, defaultLimits(3), stateWith([]string{"uid-a"}, nil, nil), nil, nil},
		{"below, not quite enough", []rule.Finding{below(19)}, defaultLimits(3), stateWith([]string{"uid-a"}, nil, nil), []string{"b"}, nil},
		{"below, several", []rule.Finding{below(14)}, unlimited(), empty, []string{"a", "b", "c"}, nil},

		{"met for less than the tolerance", []rule.Finding{tolerant(15*time.Second, 15*time.Second-1)}, defaultLimits(3), empty, nil, nil},
		{"exactly long enough", []rule.Finding{tolerant(15*time.Second, 15*time.Second)}, defaultLimits(3), empty, []string{"a"}, nil},
		{"unknown start", []rule.Finding{changed(exceeded, func(f *rule.Finding) { f.Tolerance = 1 })}, defaultLimits(3), empty, nil, nil},
		{"a start in the future", []rule.Finding{tolerant(time.Second, -time.Hour)}, defaultLimits(3), empty, nil, nil},
		{"a break in between", []rule.Finding{tolerant(15*time.Second, time.Hour)}, defaultLimits(3), &State{Continuity: Continuity{Start: now.Add(-14 * time.Second), Last: now}}, nil, nil},

		{"one per rule and round", []rule.Finding{farExceeded}, defaultLimits(3), empty, []string{"a"}, []ReachedLimit{{"r", LimitPerRule}}},
		{"two per rule and round", []rule.Finding{farExceeded}, limits(func(l *Limits) { l.PerRule = 2 }), empty, []string{"a", "b"}, []ReachedLimit{{"r", LimitPerRule}}},
		{"no more than needed", []rule.Finding{exceeded}, unlimited(), empty, []string{"a"}, nil},
		{"no more than needed and one", []rule.Finding{finding("r", 20.5, 10, c, b, a)}, unlimited(), empty, []string{"a", "b"}, nil},
		{"all are not enough", []rule.Finding{farExceeded}, unlimited(), empty, []string{"a", "b", "c"}, nil},
		{"one per rule over its findings", []rule.Finding{exceeded, finding("r", 50, 10, c)}, defaultLimits(3), empty, []string{"a"}, []ReachedLimit{{"r", LimitPerRule}}},
		{"two rules", []rule.Finding{exceeded, other}, defaultLimits(3), empty, []string{"a", "b"}, nil},
		{"a victim of one rule counts for the other", []rule.Finding{exceeded, finding("q", 20, 10, a, b)}, defaultLimits(3), empty, []string{"a"}, nil},
		{"burst", []rule.Finding{exceeded, other}, defaultLimits(1), empty, []string{"a"}, []ReachedLimit{{"q", LimitBurst}}},
		{"burst 0", []rule.Finding{exceeded}, defaultLimits(0), empty, nil, []ReachedLimit{{"r", LimitBurst}}},
		{"no burst", []rule.Finding{exceeded, other}, defaultLimits(Unlimited), empty, []string{"a", "b"}, nil},
		{"the hour is full", []rule.Finding{exceeded}, limits(func(l *Limits) { l.PerHour = 2 }), hour("x", "y"), nil, []ReachedLimit{{"r", LimitPerHour}}},
		{"one left in the hour", []rule.Finding{farExceeded}, limits(func(l *Limits) { l.PerHour, l.PerRule = 2, 3 }), hour("x"), []string{"a"}, []ReachedLimit{{"r", LimitPerHour}}},
		{"the same pod, restarted", []rule.Finding{exceeded}, limits(func(l *Limits) { l.PerHour = 1 }), hour("uid-a"), nil, []ReachedLimit{{"r", LimitPerHour}}},
		{"the namespace is full", []rule.Finding{exceeded}, limits(func(l *Limits) { l.PerNamespace = 1 }), hour("x"), nil, []ReachedLimit{{"r", LimitPerNamespace}}},
		{"one of the namespace in a round", []rule.Finding{farExceeded}, limits(func(l *Limits) { l.PerNamespace, l.PerRule = 1, 3 }), empty, []string{"a"}, []ReachedLimit{{"r", LimitPerNamespace}}},
		{"two in the hour in a round", []rule.Finding{farExceeded}, limits(func(l *Limits) { l.PerHour, l.PerRule = 2, 3 }), empty, []string{"a", "b"}, []ReachedLimit{{"r", LimitPerHour}}},
		{"another namespace is not", []rule.Finding{finding("r", 20, 10, a, otherNamespace)}, limits(func(l *Limits) { l.PerNamespace = 1 }), hour("x"), []string{"z"}, []ReachedLimit{{"r", LimitPerNamespace}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Choose(now, tt.findings, tt.limits, tt.state)
			if d := cmp.Diff(append([]string{}, tt.want...), names(r.Victims)); d != "" {
				t.Errorf("victims (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.limited, r.ReachedLimits); d != "" {
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
	shared, lowPriority := one("shared", tick.QoSShared, low), one("cheap", tick.QoSReclaimed, low)
	highPriority, none := one("dear", tick.QoSReclaimed, high), one("none", tick.QoSReclaimed, nil)
	large := candidate(lowPriority.Pod, 9)
	twin := one("twin", tick.QoSReclaimed, low)
	hard := finding("h", 14, 10, highPriority)
	for _, tt := range []struct {
		name     string
		findings []rule.Finding
		limits   Limits
		want     []string
		queue    []string
	}{
		{"one per round", []rule.Finding{soft("r", 99, 10, lowPriority, twin, none)}, unlimited(), []string{"none"}, []string{"uid-cheap", "uid-none", "uid-twin"}},
		{"one over all findings", []rule.Finding{soft("r", 99, 10, highPriority), soft("q", 99, 10, lowPriority)}, unlimited(), []string{"cheap"}, []string{"uid-cheap", "uid-dear"}},
		{"reclaimed ones first", []rule.Finding{soft("r", 99, 10, shared), soft("q", 99, 10, highPriority)}, unlimited(), []string{"dear"}, []string{"uid-dear", "uid-shared"}},
		{"without a priority first", []rule.Finding{soft("r", 99, 10, lowPriority), soft("q", 99, 10, none)}, unlimited(), []string{"none"}, []string{"uid-cheap", "uid-none"}},
		{"then by rank", []rule.Finding{soft("r", 99, 10, twin, large)}, unlimited(), []string{"cheap"}, []string{"uid-cheap", "uid-twin"}},
		{"then by name", []rule.Finding{soft("r", 99, 10, twin, lowPriority)}, unlimited(), []string{"cheap"}, []string{"uid-cheap", "uid-twin"}},
		{"after the hard ones", []rule.Finding{soft("r", 99, 10, lowPriority), hard}, defaultLimits(3), []string{"dear", "cheap"}, []string{"uid-cheap"}},
		{"burst counts both", []rule.Finding{soft("r", 99, 10, lowPriority), hard}, defaultLimits(1), []string{"dear"}, []string{"uid-cheap"}},
		{"the rule's own limit counts both", []rule.Finding{soft("h", 99, 10, lowPriority), hard}, defaultLimits(3), []string{"dear"}, []string{"uid-cheap"}},
		{"a victim of another finding counts", []rule.Finding{soft("r", 14, 10, lowPriority, highPriority), hard}, unlimited(), []string{"dear"}, nil},
		{"not past the threshold", []rule.Finding{soft("r", 10, 10, lowPriority)}, unlimited(), nil, nil},
		{"only a taint", []rule.Finding{soft("r", 99, 10)}, unlimited(), nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Choose(now, tt.findings, tt.limits, stateWith(nil, nil, nil))
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

// However many pods soft findings name, hard findings can use the second half of the hour, on the node and of each namespace.
func TestSoftFindingsLeaveHalfOfTheHour(t *testing.T) {
	for _, tt := range []struct {
		limit      int
		soft, hard bool // one more may be evicted for it
	}{{Unlimited, true, true}, {3, true, true}, {2, false, true}, {1, false, false}, {0, false, false}} {
		for _, name := range []string{LimitPerHour, LimitPerNamespace} {
			m, limits := stateWith(nil, nil, nil), unlimited()
			m.LastHour.Add("earlier", "default", now.Add(-time.Minute))
			if name == LimitPerHour {
				limits.PerHour = tt.limit
			} else {
				limits.PerNamespace = tt.limit
			}
			for _, f := range []rule.Finding{soft("r", 99, 10, candidate(pod("a"), 1)), finding("r", 99, 10, candidate(pod("a"), 1))} {
				want := tt.soft
				if f.Hard {
					want = tt.hard
				}
				r := Choose(now, []rule.Finding{f}, limits, m)
				if got := len(r.Victims) == 1; got != want || !want && (len(r.ReachedLimits) != 1 || r.ReachedLimits[0].Limit != name) {
					t.Errorf("--%s %d, one used, hard %t: chosen %t, limits %v; want %t", name, tt.limit, f.Hard, got, r.ReachedLimits, want)
				}
			}
		}
	}
}

// A pod that is named again keeps its time, one that is not is removed, and a future time is dropped.
func TestQueue(t *testing.T) {
	m := stateWith(nil, nil, nil)
	before := now.Add(-time.Minute)
	m.Queue = Queue{"uid-a": before, "uid-b": before, "uid-c": now.Add(time.Hour)}
	r := Choose(now, []rule.Finding{soft("r", 99, 10, candidate(pod("a"), 1), candidate(pod("c"), 1), candidate(pod("d"), 1))}, defaultLimits(0), m)
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
		victims := Choose(now, []rule.Finding{first, second}, defaultLimits(1), stateWith(nil, nil, nil)).Victims
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
	if v := Choose(now, []rule.Finding{finding("r", 9, 1, own)}, defaultLimits(1), stateWith(nil, nil, nil)).Victims[0]; *v.Eviction.GracePeriodSeconds != 1 {
		t.Errorf("grace period %d s; want the candidate's 1", *v.Eviction.GracePeriodSeconds)
	}
	// The second rule prefers b, but a, which is evicted anyway, suffices for it.
	a, b := candidate(p, 5), candidate(pod("b"), 9)
	victims := Choose(now, []rule.Finding{finding("r", 14, 10, a), finding("q", 14, 10, b, a)}, defaultLimits(3), stateWith(nil, nil, nil)).Victims
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
		for _, v := range Choose(now, []rule.Finding{finding("r", tt.value, 10, candidate(a, 5), candidate(b, 5))}, unlimited(), stateWith(nil, nil, nil)).Victims {
			got += v.Pod.Name
		}
		if got != tt.want {
			t.Errorf("value %v, threshold 10, 5 of it terminating: victims %q; want %q", tt.value, got, tt.want)
		}
	}
}

// A pod that another client has deleted by force counts as released while its cgroup exists. A cgroup of which nothing was ever known may
// be that of a pod that the cluster has.
func TestChooseDeletedByForce(t *testing.T) {
	for source, want := range map[string][]string{tick.QoSFromKatalyst: {}, tick.QoSFromRule: {"b"}} {
		a, b := pod("a"), pod("b")
		a.Missing, a.QoSSource = tick.MissingCluster, source
		m := stateWith(nil, nil, nil)
		f := []rule.Finding{finding("r", 14, 10, candidate(a, 5), candidate(b, 5))}
		present := Pods{map[string]*tick.Pod{a.UID: a, b.UID: b}, true}
		m.Observe(now, &tick.Sample{}, present)
		if d := cmp.Diff(want, names(Choose(now, f, unlimited(), m).Victims)); d != "" {
			t.Errorf("class by %s: victims (-want +got):\n%s", source, d)
		}
		m.Observe(now.Add(stuckAfter+1), &tick.Sample{}, present)
		if d := cmp.Diff([]string{"b"}, names(Choose(now.Add(stuckAfter+1), f, unlimited(), m).Victims)); d != "" {
			t.Errorf("class by %s, deleted long ago: victims (-want +got):\n%s", source, d)
		}
	}
}

// A pod that never finishes terminating does not count as released forever, whichever client has deleted it.
func TestStuckTerminating(t *testing.T) {
	a, b := pod("a"), pod("b")
	a.Terminating = true
	f := []rule.Finding{finding("r", 14, 10, candidate(a, 5), candidate(b, 5))}
	present := map[string]*tick.Pod{a.UID: a, b.UID: b}
	for _, tt := range []struct {
		name     string
		state    func() *State
		at       time.Duration // after the first observation
		released bool
	}{
		{"deleted by another client", func() *State { return stateWith(nil, nil, nil) }, 5 * time.Minute, true},
		{"deleted by another client, long ago", func() *State { return stateWith(nil, nil, nil) }, 5*time.Minute + time.Second, false},
		{"requested, still there", stuck, time.Second, false},
		{"requested, still there after a long time", stuck, time.Hour, false},
		{"refused by a budget, then deleted by another client", func() *State { return stateWith(nil, []string{a.UID}, nil) }, time.Second, true},
		{"requested, with a long grace period of its own", func() *State { return awaited(time.Hour) }, 5 * time.Minute, true},
		{"requested long ago, with a long grace period of its own", func() *State { return awaited(time.Hour) }, 5*time.Minute + time.Second, false},
	} {
		m := tt.state()
		for d := time.Duration(0); d < tt.at; d += min(time.Minute, tt.at-d) {
			m.Observe(now.Add(d), &tick.Sample{}, Pods{present, true})
			m = restart(t, m)
		}
		m.Observe(now.Add(tt.at), &tick.Sample{}, Pods{present, true})
		want := []string{"b"}
		if tt.released {
			want = []string{}
		}
		if d := cmp.Diff(want, names(Choose(now.Add(tt.at), f, unlimited(), m).Victims)); d != "" {
			t.Errorf("%s: victims (-want +got):\n%s", tt.name, d)
		}
	}
	// The sample may show its termination late.
	m, late := stuck(), now.Add(DefaultRetryAfter-time.Second)
	m.Observe(late, &tick.Sample{}, Pods{present, true})
	m.Observe(late.Add(2*time.Second), &tick.Sample{}, Pods{present, true})
	if d := cmp.Diff([]string{"b"}, names(Choose(late.Add(2*time.Second), f, unlimited(), m).Victims)); d != "" {
		t.Errorf("seen late: victims (-want +got):\n%s", d)
	}
	m = stateWith(nil, nil, nil)
	m.Observe(now, &tick.Sample{}, Pods{present, true})
	m.Observe(now.Add(time.Second), &tick.Sample{}, Pods{map[string]*tick.Pod{}, true})
	if len(m.TerminatingSince) > 0 {
		t.Errorf("ended pods are remembered: %v", m.TerminatingSince)
	}
}

// stuck is a memory in which a's end was requested, and a still exists.
func stuck() *State {
	m := awaited(0)
	m.InProgress.Fail("uid-a", "still there", now, 0)
	return m
}

// awaited is a memory in which a's end was requested, with a grace period of its own.
func awaited(grace time.Duration) *State {
	m := stateWith(nil, nil, nil)
	m.RecordRequest(Victim{Pod: pod("a"), Eviction: tick.PodEviction{UID: "uid-a"}}, now)
	m.InProgress["uid-a"].Eviction.State = tick.StateCreated
	m.InProgress["uid-a"].OwnGrace = grace
	return m
}

// A pod that is no candidate counts all the same while its eviction is in progress.
func TestChooseWithEvictionsInProgress(t *testing.T) {
	a, b, c := pod("a"), pod("b"), pod("c")
	a.Terminating = true
	f := finding("r", 19, 10, candidate(c, 5))
	f.Others = []rule.Candidate{candidate(a, 5), candidate(b, 5)}
	for _, tt := range []struct {
		inProgress []string
		want       []string
	}{{nil, []string{"c"}}, {[]string{b.UID}, []string{}}} {
		if d := cmp.Diff(tt.want, names(Choose(now, []rule.Finding{f}, unlimited(), stateWith(tt.inProgress, nil, nil)).Victims)); d != "" {
			t.Errorf("going %v: victims (-want +got):\n%s", tt.inProgress, d)
		}
	}
}

// An eviction for one scope begins no cooldown of the rule's others.
func TestCooldownsByScope(t *testing.T) {
	soft := finding("r", 20, 10, candidate(pod("a"), 9))
	soft.Scope, soft.Hard = "soft", false
	hard := finding("r", 20, 10, candidate(pod("b"), 9))
	m := stateWith(nil, nil, nil)
	m.RecordRequest(Choose(now, []rule.Finding{soft}, defaultLimits(1), m).Victims[0], now)
	round := Choose(now.Add(time.Second), []rule.Finding{soft, hard}, defaultLimits(1), m)
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
	dryRun := func(f rule.Finding) rule.Finding {
		return changed(f, func(f *rule.Finding) { f.DryRun = true })
	}
	for _, tt := range []struct {
		name             string
		findings         []rule.Finding
		limits           Limits
		want, wouldEvict []string
	}{
		{"alone", []rule.Finding{dryRun(finding("r", 14, 10, a))}, defaultLimits(0), nil, []string{"a"}},
		{"soft", []rule.Finding{dryRun(soft("r", 99, 10, a, b))}, defaultLimits(0), nil, []string{"a"}},
		{"its own limit applies", []rule.Finding{dryRun(finding("r", 99, 10, a, b))}, defaultLimits(0), nil, []string{"a"}},
		{"does not count towards limits", []rule.Finding{dryRun(finding("r", 99, 10, a)), finding("q", 99, 10, b)}, defaultLimits(1), []string{"b"}, []string{"a"}},
		{"counts real victims", []rule.Finding{dryRun(finding("r", 14, 10, a, b)), finding("q", 99, 10, b)}, defaultLimits(3), []string{"b"}, nil},
		{"a pod that would be evicted does not count", []rule.Finding{dryRun(finding("r", 14, 10, a)), finding("q", 14, 10, a, c)}, defaultLimits(3), []string{"a"}, nil},
	} {
		r := Choose(now, tt.findings, tt.limits, stateWith(nil, nil, nil))
		if d := cmp.Diff(append([]string{}, tt.want...), names(r.Victims)); d != "" {
			t.Errorf("%s: victims (-want +got):\n%s", tt.name, d)
		}
		if d := cmp.Diff(append([]string{}, tt.wouldEvict...), names(r.WouldEvict)); d != "" {
			t.Errorf("%s: would be evicted (-want +got):\n%s", tt.name, d)
		}
		if len(r.ReachedLimits) > 0 && tt.findings[0].DryRun && len(tt.findings) == 1 {
			t.Errorf("%s: limits %v reached by a dry run", tt.name, r.ReachedLimits)
		}
	}
}
