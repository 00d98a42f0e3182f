package apply

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"polder/isolate/plan"
	"polder/lib/tick"
	"polder/tests/need"
)

func (r *realTree) desired() []tick.Cgroup {
	return []tick.Cgroup{
		{Cgroup: r.path("batch"), CPUSetCPUs: "1", CPUMaxMilliCPU: p(700), CPUIdle: new(true), MemoryMaxBytes: p(1<<30 + 1)},
		{Cgroup: r.path("batch/pod"), CPUMaxMilliCPU: p(300)},
		{Cgroup: r.path("serve"), CPUSetCPUs: "0-1", CPUWeight: p(300), CPUIdle: new(false), MemoryMaxBytes: p(-1)},
	}
}

func TestAdviceIsApplied(t *testing.T) {
	r := newRealTree(t, "batch", "batch/pod", "batch/pod/c", "serve")
	r.set("cpu", "batch/pod/c", "cpu.cfs_quota_us", "90000")
	r.task("batch/pod/c")
	a, w := newApplier(t, r.h, nil)
	out := a.Apply(r.desired())
	if len(out.Errors) > 0 || out.Missing > 0 {
		t.Fatalf("reported errors:\n%s", errorsOf(out))
	}
	for _, c := range []struct{ controller, name, file, want string }{
		{"cpuset", "batch", "cpuset.cpus", "1"},
		{"cpuset", "batch/pod", "cpuset.cpus", "1"},
		{"cpuset", "batch/pod/c", "cpuset.cpus", "1"},
		{"cpu", "batch", "cpu.cfs_quota_us", "70000"},
		{"cpu", "batch/pod", "cpu.cfs_quota_us", "30000"},
		{"cpu", "batch/pod/c", "cpu.cfs_quota_us", "30000"},
		{"cpu", "batch", "cpu.idle", "1"},
		{"cpu", "serve", "cpu.idle", "0"},
		{"memory", "batch", "memory.limit_in_bytes", "1073741824"},
		{"memory", "serve", "memory.limit_in_bytes", "9223372036854771712"},
	} {
		if got := r.get(c.controller, c.name, c.file); got != c.want {
			t.Errorf("%s of %s = %s, want %s", c.file, c.name, got, c.want)
		}
	}
	if out.Applied != w.writes || len(out.Writes) != w.writes {
		t.Errorf("applied %d, listed %d, written %d", out.Applied, len(out.Writes), w.writes)
	}

	// The batch side gets its CPU back, and implied cgroups follow again.
	desired := r.desired()
	desired[0].CPUSetCPUs, desired[0].CPUMaxMilliCPU, desired[1].CPUMaxMilliCPU = "0-1", p(2000), p(2000)
	if out = a.Apply(desired); len(out.Errors) > 0 {
		t.Fatalf("reported errors:\n%s", errorsOf(out))
	}
	if got := r.get("cpuset", "batch/pod/c", "cpuset.cpus"); got != "0-1" {
		t.Errorf("cpuset.cpus of the container = %s, want 0-1", got)
	}
	if got := r.get("cpu", "batch/pod/c", "cpu.cfs_quota_us"); got != "90000" {
		t.Errorf("quota of the container = %s, want its own 90000", got)
	}
}

// task starts a sleeping process in a cgroup.
func (r *realTree) task(name string) {
	r.t.Helper()
	cmd := exec.Command("sleep", "100000")
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for _, c := range controllers {
		r.set(c, name, "cgroup.procs", strconv.Itoa(cmd.Process.Pid))
	}
}

func TestSteadyStateWritesNothing(t *testing.T) {
	r := newRealTree(t, "batch", "batch/pod", "serve")
	a, w := newApplier(t, r.h, nil)
	desired := r.desired()
	out := a.Apply(desired)
	if len(out.Errors) > 0 {
		t.Fatalf("reported errors:\n%s", errorsOf(out))
	}
	before, first := writeCalls(t), w.writes
	const rounds = 200
	for range rounds {
		again := append([]tick.Cgroup(nil), desired...) // every tick is decoded again
		if out = a.Apply(again); out.Applied > 0 || len(out.Errors) > 0 || len(out.Writes) > 0 {
			t.Fatalf("applied %d, errors:\n%s", out.Applied, errorsOf(out))
		}
	}
	if w.writes != first {
		t.Errorf("%d writes in steady state", w.writes-first)
	}
	// The process's own count includes writes that bypass the writer; the Go runtime does a few of its own.
	if calls := writeCalls(t) - before; calls > rounds/10 {
		t.Errorf("%d write system calls in %d rounds", calls, rounds)
	}
	if out.Unchanged != 9 {
		t.Errorf("unchanged %d, want 9", out.Unchanged)
	}
}

// writeCalls counts the process's write system calls.
func writeCalls(t *testing.T) int {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(data, []byte("syscw: "))
	n, err := strconv.Atoi(strings.TrimSpace(string(rest[:bytes.IndexByte(rest, '\n')])))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestContest(t *testing.T) {
	r := newRealTree(t, "batch")
	a, w := newApplier(t, r.h, func(o *Options) { o.Contest = 2 })
	desired := []tick.Cgroup{{Cgroup: r.path("batch"), CPUMaxMilliCPU: p(500)}}
	a.Apply(desired)
	for round := 1; round <= 4; round++ {
		r.set("cpu", "batch", "cpu.cfs_quota_us", strconv.Itoa(60000+round*1000))
		writes := w.writes
		out := a.Apply(desired)
		problems := errorsOf(out)
		if !strings.Contains(problems, "changed externally from ") || !strings.Contains(problems, fmt.Sprintf("to %d", 60000+round*1000)) {
			t.Errorf("round %d: errors %q, want the change", round, problems)
		}
		left := strings.Contains(problems, "left to the other writer")
		if wantLeft := round > 2; left != wantLeft || (w.writes == writes) != wantLeft {
			t.Errorf("round %d: left to the other writer %v, written %v", round, left, w.writes != writes)
		}
	}
	for round := range 100 {
		out := a.Apply(desired)
		if out.Applied > 0 && round < 95 {
			t.Fatalf("written again after %d quiet rounds", round)
		}
	}
	if got := r.get("cpu", "batch", "cpu.cfs_quota_us"); got != "50000" {
		t.Errorf("after the quiet rounds the quota is %s, want 50000", got)
	}
}

func TestRecreatedCgroupIsNew(t *testing.T) {
	r := newRealTree(t, "batch")
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	desired := []tick.Cgroup{{Cgroup: r.path("batch"), CPUMaxMilliCPU: p(500)}, {Cgroup: r.path("never"), CPUMaxMilliCPU: p(500)}}
	r.set("cpu", "batch", "cpu.cfs_quota_us", "60000")
	if out := a.Apply(desired); out.Missing != 1 || out.Applied != 1 || len(out.Errors) > 0 {
		t.Fatalf("missing %d, applied %d, errors %s", out.Missing, out.Applied, errorsOf(out))
	}
	for _, c := range controllers {
		if err := os.Remove(r.dir(c, "batch")); err != nil {
			t.Fatal(err)
		}
	}
	if out := a.Apply(desired); out.Missing != 2 || len(out.Errors) > 0 {
		t.Fatalf("missing %d, errors %s", out.Missing, errorsOf(out))
	}
	if err := r.make("batch"); err != nil {
		t.Fatal(err)
	}
	if out := a.Apply(desired); out.Applied != 1 || len(out.Errors) > 0 {
		t.Fatalf("applied %d, errors %s", out.Applied, errorsOf(out))
	}
	out := restoreWith(t, r, j, false)
	if out.Values != 1 || r.get("cpu", "batch", "cpu.cfs_quota_us") != "-1" {
		t.Errorf("%v, quota %s; want its own first value, not the other's", out, r.get("cpu", "batch", "cpu.cfs_quota_us"))
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal is still there: %v", err)
	}
}

// A cgroup that is removed and created again between two writes of a plan is not written: the planned list and the journal's
// original value belong to the old one. The next tick plans for the new one, and a restore restores its own value.
func TestPlanSkipsRecreatedCgroup(t *testing.T) {
	r := newRealTree(t, "batch", "batch/a", "batch/b")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, w := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	remade := ""
	w.after = func() { // of the two writes after batch one is done
		if remade != "" {
			return
		}
		if remade = "batch/a"; r.get("cpuset", "batch/a", "cpuset.cpus") == "0" {
			remade = "batch/b"
		}
		for _, c := range controllers {
			if err := os.Remove(r.dir(c, remade)); err != nil {
				t.Error(err)
			}
		}
		if err := r.make(remade); err != nil {
			t.Error(err)
		}
	}
	desired := []tick.Cgroup{{Cgroup: r.path("batch"), CPUSetCPUs: "0"}}
	all := r.get("cpuset", "", "cpuset.cpus")
	a.Apply(desired)
	if got := r.get("cpuset", remade, "cpuset.cpus"); got != all {
		t.Errorf("%s, which was created again, is on %s; want %s as it was created", remade, got, all)
	}
	if out := a.Apply(desired); len(out.Errors) > 0 {
		t.Errorf("the next tick's errors:\n%s", errorsOf(out))
	}
	for _, name := range []string{"batch", "batch/a", "batch/b"} {
		if got := r.get("cpuset", name, "cpuset.cpus"); got != "0" {
			t.Errorf("after the next tick %s is on %s, want 0", name, got)
		}
	}
	restored := restoreWith(t, r, j, false)
	for _, name := range []string{"batch", "batch/a", "batch/b"} {
		if got := r.get("cpuset", name, "cpuset.cpus"); got != all {
			t.Errorf("after the restore (%v) %s is on %s, want %s", restored, name, got, all)
		}
	}
}

// restoreWith restores from the journal as another process would.
func restoreWith(t *testing.T, r *realTree, j *Journal, force bool) Restored {
	t.Helper()
	j.Close()
	again := openJournal(t, j.Path())
	defer again.Close()
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = again })
	out, err := a.Restore(force)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRestoreSkipsExternalValues(t *testing.T) {
	r := newRealTree(t, "batch")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), CPUMaxMilliCPU: p(500), CPUWeight: p(50)}})
	r.set("cpu", "batch", "cpu.cfs_quota_us", "77000")
	if out := restoreWith(t, r, j, false); out.External != 1 || out.Values != 1 {
		t.Errorf("%v, want one skipped and one restored", out)
	}
	if got := r.get("cpu", "batch", "cpu.cfs_quota_us"); got != "77000" {
		t.Errorf("quota %s, want the other's 77000", got)
	}
	if out := restoreWith(t, r, j, true); out.Values != 1 {
		t.Errorf("with force: %v, want one back", out)
	}
	if got := r.get("cpu", "batch", "cpu.cfs_quota_us"); got != "-1" {
		t.Errorf("quota %s, want -1", got)
	}
}

// A cgroup whose controller is not mounted here may still exist: its record stays, and the restore reports it.
func TestRestoreKeepsWhatItCannotSee(t *testing.T) {
	r := newRealTree(t, "batch")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	defer j.Close()
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	unseen := plan.File{Controller: "no-such-controller", Cgroup: r.path("batch"), Name: "cpu.idle"}
	gone := plan.File{Controller: "cpu", Cgroup: r.path("gone"), Name: "cpu.shares"}
	for _, f := range []plan.File{unseen, gone} {
		a.records[f] = &record{Key: "k", Inode: 7, Original: "0"}
	}
	out, err := a.Restore(false)
	if err != nil || out.Failed != 1 || out.Gone != 1 || a.records[unseen] == nil || a.records[gone] != nil {
		t.Errorf("Restore = %v, %v, records %v; want one failed and kept, and one gone", out, err, a.records)
	}
	if _, err := os.Stat(j.Path()); err != nil {
		t.Errorf("the journal: %v; want it to stay", err)
	}
}

// A cgroup that no advice names keeps its own list when its parent's is squeezed to it and widened again; one that was created during
// the squeeze gets what its parent has. Both hold also for a restore.
func TestOwnListsSurviveASqueeze(t *testing.T) {
	r := newRealTree(t, "batch", "batch/own", "batch/like")
	r.set("cpuset", "batch/own", "cpuset.cpus", "0")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	check := func(when string, want ...string) {
		t.Helper()
		for i, name := range []string{"batch", "batch/own", "batch/like", "batch/new"}[:len(want)] {
			if got := r.cpus(name); got != want[i] {
				t.Errorf("%s: %s has %s, want %s", when, name, got, want[i])
			}
		}
	}
	if out := a.Apply(r.lists("batch", "0")); out.Applied != 2 || len(out.Errors) > 0 {
		t.Errorf("squeeze: %+v; want the writes of batch and batch/like only", out)
	}
	check("squeezed", "0", "0", "0")
	if err := r.make("batch/new"); err != nil {
		t.Fatal(err)
	}
	a.Apply(r.lists("batch", "1"))
	check("moved", "1", "1", "1", "1")
	a.Apply(r.lists("batch", "0"))
	check("moved again", "0", "0", "0", "0")
	a.Apply(r.lists("batch", "0-1"))
	check("widened", "0-1", "0", "0-1", "0-1")
	a.Apply(r.lists("batch", "1"))
	if out := restoreWith(t, r, j, false); out.Failed+out.External+out.Gone > 0 {
		t.Errorf("restore: %v", out)
	}
	check("restored", "0-1", "0", "0-1", "0-1")
}

// In another cgroup namespace the cgroups of a journal cannot be seen, and cgroups of the same paths are others.
func TestJournalOfAnotherRoot(t *testing.T) {
	r := newRealTree(t, "batch")
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), CPUWeight: p(50)}})
	j.Close()
	again := openJournal(t, path)
	if err := again.Check(r.h); err != nil {
		t.Errorf("the same root: %v", err)
	}
	for _, rec := range again.records {
		rec.RootInode += 1000
	}
	if err := again.rewrite(); err != nil {
		t.Fatal(err)
	}
	again.Close()
	if err := openJournal(t, path).Check(r.h); err == nil || !strings.Contains(err.Error(), "another root cgroup") {
		t.Errorf("another root: %v; want an error", err)
	}
}

// TestKilledAtEveryWrite stops a plan before each of its writes: no cgroup is then without CPUs or has more than before
// its step, and a restore, even one that is killed itself, restores the original state, byte for byte.
func TestKilledAtEveryWrite(t *testing.T) {
	names := []string{"batch", "batch/pod", "batch/pod/c", "batch/other", "serve", "serve/pod"}
	r := newRealTree(t, names...)
	r.task("batch/pod/c")
	r.task("serve/pod")
	r.set("cpuset", "batch/other", "cpuset.cpus", "0") // all of its CPUs must change
	r.set("cpuset", "serve/pod", "cpuset.cpus", "1")
	r.set("cpuset", "serve", "cpuset.cpus", "1")
	r.set("cpu", "serve", "cpu.shares", "3000")
	r.set("cpu", "batch", "cpu.shares", "777")
	r.set("cpu", "batch", "cpu.cfs_quota_us", "150000")
	r.set("cpu", "batch/pod", "cpu.cfs_quota_us", "120000")
	r.set("memory", "batch", "memory.limit_in_bytes", "1073741824")
	first := r.snapshot(names...)
	desired := append(r.desired(), tick.Cgroup{Cgroup: r.path("serve/pod"), CPUSetCPUs: "0-1"})
	desired[2].CPUMaxMilliCPU = p(1900)

	whole := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	applyUntil(t, r, whole, desired, 0)
	final := r.snapshot(names...)
	restoreUntil(t, r, whole, 0)

	for killAt := 1; ; killAt++ {
		j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
		done := applyUntil(t, r, j, desired, killAt)
		now := r.snapshot(names...)
		for _, name := range names {
			if r.get("cpuset", name, "cpuset.cpus") == "" {
				t.Fatalf("killed at write %d: %s has no CPUs", killAt, name)
			}
			if file := name + " cpuset.cpus"; !cpusOf(t, now[file]).IsSubsetOf(cpusOf(t, first[file]).Union(cpusOf(t, final[file]))) {
				t.Fatalf("killed at write %d: %s is %s; want no more than it had (%s) or gets (%s)", killAt, file, now[file], first[file], final[file])
			}
			if file := name + " cpu.cfs_quota_us"; quotaOf(t, now[file]) > max(quotaOf(t, first[file]), quotaOf(t, final[file])) {
				t.Fatalf("killed at write %d: %s is %s; want no more than it had (%s) or gets (%s)", killAt, file, now[file], first[file], final[file])
			}
		}
		for restoreKill := 1; !restoreUntil(t, r, j, restoreKill); restoreKill += 3 {
			if restoreKill > 1000 {
				t.Fatal("the restore does not come to an end")
			}
		}
		if diff := cmp.Diff(first, r.snapshot(names...)); diff != "" {
			t.Fatalf("killed at write %d: after the restore (-first +now):\n%s", killAt, diff)
		}
		if done {
			if killAt < 12 {
				t.Errorf("only %d writes: the plan is too short to show anything", killAt)
			}
			return
		}
	}
}

func recoverKill(done *bool) {
	if p := recover(); p != nil {
		if _, ok := p.(killed); !ok {
			panic(p)
		}
		*done = false
	}
}

func applyUntil(t *testing.T, r *realTree, j *Journal, desired []tick.Cgroup, killAt int) (done bool) {
	a, w := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	w.killAt = killAt
	defer recoverKill(&done)
	if out := a.Apply(desired); len(out.Errors) > 0 {
		t.Fatalf("reported errors:\n%s", errorsOf(out))
	}
	return true
}

func restoreUntil(t *testing.T, r *realTree, j *Journal, killAt int) (done bool) {
	j.Close()
	again := openJournal(t, j.Path())
	defer again.Close()
	a, w := newApplier(t, r.h, func(o *Options) { o.Journal = again })
	w.killAt = killAt
	defer recoverKill(&done)
	out, err := a.Restore(false)
	if err != nil || out.Failed+out.External > 0 {
		t.Fatalf("restore: %v, %v", out, err)
	}
	return true
}

func TestWeightSurvivesIdleness(t *testing.T) {
	r := newRealTree(t, "batch")
	r.set("cpu", "batch", "cpu.shares", "777")
	a, w := newApplier(t, r.h, nil)
	for _, idle := range []bool{true, false, false} {
		out := a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), CPUIdle: &idle}})
		if len(out.Errors) > 0 {
			t.Fatalf("reported errors:\n%s", errorsOf(out))
		}
	}
	if got := r.get("cpu", "batch", "cpu.shares"); got != "777" || w.writes != 3 {
		t.Errorf("cpu.shares = %s after %d writes, want 777 after 3", got, w.writes)
	}
}

// A tier of kubelet that an older isolate or another program left idle is corrected in the order that the kernel accepts, and a
// restore restores it.
func TestIdleTierIsCorrected(t *testing.T) {
	r := newRealTree(t, "kubepods", "kubepods/besteffort")
	const tier = "kubepods/besteffort"
	r.set("cpu", tier, "cpu.idle", "1")
	if err := os.WriteFile(filepath.Join(r.dir("cpu", tier), "cpu.shares"), []byte("2"), 0); !errors.Is(err, unix.EINVAL) {
		t.Fatalf("kubelet's write of the weight while the tier is idle: %v; want %v", err, unix.EINVAL)
	}
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	out := a.Apply([]tick.Cgroup{{Cgroup: r.path(tier), CPUIdle: new(false), CPUWeight: p(1)}})
	if len(out.Errors) > 0 || r.get("cpu", tier, "cpu.idle") != "0" || r.get("cpu", tier, "cpu.shares") != "2" {
		t.Fatalf("idle %s, shares %s, errors:\n%s", r.get("cpu", tier, "cpu.idle"), r.get("cpu", tier, "cpu.shares"), errorsOf(out))
	}
	// Advice of an older version requests idle again: it stays as it is.
	out = a.Apply([]tick.Cgroup{{Cgroup: r.path(tier), CPUIdle: new(true)}})
	if len(out.Errors) != 1 || r.get("cpu", tier, "cpu.idle") != "0" || r.get("cpu", tier, "cpu.shares") != "2" {
		t.Errorf("idle %s, shares %s, errors:\n%s", r.get("cpu", tier, "cpu.idle"), r.get("cpu", tier, "cpu.shares"), errorsOf(out))
	}
	a.Close()
	if got := restoreWith(t, r, j, false); got.Failed+got.External > 0 || r.get("cpu", tier, "cpu.idle") != "1" {
		t.Errorf("restored %+v, cpu.idle = %s", got, r.get("cpu", tier, "cpu.idle"))
	}
}

// refusing refuses the writes to one cgroup.
type refusing struct {
	Writer
	cgroup string
}

func (r refusing) WriteFile(controller, cgroup, name, value string) error {
	if cgroup == r.cgroup {
		return fmt.Errorf("write %q to %s: %w", value, name, unix.EBUSY)
	}
	return r.Writer.WriteFile(controller, cgroup, name, value)
}

func TestRefusedWriteStopsDependents(t *testing.T) {
	r := newRealTree(t, "batch", "batch/pod", "serve")
	all := r.get("cpuset", "batch", "cpuset.cpus")
	a, _ := newApplier(t, r.h, func(o *Options) { o.Writer = refusing{o.Writer, r.path("batch/pod")} })
	out := a.Apply([]tick.Cgroup{
		{Cgroup: r.path("batch"), CPUSetCPUs: "1"},
		{Cgroup: r.path("serve"), CPUSetCPUs: "0"},
	})
	problems := errorsOf(out)
	for _, want := range []string{
		"pod cpusetCPUs: write \"1\" to cpuset.cpus: device or resource busy (a child cgroup has other CPUs",
		"batch cpusetCPUs: \"1\" not written: it depends on the write to " + r.path("batch/pod"),
	} {
		if !strings.Contains(problems, want) {
			t.Errorf("reported errors: want %q:\n%s", want, problems)
		}
	}
	if out.Applied != 1 || r.get("cpuset", "serve", "cpuset.cpus") != "0" || r.get("cpuset", "batch", "cpuset.cpus") != all {
		t.Errorf("applied %d, serve %s, batch %s", out.Applied, r.get("cpuset", "serve", "cpuset.cpus"), r.get("cpuset", "batch", "cpuset.cpus"))
	}
}

func TestFullDiskPreventsWrites(t *testing.T) {
	r := newRealTree(t, "batch")
	dir := t.TempDir()
	need.Mount(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	j := openJournal(t, filepath.Join(dir, "journal"))
	a, w := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	full := filepath.Join(dir, "full")
	_ = os.WriteFile(full, make([]byte, 1<<20), 0o600)
	desired := r.desired()[:1]
	out := a.Apply(desired)
	if w.writes > 0 || out.Applied > 0 || !strings.Contains(errorsOf(out), "no space left") {
		t.Errorf("%d writes, errors:\n%s", w.writes, errorsOf(out))
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if out = a.Apply(desired); len(out.Errors) > 0 || out.Applied == 0 {
		t.Errorf("with space again: applied %d, errors:\n%s", out.Applied, errorsOf(out))
	}
	if out := restoreWith(t, r, j, false); out.Failed > 0 || out.Values == 0 {
		t.Errorf("restore: %v", out)
	}
}
