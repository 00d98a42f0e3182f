package apply

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// service is a pod with a container, with bursts: milli-CPU of quota and of burst each.
func (r *realTree) service(podQuota, podBurst, quota, burst int64) []tick.Cgroup {
	return []tick.Cgroup{
		{Cgroup: r.path("pod"), CPUMaxMilliCPU: new(podQuota), CPUBurstMilliCPU: new(podBurst)},
		{Cgroup: r.path("pod/c"), CPUMaxMilliCPU: new(quota), CPUBurstMilliCPU: new(burst)},
	}
}

func (r *realTree) bandwidth(name string) string {
	return r.get("cpu", name, "cpu.cfs_quota_us") + " " + r.get("cpu", name, "cpu.cfs_burst_us")
}

// The kernel rejects a quota below the burst and a burst above the quota: every step up and down must be in order.
func TestBurstOnTheKernel(t *testing.T) {
	r := newRealTree(t, "pod", "pod/c", "pod/d")
	for _, name := range []string{"pod", "pod/c", "pod/d"} { // as kubelet creates them
		r.set("cpu", name, "cpu.cfs_quota_us", "100000")
	}
	r.set("cpu", "pod/d", "cpu.cfs_burst_us", "70000") // another program's value
	first := r.snapshot("pod", "pod/c", "pod/d")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, w := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	for _, step := range []struct {
		desired    []tick.Cgroup
		pod, c, d  string
		writes     int
		unchanging bool
	}{
		{desired: r.service(1000, 10000, 1000, 10000), pod: "100000 100000", c: "100000 100000", d: "100000 70000", writes: 2},
		{desired: r.service(1000, 10000, 1000, 10000), pod: "100000 100000", c: "100000 100000", d: "100000 70000", writes: 0},
		{desired: r.service(1200, 10000, 1200, 10000), pod: "120000 120000", c: "120000 120000", d: "100000 70000", writes: 4},
		{desired: r.service(3000, 3000, 3000, 3000), pod: "300000 300000", c: "300000 300000", d: "100000 70000", writes: 4},
		{desired: r.service(500, 10000, 400, 300), pod: "50000 50000", c: "40000 30000", d: "50000 50000", writes: 6},
		{desired: r.service(2000, 0, 2000, 500), pod: "200000 0", c: "200000 50000", d: "100000 70000", writes: 6}, // d is restored
		{desired: r.service(-1, 0, -1, 0), pod: "-1 0", c: "-1 0", d: "100000 70000", writes: 3},
		{desired: r.service(-1, 5000, 100, 5000), pod: "-1 500000", c: "10000 10000", d: "100000 70000", writes: 3},
		{desired: r.service(200, 100, 100, 100), pod: "20000 10000", c: "10000 10000", d: "20000 20000", writes: 4},
	} {
		before := w.writes
		out := a.Apply(step.desired)
		if len(out.Errors) > 0 || out.Missing > 0 || len(out.Unavailable) > 0 {
			t.Fatalf("%+v:\n%s", step, errorsOf(out))
		}
		if pod, c, d := r.bandwidth("pod"), r.bandwidth("pod/c"), r.bandwidth("pod/d"); pod != step.pod || c != step.c || d != step.d {
			t.Errorf("%+v:\ngot %s, %s, %s; writes %v", step, pod, c, d, out.Writes)
		}
		if got := w.writes - before; got != step.writes {
			t.Errorf("%+v: %d writes, want %d: %v", step, got, step.writes, out.Writes)
		}
	}
	if out := restoreWith(t, r, j, false); out.Failed+out.External > 0 {
		t.Errorf("restore: %v", out)
	}
	if diff := cmp.Diff(first, r.snapshot("pod", "pod/c", "pod/d")); diff != "" {
		t.Errorf("after the restore (-first +now):\n%s", diff)
	}
}

// TestBurstKilledAtEveryWrite stops a plan before each of its writes: a restore restores the original state.
func TestBurstKilledAtEveryWrite(t *testing.T) {
	names := []string{"pod", "pod/c", "pod/d"}
	r := newRealTree(t, names...)
	for _, name := range names {
		r.set("cpu", name, "cpu.cfs_quota_us", "150000")
		r.set("cpu", name, "cpu.cfs_burst_us", "120000")
	}
	first := r.snapshot(names...)
	plans := [][]tick.Cgroup{r.service(300, 300, 200, 200), r.service(4000, 10000, 3000, 1000), r.service(600, 100, -1, 0)}
	for killAt := 1; ; killAt++ {
		left := false
		for i, desired := range plans {
			j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
			left = !applyUntil(t, r, j, desired, killAt) || left
			for restoreKill := 1; !restoreUntil(t, r, j, restoreKill); restoreKill += 2 {
				if restoreKill > 1000 {
					t.Fatal("the restore does not come to an end")
				}
			}
			if diff := cmp.Diff(first, r.snapshot(names...)); diff != "" {
				t.Fatalf("plan %d killed at write %d: after the restore (-first +now):\n%s", i, killAt, diff)
			}
		}
		if !left {
			if killAt < 6 {
				t.Errorf("only %d writes: the plans are too short to show anything", killAt)
			}
			return
		}
	}
}

// A missing file or mount is reported once and named from then on; everything else is applied. Version 1 has no memory.high either, but a
// soft limit that replaces it.
func TestUnavailableIsReportedOnce(t *testing.T) {
	r := newRealTree(t, "a", "b")
	a, w := newApplier(t, r.h, nil)
	on := new(true)
	desired := []tick.Cgroup{
		{Cgroup: r.path("a"), CPUWeight: new(int64(50)), MemoryMinBytes: new(int64(4096)), MemoryLowBytes: new(int64(4096)), MemoryHighBytes: new(int64(1 << 30)), MemoryOOMGroup: on, MemoryPriority: new(int64(3)), MemoryWmarkRatioPercent: new(int64(95))},
		{Cgroup: r.path("b"), CPUWeight: new(int64(50)), MemoryMinBytes: new(int64(4096)), MemoryUsePriorityOOM: on, MemoryWmarkScalePermille: new(int64(20)), MemoryWmarkMinAdjPercent: new(int64(-25))},
		{Cgroup: r.path("gone"), MemoryMinBytes: new(int64(4096)), CPUWeight: new(int64(50))},
	}
	keys := []string{
		"memoryMinBytes", "memoryLowBytes", "memoryOOMGroup", "memoryPriority", "memoryWmarkRatioPercent",
		"memoryUsePriorityOOM", "memoryWmarkScalePermille", "memoryWmarkMinAdjPercent",
	}
	slices.Sort(keys)
	for round := range 2*missingRounds + 5 {
		if round == 7 { // another advice repeats no report
			desired = append(desired, tick.Cgroup{Cgroup: r.path(""), MemoryLowBytes: new(int64(4096)), CPUWeight: new(int64(70))})
		}
		out := a.Apply(slices.Clone(desired))
		want := 0
		if round == 0 {
			want = len(keys)
		}
		if len(out.Errors) != want {
			t.Fatalf("round %d: %d errors, want %d:\n%s", round, len(out.Errors), want, errorsOf(out))
		}
		got := slices.Clone(out.Unavailable)
		slices.Sort(got)
		if diff := cmp.Diff(keys, got); diff != "" {
			t.Fatalf("round %d: unavailable (-want +got):\n%s", round, diff)
		}
		if out.Missing != 1 {
			t.Fatalf("round %d: missing %d, want 1", round, out.Missing)
		}
		if round == 0 && (!strings.Contains(errorsOf(out), "memoryMinBytes: unavailable: this kernel has no memory.min; not written") || w.writes != 3) {
			t.Errorf("%d writes, errors:\n%s", w.writes, errorsOf(out))
		}
	}
}

// A file that appears later (a module, another scheduler) is found; a controller that is not mounted is reported once.
func TestUnavailableFileAppears(t *testing.T) {
	h, base := newCopy(t, map[string]string{"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory", "a/cpu.max": "50000 100000", "a/memory.max": "max"})
	a, _ := newApplier(t, h, nil)
	desired := []tick.Cgroup{{Cgroup: "/a", CPUBurstMilliCPU: new(int64(300)), MemoryOOMGroup: new(true)}}
	if out := a.Apply(desired); len(out.Errors) != 2 || len(out.Unavailable) != 2 || !strings.Contains(errorsOf(out), "this kernel has no cpu.max.burst") {
		t.Fatalf("unavailable %v, errors:\n%s", out.Unavailable, errorsOf(out))
	}
	if err := os.WriteFile(filepath.Join(base, "a/cpu.max.burst"), []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for round := range missingRounds + 1 {
		if out := a.Apply(desired); out.Applied == 1 {
			if got := read(t, base, "a/cpu.max.burst"); got != "30000" || round < missingRounds/2 {
				t.Errorf("round %d: %s, want 30000 after a while", round, got)
			}
			return
		}
	}
	t.Error("the file is not found")
}

// One failed read, as of a cgroup that is being removed, does not mean that the kernel lacks the file: other cgroups' files are written.
func TestFailedReadIsNotUnavailable(t *testing.T) {
	h, base := newCopy(t, map[string]string{"a/memory.low": "0", "a/memory.min": "0", "b/memory.low": "0", "b/memory.min": "0"})
	a, _ := newApplier(t, h, nil)
	if out := a.Apply([]tick.Cgroup{{Cgroup: "/a", MemoryLowBytes: new(int64(4096))}}); len(out.Errors) > 0 {
		t.Fatal(errorsOf(out))
	}
	if err := os.Remove(filepath.Join(base, "b/memory.low")); err != nil {
		t.Fatal(err)
	}
	desired := []tick.Cgroup{{Cgroup: "/a", MemoryLowBytes: new(int64(8192))}, {Cgroup: "/b", MemoryLowBytes: new(int64(8192)), MemoryMinBytes: new(int64(4096))}}
	for round := range 3 {
		out := a.Apply(desired)
		if len(out.Unavailable) > 0 || len(out.Errors) != 1 || !strings.Contains(errorsOf(out), "there is no memory.low in it, though this kernel has such a file") {
			t.Fatalf("round %d: unavailable %v, errors:\n%s", round, out.Unavailable, errorsOf(out))
		}
		if got := read(t, base, "a/memory.low"); got != "8192" {
			t.Fatalf("round %d: %s, want 8192", round, got)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "b/memory.low"), []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := a.Apply(desired); len(out.Errors) > 0 || read(t, base, "b/memory.low") != "8192" {
		t.Errorf("found again: %s", errorsOf(out))
	}
}

// All new keys are written on a copy of version 2, and restored.
func TestKnobsOnVersion2(t *testing.T) {
	h, base := newCopy(t, map[string]string{
		"a/cpu.max": "50000 100000", "a/cpu.max.burst": "0", "a/memory.oom.group": "0", "a/memory.wmark_ratio": "0", "a/memory.wmark_scale_factor": "50",
		"a/memory.wmark_min_adj": "0", "a/memory.priority": "0", "a/memory.use_priority_oom": "0", "a/memory.min": "max", "a/memory.low": "0", "a/memory.high": "max",
	})
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	a, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	on := new(true)
	out := a.Apply([]tick.Cgroup{{
		Cgroup: "/a", CPUBurstMilliCPU: new(int64(10000)), CPUMaxMilliCPU: new(int64(800)), MemoryOOMGroup: on, MemoryWmarkRatioPercent: new(int64(95)), MemoryWmarkScalePermille: new(int64(20)),
		MemoryWmarkMinAdjPercent: new(int64(-25)), MemoryPriority: new(int64(12)), MemoryUsePriorityOOM: on, MemoryMinBytes: new(int64(8192)), MemoryLowBytes: new(int64(12288)), MemoryHighBytes: new(int64(1 << 20)),
	}})
	if len(out.Errors) > 0 || out.Applied != 11 {
		t.Errorf("applied %d, errors:\n%s", out.Applied, errorsOf(out))
	}
	for file, want := range map[string]string{
		"cpu.max": "80000 100000", "cpu.max.burst": "80000", "memory.oom.group": "1", "memory.wmark_ratio": "95", "memory.wmark_scale_factor": "20", "memory.wmark_min_adj": "-25",
		"memory.priority": "12", "memory.use_priority_oom": "1", "memory.min": "8192", "memory.low": "12288", "memory.high": "1048576",
	} {
		if got := read(t, base, "a/"+file); got != want {
			t.Errorf("%s = %q, want %q", file, got, want)
		}
	}
	j.Close()
	j, err := OpenJournal(path, "/", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	b, _ := newApplier(t, h, func(o *Options) { o.Journal = j })
	if out, err := b.Restore(false); err != nil || out.Values != 11 || out.Failed+out.External > 0 {
		t.Errorf("restore: %v, %v", out, err)
	}
	var now []string
	for _, file := range []string{"cpu.max", "cpu.max.burst", "memory.wmark_scale_factor", "memory.wmark_min_adj", "memory.min"} {
		now = append(now, read(t, base, "a/"+file))
	}
	if got := fmt.Sprint(now); got != "[50000 100000 0 50 0 max]" {
		t.Errorf("restored %s", got)
	}
}
