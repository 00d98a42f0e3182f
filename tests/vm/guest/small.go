package main

import (
	"os"
	"strings"

	"polder/lib/tick"
)

// basics is what collect, isolate and evict do on cgroup v2.
var basics = suite{
	name: "v2basics", doc: "values, keys and actions on cgroup v2",
	mount: mountV2,
	tests: []test{
		{"machine", readMachine},
		{"usage", readUsage},
		{"memory", readMemory},
		{"throttling", readThrottling},
		{"threads", readThreads},
		{"cpuset", readCPUSet},
		{"cpuset of its own", readCpusetOfItsOwn},
		{"bare", readDelegation},
		{"keys", writeKeys},
		{"burst", writeBurst},
		{"protection", writeProtection},
		{"confines", writeConfines},
		{"resched", writeResched},
		{"memory high", writeMemoryHigh},
		{"memory max", writeMemoryMax},
		{"io weight", writeIOWeight},
		{"io max", writeIOMax},
		{"partition", writePartition},
		{"delegation", writeDelegation},
		{"threaded", writeThreaded},
		{"freeze", evictFreeze},
		{"kill", evictKill},
		{"kill threaded", evictThreaded},
		{"colocate", colocate},
	},
}

// version1 and hybrid, which comes after it in the same guest, are the older ways of mounting; a controller's hierarchy decides, not the
// other mounts.
var (
	version1 = suite{name: "v1", doc: "cgroup v1", mount: mountV1, tests: []test{{"v1", olderMounts}}}
	hybrid   = suite{
		name: "hybrid", doc: "cgroup v1 with an empty v2 beside it",
		mount: mountHybrid, mountsMore: true,
		tests: []test{{"hybrid", olderMounts}},
	}
)

var olderHierarchies = []string{"cpu,cpuacct", "cpuset", "memory", "pids", "freezer"}

func olderMounts(t *T) {
	for _, h := range olderHierarchies {
		t.Cleanup(func() {
			for _, path := range []string{"/read/a", "/read"} {
				if dir := v2 + "/" + h + path; !within(func() bool { return os.Remove(dir) == nil }) {
					t.Errorf("%s is left", dir)
				}
			}
		})
		for _, path := range []string{"/read", "/read/a"} {
			dir := v2 + "/" + h + path
			t.Must(os.Mkdir(dir, 0o755))
			if h == "cpuset" {
				t.Must(write(dir+"/cpuset.mems", "0-1"))
				t.Must(write(dir+"/cpuset.cpus", "0-7"))
			}
		}
	}
	before, err := values(v2)
	t.Must(err)
	l := t.startLoad(v2+"/cpu,cpuacct/read/a", "spin", "2")
	for _, h := range olderHierarchies[1:] {
		t.Must(write(v2+"/"+h+"/read/a/cgroup.procs", itoa(l.Process.Pid)))
	}
	resident := func(p *tick.Pod) float64 { // the kernel adds up a small process's pages with a delay
		if p.Memory == nil {
			return -1
		}
		return number(p.Memory.RSSBytes)
	}
	p, c := t.thePod(t.awaitSample("two busy threads' use and memory", inRange("/read/a", "usageMilliCPU", usage, 1700, 2500),
		inRange("/read/a", "rssBytes", resident, 1, 1<<40)), "/read/a")
	if c.CPUSetCPUs != "0-7" || number(p.Threads) <= 0 {
		t.Errorf("cpuset %q, threads %v", c.CPUSetCPUs, number(p.Threads))
	}
	out := t.isolate("--journal /run/journal-older", tick.Cgroup{
		Cgroup: "/read/a", CPUSetCPUs: "5", CPUMaxMilliCPU: new(int64(300)), MemoryMaxBytes: new(int64(512 << 20)), MemoryHighBytes: new(int64(1 << 30)),
	})
	if len(out.Errors) > 0 {
		t.Errorf("isolation errors: %+v", out.Errors)
	}
	t.expect(v2, "cpuset/read/a/cpuset.cpus", "5", "cpu,cpuacct/read/a/cpu.cfs_quota_us", "30000",
		"memory/read/a/memory.limit_in_bytes", itoa(512<<20), "memory/read/a/memory.soft_limit_in_bytes", itoa(1<<30)) // there is no memory.high
	if allowed := threadStatus(l.busiest(), "Cpus_allowed_list"); allowed != "5" {
		t.Errorf("a busy thread may run on %s, want 5", allowed)
	}
	t.olderFreeze(l)
	_, stderr := t.tool(0, "", "isolate --restore --if-exists --journal /run/journal-older")
	t.Logf("restore: %s", stderr)
	after, err := values(v2)
	t.Must(err)
	t.same(before, after)
	l.kill()
}

// olderFreeze stops and starts the load through v1's freezer.
func (t *T) olderFreeze(l *load) {
	rules := strings.ReplaceAll(evictRules, "/job/*", "/read/a")
	p := t.startPipe("collect --interval 1s --classify "+t.classify(rules), "advise", "evict "+anyAge+" --action freeze --state "+evictState)
	t.await(p, "an eviction that is done", func(tk *tick.Tick) bool {
		return tk.Eviction != nil && len(tk.Eviction.Evictions) > 0 && tk.Eviction.Evictions[0].State == tick.StateSucceeded
	})
	t.stop(p)
	t.expect(v2+"/freezer/read/a", "freezer.state", "FROZEN")
	t.tool(0, "", "evict --thaw --state "+evictState)
	t.expect(v2+"/freezer/read/a", "freezer.state", "THAWED")
	if !l.alive() {
		t.Errorf("the load has ended")
	}
}
