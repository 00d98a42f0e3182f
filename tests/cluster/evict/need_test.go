package evict

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// later moves a tick's time, for a tool that runs with --max-age 0.
func later(x *tick.Tick, by time.Duration) *tick.Tick {
	x.Time = x.Time.Add(by)
	return x
}

// asks gives the tool ticks for a while, and reports whom it asks to go in any of them.
func asks(x *pipe.Tool, within time.Duration, next func() *tick.Tick) map[string]bool {
	names := map[string]bool{}
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		for _, e := range x.Put(next()).Eviction.Evictions {
			if e.State != tick.StateFailed {
				names[e.Name] = true
			}
		}
	}
	return names
}

// TestBudgetNext: where one pod is enough and its disruption budget keeps it, the next candidate is tried at once, and the first
// one again, when it is needed and has rested, until it may go. Refusals use nothing up of the hour.
func TestBudgetNext(t *testing.T) {
	c := start(t, controlplane.Options{ControllerManager: true})
	kept, other := c.pod("kept", 16000), c.pod("other", 15000)
	optedOut := c.pod("opted-out", 15000)
	optedOut.Annotations = map[string]string{"polder/evict": "false"}
	c.SetPodReady("default", "kept")
	c.Apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: kept, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: kept}}}
`)
	c.Eventually(30*time.Second, "the budget's status", func() string {
		if out := c.Kubectl("get", "pdb", "kept", "-o", "jsonpath={.status.expectedPods} {.status.disruptionsAllowed}"); out != "1 0" {
			return "status " + out
		}
		return ""
	})
	x := c.evict("--max-age", "0", "--per-hour", "2")
	var ahead time.Duration
	both := func() *tick.Tick { return later(round(kept, other), ahead) }
	waiting := until(t, x, kept.Name, tick.StateRequested, 10*time.Second, both)
	if waiting.GracePeriodSeconds == nil || *waiting.GracePeriodSeconds != 60 {
		t.Errorf("asked with a grace period of %v s; want 60", waiting.GracePeriodSeconds)
	}
	// While it is asked, it counts as released.
	if got := asks(x, 3*time.Second, both); len(got) != 1 || !got[kept.Name] {
		t.Errorf("while the first is being asked: %v; want it alone", got)
	}
	failed := until(t, x, kept.Name, tick.StateFailed, 30*time.Second, both)
	if !strings.Contains(failed.Error, "refused 3 times") || !strings.Contains(failed.Error, "disruption budget") {
		t.Errorf("failed with %q", failed.Error)
	}
	until(t, x, other.Name, tick.StateCreated, 10*time.Second, both)
	c.gone(other.Name)

	// The need is back, and only the first one may go.
	alone := func() *tick.Tick { return later(round(kept, optedOut), ahead) }
	if got := asks(x, 3*time.Second, alone); len(got) != 1 || !got[other.Name] { // said to have gone, once
		t.Errorf("within the rest: %v; want nobody asked", got)
	}
	ahead = 31 * time.Second
	until(t, x, kept.Name, tick.StateRequested, 10*time.Second, alone)
	c.Kubectl("delete", "pdb", "kept")
	until(t, x, kept.Name, tick.StateCreated, 30*time.Second, alone)
	if got := c.leaving(optedOut.Name); got != "" {
		t.Error("a pod that has opted out goes")
	}
	// That was the second of the hour.
	third := c.pod("third", 50000)
	if got := asks(x, time.Second, func() *tick.Tick { return later(round(third), ahead) }); got[third.Name] {
		t.Errorf("a third pod was asked in the hour: %v", got)
	}
	if !strings.Contains(x.Log(), "limit=--per-hour") {
		t.Errorf("the log does not name the limit:\n%s", x.Log())
	}
}

// TestManyBudgets: the API server cannot evict a pod that two disruption budgets select, and says that it has failed. Whoever owns a
// pod can make them: it does not keep the other pods.
func TestManyBudgets(t *testing.T) {
	c := start(t, controlplane.Options{})
	kept, other := c.pod("kept", 16000), c.pod("other", 15000)
	c.SetPodReady("default", "kept") // the budgets of one that has not begun to run do not count
	for _, name := range []string{"one", "two"} {
		c.Apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: ` + name + `, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: kept}}}
`)
	}
	x := c.evict()
	both := func() *tick.Tick { return round(kept, other) }
	failed := until(t, x, kept.Name, tick.StateFailed, 30*time.Second, both)
	if !strings.Contains(failed.Error, "refused 3 times") || !strings.Contains(failed.Error, "more than one PodDisruptionBudget") {
		t.Errorf("failed with %q", failed.Error)
	}
	until(t, x, other.Name, tick.StateCreated, 10*time.Second, both)
	if got := c.leaving(kept.Name); got != "" {
		t.Error("the pod goes against its budgets")
	}
}

// TestOwnGrace: a pod that is given its own grace period is waited for as long as that needs, and is not said to have exceeded it
// within.
func TestOwnGrace(t *testing.T) {
	c := start(t, controlplane.Options{})
	slow := c.podWithGrace("slow", 25000, 40)
	x := c.evict("--reclaimed-grace-period", "0s")
	until(t, x, slow.Name, tick.StateCreated, 20*time.Second, func() *tick.Tick { return round(slow) })
	if got := c.leaving(slow.Name); got != "40" {
		t.Errorf("the pod leaves with a grace period of %q; want its own 40", got)
	}
	slow.Terminating = true
	// 45 s are what a pod with the usual 30 s is waited for.
	for end := time.Now().Add(50 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		for _, e := range x.Put(round(slow)).Eviction.Evictions {
			if e.State != tick.StateCreated {
				t.Fatalf("within its grace period it is %s: %s", e.State, e.Error)
			}
		}
	}
	c.gone(slow.Name)
	until(t, x, slow.Name, tick.StateSucceeded, 10*time.Second, func() *tick.Tick { return round() })
	c.sees(slow.Name,
		"Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>",
		"Normal EvictSucceeded Pod Evicted pod has been deleted physically; reason: "+reason+" <none>")
}

// TestRefusesToGo: a pod that stays beyond its grace period is named by its event, is not forced, and does not count as released any
// more, however long it is terminating: the next one goes.
func TestRefusesToGo(t *testing.T) {
	c := start(t, controlplane.Options{})
	stays, other := c.pod("stays", 16000), c.pod("other", 15000)
	x := c.evict("--reclaimed-grace-period", "1s")
	until(t, x, stays.Name, tick.StateCreated, 20*time.Second, func() *tick.Tick { return round(stays, other) })
	stays.Terminating = true
	terminating := func() *tick.Tick { return round(stays, other) }
	failed := until(t, x, stays.Name, tick.StateFailed, 20*time.Second, terminating)
	if failed.Error != "still there after 10s" {
		t.Errorf("failed with %q; want max(10 s, 1.5 x 1 s)", failed.Error)
	}
	c.sees(stays.Name,
		"Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>",
		"Warning EvictExceededGracePeriod Pod Container runtime did not kill the pod within specified grace period <none>")
	until(t, x, other.Name, tick.StateCreated, 20*time.Second, terminating)
	if got := c.leaving(stays.Name); got != "1" {
		t.Errorf("the pod leaves with a grace period of %q; want 1, and never 0", got)
	}
}

// TestAway: the API server is away for longer than it is asked, in both of the ways: it refuses connections, or it takes them and
// says nothing, and does later what nobody waits for any more. The need persists: in the end one pod goes for it, not two.
func TestAway(t *testing.T) {
	c := start(t, controlplane.Options{})
	for _, tt := range []struct {
		name         string
		leave, comes func()
		want         string
	}{
		{"stopped", c.StopAPIServer, c.StartAPIServer, "connection refused"},
		{"frozen", c.FreezeAPIServer, c.ThawAPIServer, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &cluster{c.ControlPlane, t, c.kubeconfig}
			one, two := c.pod(tt.name+"-1", 15000), c.pod(tt.name+"-2", 16000)
			both := func() *tick.Tick { return round(one, two) }
			state := filepath.Join(t.TempDir(), "evict.json")
			x := c.evict("--state", state)
			x.Put(round())
			tt.leave()
			away := time.Now()
			until(t, x, two.Name, tick.StateRequested, 10*time.Second, both)
			failed := until(t, x, two.Name, tick.StateFailed, time.Minute, both)
			if !strings.Contains(failed.Error, tt.want) {
				t.Errorf("failed after %s: %q; want %q", time.Since(away), failed.Error, tt.want)
			}
			// It is asked again, and nobody else; so does the next run after a crash.
			if got := asks(x, 3*time.Second, both); len(got) != 1 || !got[two.Name] {
				t.Errorf("while the server is away: %v; want %s alone", got, two.Name)
			}
			x.Kill()
			x = c.evict("--state", state)
			if got := asks(x, 2*time.Second, both); len(got) != 1 || !got[two.Name] {
				t.Errorf("after a crash: %v; want %s alone", got, two.Name)
			}
			tt.comes()
			until(t, x, two.Name, tick.StateCreated, 30*time.Second, both)
			if got := asks(x, 3*time.Second, both); len(got) != 1 || !got[two.Name] {
				t.Errorf("when the server is back: %v; want %s alone", got, two.Name)
			}
			if got := c.leaving(one.Name); got != "" {
				t.Error("two pods go for one need")
			}
			c.gone(two.Name)
			until(t, x, two.Name, tick.StateSucceeded, 20*time.Second, func() *tick.Tick { return round(one) })
			if err := x.End(); err != nil {
				t.Error(err)
			}
			c.gone(one.Name)
		})
	}
}
