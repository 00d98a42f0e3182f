package pick

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/rule"
	"polder/lib/tick"
)

// A pod is awaited within its time limit, unless its eviction failed, or it has ended or is frozen.
func TestStillAwaited(t *testing.T) {
	for _, tt := range []struct {
		name  string
		l     Ongoing
		after time.Duration
		want  bool
	}{
		{"asked", Ongoing{}, 0, true},
		{"for the whole time limit", Ongoing{}, 45 * time.Second, true},
		{"longer", Ongoing{}, 45*time.Second + 1, false},
		{"the clock was set back", Ongoing{}, -1, false},
		{"spared", Ongoing{FailedAt: now}, 0, false},
		{"ended", Ongoing{EndedAt: now}, 0, false},
		{"held", Ongoing{Frozen: true}, 0, false},
	} {
		tt.l.RequestedAt = now
		if got := tt.l.StillAwaited(now.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %t; want %t", tt.name, got, tt.want)
		}
	}
}

// A pod that is frozen, or has ended, counts as released, however long ago that was.
func TestFrozenAndEndedPodsCountAsReleased(t *testing.T) {
	for name, l := range map[string]*Ongoing{"held": {RequestedAt: now, Frozen: true}, "ended": {RequestedAt: now, EndedAt: now}} {
		if !l.releases(now.Add(24 * time.Hour)) {
			t.Errorf("%s: it does not count after a day", name)
		}
	}
}

// A pod that has ended stays known if the list of pods is incomplete, and at the time of its end.
func TestEndedPodOutsideTheSampleIsKept(t *testing.T) {
	runs := pod("a")
	runs.Threads = new(1.0)
	for _, tt := range []struct {
		name  string
		pod   *tick.Pod
		after time.Duration
	}{{"missing", nil, time.Minute}, {"at the same time", runs, 0}} {
		g := InProgress{"uid-a": {RequestedAt: now, EndedAt: now}}
		g.observeEnded("uid-a", g["uid-a"], now.Add(tt.after), tt.pod)
		if g["uid-a"] == nil {
			t.Errorf("%s: it is no longer tracked", tt.name)
		}
	}
}

// After a break of the samples a tolerance starts over; a tick without a sample is no sample.
func TestGapOfSamplesRestartsTheTolerance(t *testing.T) {
	m := stateWith(nil, nil, nil)
	for _, step := range []struct {
		after  time.Duration
		sample *tick.Sample
		want   time.Duration
	}{
		{0, &tick.Sample{}, 0},
		{time.Minute, &tick.Sample{}, 0},
		{2 * time.Minute, nil, 0},
		{10 * time.Minute, &tick.Sample{}, 10 * time.Minute},
	} {
		m.Observe(now.Add(step.after), step.sample, Pods{nil, true})
		if got := m.Continuity.Start; !got.Equal(now.Add(step.want)) {
			t.Errorf("after %s: continuous since %s; want %s", step.after, got, now.Add(step.want))
		}
	}
}

// A hard finding that joins a pod's eviction counts towards its rule's limit, and no further pod is evicted for that rule in this tick.
func TestJoiningHardFindingCountsTowardsPerRule(t *testing.T) {
	a, b := candidate(pod("a"), 9), candidate(pod("b"), 9)
	all := []rule.Finding{finding("r", 9, 1, a), finding("q", 9, 1, a), finding("q", 9, 1, b)}
	all[2].Scope = "other"
	if d := cmp.Diff([]string{"a"}, names(Choose(now, all, defaultLimits(9), stateWith(nil, nil, nil)).Victims)); d != "" {
		t.Errorf("victims (-want +got):\n%s", d)
	}
}

// A pod that is evicted for two findings begins the cooldowns of both rules, each once.
func TestBothRulesAreInCooldownAfterASharedVictim(t *testing.T) {
	a := candidate(pod("a"), 9)
	all := []rule.Finding{finding("r", 9, 1, a), finding("q", 9, 1, a), finding("q", 10, 1, a)}
	victims := Choose(now, all, unlimited(), stateWith(nil, nil, nil)).Victims
	if len(victims) != 1 {
		t.Fatalf("victims %v; want one", names(victims))
	}
	if d := cmp.Diff([][]string{{"r", "q"}, {"r s", "q s"}}, [][]string{victims[0].Rules, victims[0].Cooldowns}); d != "" {
		t.Errorf("rules and cooldowns (-want +got):\n%s", d)
	}
}

// A rule in dry run counts a pod that is really evicted although the rule may not choose it itself.
func TestDryRunCountsRealVictims(t *testing.T) {
	a, b := candidate(pod("a"), 9), candidate(pod("b"), 9)
	dry := changed(finding("q", 9, 1, b), func(f *rule.Finding) { f.DryRun, f.Others = true, []rule.Candidate{a} })
	round := Choose(now, []rule.Finding{finding("r", 9, 1, a), dry}, unlimited(), stateWith(nil, nil, nil))
	if d := cmp.Diff([][]string{{"a"}, {}}, [][]string{names(round.Victims), names(round.WouldEvict)}); d != "" {
		t.Errorf("evicted, and evicted in a dry run (-want +got):\n%s", d)
	}
}

// No pod is evicted for a soft finding that its tolerance, its cooldown or another reason delays.
func TestExcludedSoftFindingHasNoVictim(t *testing.T) {
	for name, change := range map[string]func(*rule.Finding){
		"met for less than the tolerance": func(f *rule.Finding) { f.Tolerance = time.Minute },
		"waits":                           func(f *rule.Finding) { f.WhyWait = "waits" },
		"in cooldown":                     func(f *rule.Finding) { f.Rule = "resting" },
		"not met":                         func(f *rule.Finding) { f.Met = false },
	} {
		f := changed(soft("r", 9, 1, candidate(pod("a"), 9)), change)
		round := Choose(now, []rule.Finding{f}, unlimited(), stateWith(nil, nil, []string{"resting"}))
		if len(round.Victims) > 0 || len(round.Queue) > 0 {
			t.Errorf("%s: victims %v, queue %v; want none", name, names(round.Victims), round.Queue)
		}
	}
}

// A soft finding in dry run does not replace a real one, nor does its pod wait in the queue.
func TestSoftDryRunReplacesNoVictim(t *testing.T) {
	a, b := candidate(pod("a"), 9), candidate(pod("b"), 9)
	dry := changed(soft("r", 9, 1, a), func(f *rule.Finding) { f.DryRun = true })
	round := Choose(now, []rule.Finding{dry, soft("q", 9, 1, b)}, unlimited(), stateWith(nil, nil, nil))
	if d := cmp.Diff([][]string{{"b"}, {"a"}}, [][]string{names(round.Victims), names(round.WouldEvict)}); d != "" {
		t.Errorf("evicted, and evicted in a dry run (-want +got):\n%s", d)
	}
	if d := cmp.Diff(Queue{"uid-b": now}, round.Queue); d != "" {
		t.Errorf("queue (-want +got):\n%s", d)
	}
}

// A soft finding joins the eviction of a pod that it names, and of no other.
func TestSoftFindingJoinsOnlyForItsOwnPod(t *testing.T) {
	a, b := candidate(pod("a"), 9), candidate(pod("b"), 8)
	round := Choose(now, []rule.Finding{soft("r", 9, 1, a), soft("q", 9, 1, b)}, unlimited(), stateWith(nil, nil, nil))
	if len(round.Victims) != 1 || round.Verdicts[1].Candidates[0].Chosen {
		t.Fatalf("victims %v, the other %+v; want only a", names(round.Victims), round.Verdicts[1].Candidates[0])
	}
	if d := cmp.Diff([]string{"r"}, round.Victims[0].Rules); d != "" {
		t.Errorf("rules (-want +got):\n%s", d)
	}
}

// Of many candidates the one of the lowest priority is evicted; among equal ones the first finding's come first, in its own order.
func TestFirstSoftFindingHasTheVictim(t *testing.T) {
	var all []rule.Finding
	for i := range 9 {
		var list []rule.Candidate
		for j := range 9 {
			p := pod(fmt.Sprintf("%d%d", i, j))
			p.Priority = new(int64((i + j) % 3))
			list = append(list, candidate(p, float64(1+j)))
		}
		all = append(all, soft(fmt.Sprintf("r%d", i), 99, 1, list...))
	}
	if d := cmp.Diff([]string{"06"}, names(Choose(now, all, defaultLimits(1), stateWith(nil, nil, nil)).Victims)); d != "" {
		t.Errorf("victims (-want +got):\n%s", d)
	}
}

// A value exactly at its threshold, also after the pods in progress end, requires no eviction, and the reason is named.
func TestNoVictimAtTheThreshold(t *testing.T) {
	a, b := candidate(pod("a"), 4), candidate(pod("b"), 9)
	met := func(f *rule.Finding) { f.Met = true }
	for _, tt := range []struct {
		name    string
		finding rule.Finding
		why     string
	}{
		{"at it", changed(finding("r", 10, 10, b), met), "its value is not past the threshold now"},
		{"a ends", finding("r", 14, 10, a, b), "the evictions in progress are enough"},
		{"hard, without candidates", finding("r", 14, 10), ""},
		{"soft, without candidates", soft("r", 14, 10), "only sets a taint"},
	} {
		round := Choose(now, []rule.Finding{tt.finding}, unlimited(), stateWith([]string{"uid-a"}, nil, nil))
		if got := round.Verdicts[0].Why; got != tt.why || len(round.Victims) > 0 {
			t.Errorf("%s: %q, victims %v; want %q and none", tt.name, got, names(round.Victims), tt.why)
		}
	}
}

// A request without a known answer is not repeated during the rule's cooldown if a pod that another finding has chosen covers the need.
func TestUnansweredIsNotRepeatedWithoutNeed(t *testing.T) {
	a, b := candidate(pod("a"), 10), candidate(pod("b"), 20)
	m := &State{}
	m.Init()
	first := finding("first", 80, 70, a)
	for _, v := range Choose(now, []rule.Finding{first}, unlimited(), m).Victims {
		m.RecordRequest(v, now)
	}
	later := now.Add(10 * time.Second)
	m.InProgress.NoAnswer(a.Pod.UID, "no answer", later)
	for _, tt := range []struct {
		findings []rule.Finding
		want     []string
	}{
		{[]rule.Finding{finding("first", 80, 70, a, b)}, []string{"a"}},
		{[]rule.Finding{finding("other", 90, 70, b), finding("first", 80, 70, a, b)}, []string{"b"}},
	} {
		if got := names(Choose(later, tt.findings, unlimited(), m).Victims); !slices.Equal(got, tt.want) {
			t.Errorf("victims %q of %d findings; want %q", got, len(tt.findings), tt.want)
		}
	}
}
