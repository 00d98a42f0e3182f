package apply

import (
	"path/filepath"
	"testing"

	"polder/lib/tick"
)

// A cgroup that the advice names with the list that it has already keeps it when its parent's is squeezed to it and widened again, by a
// later advice that does not name it or by a restore.
func TestNamedOwnListSurvivesASqueeze(t *testing.T) {
	r := newRealTree(t, "batch", "batch/own")
	r.set("cpuset", "batch/own", "cpuset.cpus", "1")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	for i, c := range []struct {
		advice     []tick.Cgroup
		writes     int
		batch, own string
	}{
		{r.lists("batch", "1", "batch/own", "1"), 1, "1", "1"},
		{r.lists("batch", "1", "batch/own", "1"), 0, "1", "1"},
		{r.lists("batch", "0-1"), 1, "0-1", "1"},
		{r.lists("batch", "1", "batch/own", "1"), 1, "1", "1"},
	} {
		out := a.Apply(c.advice)
		batch, own := r.cpus("batch"), r.cpus("batch/own")
		if batch != c.batch || own != c.own || out.Applied != c.writes || len(out.Errors) > 0 {
			t.Errorf("advice %d: batch has %s and batch/own %s; want %s and %s with %d writes, got %+v",
				i, batch, own, c.batch, c.own, c.writes, out)
		}
	}
	out := restoreWith(t, r, j, false)
	if batch, own := r.cpus("batch"), r.cpus("batch/own"); batch != "0-1" || own != "1" || !out.IsComplete() {
		t.Errorf("after the restore (%v) batch has %s and batch/own %s; want 0-1 and 1", out, batch, own)
	}
}

// A cgroup that a runtime creates below a squeezed one has its list. It is not the new one's own, also if the advice names it: it follows
// when the parent's is widened by an advice that names only the parent, and by a restore.
func TestListFilledFromASqueezedParentIsNotItsOwn(t *testing.T) {
	r := newRealTree(t, "batch")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	a.Apply(r.lists("batch", "0"))
	if err := r.make("batch/new"); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		advice     []tick.Cgroup
		batch, new string
	}{
		{r.lists("batch", "0", "batch/new", "0"), "0", "0"},
		{r.lists("batch", "1", "batch/new", "1"), "1", "1"},
		{r.lists("batch", "0-1"), "0-1", "0-1"},
		{r.lists("batch", "1", "batch/new", "1"), "1", "1"},
	} {
		out := a.Apply(c.advice)
		if batch, new := r.cpus("batch"), r.cpus("batch/new"); batch != c.batch || new != c.new || len(out.Errors) > 0 {
			t.Errorf("advice %d: batch has %s and batch/new %s; want %s and %s\n%s", i, batch, new, c.batch, c.new, errorsOf(out))
		}
	}
	out := restoreWith(t, r, j, false)
	if batch, new := r.cpus("batch"), r.cpus("batch/new"); batch != "0-1" || new != "0-1" || !out.IsComplete() {
		t.Errorf("after the restore (%v) batch has %s and batch/new %s; want 0-1 and 0-1", out, batch, new)
	}
}
