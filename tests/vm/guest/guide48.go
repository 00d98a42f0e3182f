package main

import (
	"os"
	"slices"
	"strings"

	"polder/lib/tick"
)

// guide48 is the guide's walk-through on its own machine: the offer and the pools of an idle node, of a service with a
// load of 1 and with a load of 3, and the first state again at the end.
var guide48 = suite{
	name: "guide48", doc: "the guide's numbers on 48 CPUs",
	mount: mountV2,
	tests: []test{
		{"machine", checkGuideMachine},
		{"guide", walkGuide},
	},
}

func checkGuideMachine(t *T) {
	t.expect("/sys/devices/system", "cpu/online", "0-47", "node/node0/cpulist", "0-11,24-35", "node/node1/cpulist", "12-23,36-47",
		"cpu/cpu0/topology/thread_siblings_list", "0,24", "cpu/cpu23/topology/thread_siblings_list", "23,47")
	out, _ := t.tool(0, "", "collect --once")
	var tk tick.Tick
	t.Must(tick.Unmarshal([]byte(out), &tk))
	shape := tk.Sample.Topology
	if shape == nil || len(shape.Cores) != 24 || shape.Cores[11] != "11,35" || len(shape.NUMANodes) != 2 || shape.NUMANodes[1].CPUs != "12-23,36-47" {
		t.Errorf("collect's topology: %+v", shape)
	}
	for _, e := range tk.Sample.Errors {
		t.Errorf("collect: %s: %s", e.Source, e.Error)
	}
	t.Logf("kernel %s, 24 cores, siblings i and i+24", read("/proc/sys/kernel/osrelease"))
}

// A service that requests one CPU, and batch work that requests eight reclaimed ones.
const guideRules = `
  - {cgroup: /polder/service, class: shared, namespace: shop, name: web, requests: {milliCPU: 1000, memoryBytes: 1Gi}}
  - {cgroup: /polder/batch, class: reclaimed, namespace: batch, name: spark, requests: {reclaimedMilliCPU: 8000}}
`

// guideStep is a state of the node and its expected result.
type guideStep struct {
	name                 string
	busy                 int // threads in the service that are started for this step
	milliCPU             int64
	share, reclaim       string
	usageFrom, usageUpTo float64
}

// The steps' sets are the guide's own. With a reserve of 4 CPUs, a load of 1 to 2 makes a pool of 6, and one of 3 to 4
// makes one of 8: the load of the test itself does not matter.
var guideSteps = []guideStep{
	{name: "load 1", busy: 1, milliCPU: 42000, share: "11,22-23,35,46-47", reclaim: "0-10,12-21,24-34,36-45", usageFrom: 900, usageUpTo: 1900},
	{name: "load 3", busy: 2, milliCPU: 40000, share: "10-11,22-23,34-35,46-47", reclaim: "0-9,12-21,24-33,36-45", usageFrom: 2700, usageUpTo: 3900},
}

const (
	guideJournal = "/run/journal"
	guideMetrics = "/run/polder.prom"
)

func walkGuide(t *T) {
	t.group("/polder", "cpuset", "cpu", "memory", "pids")
	batch := t.group("/polder/batch")
	t.group("/polder/pristine") // stays as the kernel made it
	atFirst, err := values(v2 + "/polder")
	t.Must(err)
	spark := t.startLoad(batch, "spin", "2")

	p := t.startPipe(
		"collect --interval 1s --classify "+t.classify(guideRules),
		"advise", "isolate "+anyAge+" --journal "+guideJournal, "evict "+anyAge,
		"report --to prometheus --metrics-file "+guideMetrics)
	// The guide's 44000, or a core less while the tools themselves use CPU, which is not offered.
	tk := t.await(p, "44000 or 42000 milli-CPU to reclaim", func(tk *tick.Tick) bool {
		return reclaimed(tk) == 44000 || reclaimed(tk) == 42000
	})
	t.Logf("idle: reclaimed %d, pools %v", reclaimed(tk), tk.Advice.Pools)
	t.Must(os.Mkdir(v2+"/polder/service", 0o755))
	service := v2 + "/polder/service"
	t.Cleanup(func() { t.removeGroup(service) })

	var web *load
	for _, step := range guideSteps {
		if l := t.startLoad(service, "spin", string(rune('0'+step.busy))); web == nil {
			web = l
		}
		t.checkGuideStep(p, step, web, spark)
	}
	t.await(p, "nothing left to write, and the metrics of 40 CPUs", func(tk *tick.Tick) bool {
		const values = 4 // two CPU lists, batch's class and the service's weight
		return settled(tk) && tk.Isolation.Unchanged == values && has(v2+"/polder", "service/cpu.weight", "6400") &&
			strings.Contains(read(guideMetrics), " 40\n")
	})
	t.logGuideMetrics()
	t.stop(p)
	t.Logf("%d ticks; the tools logged: %s", len(p.ticks), p.logs())
	t.checkGuideRestore(atFirst, web, spark)
}

func reclaimed(tk *tick.Tick) int64 {
	if tk.Advice == nil || tk.Advice.Reclaimed == nil || tk.Advice.Reclaimed.MilliCPU == nil {
		return -1
	}
	return *tk.Advice.Reclaimed.MilliCPU
}

func (t *T) checkGuideStep(p *pipe, step guideStep, web, spark *load) {
	began := uptime()
	tk := t.await(p, step.name+", and the kernel's sets the same", func(tk *tick.Tick) bool { // a new service runs everywhere for 30 s
		service := pod(tk, "/polder/service")
		return reclaimed(tk) == step.milliCPU && service != nil &&
			number(service.UsageMilliCPU) >= step.usageFrom && number(service.UsageMilliCPU) <= step.usageUpTo &&
			slices.ContainsFunc(tk.Advice.Cgroups, func(c tick.Cgroup) bool {
				return c.Cgroup == "/polder/service" && c.CPUSetCPUs == step.share
			}) && tk.Isolation != nil && len(tk.Isolation.Errors) == 0 &&
			has(v2+"/polder", "service/cpuset.cpus.effective", step.share, "batch/cpuset.cpus.effective", step.reclaim)
	})
	t.Logf("%s: %.1f s after: reclaimed %d, pools %v, service's usage %.0f, load1 %.2f", step.name, (uptime() - began).Seconds(),
		reclaimed(tk), tk.Advice.Pools, number(pod(tk, "/polder/service").UsageMilliCPU), number(pod(tk, "/polder/service").Load1))
	for _, l := range []struct {
		*load
		cpus string
	}{{web, step.share}, {spark, step.reclaim}} {
		tid := l.busiest()
		allowed := threadStatus(tid, "Cpus_allowed_list")
		t.Logf("%s: busy thread %s may run on %s", step.name, tid, allowed)
		if allowed != l.cpus {
			t.Errorf("%s: thread %s may run on %s, want %s", step.name, tid, allowed, l.cpus)
		}
	}
}

func (t *T) logGuideMetrics() {
	for line := range strings.Lines(read(guideMetrics)) {
		if strings.HasPrefix(line, "polder_reclaimed_cpu") {
			t.Logf("metrics: %s", strings.TrimSpace(line))
		}
	}
}

// checkGuideRestore restores everything. The service's cgroup was created while the pipe ran: it must be like one that
// was never changed. While there are processes the kernel accepts no empty list, and one that is as wide stands for it; once
// they have ended all values are bit for bit as at first.
func (t *T) checkGuideRestore(atFirst map[string]string, loads ...*load) {
	_, stderr := t.tool(0, "", "isolate --restore --if-exists --journal "+guideJournal)
	t.Logf("restore: %s", stderr)
	for _, l := range loads {
		if allowed := threadStatus(l.busiest(), "Cpus_allowed_list"); allowed != "0-47" {
			t.Errorf("after the restore thread %d may run on %s, want all CPUs", l.Process.Pid, allowed)
		}
	}
	t.expect(v2+"/polder", "service/cpuset.cpus.effective", "0-47", "batch/cpuset.cpus.effective", "0-47")

	for _, dir := range []string{v2 + "/polder/service", v2 + "/polder/batch"} {
		t.Must(write(dir+"/cgroup.kill", "1"))
		if !within(func() bool { return strings.Contains(read(dir+"/cgroup.events"), "populated 0") }) {
			t.Fatalf("%s still holds processes", dir)
		}
	}
	_, stderr = t.tool(0, "", "isolate --restore --if-exists --journal "+guideJournal)
	t.Logf("restore without processes: %s", stderr)
	after, err := values(v2 + "/polder")
	t.Must(err)
	for path, value := range atFirst {
		if name, ok := strings.CutPrefix(path, v2+"/polder/pristine/"); ok {
			atFirst[v2+"/polder/service/"+name] = value
		}
	}
	t.same(atFirst, after)
	if _, err := os.Stat(guideJournal); !os.IsNotExist(err) {
		t.Errorf("the journal is still there: %v", err)
	}
}
