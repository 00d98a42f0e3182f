package evict

import (
	"fmt"
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

// asks sends ticks to the tool, and returns the pods that any of them asks to evict. The tool decides anew in each tick.
func asks(x *pipe.Tool, next func() *tick.Tick) map[string]bool {
	names := map[string]bool{}
	for range 20 {
		noteAsked(names, x.Put(next()))
	}
	return names
}

func noteAsked(names map[string]bool, out *tick.Tick) {
	for _, e := range out.Eviction.Evictions {
		if e.State != tick.StateFailed {
			names[e.Name] = true
		}
	}
}

// TestBudgetNext: where one pod is enough and its disruption budget protects it, evict tries the next candidate at once, and the first
// one again after its backoff, if it is needed, until the budget allows it. Refusals do not count against the limit per hour.
func TestBudgetNext(t *testing.T) {
	t.Parallel()
	c := start(t)
	kept, other := c.pod("kept", 21000), c.pod("other", 15000) // the first one is over the threshold by itself
	optedOut := c.pod("opted-out", 15000)
	optedOut.Annotations = map[string]string{"polder/evict": "false"}
	c.SetPodReady(c.namespace, "kept")
	c.budget("kept")
	x := c.evict("--per-hour", "2")
	// The ticks have a clock of their own, by which the backoff is measured: on a busy machine half a minute passes between two steps.
	clock := time.Now()
	at := func(in *tick.Tick) *tick.Tick {
		clock = clock.Add(20 * time.Millisecond)
		in.Time = clock.UTC()
		return in
	}
	both := func() *tick.Tick { return at(c.round(kept, other)) }
	waiting := until(t, x, kept.Name, tick.StateRequested, both)
	if waiting.GracePeriodSeconds == nil || *waiting.GracePeriodSeconds != 60 {
		t.Errorf("asked with a grace period of %v s; want 60", waiting.GracePeriodSeconds)
	}
	// While its eviction is in progress, it counts as released: evict asks for no other pod, until it has failed.
	asked, failure := map[string]bool{}, ""
	c.Eventually(controlplane.Soon, "the first one has failed", func() string {
		out := x.Put(both())
		for _, e := range out.Eviction.Evictions {
			if e.Name == kept.Name && e.State == tick.StateFailed {
				failure = e.Error
				return ""
			}
		}
		noteAsked(asked, out)
		return fmt.Sprintf("%+v", out.Eviction.Evictions)
	})
	if len(asked) != 1 || !asked[kept.Name] {
		t.Errorf("while the first eviction is in progress: %v; want it alone", asked)
	}
	if !strings.Contains(failure, "refused 3 times") || !strings.Contains(failure, "disruption budget") {
		t.Errorf("the eviction's error is %q", failure)
	}
	until(t, x, other.Name, tick.StateCreated, both)
	c.gone(other.Name)

	// The need is back, and only the first pod may be evicted.
	alone := func() *tick.Tick { return at(c.round(kept, optedOut)) }
	if got := asks(x, alone); len(got) != 1 || !got[other.Name] { // reported as gone, once
		t.Errorf("during the backoff: %v; want no eviction", got)
	}
	clock = clock.Add(31 * time.Second)
	until(t, x, kept.Name, tick.StateRequested, alone)
	c.kubectl("delete", "pdb", "kept")
	until(t, x, kept.Name, tick.StateCreated, alone)
	if got := c.leaving(optedOut.Name); got != "" {
		t.Error("a pod that has opted out is evicted")
	}
	// That was the second eviction of the hour.
	third := c.pod("third", 50000)
	c.Eventually(controlplane.Soon, "the log names the limit that protects the third pod", func() string {
		if got := asks(x, func() *tick.Tick { return at(c.round(third)) }); got[third.Name] {
			t.Fatalf("a third eviction was asked for in the hour: %v", got)
		}
		if !strings.Contains(x.Log(), "limit=--per-hour") {
			return x.Log()
		}
		return ""
	})
}

// TestManyBudgets: the API server cannot evict a pod that two disruption budgets select, and returns an internal error. A pod's owner
// can create such budgets: they do not protect the other pods.
func TestManyBudgets(t *testing.T) {
	t.Parallel()
	c := start(t)
	kept, other := c.pod("kept", 16000), c.pod("other", 15000)
	c.SetPodReady(c.namespace, "kept") // budgets do not count for a pod that has never been ready
	for _, name := range []string{"one", "two"} {
		c.Apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: ` + name + `, namespace: ` + c.namespace + `}
spec: {minAvailable: 1, selector: {matchLabels: {app: kept}}}
`)
	}
	x := c.evict()
	both := func() *tick.Tick { return c.round(kept, other) }
	failed := until(t, x, kept.Name, tick.StateFailed, both)
	if !strings.Contains(failed.Error, "refused 3 times") || !strings.Contains(failed.Error, "more than one PodDisruptionBudget") {
		t.Errorf("the eviction's error is %q", failed.Error)
	}
	until(t, x, other.Name, tick.StateCreated, both)
	if got := c.leaving(kept.Name); got != "" {
		t.Error("the pod is evicted against its budgets")
	}
}

// TestOwnGrace: evict waits as long as a pod's own grace period needs, and does not report the pod as overdue
// meanwhile.
func TestOwnGrace(t *testing.T) {
	t.Parallel()
	c := start(t)
	slow := c.podWithGrace("slow", 25000, 120)
	x := c.evict("--reclaimed-grace-period", "0s")
	until(t, x, slow.Name, tick.StateCreated, func() *tick.Tick { return c.round(slow) })
	if got := c.leaving(slow.Name); got != "120" {
		t.Errorf("the pod is deleted with a grace period of %q; want its own 120", got)
	}
	slow.Terminating = true
	// evict waits 45 s for a pod with the usual 30 s, by the machine's clock: this time has to pass.
	for end := time.Now().Add(48 * time.Second); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		for _, e := range x.Put(c.round(slow)).Eviction.Evictions {
			if e.State != tick.StateCreated {
				t.Fatalf("within its grace period it is %s: %s", e.State, e.Error)
			}
		}
	}
	c.gone(slow.Name)
	until(t, x, slow.Name, tick.StateSucceeded, func() *tick.Tick { return c.round() })
	c.sees(slow.Name,
		"Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>",
		"Normal EvictSucceeded Pod Evicted pod has been deleted physically; reason: "+reason+" <none>")
}

// TestRefusesToGo: evict names a pod that exceeds its grace period in an event, does not force it, and no longer counts it as released,
// however long it terminates: it evicts the next one.
func TestRefusesToGo(t *testing.T) {
	t.Parallel()
	c := start(t)
	stays, other := c.pod("stays", 16000), c.pod("other", 15000)
	x := c.evict("--reclaimed-grace-period", "1s")
	until(t, x, stays.Name, tick.StateCreated, func() *tick.Tick { return c.round(stays, other) })
	stays.Terminating = true
	terminating := func() *tick.Tick { return c.round(stays, other) }
	failed := until(t, x, stays.Name, tick.StateFailed, terminating)
	if failed.Error != "the pod still exists after 10s" {
		t.Errorf("the eviction's error is %q; want max(10 s, 1.5 x 1 s)", failed.Error)
	}
	c.sees(stays.Name,
		"Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>",
		"Warning EvictExceededGracePeriod Pod Container runtime did not kill the pod within specified grace period <none>")
	until(t, x, other.Name, tick.StateCreated, terminating)
	if got := c.leaving(stays.Name); got != "1" {
		t.Errorf("the pod is deleted with a grace period of %q; want 1, and never 0", got)
	}
}

// TestAway: the API server is away for longer than a request is retried, in both ways: it refuses connections, or it accepts them without
// an answer, and handles the abandoned request later. The need persists: one pod is evicted for it, not two.
func TestAway(t *testing.T) {
	t.Parallel()
	c := startOn(t, controlplane.Start(t, controlplane.Options{}), "48", "195924424Ki") // the other tests need the shared one
	t.Run("for a moment", func(t *testing.T) { outage(t, c.in(t)) })
	for _, tt := range []struct {
		name         string
		leave, comes func()
		want         string
	}{
		{"stopped", c.StopAPIServer, c.StartAPIServer, "connection refused"},
		{"frozen", c.FreezeAPIServer, c.ThawAPIServer, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := c.in(t)
			one, two := c.pod(tt.name+"-1", 15000), c.pod(tt.name+"-2", 16000)
			both := func() *tick.Tick { return c.round(one, two) }
			state := filepath.Join(t.TempDir(), "evict.json")
			x := c.evict("--state", state)
			x.Put(c.round())
			tt.leave()
			away := time.Now()
			until(t, x, two.Name, tick.StateRequested, both)
			failed := until(t, x, two.Name, tick.StateFailed, both)
			if !strings.Contains(failed.Error, tt.want) {
				t.Errorf("after %s the eviction's error is %q; want %q", time.Since(away), failed.Error, tt.want)
			}
			// evict asks for the same pod again, and for no other; so does the next run after a crash.
			until(t, x, two.Name, tick.StateRequested, both)
			if got := asks(x, both); len(got) != 1 || !got[two.Name] {
				t.Errorf("while the server is away: %v; want %s alone", got, two.Name)
			}
			x.Kill()
			x = c.evict("--state", state)
			if got := asks(x, both); len(got) != 1 || !got[two.Name] {
				t.Errorf("after a crash: %v; want %s alone", got, two.Name)
			}
			tt.comes()
			until(t, x, two.Name, tick.StateCreated, both)
			if got := asks(x, both); len(got) != 1 || !got[two.Name] {
				t.Errorf("when the server is back: %v; want %s alone", got, two.Name)
			}
			if got := c.leaving(one.Name); got != "" {
				t.Error("two pods are evicted for one need")
			}
			c.gone(two.Name)
			until(t, x, two.Name, tick.StateSucceeded, func() *tick.Tick { return c.round(one) })
			if err := x.End(); err != nil {
				t.Error(err)
			}
			c.gone(one.Name)
		})
	}
}

// outage: while the API server is away, evict keeps the need and does not double it, and the stream continues; a killed evict decides
// again, and resumes an eviction that was accepted.
func outage(t *testing.T, c *cluster) {
	pod := c.pod("batch", 40000)
	state := filepath.Join(t.TempDir(), "evict.json")
	now := func() *tick.Tick { return c.round(pod) }
	x := c.evict("--state", state)
	x.Put(c.round())
	c.StopAPIServer()
	untilError(t, x, pod.Name, tick.StateRequested, "connection refused", now)
	x.Kill()
	x = c.evict("--state", state)
	// The need lasts, so that the same pod is chosen again.
	got := x.Put(now()).Eviction.Evictions
	if len(got) != 2 || got[0].State != tick.StateFailed || got[1].State != tick.StateRequested || got[1].UID != pod.UID {
		t.Errorf("after a crash: %+v; want that the earlier request has no answer, and one more for the same pod", got)
	}
	c.StartAPIServer()
	until(t, x, pod.Name, tick.StateCreated, now)
	for range 5 {
		x.Put(now())
	}
	c.sees(pod.Name, "Normal EvictCreated Pod Successfully create eviction; reason: "+reason+" <none>")
	x.Kill()
	x = c.evict("--state", state)
	x.Put(now())
	c.gone(pod.Name)
	until(t, x, pod.Name, tick.StateSucceeded, func() *tick.Tick { return c.round() })
}
