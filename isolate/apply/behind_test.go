package apply

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// growth is advice that squeezes /batch, and advice that widens it again; neither names what is below.
func (r *realTree) growth() (narrow, wide []tick.Cgroup) {
	return []tick.Cgroup{{Cgroup: r.path("batch"), CPUSetCPUs: "0", CPUMaxMilliCPU: p(200)}},
		[]tick.Cgroup{{Cgroup: r.path("batch"), CPUSetCPUs: "0-1", CPUMaxMilliCPU: p(1500)}}
}

func wantSteady(t *testing.T, a *Applier, desired []tick.Cgroup, when string) {
	t.Helper()
	for range 3 {
		if out := a.Apply(desired); out.Applied > 0 || len(out.Errors) > 0 {
			t.Errorf("%s: %d more writes, %+v; want none; errors:\n%s", when, out.Applied, out.Writes, errorsOf(out))
		}
	}
}

// An isolate that is killed at any write of a plan that widens a cgroup leaves nothing squeezed for ever: the next one completes the plan
// although the named cgroup is as desired. A restore restores everything as before.
func TestKilledGrowthIsCompleted(t *testing.T) {
	names := []string{"batch", "batch/pod", "batch/pod/c", "batch/own"}
	for killAt, done := 1, false; !done; killAt++ {
		r := newRealTree(t, names...)
		r.set("cpuset", "batch/own", "cpuset.cpus", "1")
		r.set("cpu", "batch/pod", "cpu.cfs_quota_us", "90000")
		r.set("cpu", "batch/pod/c", "cpu.cfs_quota_us", "80000")
		r.set("cpu", "batch/pod/c", "cpu.cfs_burst_us", "60000")
		first := r.snapshot(names...)
		narrow, wide := r.growth()
		j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
		applyUntil(t, r, j, narrow, 0)
		if list, quota := r.cpus("batch/pod/c"), r.get("cpu", "batch/pod/c", "cpu.cfs_quota_us"); list != "0" || quota != "20000" {
			t.Fatalf("the squeezed container has %s and %s, want 0 and 20000", list, quota)
		}
		j.Close()
		j = openJournal(t, j.Path())
		done = applyUntil(t, r, j, wide, killAt)
		if done && killAt < 8 {
			t.Errorf("only %d writes: the plan is too short to show anything", killAt-1)
		}
		j.Close()
		j = openJournal(t, j.Path())
		a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
		if out := a.Apply(wide); len(out.Errors) > 0 || (out.Applied > 0) == done {
			t.Errorf("killed at write %d: the next isolate made %d writes; errors:\n%s", killAt, out.Applied, errorsOf(out))
		}
		want := map[string]string{}
		maps.Copy(want, first)
		want["batch cpu.cfs_quota_us"] = "150000\n"
		if diff := cmp.Diff(want, r.snapshot(names...)); diff != "" {
			t.Errorf("killed at write %d: after the next isolate (-want +got):\n%s", killAt, diff)
		}
		wantSteady(t, a, wide, "after write "+strconv.Itoa(killAt))
		if out := restoreWith(t, r, j, false); !out.IsComplete() {
			t.Errorf("killed at write %d: the restore: %v", killAt, out)
		}
		if diff := cmp.Diff(first, r.snapshot(names...)); diff != "" {
			t.Errorf("killed at write %d: after the restore (-first +now):\n%s", killAt, diff)
		}
	}
}

// intrusive calls a function before its first write.
type intrusive struct {
	Writer
	before func()
}

func (w *intrusive) WriteFile(controller, cgroup, name, value string) error {
	if before := w.before; before != nil {
		w.before = nil
		before()
	}
	return w.Writer.WriteFile(controller, cgroup, name, value)
}

// A container that is created with its parent's list after the children were read, and before the parent is widened, gets what the parent
// has in the next round, and from a restore.
func TestContainerCreatedDuringGrowth(t *testing.T) {
	for _, name := range []string{"batch/new", "batch/pod/new"} {
		r := newRealTree(t, "batch", "batch/pod", "batch/pod/own")
		r.set("cpuset", "batch/pod/own", "cpuset.cpus", "0")
		j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
		w := &intrusive{Writer: r.h}
		a, _ := newApplier(t, r.h, func(o *Options) { o.Journal, o.Writer = j, w })
		narrow, wide := r.growth()
		a.Apply(narrow)
		w.before = func() {
			if err := r.make(name); err != nil {
				t.Error(err)
			}
		}
		a.Apply(wide)
		if got := r.cpus(name); got != "0" {
			t.Fatalf("%s has %s before the next round, want 0: it was not created in time", name, got)
		}
		if out := a.Apply(wide); out.Applied != 1 || r.cpus(name) != "0-1" || r.cpus("batch/pod/own") != "0" {
			t.Errorf("%s has %s and batch/pod/own %s, want 0-1 and 0: %+v", name, r.cpus(name), r.cpus("batch/pod/own"), out)
		}
		wantSteady(t, a, wide, name)
		a.Apply(narrow)
		out := restoreWith(t, r, j, false)
		if list, own := r.cpus(name), r.cpus("batch/pod/own"); list != "0-1" || own != "0" || !out.IsComplete() {
			t.Errorf("after the restore (%v) %s has %s and batch/pod/own %s, want 0-1 and 0", out, name, list, own)
		}
	}
}

// A write to a cgroup that the advice does not name is tried again after it failed.
func TestRefusedGrowthIsRetried(t *testing.T) {
	r := newRealTree(t, "batch", "batch/pod", "batch/pod/c")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	w := &refusing{r.h, ""}
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal, o.Writer = j, w })
	narrow, wide := r.growth()
	a.Apply(narrow)
	w.cgroup = r.path("batch/pod")
	for round := range 3 {
		if out := a.Apply(wide); len(out.Errors) != 2 || !strings.Contains(errorsOf(out), "device or resource busy") {
			t.Errorf("round %d: errors %q, want those of the pod and its container", round, errorsOf(out))
		}
	}
	w.cgroup = ""
	if out := a.Apply(wide); out.Applied != 2 || r.cpus("batch/pod/c") != "0-1" || len(out.Errors) > 0 {
		t.Errorf("the container has %s, want 0-1: %+v", r.cpus("batch/pod/c"), out)
	}
	wantSteady(t, a, wide, "not refused any more")
}

// What is complete is not widened by a later isolate: neither a value that an earlier advice named, nor a list that somebody set and that
// an earlier plan had written elsewhere.
func TestCompleteValuesStay(t *testing.T) {
	r := newRealTree(t, "batch", "batch/pod", "batch/own")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	narrow, wide := r.growth()
	a.Apply(narrow)
	a.Apply(append(wide, tick.Cgroup{Cgroup: r.path("batch/pod"), CPUSetCPUs: "0", CPUMaxMilliCPU: p(300)}))
	wantSteady(t, a, wide, "without the pod")
	if err := r.make("batch/new"); err != nil {
		t.Fatal(err)
	}
	r.set("cpuset", "batch/new", "cpuset.cpus", "0")
	wantSteady(t, a, wide, "with a new cgroup")
	j.Close()
	j = openJournal(t, j.Path())
	a, _ = newApplier(t, r.h, func(o *Options) { o.Journal = j })
	wantSteady(t, a, wide, "after a start")
	if pod, added := r.cpus("batch/pod"), r.cpus("batch/new"); pod != "0" || added != "0" {
		t.Errorf("batch/pod has %s and batch/new %s, want 0", pod, added)
	}
}

// A cgroup below one that is named later is completed then.
func TestKilledGrowthIsCompletedWhenNamed(t *testing.T) {
	r := newRealTree(t, "batch", "batch/pod", "serve")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	narrow, wide := r.growth()
	applyUntil(t, r, j, narrow, 0)
	j.Close()
	j = openJournal(t, j.Path())
	applyUntil(t, r, j, wide[:1], 2) // the list of batch/pod
	j.Close()
	j = openJournal(t, j.Path())
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	other := r.lists("serve", "0-1")
	wantSteady(t, a, other, "another cgroup")
	a.Apply(append(other, r.lists("batch", "0-1")...))
	if got := r.cpus("batch/pod"); got != "0-1" {
		t.Errorf("batch/pod has %s, want 0-1", got)
	}
}

// A dry run predicts in every round what is left to do.
func TestDryRunCompletesGrowth(t *testing.T) {
	r := newRealTree(t, "batch", "batch/pod")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	applyUntil(t, r, j, r.lists("batch", "0"), 0)
	j.Close()
	j = openJournal(t, j.Path())
	applyUntil(t, r, j, r.lists("batch", "0-1"), 2)
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal, o.DryRun = j, true })
	for round := range 3 {
		out := a.Apply(r.lists("batch", "0-1"))
		if len(out.Writes) != 1 || out.Writes[0].Cgroup != r.path("batch/pod") || out.Writes[0].New != "0-1" {
			t.Errorf("round %d: would write %+v, want the list of batch/pod", round, out.Writes)
		}
	}
	if got := r.cpus("batch/pod"); got != "0" {
		t.Errorf("the dry run changed batch/pod to %s", got)
	}
}

// Once a plan is complete, a round reads the files of named cgroups only.
func TestSteadyStateReadsNoChildren(t *testing.T) {
	r := newRealTree(t, "batch")
	const children, rounds = 50, 20
	for i := range children {
		if err := r.make("batch/c" + strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	narrow, wide := r.growth()
	applyUntil(t, r, j, narrow, 0)
	j.Close()
	j = openJournal(t, j.Path())
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	wantSteady(t, a, narrow, "after a start")
	a.Apply(wide)
	a.Apply(wide)
	before := readCalls(t)
	for range rounds {
		a.Apply(wide)
	}
	if calls := readCalls(t) - before; calls > rounds*children {
		t.Errorf("%d reads in %d rounds with %d children, want fewer than one of each", calls, rounds, children)
	}
}

// readCalls counts the process's read system calls.
func readCalls(t *testing.T) int {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(data, []byte("syscr: "))
	n, err := strconv.Atoi(string(rest[:bytes.IndexByte(rest, '\n')]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
