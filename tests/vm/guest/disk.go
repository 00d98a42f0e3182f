package main

import (
	"os"
	"strings"

	"polder/lib/disks"
	"polder/lib/tick"
)

// writeIOMax has limits of each disk in force as advised, and gives back what there was. A guest without a disk is told so, and nothing is
// written.
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
