package apply

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/isolate/plan"
	"polder/lib/tick"
)

// A cgroup that is created again, or whose value changes, between the reading and the recording is not written with the value that was
// read as its original one. The next tick records its own value.
func TestOriginalIsThatOfRecreatedCgroup(t *testing.T) {
	for _, c := range []struct {
		name          string
		isRecreated   bool
		keepsJournal  bool
		present       string
		wantFirstTick bool // written with the first tick
	}{
		{"unchanged", false, true, "100", true},
		{"created again with another value", true, true, "77", false},
		{"created again with the same value", true, true, "100", true},
		{"changed", false, true, "77", false},
		{"created again, without a journal", true, false, "77", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, base := newCopy(t, map[string]string{"a/cpu.weight": "100"})
			path := filepath.Join(t.TempDir(), "journal")
			a, w := newApplier(t, h, func(o *Options) {
				if c.keepsJournal {
					o.Journal = openJournal(t, path)
				}
			})
			desired := []tick.Cgroup{{Cgroup: "/a", CPUWeight: new(int64(50))}}
			r := &round{} // as Apply does
			a.readMachine()
			a.makeItems(desired)
			a.readItems(r)
			if c.isRecreated { // the old one stays open, and its inode cannot be given to the new one
				if err := os.Rename(filepath.Join(base, "a"), filepath.Join(base, "removed")); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(filepath.Join(base, "a"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(base, "a/cpu.weight")
			if err := os.WriteFile(file, []byte(c.present+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, f := range a.files { // on cgroupfs the handle of a removed cgroup no longer reads
				a.closeFile(f)
			}
			a.writeItems(r, a.itemsToWrite(r), nil)
			if (w.writes == 1) != c.wantFirstTick || (r.failed == 0) != c.wantFirstTick {
				t.Errorf("%d writes, errors:\n%s", w.writes, errorsOf(r.Isolation))
			}
			if !c.wantFirstTick && (len(a.records) > 0 || !strings.Contains(errorsOf(r.Isolation), errChangedMeanwhile.Error())) {
				t.Errorf("%d records, errors:\n%s", len(a.records), errorsOf(r.Isolation))
			}
			a.Apply(desired)
			if got := read(t, base, "a/cpu.weight"); got != "50" {
				t.Errorf("cpu.weight is %s after another tick, want 50", got)
			}
			rec := a.records[plan.File{Controller: "cpu", Cgroup: "/a", Name: "cpu.weight"}]
			if rec == nil || rec.Original != c.present {
				t.Fatalf("the record is %+v, want the original value %s", rec, c.present)
			}
			if !c.keepsJournal {
				return
			}
			a.Journal.Close()
			b, _ := newApplier(t, h, func(o *Options) { o.Journal = openJournal(t, path) })
			if out, err := b.Restore(false); err != nil || out.Values != 1 || read(t, base, "a/cpu.weight") != c.present {
				t.Errorf("restore: %v, %v, cpu.weight is %s; want %s", out, err, read(t, base, "a/cpu.weight"), c.present)
			}
		})
	}
}
