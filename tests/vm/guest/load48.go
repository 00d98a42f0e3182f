package main

import (
	"slices"
	"strings"

	"polder/lib/tick"
)

// load48 is the guide's load test: 50 threads are more than the shared pool's 44 CPUs, which taints the node; 100 are
// more than 1.8 times as many, which evicts the pod. A quota of 2 CPUs keeps them from running all at once: the
// load counts threads that want to run, and 48 busy CPUs would leave the few real ones under them no time for the tools.
var load48 = suite{
	name: "load48", doc: "the load eviction's thresholds on 48 CPUs, by real threads",
	mount: mountV2,
	tests: []test{
		{"soft", func(t *T) { t.loadEviction(50, false) }},
		{"hard", func(t *T) { t.loadEviction(100, true) }},
	},
}

// runnable counts the cgroup's threads that run or want to.
func runnable(dir string) int {
	n := 0
	for tid := range strings.FieldsSeq(read(dir + "/cgroup.threads")) {
		if strings.HasPrefix(threadStatus(tid, "State"), "R") {
			n++
		}
	}
	return n
}

const loadScope = "cpu.load.1min.container"

func (t *T) loadEviction(threads int, hard bool) {
	t.group("/polder", "cpuset", "cpu", "memory", "pids")
	service := t.group("/polder/service")
	t.Must(write(service+"/cpu.max", "200000 100000"))
	t.startLoad(service, "spin", itoa(threads))
	if !within(func() bool { return runnable(service) >= threads }) {
		t.Fatalf("%d of %d threads run", runnable(service), threads)
	}
	// The sample window is filled in half a minute instead of five.
	p := t.startPipe(
		"collect --interval 2s --classify "+t.classify(guideRules), "advise", "isolate "+anyAge+" --journal /run/journal-"+t.name,
		"evict "+anyAge+" --load-sync-period 3s --load-metric-ring-size 5 --load-threshold-met-percentage 0.8")
	tk := t.await(p, "a taint, and the floor's offer", func(tk *tick.Tick) bool {
		return reclaimed(tk) == 4000 && tk.Eviction != nil && len(tk.Eviction.Taints) > 0 && (!hard || len(tk.Eviction.Evictions) > 0)
	})
	for _, f := range tk.Eviction.Pressures {
		t.Logf("%s %s: %.2f, bound %.2f, met %v, hard %v", f.Rule, f.Scope, f.Value, f.Threshold, f.Met, f.Hard)
		if f.Scope == loadScope && f.Met != (hard || !f.Hard) {
			t.Errorf("%d threads: met is %v", threads, f.Met)
		}
	}
	for _, e := range tk.Eviction.Evictions {
		t.Logf("%s %s/%s: %s", e.State, e.Namespace, e.Name, e.Message)
	}
	evicted := slices.ContainsFunc(tk.Eviction.Evictions, func(e tick.PodEviction) bool { return e.Scope == loadScope && e.Name == "web" })
	if evicted != hard {
		t.Errorf("%d threads: web is evicted: %v, want %v", threads, evicted, hard)
	}
	if taint := tk.Eviction.Taints[0]; !strings.HasSuffix(taint.Key, "/CPUPressure") || taint.Effect != "NoSchedule" {
		t.Errorf("taint %+v", taint)
	}
	t.Logf("reclaimed %d, pools %v", reclaimed(tk), tk.Advice.Pools)
	t.stop(p)
	t.tool(0, "", "isolate --restore --if-exists --journal /run/journal-"+t.name)
}
