package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

func writeKeys(t *T) {
	t.group("/write", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/write/a")
	before, err := values(v2 + "/write")
	t.Must(err)
	wanted := tick.Cgroup{
		Cgroup: "/write/a", CPUSetCPUs: "2-3", CPUSetMems: "0", CPUMaxMilliCPU: tick.Ptr[int64](1500), CPUWeight: tick.Ptr[int64](300), CPUIdle: new(false),
		MemoryMinBytes: tick.Ptr[int64](16 << 20), MemoryLowBytes: tick.Ptr[int64](32 << 20),
		MemoryHighBytes: tick.Ptr[int64](256<<20 + 1), MemoryMaxBytes: tick.Ptr[int64](512 << 20),
	}
	const flags = "--journal /run/journal-keys"
	t.clean(t.isolate(flags, wanted), 8)
	t.expect(dir, "cpuset.cpus.effective", "2-3", "cpuset.mems.effective", "0", "cpu.max", "150000 100000", "cpu.weight", "300", "cpu.idle", "0",
		"memory.min", itoa(16<<20), "memory.low", itoa(32<<20), "memory.high", itoa(256<<20), "memory.max", itoa(512<<20))
	t.clean(t.isolate(flags, wanted), 0)

	wanted.CPUIdle, wanted.CPUWeight = new(true), nil
	wanted.CPUMaxMilliCPU, wanted.MemoryHighBytes, wanted.MemoryMaxBytes = tick.Ptr[int64](tick.Unlimited), tick.Ptr[int64](tick.Unlimited), tick.Ptr[int64](tick.Unlimited)
	t.clean(t.isolate(flags, wanted), 4)
	t.expect(dir, "cpu.idle", "1", "cpu.weight", "0", "cpu.max", "max 100000", "memory.high", "max", "memory.max", "max")
	t.restore("keys", before)
}

// clean checks that so many values were written without an error.
func (t *T) clean(out *tick.Isolation, writes int) {
	if out.Applied != writes || len(out.Errors) > 0 || out.Missing > 0 {
		t.Errorf("%d values written, want %d; errors %v, missing %d", out.Applied, writes, out.Errors, out.Missing)
	}
}

// restore restores all values, and compares them with the first state.
func (t *T) restore(journal string, before map[string]string) {
	_, stderr := t.tool(0, "", "isolate --restore --if-exists --journal /run/journal-"+journal)
	t.Logf("restore: %s", stderr)
	after, err := values(v2 + "/write")
	t.Must(err)
	t.same(before, after)
}

// refuses checks that an error names the cgroup and contains the words.
func (t *T) refuses(out *tick.Isolation, cgroup, words string) {
	for _, e := range out.Errors {
		if e.Cgroup == cgroup && strings.Contains(e.Error, words) {
			return
		}
	}
	t.Errorf("no error of %s contains %q: %+v", cgroup, words, out.Errors)
}

// writeResched checks that the kernel accepts the program that notices waiting, and that the process whose threads it wakes is in the root
// cgroup, although isolate is not, has a thread for each online CPU, also after one went offline and came back, and ends with isolate.
func writeResched(t *T) {
	own := t.group("/own")
	p, in := t.startFed("isolate --node n1 --max-age 0 --stale-after 1h")
	t.Must(write(own+"/cgroup.procs", strconv.Itoa(p.stages[0].Process.Pid)))
	advice := tick.Advice{Policy: "by hand", ReschedOnWait: true, ReschedIntervalSeconds: new(0.001)}
	const child = "isolate-resched"
	last := ""
	t.Cleanup(func() { t.setOnline(1, "1") })
	for _, state := range []string{"1", "0", "1"} {
		t.setOnline(1, state)
		if !within(func() bool {
			now := time.Now().UTC().Truncate(time.Millisecond)
			text, err := tick.Marshal(tick.Tick{V: tick.Version, Node: "n1", Time: now, Advice: &advice})
			t.Must(err)
			_, err = in.Write(append(text, '\n'))
			t.Must(err)
			isInForce := false
			t.await(p, "the tick", func(tk *tick.Tick) bool {
				isInForce = tk.Isolation != nil && tk.Isolation.ReschedOnWait
				return tk.Time.Equal(now)
			})
			return isInForce
		}) {
			t.Errorf("with the CPUs %s the program in the kernel is not in force", read("/sys/devices/system/cpu/online"))
		}
		online := read("/sys/devices/system/cpu/online")
		pid, pinned := "", ""
		if !within(func() bool {
			pid = processIn(v2, child)
			pinned = pinnedTo(pid)
			return pid != last && pinned == online
		}) {
			t.Errorf("process %s has threads for the CPUs %s; want another than process %q, for %s", pid, pinned, last, online)
		}
		last = pid
	}
	if processIn(v2, child) == "" || processIn(own, child) != "" || processIn(own, "isolate") == "" {
		t.Errorf("processes: root cgroup:\n%s\nisolate's cgroup:\n%s", read(v2+"/cgroup.procs"), read(own+"/cgroup.procs"))
	}
	t.Must(in.Close())
	t.wait(p)
	if !within(func() bool { return processIn(v2, child) == "" }) {
		t.Errorf("%s still runs", child)
	}
}

// pinnedTo is the list of the CPUs that a process has a thread for, which may run only there.
func pinnedTo(pid string) string {
	var pinned cpus.Set
	files, _ := filepath.Glob("/proc/" + pid + "/task/*/status") // the pattern is valid
	for _, file := range files {
		_, text, _ := strings.Cut(read(file), "\nCpus_allowed_list:\t")
		list, _, _ := strings.Cut(text, "\n")
		if set, err := cpus.Parse(list); err == nil && set.Size() == 1 {
			pinned = pinned.Union(set)
		}
	}
	return pinned.String()
}

// processIn is the PID of a cgroup's process with a name; empty if there is none.
func processIn(dir, name string) string {
	for pid := range strings.FieldsSeq(read(dir + "/cgroup.procs")) {
		if read("/proc/"+pid+"/comm") == name {
			return pid
		}
	}
	return ""
}

// writeConfines checks that threads really stay on their CPUs, and under their quota.
func writeConfines(t *T) {
	t.group("/write", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/write/a")
	l := t.startLoad(dir, "spin", "2")
	t.clean(t.isolate("", tick.Cgroup{Cgroup: "/write/a", CPUSetCPUs: "5", CPUMaxMilliCPU: tick.Ptr[int64](300)}), 2)
	if allowed := threadStatus(l.busiest(), "Cpus_allowed_list"); allowed != "5" {
		t.Errorf("a busy thread may run on %s, want 5", allowed)
	}
	// On average it has the quota's share of the time, at any one time more or less: the test repeats two seconds.
	used := 0.0
	if !within(func() bool {
		before, at := usageMicros(dir), uptime()
		time.Sleep(2 * time.Second)
		used = float64(usageMicros(dir)-before) / float64((uptime() - at).Microseconds()) * 1000
		return 200 <= used && used <= 400
	}) {
		t.Errorf("%.0f milli-CPU used under a quota of 300", used)
	}
}

// writePartition has a cgroup that another program made a partition: its CPUs are left to it, its other values are written.
func writePartition(t *T) {
	own, other := t.group("/own"), t.group("/other")
	t.Must(write(own+"/cpuset.cpus", "1"))
	t.Must(write(own+"/cpuset.cpus.partition", "root"))
	t.expect(own, "cpuset.cpus.partition", "root", "cpuset.cpus.effective", "1")
	out := t.isolate("", tick.Cgroup{Cgroup: "/own", CPUSetCPUs: "2-3", CPUWeight: tick.Ptr[int64](50)}, tick.Cgroup{Cgroup: "/other", CPUSetCPUs: "2-3"})
	t.refuses(out, "/own", "partition")
	t.expect(own, "cpuset.cpus", "1", "cpuset.cpus.partition", "root", "cpuset.cpus.effective", "1", "cpu.weight", "50")
	t.expect(other, "cpuset.cpus.effective", "2-3")

	// Its CPU cannot be given to others: a sibling that names it invalidates the partition.
	out = t.isolate("", tick.Cgroup{Cgroup: "/other", CPUSetCPUs: "1-4"})
	t.refuses(out, "/other", "CPUs 1 left out")
	t.expect(own, "cpuset.cpus.partition", "root", "cpuset.cpus.effective", "1")
	t.expect(other, "cpuset.cpus", "2-4", "cpuset.cpus.effective", "2-4")
	if p := t.sample(2).Sample.Partitions; len(p) != 1 || p[0] != (tick.Partition{Cgroup: "/own", CPUs: "1"}) {
		t.Errorf("collect sees partitions %v, want /own with CPU 1", p)
	}

	// Within the partition its CPUs can be used, though the root's own list does not name them.
	t.Must(write(own+"/cgroup.subtree_control", "+cpuset"))
	inner := t.group("/own/inner")
	if out := t.isolate("", tick.Cgroup{Cgroup: "/own/inner", CPUSetCPUs: "1"}); out.Applied != 1 || len(out.Errors) > 0 {
		t.Errorf("within the partition: %+v", out)
	}
	t.expect(inner, "cpuset.cpus", "1", "cpuset.cpus.effective", "1")
}

// writeDelegation writes keys whose controllers are not delegated: isolate reports them, and writes the rest.
func writeDelegation(t *T) {
	t.group("/write", "cpuset")
	dir := t.group("/write/a")
	out := t.isolate("", tick.Cgroup{
		Cgroup: "/write/a", CPUSetCPUs: "1", CPUWeight: tick.Ptr[int64](50), CPUMaxMilliCPU: tick.Ptr[int64](500), MemoryHighBytes: tick.Ptr[int64](1 << 30),
	}, tick.Cgroup{Cgroup: "/write/none", CPUSetCPUs: "1"})
	for _, controller := range []string{"cpu", "memory"} {
		t.refuses(out, "/write/a", controller+" is not enabled in /write/cgroup.subtree_control")
	}
	if out.Applied != 1 || out.Missing != 1 {
		t.Errorf("%d values written, %d cgroups missing; want 1 and 1", out.Applied, out.Missing)
	}
	t.expect(dir, "cpuset.cpus.effective", "1")
}

// threadedLoad creates a threaded cgroup below a domain with a busy process, and moves one of the busy threads into it.
func (t *T) threadedLoad(domain string) (inner string, l *load, tid string) {
	inner = t.group(domain + "/inner")
	t.Must(write(inner+"/cgroup.type", "threaded"))
	t.expect(v2+domain, "cgroup.type", "domain threaded")
	l = t.startLoad(v2+domain, "spin", "2")
	t.Must(write(v2+domain+"/cgroup.subtree_control", "+cpuset +cpu"))
	tid = l.busiest()
	t.Must(write(inner+"/cgroup.threads", tid))
	return inner, l, tid
}

// writeThreaded pins one thread of a process, which only a threaded cgroup can.
func writeThreaded(t *T) {
	t.group("/read", "cpuset", "cpu", "memory", "pids")
	t.group("/read/domain")
	inner, l, tid := t.threadedLoad("/read/domain")

	out := t.isolate("", tick.Cgroup{Cgroup: "/read/domain/inner", CPUSetCPUs: "3", CPUWeight: tick.Ptr[int64](50), MemoryHighBytes: tick.Ptr[int64](1 << 30)})
	t.refuses(out, "/read/domain/inner", "threaded")
	t.expect(inner, "cpuset.cpus.effective", "3", "cpu.weight", "50")
	if allowed := threadStatus(tid, "Cpus_allowed_list"); allowed != "3" {
		t.Errorf("the thread may run on %s, want 3", allowed)
	}
	if allowed := threadStatus(itoa(l.Process.Pid), "Cpus_allowed_list"); allowed != "0-7" {
		t.Errorf("the process's first thread may run on %s, want all", allowed)
	}
	t.awaitSample("a thread's use in one cgroup, of two in the other",
		inRange("/read/domain/inner", "usageMilliCPU", usage, 850, 1250), inRange("/read/domain/inner", "threads", threads, 1, 1),
		inRange("/read/domain", "usageMilliCPU", usage, 1700, 2500))
}
