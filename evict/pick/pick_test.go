package pick

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
		GracePeriodSeconds: new(int64(60)),
		Cooldown:           time.Minute,
		Message:            "m",
	}
}

// remembers creates a memory with evictions in progress, spared pods, and rules in cooldown, for a minute each.
func remembers(going, spared, resting []string) *Memory {
	m := new(Memory)
	m.Init()
	for _, uid := range going {
		m.InProgress[uid] = &Ongoing{Requested: now}
	}
	for _, uid := range spared {
		m.InProgress[uid] = &Ongoing{Requested: now, Spared: now}
	}
	for _, r := range resting {
		m.Cooldowns[r+" s"] = &Cooldown{Last: now}
	}
	return m
}

// free are limits that are never reached.
func free() Limits {
	return Limits{PerRule: Unlimited, Burst: Unlimited, PerHour: Unlimited, PerNamespace: Unlimited, OptOut: []string{OptOut}}
}

// usual are the defaults, except for the burst.
func usual(burst int) Limits {
	return Limits{PerRule: 1, Burst: burst, PerHour: 60, PerNamespace: Unlimited, OptOut: []string{OptOut}}
}

func names(victims []Victim) []string {
	out := []string{}
	for _, v := range victims {
		out = append(out, v.Pod.Name)
	}
	return out
}

func TestProtected(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*tick.Pod)
		want   string
	}{
		"free":         {func(p *tick.Pod) {}, ""},
		"system":       {func(p *tick.Pod) { p.QoS = tick.QoSSystem }, "a system pod"},
		"no class":     {func(p *tick.Pod) { p.QoS = "x" }, "its class is not known"},
		"no uid":       {func(p *tick.Pod) { p.UID = "" }, "it has no UID to follow it by"},
		"ended":        {func(p *tick.Pod) { p.Phase = "Failed" }, "it has ended"},
		"terminating":  {func(p *tick.Pod) { p.Terminating = true }, "it is terminating"},
		"from a file":  {func(p *tick.Pod) { p.Static = true }, "a static pod"},
		"not started":  {func(p *tick.Pod) { p.Missing = tick.MissingCgroup }, ""},
		"cgroup alone": {func(p *tick.Pod) { p.Missing = tick.MissingCluster }, "the cluster does not know it"},
		"running":      {func(p *tick.Pod) { p.Phase = "Running" }, ""},
		"a static pod's annotations alone, which anybody may write": {func(p *tick.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x"}
		}, ""},
		"critical":         {func(p *tick.Pod) { p.Priority = new(int64(2_000_001_000)) }, "a critical pod"},
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
	start := func() InProgress {
		g := InProgress{}
		g.Add(Choose(now, []rule.Finding{f}, usual(1), remembers(nil, nil, nil)).Victims[0], now)
		return g
	}
	state := func(t *testing.T, reports []tick.PodEviction, want ...string) {
		t.Helper()
		got := []string{}
		for _, x := range reports {
			got = append(got, x.State)
		}
		if d := cmp.Diff(append([]string{}, want...), got); d != "" {
			t.Errorf("reported (-want +got):\n%s", d)
		}
	}

	t.Run("goes", func(t *testing.T) {
		g := start()
		state(t, g.Observe(at(1), here, true), tick.StateRequested)
		state(t, g.Observe(at(2), gone, false), tick.StateRequested) // the list is incomplete
		state(t, g.Observe(at(3), gone, true), tick.StateSucceeded)
		state(t, g.Observe(at(4), gone, true))
		if len(g) != 0 {
			t.Errorf("still remembered: %v", g)
		}
	})
	asked := func() InProgress {
		g := start()
		g[p.UID].Eviction.State = tick.StateCreated
		return g
	}
	t.Run("is not asked in time", func(t *testing.T) { // 1.5 x 60 s, and 45 s for the request
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
	t.Run("is awaited", func(t *testing.T) { // the runner reports it, not the ticks' time
		g := asked()
		g[p.UID].Awaited = true
		state(t, g.Observe(at(91), here, true), tick.StateCreated)
		g.Fail(p.UID, "still there", at(92), 0)
		state(t, g.Observe(at(93), here, true))
		if !g.Spared(p.UID) {
			t.Error("not spared after failing")
		}
	})
	t.Run("its own grace period", func(t *testing.T) {
		g := asked()
		g[p.UID].OwnGrace = 100 * time.Second
		if !g[p.UID].Waits(at(150)) || g[p.UID].Waits(at(151)) {
			t.Error("the next run does not wait for 150 s")
		}
		state(t, g.Observe(at(150), here, true), tick.StateCreated)
		state(t, g.Observe(at(151), here, true), tick.StateFailed)
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
		again.Threads = new(2.0)
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
	}{{new(int64(1)), 10 * time.Second}, {new(int64(60)), 90 * time.Second}, {nil, 45 * time.Second}, {new(int64(-1)), 45 * time.Second}} {
		if got := Patience(&tick.PodEviction{GracePeriodSeconds: tt.grace}); got != tt.want {
			t.Errorf("Patience(%v) = %s; want %s", tt.grace, got, tt.want)
		}
	}
}
