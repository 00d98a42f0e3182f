package main

import (
	"os"
	"strings"

	"polder/lib/disks"
	"polder/lib/tick"
)

// writeIOMax applies limits of each disk as advised, and restores the former ones. Without a disk the test logs that, and writes
// nothing.
func writeIOMax(t *T) {
	t.group("/write", "cpuset", "cpu", "memory", "pids", "io")
	dir := t.group("/write/a")
	before, err := values(v2 + "/write")
	t.Must(err)
	list, err := disks.List("/")
	t.Must(err)
	var limits []tick.DiskLimit
	var want []string
	for _, d := range list {
		if d.Empty {
			continue
		}
		limits = append(limits, tick.DiskLimit{Disk: d.Name, ReadBytesPerSecond: new(int64(1 << 20)), WritesPerSecond: new(int64(50))})
		want = append(want, d.Device+" rbps=1048576 wbps=max riops=max wiops=50")
	}
	if len(want) == 0 {
		t.refuses(t.isolate("", tick.Cgroup{Cgroup: "/write/a", IOMax: []tick.DiskLimit{{Disk: "vda", ReadsPerSecond: new(int64(100))}}}), "/write/a", "no disk of this machine is")
		t.Logf("this guest has no disk")
		return
	}
	if _, err := os.Stat(dir + "/io.max"); err != nil {
		t.refuses(t.isolate("", tick.Cgroup{Cgroup: "/write/a", IOMax: limits}), "/write/a", "io.max")
		t.Logf("this kernel's io controller has no io.max")
		return
	}
	t.clean(t.isolate("--journal /run/journal-io-max", tick.Cgroup{Cgroup: "/write/a", IOMax: limits}), len(want))
	for _, line := range want {
		if got := read(dir + "/io.max"); !strings.Contains(got+"\n", line+"\n") {
			t.Errorf("io.max is %q; want %q in it", got, line)
		}
	}
	t.restore("io-max", before)
}

// writeIOCost shares a disk without a device by costs as advised, with batch's weight beside it, and restores the former values.
func writeIOCost(t *T) {
	t.loadModules([]string{"configfs", "null_blk"})
	device := read("/sys/block/nullb0/dev")
	line := func(file string) string {
		for text := range strings.Lines(read(v2 + "/" + file)) {
			if rest, found := strings.CutPrefix(strings.TrimSpace(text), device+" "); found {
				return rest
			}
		}
		return ""
	}
	t.group("/write", "cpuset", "cpu", "memory", "pids", "io")
	dir := t.group("/write/batch")
	before, err := values(v2 + "/write")
	t.Must(err)
	first := line("io.cost.qos")
	model := &tick.DiskModel{
		ReadBytesPerSecond: 100 << 20, SequentialReadsPerSecond: 5000, RandomReadsPerSecond: 1000,
		WriteBytesPerSecond: 90 << 20, SequentialWritesPerSecond: 4000, RandomWritesPerSecond: 900,
	}
	cost := tick.DiskCost{
		Disk: "nullb0", Enabled: new(true), ReadPercentile: new(95.0), ReadLatencyMicroseconds: new(5000.0), MinPercent: new(50.0), MaxPercent: new(150.0), Model: model,
	}
	wanted := []tick.Cgroup{{Cgroup: "/", IOCost: []tick.DiskCost{cost}}, {Cgroup: "/write/batch", IOWeight: new(int64(1))}}
	t.clean(t.isolate("--journal /run/journal-io-cost", wanted...), 3)
	t.Logf("io.cost.qos: %s; io.cost.model: %s", line("io.cost.qos"), line("io.cost.model"))
	for _, word := range []string{"enable=1", "ctrl=user", "rpct=95.00", "rlat=5000", "min=50.00", "max=150.00"} {
		if got := line("io.cost.qos"); !strings.Contains(got+" ", word+" ") {
			t.Errorf("io.cost.qos is %q; want %s in it", got, word)
		}
	}
	if got := line("io.cost.model"); !strings.Contains(got, "ctrl=user model=linear rbps=104857600 rseqiops=5000 rrandiops=1000 wbps=94371840 wseqiops=4000 wrandiops=900") {
		t.Errorf("io.cost.model is %q", got)
	}
	t.expect(dir, "io.weight", "default 1")
	if again := t.isolate("--journal /run/journal-io-cost", wanted...); again.Applied != 0 || len(again.Errors) > 0 {
		t.Errorf("again: %+v", again)
	}
	t.refuses(t.isolate("", tick.Cgroup{Cgroup: "/write/batch", IOCost: []tick.DiskCost{cost}}), "/write/batch", "only the root cgroup has them")
	t.restore("io-cost", before)
	if got := line("io.cost.qos"); !strings.HasPrefix(got, "enable=0 ctrl=auto") || first != "" {
		t.Errorf("restored, io.cost.qos is %q; at first %q", got, first)
	}
	if got := line("io.cost.model"); !strings.HasPrefix(got, "ctrl=auto") {
		t.Errorf("restored, io.cost.model is %q", got)
	}
}
