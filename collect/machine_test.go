package main

// These tests run on the machine's own kernel: real cgroups, in a subtree of the test's own.

import (
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"polder/collect/classify"
	"polder/collect/host"
	"polder/collect/source"
	"polder/lib/cgroup"
	"polder/lib/tick"
	"polder/tests/await"
)

func TestUsageLoadAndThrottling(t *testing.T) {
	s := newSubtree(t)
	for _, name := range []string{"/busy", "/idle", "/throttled", "/pod1", "/pod1/a", "/pod1/b"} {
		s.mkdir(s.base + name)
	}
	s.write("cpuset", s.base+"/busy", "cpuset.cpus", "0")
	s.write("cpu", s.base+"/throttled", "cpu.cfs_quota_us", "10000") // of a period of 100 ms
	for _, name := range []string{"", "/busy", "/throttled"} {       // other work on this machine must not keep them from running
		s.write("cpu", s.base+name, "cpu.shares", "100000")
	}
	s.start(s.base+"/idle", "sleep 1000 & wait")
	asleep(t, s.dir("cpuacct", s.base+"/idle"), 2)
	s.start(s.base+"/throttled", busyLoop)
	s.start(s.base+"/pod1/a", busyLoop)
	stop := s.start(s.base+"/busy", busyLoop)

	// The clock is the test's: a second passes between the two readings, however long they really take. The kernel's own files, read
	// before, between and after them, bound the values, however busy the machine is.
	now := time.Now()
	c := s.collector(func() time.Time { return now })
	counters := func() counts { return s.counts("/busy", "/throttled") }
	first := bracket(counters, func() { c.Read(true) })
	await.Until(t, time.Minute, "the busy loops have run, and one was throttled five times", await.Is(func() bool {
		now := counters()
		return now.usage["/busy"] > first.after.usage["/busy"]+0.5 && now.throttled["/throttled"] > first.after.throttled["/throttled"]+4
	}))
	var sample *tick.Sample
	now = now.Add(time.Second)
	second := bracket(counters, func() { sample = c.Read(false) })
	if len(sample.Errors) > 0 {
		t.Errorf("reported errors: %v", sample.Errors)
	}
	if len(sample.Pods) != 4 {
		t.Fatalf("%d pods; want 4", len(sample.Pods))
	}
	busy, idle, throttled, pod1 := pod(sample, "busy"), pod(sample, "idle"), pod(sample, "throttled"), pod(sample, "pod1")

	within(t, "intervalSeconds", sample.IntervalSeconds, 1, 1)
	for _, p := range []*tick.Pod{busy, throttled} {
		name, used := "/"+p.Name, *p.UsageMilliCPU/1000
		within(t, p.Name+" CPU seconds", &used, second.before.usage[name]-first.after.usage[name]-1e-3, second.after.usage[name]-first.before.usage[name]+1e-3)
	}
	if busy.Load1 != nil {
		t.Errorf("busy load1 = %v in the first seconds; want none yet", *busy.Load1)
	}
	within(t, "busy threads", busy.Threads, 1, 1)
	within(t, "busy throttled", busy.Containers[0].ThrottledPercent, 0, 0)
	if got := busy.Containers[0].CPUSetCPUs; got != "0" {
		t.Errorf("busy cpuset = %q; want 0", got)
	}
	within(t, "idle usage", idle.UsageMilliCPU, 0, 10)
	within(t, "idle threads", idle.Threads, 2, 2)
	within(t, "throttled percent", throttled.Containers[0].ThrottledPercent,
		100*(second.before.throttled["/throttled"]-first.after.throttled["/throttled"])/(second.after.periods["/throttled"]-first.before.periods["/throttled"])-0.1, 100) // it is rounded
	within(t, "idle memory", idle.Memory.UsageBytes, 1<<12, 64<<20)
	within(t, "idle working set", idle.Memory.WorkingSetBytes, 1<<12, *idle.Memory.UsageBytes)
	if len(pod1.Containers) != 2 || pod1.Containers[0].Name != "a" {
		t.Fatalf("pod1's containers = %+v; want a and b", pod1.Containers)
	}
	if *pod1.UsageMilliCPU != *pod1.Containers[0].UsageMilliCPU+*pod1.Containers[1].UsageMilliCPU {
		t.Errorf("pod1's usage %v is not the sum of its containers'", *pod1.UsageMilliCPU)
	}
	within(t, "node usage", sample.CPU.UsageMilliCPU, 0, math.Inf(1))

	// Load: the first 5 s pass, a second thread starts, and two minutes pass in the kernel's steps.
	now = now.Add(5 * time.Second)
	sample = c.Read(false)
	within(t, "busy load1", pod(sample, "busy").Load1, 1, 1)
	within(t, "idle load1", pod(sample, "idle").Load1, 0, 0)
	within(t, "throttled load1", pod(sample, "throttled").Load1, 1, 1)
	s.start(s.base+"/idle", busyLoop)
	before := s.counts("/idle").usage["/idle"]
	await.Until(t, time.Minute, "the busy loop runs", await.Is(func() bool { return s.counts("/idle").usage["/idle"] > before+0.05 }))
	stop()
	await.Until(t, time.Minute, "the busy process has ended", await.Is(func() bool {
		pids, err := s.h.PIDs("cpuacct", s.base+"/busy")
		return err == nil && len(pids) == 0
	}))
	for range 12 {
		now = now.Add(5 * time.Second)
		c.Read(false)
	}
	for range 12 { // as between two ticks that are far apart
		now = now.Add(5 * time.Second)
		c.SampleLoad()
	}
	sample = c.Read(false)
	within(t, "idle load1 with a busy thread after 2 minutes", pod(sample, "idle").Load1, 0.8, 1)
	within(t, "idle load5 with a busy thread after 2 minutes", pod(sample, "idle").Load5, 0.25, 0.45)
	within(t, "busy load1 when it has ended", pod(sample, "busy").Load1, 0.1, 0.2)
}

func TestCgroupsComeAndGo(t *testing.T) {
	s := newSubtree(t)
	c := s.collector(time.Now)
	c.Read(true)

	s.mkdir(s.base + "/a")
	eventually(t, c, "a new cgroup", func(sample *tick.Sample) bool {
		p := pod(sample, "a")
		return p != nil && p.Memory != nil && p.Threads != nil && p.Containers[0].CPUSetCPUs != ""
	})
	s.mkdir(s.base + "/pod1")
	eventually(t, c, "a pod without containers", func(sample *tick.Sample) bool { return pod(sample, "pod1") != nil })
	s.mkdir(s.base + "/pod1/x")
	eventually(t, c, "a new container", func(sample *tick.Sample) bool {
		return len(pod(sample, "pod1").Containers) == 1 && pod(sample, "pod1").Memory != nil
	})

	// A cgroup that is removed between two readings and created again is no error, and its values are from its own files.
	stop := s.start(s.base+"/a", busyLoop)
	eventually(t, c, "the new cgroup's usage", func(sample *tick.Sample) bool {
		usage := pod(sample, "a").UsageMilliCPU
		return usage != nil && *usage > 0
	})
	stop()
	s.remove(s.base + "/a")
	s.mkdir(s.base + "/a")
	for range 3 {
		if sample := c.Read(false); len(sample.Errors) > 0 {
			t.Errorf("reported errors while a cgroup is removed: %v", sample.Errors)
		}
	}
	eventually(t, c, "a cgroup made again", func(sample *tick.Sample) bool {
		p := pod(sample, "a")
		return p != nil && p.UsageMilliCPU != nil && *p.UsageMilliCPU == 0
	})
	s.remove(s.base + "/pod1")
	eventually(t, c, "a pod that went", func(sample *tick.Sample) bool { return pod(sample, "pod1") == nil })
	s.remove(s.base + "/a")
	eventually(t, c, "a cgroup that went", func(sample *tick.Sample) bool { return len(sample.Pods) == 0 })
}

// TestVersion2 reads real cgroups of version 2, which on a machine of version 1 have CPU time and threads alone, through a
// root whose /proc and /sys lead to the machine's own. Under such a root the clock is the machine's uptime.
func TestVersion2(t *testing.T) {
	s := newSubtree(t)
	if s.h.Mode() != cgroup.ModeHybrid {
		t.Skip("needs a cgroup v2 beside v1")
	}
	const unified = "/sys/fs/cgroup/unified"
	base := unified + s.base
	for _, dir := range []string{base, base + "/busy", base + "/busy/below", base + "/busy/idle"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeDir(t, dir) })
	}
	root := t.TempDir()
	for _, dir := range []string{"proc", "sys/fs"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := func(from, to string) {
		t.Helper()
		if err := os.Symlink(from, filepath.Join(root, to)); err != nil {
			t.Fatal(err)
		}
	}
	link(unified, "sys/fs/cgroup")
	link("/sys/devices", "sys/devices")
	for _, name := range []string{"stat", "loadavg", "meminfo", "vmstat", "zoneinfo", "uptime", "sys", "pressure"} {
		link("/proc/"+name, "proc/"+name)
	}
	pids := map[string]string{}
	for dir, line := range map[string]string{"/busy/below": busyLoop, "/busy/idle": "sleep 1000 & wait"} {
		pid := strconv.Itoa(s.run(line, func(pid string) {
			if err := os.WriteFile(base+dir+"/cgroup.procs", []byte(pid), 0); err != nil {
				t.Fatal(err)
			}
		}))
		link("/proc/"+pid, "proc/"+pid)
		pids[dir] = pid
	}
	asleep(t, base+"/busy/idle", 2)
	h, err := host.New(root)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := classify.Parse("test.yaml", []byte("rules: [{cgroup: "+s.base+"/*, class: shared}]"))
	if err != nil {
		t.Fatal(err)
	}
	c := source.New(&source.Env{Host: h, Rules: rules, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now})
	t.Cleanup(func() { _ = c.Close() })
	// The scheduler's account of the busy process before, between and after the two readings bounds the values: other work on this
	// machine may leave it any share of a CPU.
	ran := func() float64 { return ranSeconds(t, pids["/busy/below"]) }
	first := bracket(ran, func() { c.Read(true) })
	await.Until(t, time.Minute, "the busy process has run for half a second", await.Is(func() bool { return ran() > first.after+0.5 }))
	var sample *tick.Sample
	second := bracket(ran, func() { sample = c.Read(false) })
	if len(sample.Errors) > 0 {
		t.Errorf("reported errors: %v", sample.Errors)
	}
	if len(sample.Pods) != 1 {
		t.Fatalf("%d pods; want 1", len(sample.Pods))
	}
	const uptimeStep = 0.01 // of /proc/uptime, at each end
	within(t, "intervalSeconds", sample.IntervalSeconds, second.begun.Sub(first.ended).Seconds()-2*uptimeStep, second.ended.Sub(first.begun).Seconds()+2*uptimeStep)
	used := *sample.Pods[0].UsageMilliCPU / 1000 * *sample.IntervalSeconds
	within(t, "CPU seconds, of the cgroups below too", &used, second.before-first.after-0.05, second.after-first.before+0.05) // the idle shell's are few
	within(t, "threads", sample.Pods[0].Threads, 3, 3)
	if sample.Pods[0].Memory != nil {
		t.Errorf("memory %+v without the controller; want none", sample.Pods[0].Memory)
	}
	if err := os.Mkdir(base+"/new", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(base + "/new") })
	eventually(t, c, "a new cgroup", func(sample *tick.Sample) bool { return pod(sample, "new") != nil })
	eventually(t, c, "a load of 1", func(sample *tick.Sample) bool {
		load := pod(sample, "busy").Load1
		return load != nil && *load == 1
	})
}

// TestGoneInTheMiddle removes and creates cgroups while they are read.
func TestGoneInTheMiddle(t *testing.T) {
	s := newSubtree(t)
	c := s.collector(time.Now)
	c.Read(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 100 {
			name := s.base + "/" + strconv.Itoa(i%7)
			for _, controller := range controllers {
				_ = os.Mkdir(s.dir(controller, name), 0o755)
			}
			for _, controller := range controllers {
				_ = os.Remove(s.dir(controller, name))
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if sample := c.Read(false); len(sample.Errors) > 0 {
			t.Fatalf("reported errors: %v", sample.Errors)
		}
	}
	eventually(t, c, "all gone", func(sample *tick.Sample) bool { return len(sample.Pods) == 0 })
}
