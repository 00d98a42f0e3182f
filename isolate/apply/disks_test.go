package apply

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/tests/need"
)

// loopDevice creates a disk for the test: a file behind a loop device. It returns its name and device number.
func loopDevice(t *testing.T) (name, device string) {
	t.Helper()
	need.Program(t, "losetup", "mount")
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4<<20); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", path).CombinedOutput()
	if err != nil {
		t.Skipf("needs loop devices: %v: %s", err, out)
	}
	at := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", at).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v: %s", at, err, out)
		}
	})
	data, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(at), "dev"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(at), strings.TrimSpace(string(data))
}

// newDiskTree is a tree that has its cgroups in the blkio hierarchy too.
func newDiskTree(t *testing.T, cgroups ...string) *realTree {
	t.Helper()
	need.CgroupsV1(t, "blkio")
	r := newRealTree(t, cgroups...)
	for _, name := range append([]string{""}, cgroups...) {
		dir := r.dir("io", name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				t.Error(err)
			}
		})
	}
	return r
}

var throttled = []string{"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device", "blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"}

// texts returns all limits of a cgroup, byte for byte.
func (r *realTree) texts(name string) string {
	var all []string
	for _, file := range throttled {
		all = append(all, strings.TrimSpace(r.get("io", name, file)))
	}
	return strings.Join(all, "|")
}

// The kernel has the advised limits of the named disks and of no other; original limits are neither widened nor lost, and a restore
// restores them, byte for byte.
func TestDiskLimitsOnTheKernel(t *testing.T) {
	one, device := loopDevice(t)
	_, otherDevice := loopDevice(t)
	r := newDiskTree(t, "batch")
	r.set("io", "batch", throttled[0], otherDevice+" 77777")
	r.set("io", "batch", throttled[0], device+" 2000000")
	r.set("io", "batch", throttled[3], device+" 50")
	before := r.texts("batch")

	journal := filepath.Join(t.TempDir(), "journal")
	a, w := newApplier(t, r.h, func(o *Options) { o.Journal = openJournal(t, journal) })
	wants := func(limit tick.DiskLimit) []tick.Cgroup {
		limit.Disk = one
		return []tick.Cgroup{{Cgroup: r.path("batch"), IOMax: []tick.DiskLimit{limit}}}
	}
	desired := wants(tick.DiskLimit{ReadBytesPerSecond: new(int64(1 << 20)), WriteBytesPerSecond: new(int64(3 << 20)), ReadsPerSecond: new(int64(tick.Unlimited)), WritesPerSecond: new(int64(1000))})
	out := a.Apply(desired)
	if len(out.Errors) > 0 || out.Applied != 2 || w.writes != 2 {
		t.Fatalf("applied %d, %d writes, errors:\n%s", out.Applied, w.writes, errorsOf(out))
	}
	for i, want := range []string{otherDevice + " 77777", device + " 1048576"} {
		if got := r.get("io", "batch", throttled[0]); !strings.Contains(got+"\n", want+"\n") {
			t.Errorf("%s = %q, want %q in it (%d)", throttled[0], got, want, i)
		}
	}
	if got := r.get("io", "batch", throttled[1]); got != device+" 3145728" {
		t.Errorf("%s = %q", throttled[1], got)
	}
	if got := r.get("io", "batch", throttled[3]); got != device+" 50" {
		t.Errorf("%s = %q, want the tighter one that was there", throttled[3], got)
	}
	if got := out.Writes[0]; got.Key != "ioMax" || got.Old != device+" rbps=2000000" || got.New != device+" rbps=1048576" {
		t.Errorf("write %+v", got)
	}
	if again := a.Apply(desired); again.Applied > 0 || len(again.Errors) > 0 {
		t.Errorf("again: %+v", again)
	}

	// Unlimited means the original limit, not none.
	desired = wants(tick.DiskLimit{ReadBytesPerSecond: new(int64(tick.Unlimited)), WriteBytesPerSecond: new(int64(tick.Unlimited))})
	if out = a.Apply(desired); len(out.Errors) > 0 || r.texts("batch") != before {
		t.Errorf("without a limit: %q, want %q; errors:\n%s", r.texts("batch"), before, errorsOf(out))
	}
	desired = wants(tick.DiskLimit{ReadBytesPerSecond: new(int64(65536)), ReadsPerSecond: new(int64(4)), WritesPerSecond: new(int64(4)), WriteBytesPerSecond: new(int64(65536))})
	if out = a.Apply(desired); len(out.Errors) > 0 {
		t.Errorf("reported errors:\n%s", errorsOf(out))
	}
	back, err := a.Restore(false)
	if got := r.texts("batch"); err != nil || back.Failed+back.External+back.Gone > 0 || got != before {
		t.Errorf("restored %+v, %v: %q, want %q", back, err, got, before)
	}
	if _, err := os.Stat(journal); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal is left: %v", err)
	}
}

// The journal of a killed isolate suffices, and a disk that is gone by then is no failure.
func TestDiskLimitsRestoredByNewProcess(t *testing.T) {
	one, device := loopDevice(t)
	r := newDiskTree(t, "batch")
	journal := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, journal)
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	if out := a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), IOMax: []tick.DiskLimit{{Disk: one, ReadsPerSecond: new(int64(100))}}}}); out.Applied != 1 {
		t.Fatalf("applied %d, errors:\n%s", out.Applied, errorsOf(out))
	}
	if got := r.get("io", "batch", throttled[2]); got != device+" 100" {
		t.Fatalf("%s = %q", throttled[2], got)
	}
	j.Close()

	data, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	const gone = "259:1048000" // on no machine
	gone1 := strings.ReplaceAll(string(data), `"device":"`+device+`"`, `"device":"`+gone+`"`)
	if err := os.WriteFile(journal, append(data, gone1...), 0o600); err != nil {
		t.Fatal(err)
	}
	b, w := newApplier(t, r.h, func(o *Options) { o.Journal = openJournal(t, journal) })
	back, err := b.Restore(false)
	if err != nil || back.Values != 1 || back.Gone != 1 || back.Failed > 0 || w.writes != 1 {
		t.Errorf("restored %+v, %v, with %d writes", back, err, w.writes)
	}
	if got := r.get("io", "batch", throttled[2]); got != "" {
		t.Errorf("%s = %q after the restore", throttled[2], got)
	}
}

// A disk that does not exist is rejected, and no file is written; a cgroup without the files is named.
func TestInvalidDiskLimits(t *testing.T) {
	r := newDiskTree(t, "batch")
	a, w := newApplier(t, r.h, nil)
	for _, disk := range []string{"nothing", "../loop0", "7:0", "/no/such/mount", "all\n7:0 1", ""} {
		out := a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), IOMax: []tick.DiskLimit{{Disk: disk, ReadsPerSecond: new(int64(100))}}}})
		if w.writes > 0 || len(out.Errors) != 1 || !strings.Contains(out.Errors[0].Error, "no disk of this machine is") {
			t.Fatalf("%q: %d writes, errors:\n%s", disk, w.writes, errorsOf(out))
		}
	}
}

// Version 2, on a copy; the guest's suite tests a real one. A weight is written to both files that a kernel may have; one suffices.
func TestDisksOfVersion2(t *testing.T) {
	h, base := newCopy(t, map[string]string{
		"a/io.max": "8:0 rbps=max wbps=1000000 riops=max wiops=max", "a/io.weight": "default 100\n8:0 200", "a/io.bfq.weight": "default 100",
		"b/io.max": "", "b/io.bfq.weight": "default 100",
	})
	root := filepath.Join(base, "../../..")
	for path, text := range map[string]string{
		"sys/block/sda/dev": "8:0", "sys/block/sda/size": "9", "sys/block/sda/device/model": "x", "sys/dev/block/8:0/dev": "8:0",
		"proc/self/mountinfo": "22 1 8:0 / /data rw - ext4 /dev/sda rw",
	} {
		at := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	journal := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, journal)
	a, _ := newApplier(t, h, func(o *Options) { o.Journal, o.Root = j, root })
	desired := []tick.Cgroup{
		{Cgroup: "/a", IOWeight: new(int64(1)), IOMax: []tick.DiskLimit{{Disk: "/data", ReadBytesPerSecond: new(int64(1 << 20)), WriteBytesPerSecond: new(int64(2 << 20))}}},
		{Cgroup: "/b", IOWeight: new(int64(1)), IOMax: []tick.DiskLimit{{Disk: tick.AllDisks, WritesPerSecond: new(int64(7))}}},
	}
	out := a.Apply(desired)
	if len(out.Errors) > 0 || out.Applied != 5 {
		t.Errorf("applied %d, errors:\n%s", out.Applied, errorsOf(out))
	}
	for file, want := range map[string]string{
		"a/io.max": "8:0 rbps=1048576 wbps=1000000 riops=max wiops=max", "a/io.weight": "default 1", "a/io.bfq.weight": "default 10",
		"b/io.max": "8:0 rbps=max wbps=max riops=max wiops=7", "b/io.bfq.weight": "default 10",
	} {
		if got := read(t, base, file); got != want {
			t.Errorf("%s = %q, want %q", file, got, want)
		}
	}
	if again := a.Apply(desired); again.Applied > 0 || len(again.Errors) > 0 || again.Unchanged != 5 {
		t.Errorf("again: applied %d, unchanged %d, errors:\n%s", again.Applied, again.Unchanged, errorsOf(again))
	}
	if back, err := a.Restore(false); err != nil || back.Values != 5 || back.Failed+back.External > 0 {
		t.Errorf("restored %+v, %v", back, err)
	}
	for file, want := range map[string]string{
		"a/io.max": "8:0 rbps=max wbps=1000000 riops=max wiops=max", "a/io.weight": "default 100", "a/io.bfq.weight": "default 100",
		"b/io.max": "8:0 rbps=max wbps=max riops=max wiops=max", "b/io.bfq.weight": "default 100",
	} {
		if got := read(t, base, file); got != want {
			t.Errorf("restored %s = %q, want %q", file, got, want)
		}
	}
}

// The weight is in the kernel's file, and -1 restores the original one; a missing file is reported once.
func TestDiskWeightOnTheKernel(t *testing.T) {
	r := newDiskTree(t, "batch")
	a, w := newApplier(t, r.h, nil)
	wants := func(weight int64) tick.Isolation {
		return a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), IOWeight: &weight}})
	}
	const file = "blkio.bfq.weight"
	if _, err := os.Stat(filepath.Join(r.dir("io", "batch"), file)); err != nil {
		first, second := wants(1), wants(2)
		if w.writes > 0 || len(first.Errors) != 1 || len(second.Errors) > 0 || len(second.Unavailable) != 1 {
			t.Errorf("without %s: %+v, then %+v; want it named once", file, first, second)
		}
		return
	}
	r.set("io", "batch", file, "77")
	for _, step := range []struct {
		weight int64
		want   string
	}{{1, "10"}, {10000, "1000"}, {tick.Unlimited, "77"}} {
		if out := wants(step.weight); len(out.Errors) > 0 || out.Applied != 1 || r.get("io", "batch", file) != step.want {
			t.Errorf("weight %d: %s, want %s; errors:\n%s", step.weight, r.get("io", "batch", file), step.want, errorsOf(out))
		}
	}
}
