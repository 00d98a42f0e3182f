package apply

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"polder/lib/tick"
)

// squeezedBurst is a tree in which an advice changed two quotas, and not the burst of a/d: a restore must lower that burst for a moment,
// because the kernel rejects a quota below it.
func squeezedBurst(t *testing.T) (*realTree, *Journal) {
	t.Helper()
	r := newRealTree(t, "a", "a/d")
	r.set("cpu", "a", "cpu.cfs_quota_us", "50000")
	r.set("cpu", "a/d", "cpu.cfs_burst_us", "57000")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	out := a.Apply([]tick.Cgroup{{Cgroup: r.path("a"), CPUMaxMilliCPU: p(900)}, {Cgroup: r.path("a/d"), CPUMaxMilliCPU: p(900)}})
	if got := r.get("cpu", "a/d", "cpu.cfs_burst_us"); got != "57000" || len(out.Errors) > 0 {
		t.Fatalf("the burst is %s, want it unchanged; errors:\n%s", got, errorsOf(out))
	}
	return r, j
}

func wantNoJournal(t *testing.T, j *Journal) {
	t.Helper()
	if _, err := os.Stat(j.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the journal is still there: %v", err)
	}
}

// A restore that is killed at any of its writes can be repeated: it restores also what the first one changed temporarily.
func TestKilledRestoreKeepsPassingValues(t *testing.T) {
	for killAt, done := 1, false; !done; killAt++ {
		r, j := squeezedBurst(t)
		done = restoreUntil(t, r, j, killAt)
		if !done {
			restoreUntil(t, r, j, 0)
		} else if killAt < 4 {
			t.Errorf("only %d writes: the restore does not change the burst", killAt-1)
		}
		quotas := r.get("cpu", "a", "cpu.cfs_quota_us") + " and " + r.get("cpu", "a/d", "cpu.cfs_quota_us")
		if burst := r.get("cpu", "a/d", "cpu.cfs_burst_us"); burst != "57000" || quotas != "50000 and -1" {
			t.Errorf("killed at write %d, then repeated: the burst is %s and the quotas are %s; want 57000, 50000 and -1",
				killAt, burst, quotas)
		}
		wantNoJournal(t, j)
	}
}

// steadyBurst refuses to raise a burst.
type steadyBurst struct{ Writer }

func (w steadyBurst) WriteFile(controller, cgroup, name, value string) error {
	if name == "cpu.cfs_burst_us" && value == "57000" {
		return errors.New("refused")
	}
	return w.Writer.WriteFile(controller, cgroup, name, value)
}

// A value that a restore changed temporarily and could not write again stays in the journal, and the restore is not complete.
func TestUnfinishedPassingValueIsReported(t *testing.T) {
	r, j := squeezedBurst(t)
	j.Close()
	j = openJournal(t, j.Path())
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal, o.Writer = j, steadyBurst{r.h} })
	out, err := a.Restore(false)
	if err != nil || out.Failed != 1 || out.IsComplete() {
		t.Errorf("Restore = %v, %v; want one failed", out, err)
	}
	out = restoreWith(t, r, j, false)
	if got := r.get("cpu", "a/d", "cpu.cfs_burst_us"); got != "57000" || out.Values != 1 || !out.IsComplete() {
		t.Errorf("the next restore: %v, and the burst is %s; want 57000", out, got)
	}
	wantNoJournal(t, j)
}

// A cgroup that was created under a squeezed list gets its parent's original list even if the restore is killed in between.
func TestKilledRestoreWidensNewCgroup(t *testing.T) {
	for killAt, done := 1, false; !done; killAt++ {
		r := newRealTree(t, "batch")
		j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
		a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
		a.Apply(r.lists("batch", "0"))
		if err := r.make("batch/new"); err != nil {
			t.Fatal(err)
		}
		if done = restoreUntil(t, r, j, killAt); !done {
			restoreUntil(t, r, j, 0)
		}
		if batch, added := r.cpus("batch"), r.cpus("batch/new"); batch != "0-1" || added != "0-1" {
			t.Errorf("killed at write %d, then repeated: batch has %s and batch/new %s, want 0-1", killAt, batch, added)
		}
		wantNoJournal(t, j)
	}
}
