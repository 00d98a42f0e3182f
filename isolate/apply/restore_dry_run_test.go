package apply

import (
	"path/filepath"
	"testing"
)

// A dry run of a restore predicts what the restore counts: files in the journal and not writes. A container that was created while its
// parent's list was squeezed gets a write, but is not in the journal, and a file with its original value gets none. It writes nothing.
func TestDryRunOfRestoreCountsFiles(t *testing.T) {
	r := newRealTree(t, "pod", "pod/c", "other")
	first := r.snapshot("pod", "pod/c", "other")
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	a.Apply(r.lists("pod", "0", "other", "1"))
	if err := r.make("pod/new"); err != nil {
		t.Fatal(err)
	}
	r.set("cpuset", "other", "cpuset.cpus", "0-1")
	j.Close()

	j = openJournal(t, j.Path())
	dry, w := newApplier(t, r.h, func(o *Options) { o.Journal, o.DryRun = j, true })
	predicted, err := dry.Restore(false)
	if err != nil || w.writes > 0 || predicted != (Restored{Values: 2, Unchanged: 1}) {
		t.Errorf("a dry run: %v, %v, %d writes", predicted, err, w.writes)
	}
	if out := restoreWith(t, r, j, false); out != predicted {
		t.Errorf("%v, but the dry run: %v", out, predicted)
	}
	if r.cpus("pod/new") != "0-1" {
		t.Errorf("the new container is on %s, want 0-1", r.cpus("pod/new"))
	}
	for file, value := range r.snapshot("pod", "pod/c", "other") {
		if value != first[file] {
			t.Errorf("%s is %q, want %q", file, value, first[file])
		}
	}
}
