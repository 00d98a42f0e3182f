package main

import (
	"os"
	"strings"
	"time"

	"polder/lib/tick"
)

// Requests far above the offer of 8 CPUs, so that the rule of reclaimed overcommitment has a victim at the first tick.
const evictRules = `
  - {cgroup: /job/*, class: reclaimed, namespace: batch, requests: {reclaimedMilliCPU: 90000}}
`

const evictState = "/run/evict.json"

// evictPipe runs the pipe until the pod's eviction has ended.
func (t *T) evictPipe(flags string) *tick.Tick {
	t.Cleanup(func() { os.Remove(evictState) })
	p := t.startPipe("collect --interval 1s --classify "+t.classify(evictRules), "advise",
		"evict --reclaimed-tolerance 0s "+anyAge+" --state "+evictState+" "+flags)
	tk := t.await(p, "an eviction that is done", func(tk *tick.Tick) bool {
		return tk.Eviction != nil && len(tk.Eviction.Evictions) > 0 && tk.Eviction.Evictions[0].State == tick.StateSucceeded
	})
	e := tk.Eviction.Evictions[0]
	t.Logf("%s %s/%s by %s: %s", e.State, e.Namespace, e.Name, e.Rule, e.Message)
	t.stop(p)
	return tk
}

// useCPU waits until a process could have used so much CPU time: one of another cgroup uses it.
func (t *T) useCPU(want time.Duration) {
	dir := t.group("/beside")
	l := t.startLoad(dir, "spin", "1")
	if !within(func() bool { return usageMicros(dir) >= want.Microseconds() }) {
		t.Fatalf("a busy process used %d us", usageMicros(dir))
	}
	l.kill()
}

func evictFreeze(t *T) {
	t.group("/job", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/job/spark")
	t.startLoad(dir, "spin", "2")
	t.evictPipe("--action freeze")
	if !strings.Contains(read(dir+"/cgroup.events"), "frozen 1") {
		t.Errorf("not frozen: %s", read(dir+"/cgroup.events"))
	}
	before := usageMicros(dir)
	t.useCPU(time.Second)
	if used := usageMicros(dir) - before; used > 1000 {
		t.Errorf("a frozen cgroup used %d us in a second", used)
	}
	_, stderr := t.tool(0, "", "evict --thaw --state "+evictState)
	t.Logf("thaw: %s", stderr)
	if !within(func() bool {
		return strings.Contains(read(dir+"/cgroup.events"), "frozen 0") && usageMicros(dir) > before+100000
	}) {
		t.Errorf("it does not run again: %s", read(dir+"/cgroup.events"))
	}
}

// evictKill ends a pod of two cgroups: one process that ends on SIGTERM, and one that needs SIGKILL.
func evictKill(t *T) {
	t.group("/job", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/job/spark")
	deaf := t.startLoad(t.group("/job/spark/deaf"), "spin", "-deaf", "1")
	good := t.startLoad(t.group("/job/spark/good"), "spin", "1")
	bystander := t.startLoad(t.group("/bystander"), "spin", "1")
	// Long enough for the process that handles SIGTERM to end on a busy host.
	t.evictPipe("--action kill --reclaimed-grace-period 20s")
	if deaf.alive() || good.alive() || !strings.Contains(read(dir+"/cgroup.events"), "populated 0") {
		t.Errorf("still there: deaf %v, good %v, %s", deaf.alive(), good.alive(), read(dir+"/cgroup.events"))
	}
	if how := good.ProcessState.String(); !strings.Contains(how, "terminated") {
		t.Errorf("the process that handles SIGTERM ended by %s", how)
	}
	if how := deaf.ProcessState.String(); !strings.Contains(how, "killed") {
		t.Errorf("the process that ignores SIGTERM ended by %s, want SIGKILL", how)
	}
	if !bystander.alive() {
		t.Errorf("a process of another cgroup has ended too")
	}
}

// evictThreaded ends a pod one of whose threads is in a threaded cgroup, where processes cannot be listed.
func evictThreaded(t *T) {
	t.group("/job", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/job/spark")
	_, l, _ := t.threadedLoad("/job/spark")
	t.evictPipe("--action kill --reclaimed-grace-period 2s")
	if l.alive() || !strings.Contains(read(dir+"/cgroup.events"), "populated 0") {
		t.Errorf("still there: %v, %s", l.alive(), read(dir+"/cgroup.events"))
	}
}
