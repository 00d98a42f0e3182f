package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"polder/lib/tick"
)

func itoa(n int) string { return strconv.Itoa(n) }

const readRules = `
  - {cgroup: /read/**, class: shared, namespace: test}
  - {cgroup: /read, class: none}
`

// sample runs collect until it has rates and, where asked for, loads (which take 5 s), and returns the last tick.
func (t *T) sample(ticks int) *tick.Tick {
	out, _ := t.tool(0, "", "collect --interval 1s --count "+itoa(ticks)+" --classify "+t.classify(readRules))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var tk tick.Tick
	t.Must(tick.Unmarshal([]byte(lines[len(lines)-1]), &tk))
	if tk.Sample == nil {
		t.Fatalf("no sample: %s", lines[len(lines)-1])
	}
	for _, e := range tk.Sample.Errors {
		t.Errorf("collect: %s: %s", e.Source, e.Error)
	}
	return &tk
}

func (t *T) between(what string, got, from, to float64) {
	t.Logf("%s is %.1f", what, got)
	if got < from || got > to {
		t.Errorf("%s is %.1f, want %.1f to %.1f", what, got, from, to)
	}
}

// thePod finds a pod with its only container.
func (t *T) thePod(tk *tick.Tick, cgroup string) (*tick.Pod, *tick.Container) {
	p := pod(tk, cgroup)
	if p == nil || len(p.Containers) != 1 {
		t.Fatalf("the sample has no pod %s of one container", cgroup)
	}
	return p, &p.Containers[0]
}

func readMachine(t *T) {
	tk := t.sample(2)
	shape := tk.Sample.Topology
	if shape == nil || len(shape.Cores) != 4 || len(shape.Sockets) != 2 || len(shape.NUMANodes) != 2 || shape.CPUs != "0-7" {
		t.Errorf("topology %+v", shape)
	}
	if tk.Sample.CPU == nil || tk.Sample.CPU.Pressure == nil || tk.Sample.CPU.Pressure.Some == nil {
		t.Errorf("no CPU pressure: %+v", tk.Sample.CPU)
	}
	if m := tk.Sample.Memory; m == nil || m.Pressure == nil || number(m.TotalBytes) <= 0 || number(m.LowWatermarkBytes) <= 0 {
		t.Errorf("memory %+v", m)
	}
	t.Logf("kernel %s, controllers %s", read("/proc/sys/kernel/osrelease"), read(v2+"/cgroup.controllers"))
}

func readUsage(t *T) {
	t.group("/read", "cpuset", "cpu", "memory", "pids")
	busy := t.group("/read/busy")
	t.startLoad(busy, "spin", "1")
	before, at := usageMicros(busy), uptime()
	tk := t.sample(4)
	own := float64(usageMicros(busy)-before) / float64((uptime() - at).Microseconds()) * 1000
	p, _ := t.thePod(tk, "/read/busy")
	t.Logf("by cpu.stat and the guest's clock: %.0f milli-CPU", own)
	t.between("usageMilliCPU", number(p.UsageMilliCPU), 850, 1250)
}

func usageMicros(dir string) int64 {
	for line := range strings.Lines(read(dir + "/cpu.stat")) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64) // the kernel's
			return n
		}
	}
	return -1
}

func readMemory(t *T) {
	t.group("/read", "cpuset", "cpu", "memory", "pids")
	t.startLoad(t.group("/read/eater"), "eat", "96")
	if !within(settle, func() bool { n, _ := strconv.Atoi(read(v2 + "/read/eater/memory.current")); return n > 96<<20 }) {
		t.Fatalf("nothing eaten")
	}
	p, c := t.thePod(t.sample(2), "/read/eater")
	t.between("rssBytes in MiB", number(p.Memory.RSSBytes)/(1<<20), 96, 112)
	t.between("usageBytes in MiB", number(p.Memory.UsageBytes)/(1<<20), 96, 128)
	var onNodes float64
	for _, n := range c.NUMAMemory {
		onNodes += n.Bytes
	}
	t.between("numaMemory in MiB", onNodes/(1<<20), 96, 128)
}

func readThrottling(t *T) {
	t.group("/read", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/read/throttled")
	t.Must(write(dir+"/cpu.max", "20000 100000"))
	t.startLoad(dir, "spin", "2")
	p, c := t.thePod(t.sample(4), "/read/throttled")
	t.between("usageMilliCPU under 20 %", number(p.UsageMilliCPU), 150, 300)
	t.between("throttledPercent", number(c.ThrottledPercent), 80, 100)
}

func readThreads(t *T) {
	t.group("/read", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/read/many")
	l := t.startLoad(dir, "spin", "3")
	time.Sleep(time.Second) // until all have begun
	tk := t.sample(7)
	p, c := t.thePod(tk, "/read/many")
	entries, err := os.ReadDir("/proc/" + itoa(l.Process.Pid) + "/task")
	t.Must(err)
	t.between("threads, of which /proc has "+itoa(len(entries)), number(p.Threads), float64(len(entries)), float64(len(entries)))
	t.between("load1 of 3 busy threads", number(c.Load1), 2, 4)
}

func readCPUSet(t *T) {
	t.group("/read", "cpuset", "cpu", "memory", "pids")
	narrow := t.group("/read/narrow", "cpuset")
	t.Must(write(narrow+"/cpuset.cpus", "2-3,6"))
	t.group("/read/narrow/inner")
	t.group("/read/wide")
	tk := t.sample(1)
	for cgroup, want := range map[string]string{"/read/narrow": "2-3,6", "/read/wide": "0-7"} {
		if _, c := t.thePod(tk, cgroup); c.CPUSetCPUs != want {
			t.Errorf("%s: cpusetCPUs %q, want %q", cgroup, c.CPUSetCPUs, want)
		}
	}
	// One whose parent does not hand the controller down has the parent's.
	t.group("/read/narrow/inner/deep")
	if _, c := t.thePod(t.sample(1), "/read/narrow/inner/deep"); c.CPUSetCPUs != "2-3,6" {
		t.Errorf("without the controller: cpusetCPUs %q, want the parent's", c.CPUSetCPUs)
	}
}

// readDelegation has a cgroup with no controller at all: what is there is read, what is not is absent, and that is no
// failure.
func readDelegation(t *T) {
	t.group("/read")
	dir := t.group("/read/bare")
	l := t.startLoad(dir, "spin", "1")
	p, c := t.thePod(t.sample(3), "/read/bare")
	t.between("usageMilliCPU", number(p.UsageMilliCPU), 850, 1250)
	t.between("threads", number(p.Threads), float64(len(strings.Fields(read(dir+"/cgroup.threads")))), 20)
	if p.Memory != nil || c.ThrottledPercent != nil {
		t.Errorf("memory %+v, throttled %v without the controllers", p.Memory, c.ThrottledPercent)
	}
	if !l.alive() {
		t.Errorf("the load has ended")
	}
}
