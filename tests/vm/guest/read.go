package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"polder/lib/tick"
)

func itoa(n int) string { return strconv.Itoa(n) }

const readRules = `
  - {cgroup: /read/**, class: shared, namespace: test}
  - {cgroup: /read, class: none}
`

// sample runs collect until it has rates and, if asked for, loads (which take 5 s), and returns the last tick.
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

// value is a number of a pod with a single container; -1 if it is missing.
type value func(*tick.Pod) float64

func usage(p *tick.Pod) float64     { return number(p.UsageMilliCPU) }
func threads(p *tick.Pod) float64   { return number(p.Containers[0].Threads) }
func load1(p *tick.Pod) float64     { return number(p.Containers[0].Load1) }
func throttled(p *tick.Pod) float64 { return number(p.Containers[0].ThrottledPercent) }

// inRange checks that a number of a cgroup's pod is in a range; the result is what is lacking, in readable form.
func inRange(cgroup, name string, v value, from, to float64) func(*tick.Tick) (lacks string) {
	return func(tk *tick.Tick) string {
		p := pod(tk, cgroup)
		if p == nil || len(p.Containers) != 1 {
			return "the sample has no pod " + cgroup + " of one container"
		}
		if got := v(p); got < from || got > to {
			return fmt.Sprintf("%s of %s is %.1f, want %.1f to %.1f", name, cgroup, got, from, to)
		}
		return ""
	}
}

// awaitSample runs collect until a sample meets all conditions at once, and returns it. A load's usage in a second is what
// the host gives the guest: a single second means little.
func (t *T) awaitSample(what string, wanted ...func(*tick.Tick) string) *tick.Tick {
	p := t.startPipe("collect --interval 1s --classify " + t.classify(readRules))
	lacks := "no sample"
	var found *tick.Tick
	if !within(func() bool {
		if found = p.last(); found == nil {
			return false
		}
		for _, lacking := range wanted {
			if lacks = lacking(found); lacks != "" {
				return false
			}
		}
		return true
	}) {
		t.Fatalf("not in %s: %s: %s", patience, what, lacks)
	}
	t.stop(p)
	for _, tk := range p.ticks {
		for _, e := range tk.Sample.Errors {
			t.Errorf("collect: %s: %s", e.Source, e.Error)
		}
	}
	t.Logf("%s after %d ticks", what, len(p.ticks))
	return found
}

func readUsage(t *T) {
	t.group("/read", "cpuset", "cpu", "memory", "pids")
	t.startLoad(t.group("/read/busy"), "spin", "1")
	t.awaitSample("a busy thread's use", inRange("/read/busy", "usageMilliCPU", usage, 850, 1250))
}

// readCpusetOfItsOwn delegates the cpuset controller while collect runs, and withdraws it: the list is always the effective one.
func readCpusetOfItsOwn(t *T) {
	above := t.group("/read")
	dir := t.group("/read/a")
	p := t.startPipe("collect --interval 200ms --rescan 10m --classify " + t.classify(readRules))
	list := "no tick"
	is := func(when, want string) {
		if !within(func() bool {
			tk := p.last()
			if tk == nil {
				return false
			}
			if found := pod(tk, "/read/a"); found == nil {
				list = "none: the pod is gone"
			} else {
				list = found.Containers[0].CPUSetCPUs
			}
			return list == want
		}) {
			t.Errorf("%s the list is %s, want %s", when, list, want)
		}
	}
	is("without a cpuset", "0-7")
	t.Must(write(above+"/cgroup.subtree_control", "+cpuset"))
	t.Must(write(dir+"/cpuset.cpus", "2-3"))
	is("with one of its own", "2-3")
	t.Must(write(above+"/cgroup.subtree_control", "-cpuset"))
	t.Must(write(above+"/cpuset.cpus", "4-7"))
	is("without one again", "4-7")
	t.Must(os.Remove(dir))
	is("removed", "none: the pod is gone")
	t.stop(p)
	for _, tk := range p.ticks {
		for _, e := range tk.Sample.Errors {
			t.Errorf("collect: %s: %s", e.Source, e.Error)
		}
	}
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
	memory := func(of func(*tick.Memory) *float64) value {
		return func(p *tick.Pod) float64 {
			if p.Memory == nil {
				return -1
			}
			return number(of(p.Memory)) / (1 << 20)
		}
	}
	onNodes := func(p *tick.Pod) (sum float64) {
		for _, n := range p.Containers[0].NUMAMemory {
			sum += n.Bytes / (1 << 20)
		}
		return sum
	}
	// The process takes a while to use all of it, and the kernel adds its counters up with a delay.
	t.awaitSample("96 MiB in use",
		inRange("/read/eater", "rssBytes in MiB", memory(func(m *tick.Memory) *float64 { return m.RSSBytes }), 96, 112),
		inRange("/read/eater", "usageBytes in MiB", memory(func(m *tick.Memory) *float64 { return m.UsageBytes }), 96, 128),
		inRange("/read/eater", "numaMemory in MiB", onNodes, 96, 128))
}

func readThrottling(t *T) {
	t.group("/read", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/read/throttled")
	t.Must(write(dir+"/cpu.max", "20000 100000"))
	t.startLoad(dir, "spin", "2")
	t.awaitSample("use under 20 %, throttled", inRange("/read/throttled", "usageMilliCPU", usage, 150, 300),
		inRange("/read/throttled", "throttledPercent", throttled, 80, 100))
}

func readThreads(t *T) {
	t.group("/read", "cpuset", "cpu", "memory", "pids")
	dir := t.group("/read/many")
	l := t.startLoad(dir, "spin", "3")
	t.awaitSample("3 busy threads, and as many in all as /proc has", inRange("/read/many", "load1", load1, 2, 4), func(tk *tick.Tick) string {
		entries, err := os.ReadDir("/proc/" + itoa(l.Process.Pid) + "/task")
		t.Must(err)
		n := float64(len(entries))
		return inRange("/read/many", "threads", threads, n, n)(tk)
	})
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
	// Without a delegated controller a cgroup has its parent's.
	t.group("/read/narrow/inner/deep")
	if _, c := t.thePod(t.sample(1), "/read/narrow/inner/deep"); c.CPUSetCPUs != "2-3,6" {
		t.Errorf("without the controller: cpusetCPUs %q, want the parent's", c.CPUSetCPUs)
	}
}

// readDelegation has a cgroup with no controller at all: existing files are read, the others' values are absent, and that is no
// failure.
func readDelegation(t *T) {
	t.group("/read")
	dir := t.group("/read/bare")
	l := t.startLoad(dir, "spin", "1")
	tk := t.awaitSample("a busy thread's use", inRange("/read/bare", "usageMilliCPU", usage, 850, 1250),
		inRange("/read/bare", "threads", threads, float64(len(strings.Fields(read(dir+"/cgroup.threads")))), 20))
	p, c := t.thePod(tk, "/read/bare")
	if p.Memory != nil || c.ThrottledPercent != nil {
		t.Errorf("memory %+v, throttled %v without the controllers", p.Memory, c.ThrottledPercent)
	}
	if !l.alive() {
		t.Errorf("the load has ended")
	}
}
