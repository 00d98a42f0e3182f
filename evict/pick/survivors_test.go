package pick

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/rule"
	"polder/lib/tick"
)

// A grace period of 0 means at once; a missing or invalid one means the pod's own.
func TestGraceOfZeroIsAtOnce(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{0: 0, 1: time.Second, -1: ownGrace} {
		if got := Grace(&tick.PodEviction{GracePeriodSeconds: &seconds}); got != want {
			t.Errorf("a grace period of %d s is %s, want %s", seconds, got, want)
		}
	}
}

// If two findings name one pod, the longer grace period applies, in either order.
func TestTheLongerGraceHolds(t *testing.T) {
	p := pod("a")
	for _, tt := range []struct{ first, second int64 }{{10, 20}, {20, 10}, {20, 20}} {
		first, second := finding("r", 9, 1, candidate(p, 1)), finding("q", 9, 1, candidate(p, 1))
		first.GracePeriodSeconds, second.GracePeriodSeconds = &tt.first, &tt.second
		victims := Choose(now, []rule.Finding{first, second}, usual(1), remembers(nil, nil, nil)).Victims
		if got, want := *victims[0].Eviction.GracePeriodSeconds, max(tt.first, tt.second); got != want {
			t.Errorf("grace periods of %d and %d s: %d s, want %d", tt.first, tt.second, got, want)
		}
	}
}

// A pod of a plain host whose eviction has ended stays known while its cgroup is empty; it is dropped when it is started again.
func TestAnEmptyCgroupWasNotStartedAgain(t *testing.T) {
	g := InProgress{"uid-a": {Requested: now, Ended: now}}
	p := pod("a")
	p.Threads = new(0.0)
	g.observeEnded("uid-a", g["uid-a"], now.Add(time.Second), p)
	if g["uid-a"] == nil {
		t.Fatal("a pod without threads is forgotten")
	}
	p.Threads = new(1.0)
	if g.observeEnded("uid-a", g["uid-a"], now.Add(time.Second), p); g["uid-a"] != nil {
		t.Error("a pod that runs again is still taken for ended")
	}
}

// A pod whose end was requested counts as released for five minutes, or for one and a half times a longer grace period plus the
// request's time.
func TestReleasedForSoLong(t *testing.T) {
	for _, tt := range []struct {
		grace int64
		want  time.Duration
	}{{0, hangAfter}, {60, hangAfter}, {600, 15*time.Minute + askPatience}} {
		l := &Ongoing{Requested: now, Eviction: tick.PodEviction{GracePeriodSeconds: &tt.grace}}
		if !l.releases(now.Add(tt.want)) || l.releases(now.Add(tt.want+time.Nanosecond)) {
			t.Errorf("a grace period of %d s: it does not count as released for just %s", tt.grace, tt.want)
		}
	}
}

// The time since which a pod terminates is known while it does, and for an hour if the list of pods is incomplete.
func TestSinceWhenAPodTerminates(t *testing.T) {
	m := remembers(nil, nil, nil)
	leaving := func(on bool) map[string]*tick.Pod {
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
		{"it terminates", 0, leaving(true), true, 0},
		{"it goes on", time.Minute, leaving(true), true, 0},
		{"it is not seen, in a list that is not complete", time.Hour, nil, false, 0},
		{"for more than an hour", time.Hour + time.Second, nil, false, -1},
		{"it terminates again", 2 * time.Hour, leaving(true), true, 2 * time.Hour},
		{"it is another one of the name", 3 * time.Hour, leaving(false), true, -1},
		{"it terminates", 4 * time.Hour, leaving(true), true, 4 * time.Hour},
		{"it is gone", 4*time.Hour + time.Second, nil, true, -1},
	}
	for _, s := range steps {
		m.Observe(now.Add(s.after), nil, s.present, s.complete)
		want := map[string]time.Time{}
		if s.want >= 0 {
			want["uid-a"] = now.Add(s.want)
		}
		if d := cmp.Diff(want, m.Ending); d != "" {
			t.Errorf("%s: (-want +got):\n%s", s.name, d)
		}
	}
}

// Of several soft findings' candidates the one whose end was already requested comes first, whatever its class; then reclaimed pods, and
// among these the lowest priority.
func TestWhoIsAskedFirst(t *testing.T) {
	one := func(name, qos string, priority int64) rule.Candidate {
		p := pod(name)
		p.QoS, p.Priority = qos, &priority
		return candidate(p, 5)
	}
	all := []rule.Finding{
		soft("r", 99, 10, one("shared", tick.QoSShared, 0)),
		soft("q", 99, 10, one("high", tick.QoSReclaimed, 5), one("low", tick.QoSReclaimed, 1)),
	}
	first := func(m *Memory) []string { return names(Choose(now, all, usual(1), m).Victims) }
	if d := cmp.Diff([]string{"low"}, first(remembers(nil, nil, nil))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	asked := remembers(nil, nil, nil)
	asked.InProgress["uid-shared"] = &Ongoing{Requested: now, Spared: now, Unanswered: true}
	if d := cmp.Diff([]string{"shared"}, first(asked)); d != "" {
		t.Errorf("asked already: (-want +got):\n%s", d)
	}
}

// A pod that is evicted for another finding also counts towards the limit of a rule that joins: the rule evicts no second pod.
func TestJoiningCountsForTheRulesBound(t *testing.T) {
	a, b := candidate(pod("a"), 5), candidate(pod("b"), 4)
	all := []rule.Finding{soft("r", 99, 10, a), soft("q", 99, 10, a), soft("q", 99, 10, a, b)}
	all[2].Scope = "other"
	round := Choose(now, all, usual(9), remembers(nil, nil, nil))
	if d := cmp.Diff([]string{"a"}, names(round.Victims)); d != "" {
		t.Fatalf("victims (-want +got):\n%s", d)
	}
	var goes []bool
	for _, v := range round.Verdicts {
		goes = append(goes, v.Candidates[0].Chosen)
	}
	if d := cmp.Diff([]bool{true, true, false}, goes); d != "" {
		t.Errorf("for which findings it goes (-want +got):\n%s", d)
	}
}
