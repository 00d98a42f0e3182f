package pick

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/evict/rule"
	"polder/lib/tick"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func pod(name string) *tick.Pod {
	return &tick.Pod{UID: "uid-" + name, Namespace: "default", Name: name, QoS: tick.QoSReclaimed, Cgroup: "/" + name}
}

func candidate(p *tick.Pod, releases float64) rule.Candidate {
	return rule.Candidate{Pod: p, Rank: []float64{releases}, Releases: releases}
}

func finding(name string, value, threshold float64, candidates ...rule.Candidate) rule.Finding {
	return rule.Finding{
		PressureFinding:    tick.PressureFinding{Rule: name, Scope: "s", Value: value, Threshold: threshold, Met: value > threshold, Hard: true},
		Candidates:         candidates,
		GracePeriodSeconds: tick.Ptr(int64(60)),
		Cooldown:           time.Minute,
		Message:            "m",
	}
}

func context(going, spared, resting []string) Context {
	return Context{
		Going:  func(uid string) bool { return slices.Contains(going, uid) },
		Spared: func(uid string) bool { return slices.Contains(spared, uid) },
		CooldownLeft: func(rule string, span time.Duration) time.Duration {
			if slices.Contains(resting, rule) {
				return span
			}
			return 0
		},
	}
}

func names(victims []Victim) []string {
	out := []string{}
	for _, v := range victims {
		out = append(out, v.Pod.Name)
	}
	return out
}

func TestChoose(t *testing.T) {
	a, b, c := candidate(pod("a"), 10), candidate(pod("b"), 5), candidate(pod("c"), 5)
	system := candidate(pod("system"), 99)
	system.Pod.QoS = tick.QoSSystem
	over := finding("r", 20, 10, c, b, a)
	soft := over
	soft.Hard = false
	other := finding("q", 20, 10, b)
	for _, tt := range []struct {
		name     string
		findings []rule.Finding
		limits   Limits
		context  Context
		want     []string
	}{
		{"the first by rank", []rule.Finding{over}, Limits{Burst: 3}, context(nil, nil, nil), []string{"a"}},
		{"equal ones by name", []rule.Finding{finding("r", 20, 10, c, b)}, Limits{Burst: 3}, context(nil, nil, nil), []string{"b"}},
		{"not met", []rule.Finding{finding("r", 10, 10, a)}, Limits{Burst: 3}, context(nil, nil, nil), []string{}},
		{"soft", []rule.Finding{soft}, Limits{Burst: 3}, context(nil, nil, nil), []string{}},
		{"nobody eligible", []rule.Finding{finding("r", 20, 10, system)}, Limits{Burst: 3}, context(nil, nil, nil), []string{}},
		{"no candidates", []rule.Finding{finding("r", 20, 10)}, Limits{Burst: 3}, context(nil, nil, nil), []string{}},
		{"the protected one is passed over", []rule.Finding{finding("r", 99, 10, system, b)}, Limits{Burst: 3}, context(nil, nil, nil), []string{"b"}},
		{"who releases nothing does not go", []rule.Finding{finding("r", 20, 10, candidate(pod("z"), 0))}, Limits{Burst: 3}, context(nil, nil, nil), []string{}},
		{"no second one for the same need", []rule.Finding{over}, Limits{Burst: 3}, context([]string{"uid-a"}, nil, nil), []string{}},
		{"the first was not enough", []rule.Finding{over}, Limits{Burst: 3}, context([]string{"uid-b"}, nil, nil), []string{"a"}},
		{"spared after a failure", []rule.Finding{over}, Limits{Burst: 3}, context(nil, []string{"uid-a"}, nil), []string{"b"}},
		{"cooldown", []rule.Finding{over}, Limits{Burst: 3}, context(nil, nil, []string{"r"}), []string{}},
		{"one a rule", []rule.Finding{over, finding("r", 50, 10, c)}, Limits{Burst: 3}, context(nil, nil, nil), []string{"a"}},
		{"two rules", []rule.Finding{over, other}, Limits{Burst: 3}, context(nil, nil, nil), []string{"a", "b"}},
		{"burst", []rule.Finding{over, other}, Limits{Burst: 1}, context(nil, nil, nil), []string{"a"}},
		{"burst 0", []rule.Finding{over}, Limits{}, context(nil, nil, nil), []string{}},
		{"no burst", []rule.Finding{over, other}, Limits{Burst: Unlimited}, context(nil, nil, nil), []string{"a", "b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, names(Choose(tt.findings, tt.limits, tt.context))); d != "" {
				t.Errorf("victims (-want +got):\n%s", d)
			}
		})
	}
}

func TestChooseJoins(t *testing.T) {
	p := pod("a")
	second := finding("q", 9, 1, candidate(p, 1))
	second.GracePeriodSeconds, second.Message = nil, "n"
	victims := Choose([]rule.Finding{finding("r", 9, 1, candidate(p, 1)), second}, Limits{Burst: 1}, context(nil, nil, nil))
	want := []tick.PodEviction{{
		UID: "uid-a", Namespace: "default", Name: "a", Rule: "r", Scope: "s",
		Reason:  "met threshold in scope: s from plugin: r; met threshold in scope: s from plugin: q",
		Message: "m; n",
	}}
	if d := cmp.Diff(want, []tick.PodEviction{victims[0].Eviction}); d != "" {
		t.Errorf("eviction (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"r", "q"}, victims[0].Rules); d != "" {
		t.Errorf("rules (-want +got):\n%s", d)
	}
}

// A pod that somebody else deletes counts as released, and is no victim.
func TestChooseTerminating(t *testing.T) {
	a, b := pod("a"), pod("b")
	a.Terminating = true
	for _, tt := range []struct {
		value float64
		want  string
	}{{14, ""}, {16, "b"}} {
		got := ""
		for _, v := range Choose([]rule.Finding{finding("r", tt.value, 10, candidate(a, 5), candidate(b, 5))}, Limits{Burst: Unlimited}, context(nil, nil, nil)) {
			got += v.Pod.Name
		}
		if got != tt.want {
			t.Errorf("value %v, threshold 10, 5 of it terminating: victims %q; want %q", tt.value, got, tt.want)
		}
	}
}

func TestProtected(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*tick.Pod)
		want   string
	}{
		"free":             {func(p *tick.Pod) {}, ""},
		"system":           {func(p *tick.Pod) { p.QoS = tick.QoSSystem }, "a system pod"},
		"no class":         {func(p *tick.Pod) { p.QoS = "x" }, "its class is not known"},
		"no uid":           {func(p *tick.Pod) { p.UID = "" }, "it has no UID to follow it by"},
		"ended":            {func(p *tick.Pod) { p.Phase = "Failed" }, "it has ended"},
		"terminating":      {func(p *tick.Pod) { p.Terminating = true }, "it is terminating"},
		"from a file":      {func(p *tick.Pod) { p.Static = true }, "a static pod"},
		"not started":      {func(p *tick.Pod) { p.Missing = tick.MissingCgroup }, ""},
		"cgroup alone":     {func(p *tick.Pod) { p.Missing = tick.MissingCluster }, "the cluster does not know it"},
		"running":          {func(p *tick.Pod) { p.Phase = "Running" }, ""},
		"mirror":           {func(p *tick.Pod) { p.Annotations = map[string]string{annotationMirror: ""} }, "the mirror of a static pod"},
		"static":           {func(p *tick.Pod) { p.Annotations = map[string]string{annotationSource: "file"} }, "a static pod"},
		"from the API":     {func(p *tick.Pod) { p.Annotations = map[string]string{annotationSource: "api"} }, ""},
		"critical":         {func(p *tick.Pod) { p.Priority = tick.Ptr(int64(2_000_001_000)) }, "a critical pod"},
		"opt out":          {func(p *tick.Pod) { p.Annotations = map[string]string{"polder/evict": "false"} }, "annotated polder/evict=false"},
		"opt out, no":      {func(p *tick.Pod) { p.Annotations = map[string]string{"polder/evict": "true"} }, ""},
		"opt out, any":     {func(p *tick.Pod) { p.Annotations = map[string]string{"keep": "x"} }, "annotated keep"},
		"not for everyone": {func(p *tick.Pod) { p.Annotations = map[string]string{"other": "x"} }, ""},
	} {
		p := pod("a")
		tt.change(p)
		if got := Protected(p, []string{OptOut, "keep"}); got != tt.want {
			t.Errorf("%s: Protected = %q; want %q", name, got, tt.want)
		}
	}
}

func TestGoing(t *testing.T) {
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	p := pod("a")
	here, gone := map[string]*tick.Pod{p.UID: p}, map[string]*tick.Pod{}
	f := finding("r", 20, 10, candidate(p, 20))
	start := func() Going {
		g := Going{}
		g.Add(Choose([]rule.Finding{f}, Limits{Burst: 1}, context(nil, nil, nil))[0], now)
		return g
	}
	state := func(t *testing.T, said []tick.PodEviction, want ...string) {
		t.Helper()
		got := []string{}
		for _, x := range said {
			got = append(got, x.State)
		}
		if d := cmp.Diff(append([]string{}, want...), got); d != "" {
			t.Errorf("said (-want +got):\n%s", d)
		}
	}

	t.Run("goes", func(t *testing.T) {
		g := start()
		state(t, g.Observe(at(1), here, true), tick.StateRequested)
		state(t, g.Observe(at(2), gone, false), tick.StateRequested) // the list is not complete
		state(t, g.Observe(at(3), gone, true), tick.StateSucceeded)
		state(t, g.Observe(at(4), gone, true))
		if len(g) != 0 {
			t.Errorf("still remembered: %v", g)
		}
	})
	asked := func() Going {
		g := start()
		g[p.UID].Eviction.State = tick.StateCreated
		return g
	}
	t.Run("is not asked in time", func(t *testing.T) { // 1.5 x 60 s, and 45 s for the asking
		g := start()
		state(t, g.Observe(at(135), here, true), tick.StateRequested)
		state(t, g.Observe(at(136), here, true), tick.StateFailed)
	})
	t.Run("fails for a while", func(t *testing.T) {
		g := start()
		g.Fail(p.UID, "a budget", at(5), 30*time.Second)
		state(t, g.Observe(at(34), here, true))
		if !g.Spared(p.UID) || g.Has(p.UID) {
			t.Errorf("29 s after failing for 30 s: going %v, spared %v; want spared alone", g.Has(p.UID), g.Spared(p.UID))
		}
		state(t, g.Observe(at(35), here, true))
		if g.Spared(p.UID) {
			t.Error("spared for longer than 30 s")
		}
	})
	t.Run("what an earlier run began", func(t *testing.T) {
		for _, tt := range []struct {
			seconds int
			state   string
			want    bool
		}{{0, tick.StateRequested, true}, {135, tick.StateRequested, true}, {136, tick.StateRequested, false}, {90, tick.StateCreated, true}, {91, tick.StateCreated, false}, {-1, tick.StateCreated, false}} {
			g := start()
			g[p.UID].Eviction.State = tt.state
			if got := g[p.UID].Waits(at(tt.seconds)); got != tt.want {
				t.Errorf("%s %d s ago: waits %t; want %t", tt.state, tt.seconds, got, tt.want)
			}
		}
	})
	t.Run("stays", func(t *testing.T) {
		g := asked()
		state(t, g.Observe(at(90), here, true), tick.StateCreated)
		state(t, g.Observe(at(91), here, true), tick.StateFailed)
		if g.Has(p.UID) || !g.Spared(p.UID) {
			t.Errorf("after failing: going %v, spared %v; want spared alone", g.Has(p.UID), g.Spared(p.UID))
		}
		state(t, g.Observe(at(92), here, true))
		state(t, g.Observe(at(91+300), here, true))
		if g.Spared(p.UID) {
			t.Error("spared for ever")
		}
	})
	t.Run("clock set back", func(t *testing.T) {
		g := asked()
		state(t, g.Observe(at(-10000), here, true), tick.StateCreated)
		state(t, g.Observe(at(-10000+90), here, true), tick.StateCreated)
		state(t, g.Observe(at(-10000+91), here, true), tick.StateFailed)
	})
	t.Run("ended, and started again", func(t *testing.T) {
		g := start()
		if x, ok := g.End(p.UID, at(5)); !ok || x.State != tick.StateSucceeded {
			t.Errorf("End = %+v, %v", x, ok)
		}
		state(t, g.Observe(at(6), here, true))
		if !g.Has(p.UID) {
			t.Error("an empty cgroup that is still listed does not count as released")
		}
		again := *p
		again.Threads = tick.Ptr(2.0)
		state(t, g.Observe(at(7), map[string]*tick.Pod{p.UID: &again}, true))
		if g.Has(p.UID) {
			t.Error("a pod that was started again counts as released")
		}
	})
	t.Run("frozen", func(t *testing.T) {
		g := start()
		g[p.UID].Held, g[p.UID].Eviction.State = true, tick.StateSucceeded
		state(t, g.Observe(at(100000), here, true), tick.StateSucceeded)
		state(t, g.Observe(at(100001), gone, true))
	})
}

func TestPatience(t *testing.T) {
	for _, tt := range []struct {
		grace *int64
		want  time.Duration
	}{{tick.Ptr(int64(1)), 10 * time.Second}, {tick.Ptr(int64(60)), 90 * time.Second}, {nil, 45 * time.Second}, {tick.Ptr(int64(-1)), 45 * time.Second}} {
		if got := Patience(&tick.PodEviction{GracePeriodSeconds: tt.grace}); got != tt.want {
			t.Errorf("Patience(%v) = %s; want %s", tt.grace, got, tt.want)
		}
	}
}

// genFindings makes findings over one set of pods, some of which are protected.
func genFindings(t *rapid.T) []rule.Finding {
	var pods []*tick.Pod
	for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
		p := pod(fmt.Sprintf("p%d", i))
		p.QoS = rapid.SampledFrom([]string{tick.QoSReclaimed, tick.QoSShared, tick.QoSSystem}).Draw(t, "qos")
		p.Phase = rapid.SampledFrom([]string{"", "Running", "Succeeded"}).Draw(t, "phase")
		if rapid.Bool().Draw(t, "static") {
			p.Annotations = map[string]string{annotationSource: rapid.SampledFrom([]string{"file", "api"}).Draw(t, "source")}
		}
		pods = append(pods, p)
	}
	var findings []rule.Finding
	for i := range rapid.IntRange(0, 5).Draw(t, "findings") {
		var c []rule.Candidate
		sum := 0.0
		for _, p := range pods {
			if rapid.Bool().Draw(t, "is candidate") {
				amount := float64(rapid.IntRange(0, 5).Draw(t, "amount"))
				sum += amount
				c = append(c, candidate(p, amount))
			}
		}
		f := finding(fmt.Sprintf("r%d", i%3), sum, float64(rapid.IntRange(0, 30).Draw(t, "threshold")), c...)
		f.Hard = rapid.Bool().Draw(t, "hard")
		findings = append(findings, f)
	}
	return findings
}

func TestChooseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		findings := genFindings(t)
		limits := Limits{Burst: rapid.IntRange(-1, 4).Draw(t, "burst"), OptOut: []string{OptOut}}
		victims := Choose(findings, limits, context(nil, nil, nil))

		shuffled := slices.Clone(findings)
		for i := range shuffled {
			shuffled[i].Candidates = rapid.Permutation(shuffled[i].Candidates).Draw(t, "order")
		}
		if d := cmp.Diff(victims, Choose(shuffled, limits, context(nil, nil, nil))); d != "" {
			t.Fatalf("same input, other victims:\n%s", d)
		}
		if limits.Burst != Unlimited && len(victims) > limits.Burst {
			t.Fatalf("%d victims; burst %d", len(victims), limits.Burst)
		}
		perRule := map[string]int{}
		for _, v := range victims {
			if why := Protected(v.Pod, limits.OptOut); why != "" {
				t.Fatalf("%s was taken: %s", v.Pod.Name, why)
			}
			for _, r := range v.Rules {
				perRule[r]++
			}
		}
		for r, n := range perRule {
			if n > 1 {
				t.Fatalf("rule %s took %d pods in a round", r, n)
			}
		}
	})
}

// TestNeverMoreThanNeeded plays rounds in which nobody goes away yet: what is released stays within the need and the
// last victim.
func TestNeverMoreThanNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c []rule.Candidate
		sum := 0.0
		for i := range rapid.IntRange(0, 10).Draw(t, "pods") {
			amount := float64(rapid.IntRange(1, 9).Draw(t, "amount"))
			sum += amount
			c = append(c, candidate(pod(fmt.Sprintf("p%d", i)), amount))
		}
		threshold := float64(rapid.IntRange(0, 40).Draw(t, "threshold"))
		f := finding("r", sum, threshold, c...)
		g := Going{}
		var released, last float64
		for range len(c) + 2 {
			for _, v := range Choose([]rule.Finding{f}, Limits{Burst: 3}, Context{Going: g.Has, Spared: g.Spared, CooldownLeft: context(nil, nil, nil).CooldownLeft}) {
				g.Add(v, now)
				i := slices.IndexFunc(c, func(x rule.Candidate) bool { return x.Pod == v.Pod })
				last = c[i].Releases
				released += last
			}
		}
		need := max(0, sum-threshold)
		if released < need {
			t.Fatalf("released %v of %v", released, need)
		}
		if need == 0 && released > 0 || need > 0 && released-last >= need {
			t.Fatalf("released %v, the last one %v, needed %v", released, last, need)
		}
	})
}
