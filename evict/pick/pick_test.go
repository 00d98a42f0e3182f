package pick

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/evict/rule"
	"polder/lib/evictconfig"
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

// stateWith creates a memory with evictions in progress, failed evictions, and rules in cooldown, for a minute each.
func stateWith(inProgress, failed, inCooldown []string) *State {
	m := new(State)
	m.Init()
	for _, uid := range inProgress {
		m.InProgress[uid] = &Ongoing{RequestedAt: now}
	}
	for _, uid := range failed {
		m.InProgress[uid] = &Ongoing{RequestedAt: now, FailedAt: now}
	}
	for _, r := range inCooldown {
		m.Cooldowns[r+" s"] = &Cooldown{Last: now}
	}
	return m
}

// unlimited are limits that are never reached.
func unlimited() Limits {
	return Limits{PerRule: Unlimited, PerTick: Unlimited, PerHour: Unlimited, PerNamespace: Unlimited, OptOut: []string{evictconfig.OptOut}}
}

// defaultLimits are the defaults, except for the burst.
func defaultLimits(burst int) Limits {
	return Limits{PerRule: 1, PerTick: burst, PerHour: 60, PerNamespace: Unlimited, OptOut: []string{evictconfig.OptOut}}
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
		"no class":     {func(p *tick.Pod) { p.QoS = "x" }, "its class is unknown"},
		"no uid":       {func(p *tick.Pod) { p.UID = "" }, "it has no UID"},
		"ended":        {func(p *tick.Pod) { p.Phase = "Failed" }, "it has ended"},
		"terminating":  {func(p *tick.Pod) { p.Terminating = true }, "it is terminating"},
		"from a file":  {func(p *tick.Pod) { p.Static = true }, "a static pod"},
		"not started":  {func(p *tick.Pod) { p.Missing = tick.MissingCgroup }, ""},
		"cgroup alone": {func(p *tick.Pod) { p.Missing = tick.MissingCluster }, "the cluster has no such pod"},
		"running":      {func(p *tick.Pod) { p.Phase = "Running" }, ""},
		"a static pod's annotations alone, which anybody may write": {func(p *tick.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x"}
		}, ""},
		"critical":                    {func(p *tick.Pod) { p.Priority = new(int64(2_000_001_000)) }, "a critical pod"},
		"opt out":                     {func(p *tick.Pod) { p.Annotations = map[string]string{"polder/evict": "false"} }, "annotated polder/evict=false"},
		"opt out, no":                 {func(p *tick.Pod) { p.Annotations = map[string]string{"polder/evict": "true"} }, ""},
		"opt out, any":                {func(p *tick.Pod) { p.Annotations = map[string]string{"keep": "x"} }, "annotated keep"},
		"only for its own annotation": {func(p *tick.Pod) { p.Annotations = map[string]string{"other": "x"} }, ""},
	} {
		p := pod("a")
		tt.change(p)
		if got := Protected(p, []string{evictconfig.OptOut, "keep"}); got != tt.want {
			t.Errorf("%s: Protected = %q; want %q", name, got, tt.want)
		}
	}
}

func TestInProgress(t *testing.T) {
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	p := pod("a")
	listed, missing := map[string]*tick.Pod{p.UID: p}, map[string]*tick.Pod{}
	f := finding("r", 20, 10, candidate(p, 20))
	start := func() InProgress {
		g := InProgress{}
		g.Add(Choose(now, []rule.Finding{f}, defaultLimits(1), stateWith(nil, nil, nil)).Victims[0], now)
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
		state(t, g.Observe(at(1), Pods{listed, true}), tick.StateRequested)
		state(t, g.Observe(at(2), Pods{missing, false}), tick.StateRequested) // the list is incomplete
		state(t, g.Observe(at(3), Pods{missing, true}), tick.StateSucceeded)
		state(t, g.Observe(at(4), Pods{missing, true}))
		if len(g) != 0 {
			t.Errorf("still remembered: %v", g)
		}
	})
	asked := func() InProgress {
		g := start()
		g[p.UID].Eviction.State = tick.StateCreated
		return g
	}
	t.Run("is not requested in time", func(t *testing.T) { // 1.5 x 60 s, and 45 s for the request
		g := start()
		state(t, g.Observe(at(135), Pods{listed, true}), tick.StateRequested)
		state(t, g.Observe(at(136), Pods{listed, true}), tick.StateFailed)
	})
	t.Run("fails for a while", func(t *testing.T) {
		g := start()
		g.Fail(p.UID, "a budget", at(5), 30*time.Second)
		state(t, g.Observe(at(34), Pods{listed, true}))
		if !g.FailedRecently(p.UID) || g.Has(p.UID) {
			t.Errorf("29 s after failing for 30 s: in progress %v, failed recently %v; want only the latter", g.Has(p.UID), g.FailedRecently(p.UID))
		}
		state(t, g.Observe(at(35), Pods{listed, true}))
		if g.FailedRecently(p.UID) {
			t.Error("excluded for longer than 30 s")
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
			if got := g[p.UID].StillAwaited(at(tt.seconds)); got != tt.want {
				t.Errorf("%s %d s ago: still awaited %t; want %t", tt.state, tt.seconds, got, tt.want)
			}
		}
	})
	t.Run("stays", func(t *testing.T) {
		g := asked()
		state(t, g.Observe(at(90), Pods{listed, true}), tick.StateCreated)
		state(t, g.Observe(at(91), Pods{listed, true}), tick.StateFailed)
		if g.Has(p.UID) || !g.FailedRecently(p.UID) {
			t.Errorf("after failing: in progress %v, failed recently %v; want only the latter", g.Has(p.UID), g.FailedRecently(p.UID))
		}
		state(t, g.Observe(at(92), Pods{listed, true}))
		state(t, g.Observe(at(91+300), Pods{listed, true}))
		if g.FailedRecently(p.UID) {
			t.Error("excluded forever")
		}
	})
	t.Run("is awaited", func(t *testing.T) { // the runner reports it, not the ticks' time
		g := asked()
		g[p.UID].Awaited = true
		state(t, g.Observe(at(91), Pods{listed, true}), tick.StateCreated)
		g.Fail(p.UID, "still there", at(92), 0)
		state(t, g.Observe(at(93), Pods{listed, true}))
		if !g.FailedRecently(p.UID) {
			t.Error("not excluded after failing")
		}
	})
	t.Run("its own grace period", func(t *testing.T) {
		g := asked()
		g[p.UID].OwnGrace = 100 * time.Second
		if !g[p.UID].StillAwaited(at(150)) || g[p.UID].StillAwaited(at(151)) {
			t.Error("the next run does not wait for 150 s")
		}
		state(t, g.Observe(at(150), Pods{listed, true}), tick.StateCreated)
		state(t, g.Observe(at(151), Pods{listed, true}), tick.StateFailed)
	})
	t.Run("clock set back", func(t *testing.T) {
		g := asked()
		state(t, g.Observe(at(-10000), Pods{listed, true}), tick.StateCreated)
		state(t, g.Observe(at(-10000+90), Pods{listed, true}), tick.StateCreated)
		state(t, g.Observe(at(-10000+91), Pods{listed, true}), tick.StateFailed)
	})
	t.Run("ended, and started again", func(t *testing.T) {
		g := start()
		if x, ok := g.End(p.UID, at(5)); !ok || x.State != tick.StateSucceeded {
			t.Errorf("End = %+v, %v", x, ok)
		}
		state(t, g.Observe(at(6), Pods{listed, true}))
		if !g.Has(p.UID) {
			t.Error("an empty cgroup that is still listed does not count as released")
		}
		again := *p
		again.Threads = new(2.0)
		state(t, g.Observe(at(7), Pods{map[string]*tick.Pod{p.UID: &again}, true}))
		if g.Has(p.UID) {
			t.Error("a pod that was started again counts as released")
		}
	})
	t.Run("frozen", func(t *testing.T) {
		g := start()
		g[p.UID].Frozen, g[p.UID].Eviction.State = true, tick.StateSucceeded
		state(t, g.Observe(at(100000), Pods{listed, true}), tick.StateSucceeded)
		state(t, g.Observe(at(100001), Pods{missing, true}))
	})
}

func TestTimeout(t *testing.T) {
	for _, tt := range []struct {
		grace *int64
		want  time.Duration
	}{{new(int64(1)), 10 * time.Second}, {new(int64(60)), 90 * time.Second}, {nil, 45 * time.Second}, {new(int64(-1)), 45 * time.Second}} {
		if got := Timeout(&tick.PodEviction{GracePeriodSeconds: tt.grace}); got != tt.want {
			t.Errorf("Timeout(%v) = %s; want %s", tt.grace, got, tt.want)
		}
	}
}
