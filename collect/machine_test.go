package main

// These tests run on the machine's own kernel: real cgroups, in a subtree of the test's own.

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"polder/collect/classify"
	"polder/collect/source"
	"polder/lib/cgroup"
	"polder/lib/host"
	"polder/lib/tick"
)

func TestUsageLoadAndThrottling(t *testing.T) {
	s := newSubtree(t)
	for _, name := range []string{"/busy", "/idle", "/throttled", "/pod1", "/pod1/a", "/pod1/b"} {
		s.mkdir(s.base + name)
	}
	s.write("cpuset", s.base+"/busy", "cpuset.cpus", "0")
	s.write("cpu", s.base+"/throttled", "cpu.cfs_quota_us", "10000") // of a period of 100 ms
	// Real-time or other tests may be at work on this machine: the busy one is to have its CPU.
	s.write("cpu", s.base+"/busy", "cpu.shares", "100000")
	s.write("cpu", s.base, "cpu.shares", "100000")
	s.start(s.base+"/idle", "sleep 1000 & wait")
	asleep(t, s.dir("cpuacct", s.base+"/idle"), 2)
	s.start(s.base+"/throttled", busyLoop)
	s.start(s.base+"/pod1/a", busyLoop)
	stop := s.start(s.base+"/busy", busyLoop)

	var skipped time.Duration
	c := s.collector(&skipped)
	c.Read(true)
	time.Sleep(1500 * time.Millisecond)
	sample := c.Read(false)
	if len(sample.Errors) > 0 {
		t.Errorf("errors: %v", sample.Errors)
	}
	if len(sample.Pods) != 4 {
		t.Fatalf("%d pods; want 4", len(sample.Pods))
	}
	busy, idle, throttled, pod1 := pod(sample, "busy"), pod(sample, "idle"), pod(sample, "throttled"), pod(sample, "pod1")

	within(t, "busy usage", busy.UsageMilliCPU, 700, 1050)
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
	within(t, "throttled usage", throttled.UsageMilliCPU, 60, 140)
	within(t, "throttled percent", throttled.Containers[0].ThrottledPercent, 80, 100)
	within(t, "idle memory", idle.Memory.UsageBytes, 1<<12, 64<<20)
	within(t, "idle working set", idle.Memory.WorkingSetBytes, 1<<12, *idle.Memory.UsageBytes)
	if len(pod1.Containers) != 2 || pod1.Containers[0].Name != "a" {
		t.Fatalf("pod1's containers = %+v; want a and b", pod1.Containers)
	}
	if *pod1.UsageMilliCPU != *pod1.Containers[0].UsageMilliCPU+*pod1.Containers[1].UsageMilliCPU {
		t.Errorf("pod1's usage %v is not the sum of its containers'", *pod1.UsageMilliCPU)
	}
	within(t, "node usage", sample.CPU.UsageMilliCPU, *busy.UsageMilliCPU*0.9, float64(2*1000*len(sample.Topology.Cores)))

	// Load: the first 5 s pass, a second thread comes, and two minutes pass in steps of the kernel's.
	skipped += 5 * time.Second
	sample = c.Read(false)
	within(t, "busy load1", pod(sample, "busy").Load1, 1, 1)
	within(t, "idle load1", pod(sample, "idle").Load1, 0, 0)
	within(t, "throttled load1", pod(sample, "throttled").Load1, 1, 1)
	s.start(s.base+"/idle", busyLoop)
	stop()
	for range 12 {
		skipped += 5 * time.Second
		c.Read(false)
	}
	for range 12 { // as between two ticks that are far apart
		skipped += 5 * time.Second
		c.SampleLoad()
	}
	sample = c.Read(false)
	within(t, "idle load1 with a busy thread after 2 minutes", pod(sample, "idle").Load1, 0.8, 1)
	within(t, "idle load5 with a busy thread after 2 minutes", pod(sample, "idle").Load5, 0.25, 0.45)
	within(t, "busy load1 when it has ended", pod(sample, "busy").Load1, 0.1, 0.2)
}

func TestCgroupsComeAndGo(t *testing.T) {
	s := newSubtree(t)
	var skipped time.Duration
	c := s.collector(&skipped)
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

	// Removed between two readings, and made anew: no error, and the new one's values from its own files.
	stop := s.start(s.base+"/a", busyLoop)
	time.Sleep(50 * time.Millisecond)
	c.Read(false)
	stop()
	s.remove(s.base + "/a")
	s.mkdir(s.base + "/a")
	for range 3 {
		if sample := c.Read(false); len(sample.Errors) > 0 {
			t.Errorf("errors while a cgroup goes: %v", sample.Errors)
		}
	}
	eventually(t, c, "a cgroup made anew", func(sample *tick.Sample) bool {
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
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must have a cgroup v2 beside v1")
		}
		t.Skip("no cgroup v2 beside v1")
	}
	const unified = "/sys/fs/cgroup/unified"
	base := unified + s.base
	for _, dir := range []string{base, base + "/busy", base + "/busy/below", base + "/busy/idle"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for range 200 { // the kernel needs a moment after the last process
				if os.Remove(dir) == nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Errorf("cgroup %s is left behind", dir)
		})
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
	c.Read(true)
	began, before := time.Now(), ranSeconds(t, pids["/busy/below"])
	time.Sleep(time.Second)
	sample := c.Read(false)
	elapsed := time.Since(began).Seconds()
	truth := (ranSeconds(t, pids["/busy/below"]) - before) / elapsed * 1000 // other work on this machine may leave it less than a CPU
	if len(sample.Errors) > 0 {
		t.Errorf("errors: %v", sample.Errors)
	}
	if len(sample.Pods) != 1 {
		t.Fatalf("%d pods; want 1", len(sample.Pods))
	}
	within(t, "intervalSeconds", sample.IntervalSeconds, elapsed-0.1, elapsed+0.1)
	within(t, "usage, of the cgroups below too", sample.Pods[0].UsageMilliCPU, truth*0.85-20, truth*1.15+20)
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

// TestGoneInTheMiddle removes and makes cgroups while they are read.
func TestGoneInTheMiddle(t *testing.T) {
	s := newSubtree(t)
	var skipped time.Duration
	c := s.collector(&skipped)
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
			t.Fatalf("errors: %v", sample.Errors)
		}
	}
	eventually(t, c, "all gone", func(sample *tick.Sample) bool { return len(sample.Pods) == 0 })
}
