package source

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// disk writes a line of /proc/diskstats with the counts that are read: reads, sectors and milliseconds of each kind, time in use and in
// the queue.
func diskLine(name string, minor int, reads, readSectors, readMs, writes, writeSectors, writeMs, busy, queue int) string {
	return fmt.Sprintf("254 %d %s %d 0 %d %d %d 0 %d %d 0 %d %d\n", minor, name, reads, readSectors, readMs, writes, writeSectors, writeMs, busy, queue)
}

func (m *machine) disk(name, device, size string) {
	m.t.Helper()
	m.write("sys/block/"+name+"/dev", device+"\n")
	m.write("sys/block/"+name+"/size", size+"\n")
}

// diskErrors are the source's errors.
func diskErrors(s *tick.Sample) string {
	var list []string
	for _, e := range s.Errors {
		if e.Source == "disks" {
			list = append(list, e.Error)
		}
	}
	return strings.Join(list, "; ")
}

func TestDisks(t *testing.T) {
	m := newMachine(t)
	m.disk("vda", "254:0", "100")
	m.disk("vdb", "254:16", "100")
	m.disk("vdc", "254:32", "100") // never used
	m.disk("loop1", "7:1", "0")
	m.write("proc/diskstats", diskLine("vda", 0, 10, 80, 20, 5, 40, 50, 1000, 2000)+diskLine("vda1", 1, 10, 80, 20, 5, 40, 50, 1000, 2000)+
		diskLine("vdb", 16, 7, 7, 7, 7, 7, 7, 7, 7)+diskLine("vdc", 32, 0, 0, 0, 0, 0, 0, 0, 0))
	m.write("proc/pressure/io", "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=3\n")
	c := m.collector("rules: [{cgroup: /none/*, class: shared}]")
	want := []tick.Disk{{Name: "vda", Device: "254:0"}, {Name: "vdb", Device: "254:16"}}
	s := c.Read(true)
	if d := cmp.Diff(want, s.Disks); d != "" {
		t.Errorf("the first reading has counts and no rates (-want +got):\n%s", d)
	}
	if s.IO == nil || s.IO.Pressure == nil || s.IO.Pressure.Some.Avg10 != 1.5 || s.IO.Pressure.Full.TotalMicroseconds != 3 {
		t.Errorf("pressure = %+v; want that of the file", s.IO)
	}
	m.write("proc/uptime", "1010.00 1.00")
	m.write("proc/diskstats", diskLine("vda", 0, 30, 2128, 120, 5, 40, 50, 6000, 12000)+diskLine("vda1", 1, 30, 2128, 120, 5, 40, 50, 6000, 12000)+
		diskLine("vdb", 16, 1, 1, 1, 8, 9, 47, 7, 7)) // vdb is another one, or its counts of reads wrapped around
	p := tick.Ptr[float64]
	want[0] = tick.Disk{
		Name: "vda", Device: "254:0", UsePercent: p(50), Queue: p(1), ReadBytesPerSecond: p(104858), WriteBytesPerSecond: p(0),
		ReadsPerSecond: p(2), WritesPerSecond: p(0), ReadLatencyMicroseconds: p(5000),
	}
	want[1] = tick.Disk{Name: "vdb", Device: "254:16", UsePercent: p(0), Queue: p(0), WriteBytesPerSecond: p(102), WritesPerSecond: p(0.1), WriteLatencyMicroseconds: p(40000)}
	if d := cmp.Diff(want, c.Read(false).Disks); d != "" {
		t.Errorf("rates (-want +got):\n%s", d)
	}
	m.write("proc/diskstats", "nonsense\n")
	if s = c.Read(false); len(s.Disks) > 0 || !strings.Contains(diskErrors(s), "want numbers of a device") {
		t.Errorf("a file that cannot be parsed: %+v, errors %q; want no disks and an error", s.Disks, diskErrors(s))
	}
}

// A machine with more disks than a sample may have is an error that names how many are left out.
func TestDisksAreBounded(t *testing.T) {
	m := newMachine(t)
	var text strings.Builder
	for i := range maxDisks + 3 {
		name := fmt.Sprintf("vd%03d", i)
		m.disk(name, fmt.Sprintf("254:%d", i), "1")
		text.WriteString(diskLine(name, i, 1, 1, 1, 1, 1, 1, 1, 1))
	}
	m.write("proc/diskstats", text.String())
	s := m.collector("rules: [{cgroup: /none/*, class: shared}]").Read(true)
	if len(s.Disks) != maxDisks || !strings.Contains(diskErrors(s), fmt.Sprintf("3 of %d disks are left out", maxDisks+3)) {
		t.Errorf("%d disks, errors %q; want %d and how many are left out", len(s.Disks), diskErrors(s), maxDisks)
	}
}

// Rates of a later run are computed from the disks' counts in the state of an earlier one.
func TestDisksAcrossRuns(t *testing.T) {
	m := newMachine(t)
	m.disk("vda", "254:0", "100")
	m.write("proc/sys/kernel/random/boot_id", "b\n")
	m.write("proc/diskstats", diskLine("vda", 0, 10, 0, 0, 0, 0, 0, 0, 0))
	first := m.collector("rules: [{cgroup: /none/*, class: shared}]")
	first.Read(true)
	m.write("proc/uptime", "1010.00 1.00")
	m.write("proc/diskstats", diskLine("vda", 0, 60, 0, 0, 0, 0, 0, 0, 0))
	second := m.collector("rules: [{cgroup: /none/*, class: shared}]")
	if !second.Load(first.Save(), 60) {
		t.Fatal("the state of the first run was refused")
	}
	if d := second.Read(true).Disks; len(d) != 1 || d[0].ReadsPerSecond == nil || *d[0].ReadsPerSecond != 5 {
		t.Errorf("disks = %+v; want 5 reads a second", d)
	}
}

// Pods' reads and writes are rates; those of stacked disks do not count twice, and those of a missing file are absent, not zero.
func TestIOOfPods(t *testing.T) {
	m := newMachine(t)
	m.write("sys/fs/cgroup/cgroup.controllers", "cpu memory pids io")
	m.disk("loop0", "7:0", "5")
	for _, pod := range []string{"/a", "/b"} {
		m.cgroup(pod, "1")
	}
	m.write("sys/fs/cgroup/a/io.stat", "254:0 rbytes=1000 wbytes=0 rios=10 wios=0 dbytes=0 dios=0\n")
	c := m.collector("rules: [{cgroup: /*, class: shared}]")
	if s := c.Read(true); s.Pods[0].IO != nil || s.Pods[1].IO != nil {
		t.Errorf("input and output %+v, %+v of the first reading; want none", s.Pods[0].IO, s.Pods[1].IO)
	}
	m.write("proc/uptime", "1004.00 1.00")
	m.write("sys/fs/cgroup/a/io.stat", "254:0 rbytes=2000 wbytes=50 rios=12 wios=5 dbytes=0 dios=0\n7:0 rbytes=99999\n")
	if s := c.Read(false); s.Pods[0].IO != nil {
		t.Errorf("input and output %+v 4 s later; want none before 5 s", s.Pods[0].IO)
	}
	m.write("proc/uptime", "1005.00 1.00")
	p := tick.Ptr[float64]
	want := &tick.IO{ReadBytesPerSecond: p(200), WriteBytesPerSecond: p(10), ReadsPerSecond: p(0.4), WritesPerSecond: p(1)}
	s := c.Read(false)
	if d := cmp.Diff(want, s.Pods[0].IO); d != "" || s.Pods[1].IO != nil {
		t.Errorf("input and output (-want +got):\n%s\nand %+v without a file", d, s.Pods[1].IO)
	}
	m.write("proc/uptime", "1010.00 1.00")
	m.write("sys/fs/cgroup/a/io.stat", "254:0 rbytes=1 wbytes=1 rios=1 wios=1\n")
	if s := c.Read(false); s.Pods[0].IO != nil {
		t.Errorf("input and output %+v of counts that decreased; want none", s.Pods[0].IO)
	}
	m.write("proc/uptime", "1015.00 1.00")
	m.write("sys/fs/cgroup/a/io.stat", "254:0 rbytes=nothing\n")
	if s := c.Read(false); s.Pods[0].IO != nil || len(s.Errors) == 0 {
		t.Errorf("input and output %+v, errors %v of a file that cannot be parsed", s.Pods[0].IO, s.Errors)
	}
}

// When a disk turns out to be built on another one, or no longer is, the counts of before cannot be compared.
func TestIOOfPodsWhileDisksChange(t *testing.T) {
	m := newMachine(t)
	m.write("sys/fs/cgroup/cgroup.controllers", "cpu memory pids io")
	m.disk("dm-0", "253:0", "5")
	slave := "sys/block/dm-0/slaves/vda/dev"
	m.write(slave, "254:0")
	m.cgroup("/a", "1")
	m.write("sys/fs/cgroup/a/io.stat", "253:0 rbytes=100000000000 wbytes=0 rios=10 wios=0 dbytes=0 dios=0\n"+
		"254:0 rbytes=5 wbytes=0 rios=1 wios=0\n")
	c := m.collector("rules: [{cgroup: /*, class: shared}]")
	rate := func(uptime string) *float64 {
		m.write("proc/uptime", uptime+" 1.00")
		if io := c.Read(true).Pods[0].IO; io != nil {
			return io.ReadBytesPerSecond
		}
		return nil
	}
	rate("1000.00")
	if got := rate("1005.00"); got == nil || *got != 0 {
		t.Errorf("%v bytes a second; want none", got)
	}
	if err := os.RemoveAll(filepath.Join(m.root, "sys/block/dm-0/slaves")); err != nil {
		t.Fatal(err)
	}
	if got := rate("1010.00"); got != nil {
		t.Errorf("%v bytes a second of one disk more; want unknown", *got)
	}
	if got := rate("1015.00"); got == nil || *got != 0 {
		t.Errorf("%v bytes a second; want none", got)
	}
}
