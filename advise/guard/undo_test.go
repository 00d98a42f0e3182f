package guard

import (
	"strings"
	"testing"

	"polder/lib/tick"
)

// What the guard set of a pod is undone when the pod becomes a service, and when it was missing in a tick.
func TestUndoOfFormerBatch(t *testing.T) {
	for name, last := range map[string]func(r *fixture) []tick.Pod{
		"a service": func(*fixture) []tick.Pod {
			former := job("a", 1000)
			former.QoS = tick.QoSShared
			return []tick.Pod{web(0, 2000), former, job("b", 100)}
		},
		"missing in a tick": func(r *fixture) []tick.Pod {
			gone := job("a", -1)
			gone.Missing = tick.MissingCgroup
			r.tick(web(0, 2000), gone)
			return []tick.Pod{web(0, 2000), job("a", 800)}
		},
		"unknown to the cluster for a while": func(r *fixture) []tick.Pod {
			unknown := job("a", 800)
			unknown.Missing = tick.MissingCluster
			r.times(600, web(0, 2000), unknown)
			return []tick.Pod{web(0, 2000), job("a", 800)}
		},
	} {
		r := &fixture{version: 2}
		r.times(30, web(0, 2000), job("a", 10), job("b", 10))
		for len(r.st.Steps) < 2 {
			r.tick(web(400, 2000), job("a", 3000), job("b", 3000))
		}
		pods := last(r)
		if got := entries(r.tick(pods...).Cgroups); !strings.Contains(got, "/a -1m") {
			t.Errorf("%s: %s; want no quota of /a", name, got)
		}
	}
}

// Jobs that start while a step is in force have at least batch's floor together.
func TestJobsThatStartDuringAStepHaveTheFloor(t *testing.T) {
	r := &fixture{version: 2}
	r.times(30, web(0, 2000), job("a", 10))
	for len(r.st.Steps) < 1 {
		r.tick(web(400, 2000), job("a", 6000))
	}
	a := r.tick(web(18, 2000), job("b", -1), job("c", -1)) // a has ended
	if got := entries(a.Cgroups); got != "/b 400m, /c 400m" {
		t.Errorf("%s; want the floor of 800m", got)
	}
}

// A pod's own limit, which is also in the fallback, is not a floor.
func TestOwnLimitIsNoFloor(t *testing.T) {
	r := &fixture{version: 2}
	limit := []tick.Cgroup{{Cgroup: "/a", CPUMaxMilliCPU: new(int64(3800))}}
	r.policy = tick.Advice{Cgroups: limit, Fallback: limit}
	r.times(30, web(0, 2000), job("a", 10))
	var a *tick.Advice
	for range 60 {
		if a = r.tick(web(400, 2000), job("a", 3000)); len(r.st.Steps) == 3 {
			break
		}
	}
	if got := entries(a.Cgroups); got != "/a 800m" {
		t.Errorf("%s after %q; want the floor of 800m", got, r.kinds())
	}
}
