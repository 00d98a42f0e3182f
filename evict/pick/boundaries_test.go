package pick

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/rule"
	"polder/lib/tick"
)

// A grace period of 0 means at once; a missing or invalid one means the pod's own.
func TestZeroGracePeriod(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{0: 0, 1: time.Second, -1: defaultGrace} {
		if got := Grace(&tick.PodEviction{GracePeriodSeconds: &seconds}); got != want {
			t.Errorf("a grace period of %d s is %s, want %s", seconds, got, want)
		}
	}
}

// If two findings name one pod, the longer grace period applies, in either order.
func TestLongerGracePeriodApplies(t *testing.T) {
	p := pod("a")
	for _, tt := range []struct{ first, second int64 }{{10, 20}, {20, 10}, {20, 20}} {
		first, second := finding("r", 9, 1, candidate(p, 1)), finding("q", 9, 1, candidate(p, 1))
		first.GracePeriodSeconds, second.GracePeriodSeconds = &tt.first, &tt.second
		victims := Choose(now, []rule.Finding{first, second}, defaultLimits(1), stateWith(nil, nil, nil)).Victims
		if got, want := *victims[0].Eviction.GracePeriodSeconds, max(tt.first, tt.second); got != want {
			t.Errorf("grace periods of %d and %d s: %d s, want %d", tt.first, tt.second, got, want)
		}
	}
}

// A pod of a plain host whose eviction has ended stays known while its cgroup is empty; it is dropped when it is started again.
func TestEmptyCgroupStaysEnded(t *testing.T) {
	g := InProgress{"uid-a": {RequestedAt: now, EndedAt: now}}
	p := pod("a")
	p.Threads = new(0.0)
	g.observeEnded("uid-a", g["uid-a"], now.Add(time.Second), p)
	if g["uid-a"] == nil {
		t.Fatal("a pod without threads is no longer tracked")
	}
	p.Threads = new(1.0)
	if g.observeEnded("uid-a", g["uid-a"], now.Add(time.Second), p); g["uid-a"] != nil {
		t.Error("a pod that runs again still counts as ended")
	}
}

// A pod whose end was requested counts as released for five minutes, or for one and a half times a longer grace period plus the
// request's time.
func TestReleasedUntilStuck(t *testing.T) {
	for _, tt := range []struct {
		grace int64
		want  time.Duration
	}{{0, stuckAfter}, {60, stuckAfter}, {600, 15*time.Minute + requestTimeout}} {
		l := &Ongoing{RequestedAt: now, Eviction: tick.PodEviction{GracePeriodSeconds: &tt.grace}}
		if !l.releases(now.Add(tt.want)) || l.releases(now.Add(tt.want+time.Nanosecond)) {
			t.Errorf("a grace period of %d s: it does not count as released for %s", tt.grace, tt.want)
		}
	}
}

// The time since which a pod terminates is known while it does, and for an hour if the list of pods is incomplete.
func TestTerminatingSince(t *testing.T) {
	m := stateWith(nil, nil, nil)
	terminating := func(on bool) map[string]*tick.Pod {
		p := pod("a")
		p.Terminating = on
		return map[string]*tick.Pod{p.UID: p}
	}
	steps := []struct {
		name     string
		after    time.Duration
		present  map[string]*tick.Pod
		complete bool
		want     time.Duration // -1: unknown
	}{
		{"it terminates", 0, terminating(true), true, 0},
		{"it still terminates", time.Minute, terminating(true), true, 0},
		{"it is missing in an incomplete list", time.Hour, nil, false, 0},
		{"for more than an hour", time.Hour + time.Second, nil, false, -1},
		{"it terminates again", 2 * time.Hour, terminating(true), true, 2 * time.Hour},
		{"it is another one of the name", 3 * time.Hour, terminating(false), true, -1},
		{"it terminates", 4 * time.Hour, terminating(true), true, 4 * time.Hour},
		{"it is gone", 4*time.Hour + time.Second, nil, true, -1},
	}
	for _, s := range steps {
		m.Observe(now.Add(s.after), nil, Pods{s.present, s.complete})
		want := map[string]time.Time{}
		if s.want >= 0 {
			want["uid-a"] = now.Add(s.want)
		}
		if d := cmp.Diff(want, m.TerminatingSince); d != "" {
			t.Errorf("%s: (-want +got):\n%s", s.name, d)
		}
	}
}

// Of several soft findings' candidates the one whose end was already requested comes first, whatever its class; then reclaimed pods, and
// among these the lowest priority.
func TestUnansweredFirst(t *testing.T) {
	one := func(name, qos string, priority int64) rule.Candidate {
		p := pod(name)
		p.QoS, p.Priority = qos, &priority
		return candidate(p, 5)
	}
	all := []rule.Finding{
		soft("r", 99, 10, one("shared", tick.QoSShared, 0)),
		soft("q", 99, 10, one("high", tick.QoSReclaimed, 5), one("low", tick.QoSReclaimed, 1)),
	}
	first := func(m *State) []string { return names(Choose(now, all, defaultLimits(1), m).Victims) }
	if d := cmp.Diff([]string{"low"}, first(stateWith(nil, nil, nil))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	unanswered := stateWith(nil, nil, nil)
	unanswered.InProgress["uid-shared"] = &Ongoing{RequestedAt: now, FailedAt: now, Unanswered: true}
	if d := cmp.Diff([]string{"shared"}, first(unanswered)); d != "" {
		t.Errorf("requested already: (-want +got):\n%s", d)
	}
}

// A pod that is evicted for another finding also counts towards the limit of a rule that joins: the rule evicts no second pod.
func TestJoiningCountsTowardsPerRule(t *testing.T) {
	a, b := candidate(pod("a"), 5), candidate(pod("b"), 4)
	all := []rule.Finding{soft("r", 99, 10, a), soft("q", 99, 10, a), soft("q", 99, 10, a, b)}
	all[2].Scope = "other"
	round := Choose(now, all, defaultLimits(9), stateWith(nil, nil, nil))
	if d := cmp.Diff([]string{"a"}, names(round.Victims)); d != "" {
		t.Fatalf("victims (-want +got):\n%s", d)
	}
	var rules []bool
	for _, v := range round.Verdicts {
		rules = append(rules, v.Candidates[0].Chosen)
	}
	if d := cmp.Diff([]bool{true, true, false}, rules); d != "" {
		t.Errorf("rules of the victim (-want +got):\n%s", d)
	}
}

// An eviction whose pod is missing is forgotten after an hour, also while the list of pods is incomplete.
func TestForgottenEvictions(t *testing.T) {
	for name, change := range map[string]func(*Ongoing){
		"requested": func(*Ongoing) {},
		"ended":     func(l *Ongoing) { l.EndedAt = now },
		"stuck":     func(l *Ongoing) { l.FailedAt, l.StuckTerminating = now, true },
		"frozen":    func(l *Ongoing) { l.Frozen = true },
	} {
		state := stateWith([]string{"uid-a"}, nil, nil)
		l := state.InProgress["uid-a"]
		l.RequestedAt = now
		change(l)
		state.InProgress.Observe(now.Add(time.Hour), Pods{nil, false})
		if state.InProgress["uid-a"] == nil && name != "requested" {
			t.Errorf("%s: forgotten within an hour", name)
		}
		state.InProgress.Observe(now.Add(3*time.Hour), Pods{nil, false})
		if len(state.InProgress) > 0 {
			t.Errorf("%s: %+v after three hours; want it forgotten", name, state.InProgress["uid-a"])
		}
	}
}

// If the clock was set back, what happened later than now happened now: a failed eviction is tried again after its time, and a cgroup that
// runs again no longer counts as ended.
func TestEvictionsAfterTheClockWasSetBack(t *testing.T) {
	runs := pod("a")
	runs.Threads = new(1.0)
	later := now.Add(time.Hour)
	for name, l := range map[string]*Ongoing{"failed": {RequestedAt: now, FailedAt: later}, "ended": {RequestedAt: now, EndedAt: later}} {
		g := InProgress{"uid-a": l}
		pods := Pods{map[string]*tick.Pod{"uid-a": runs}, true}
		g.Observe(now, pods)
		if !g.Has("uid-a") && !g.FailedRecently("uid-a") {
			t.Errorf("%s: forgotten at the time of the change", name)
		}
		if g.Observe(now.Add(DefaultRetryAfter), pods); len(g) > 0 {
			t.Errorf("%s: still %+v after %s", name, g["uid-a"], DefaultRetryAfter)
		}
	}
}

// An eviction that failed is not forgotten for an hour after its failure, even if it was requested long before.
func TestFailureIsRemembered(t *testing.T) {
	g := InProgress{"uid-a": {RequestedAt: now.Add(-2 * time.Hour), FailedAt: now, StuckTerminating: true}}
	if g.Observe(now.Add(time.Minute), Pods{nil, false}); len(g) == 0 {
		t.Error("forgotten a minute after the failure")
	}
}

// A soft finding's best candidate that is over a limit does not keep the next one from its eviction.
func TestSoftFindingSkipsANamespaceAtItsLimit(t *testing.T) {
	best, other := candidate(pod("best"), 9), candidate(pod("other"), 5)
	other.Pod.Namespace = "other"
	m, limits := stateWith(nil, nil, nil), unlimited()
	m.LastHour.Add("earlier", best.Pod.Namespace, now.Add(-time.Minute))
	limits.PerNamespace = 2
	r := Choose(now, []rule.Finding{soft("r", 99, 10, best, other)}, limits, m)
	if d := cmp.Diff([]string{"other"}, names(r.Victims)); d != "" {
		t.Errorf("victims (-want +got):\n%s", d)
	}
}
