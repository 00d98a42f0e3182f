package apply

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/isolate/plan"
	"polder/lib/cgroup"
	"polder/lib/tick"
)

// oddNames are names that the kernel accepts, and that neither advice nor a string of JSON can hold.
var oddNames = []string{"c\xff", "c\x01", "\x1b[2J\xc3(", "c\x7f d"}

// Whoever may create a cgroup below a managed one chooses its name: it is changed with its parent as any other, and restored.
func TestOddNamesAreChangedAndRestored(t *testing.T) {
	for _, name := range oddNames {
		r := newRealTree(t, "batch")
		r.h = r.h.WithAnyNames()
		child := "batch/" + name
		if err := r.make(child); err != nil {
			t.Fatal(err)
		}
		r.set("cpu", child, "cpu.cfs_quota_us", "90000")
		first := r.snapshot("batch", child)
		j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
		a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
		out := a.Apply([]tick.Cgroup{{Cgroup: r.path("batch"), CPUSetCPUs: "0", CPUMaxMilliCPU: p(500)}})
		if len(out.Errors) > 0 || out.Applied != 4 {
			t.Errorf("%q: %d writes, want 4; errors:\n%s", name, out.Applied, errorsOf(out))
		}
		for _, w := range out.Writes {
			if cgroup.ShownPath(w.Cgroup) != w.Cgroup {
				t.Errorf("the write to %q is not quoted", w.Cgroup)
			}
		}
		for _, name := range []string{"batch", child} {
			if list, quota := r.cpus(name), r.get("cpu", name, "cpu.cfs_quota_us"); list != "0" || quota != "50000" {
				t.Errorf("%q has the list %s and the quota %s, want 0 and 50000", name, list, quota)
			}
		}
		if out := restoreWith(t, r, j, false); out.Values != 4 || !out.IsComplete() {
			t.Errorf("%q: %v, want four values restored", name, out)
		}
		if diff := cmp.Diff(first, r.snapshot("batch", child)); diff != "" {
			t.Errorf("%q: after the restore (-first +now):\n%s", name, diff)
		}
		wantNoJournal(t, j)
	}
}

// They also choose how deep they nest them: all are narrowed, and restored.
func TestDeepCgroupsAreChangedAndRestored(t *testing.T) {
	r := newRealTree(t, "batch")
	deepest := "batch"
	for range 100 {
		deepest += "/d"
		if err := r.make(deepest); err != nil {
			t.Fatal(err)
		}
	}
	first := r.snapshot("batch", deepest)
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	a, _ := newApplier(t, r.h, func(o *Options) { o.Journal = j })
	out := a.Apply(r.lists("batch", "0"))
	if len(out.Errors) > 0 || r.cpus("batch") != "0" || r.cpus(deepest) != "0" {
		t.Errorf("the lists are %s and %s, want 0; errors:\n%s", r.cpus("batch"), r.cpus(deepest), errorsOf(out))
	}
	if out := restoreWith(t, r, j, false); out.Values != 101 || !out.IsComplete() {
		t.Errorf("%v, want 101 values restored", out)
	}
	if diff := cmp.Diff(first, r.snapshot("batch", deepest)); diff != "" {
		t.Errorf("after the restore (-first +now):\n%s", diff)
	}
}

// A cgroup of an odd name whose file cannot be changed is reported in a text that a terminal may show.
func TestOddNamesAreQuoted(t *testing.T) {
	r := newRealTree(t, "batch")
	r.h = r.h.WithAnyNames()
	const name = "c\x1b[2J"
	if err := r.make("batch/" + name); err != nil {
		t.Fatal(err)
	}
	a, _ := newApplier(t, r.h, func(o *Options) { o.Writer = refusing{r.h, r.path("batch/" + name)} })
	out := a.Apply(r.lists("batch", "0"))
	if len(out.Errors) != 2 {
		t.Fatalf("reported %+v, want the refusals of the child and its parent", out.Errors)
	}
	for _, e := range out.Errors {
		if text := e.Cgroup + e.Error; strings.Contains(text, "\x1b") || !strings.Contains(text, `c\x1b[2J"`) {
			t.Errorf("reported %q, want the name quoted", text)
		}
	}
}

// The journal keeps each path byte for byte, and reads those of an earlier version.
func TestJournalKeepsOddNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	want := map[plan.File]string{}
	j := openJournal(t, path)
	for i, name := range append([]string{"plain", "naïve", "\uFFFD", `quoted"\`}, oddNames...) {
		f := plan.File{Controller: "cpu", Cgroup: "/batch/" + name, Name: "cpu.shares"}
		want[f] = strings.Repeat("1", i+1)
		e := entryOf(f, uint64(i+1))
		e.Original = tick.Ptr(want[f])
		if err := j.Append([]entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		j.Close()
		j = openJournal(t, path)
		got := map[plan.File]string{}
		for f, r := range j.records {
			got[f] = r.Original
		}
		if diff := cmp.Diff(want, got); diff != "" || j.InvalidLines+j.UnknownLines() > 0 {
			t.Errorf("%s: %d invalid and %d unknown lines, records (-want +got):\n%s", when, j.InvalidLines, j.UnknownLines(), diff)
		}
	}
	check("appended")
	if err := j.rewrite(); err != nil {
		t.Fatal(err)
	}
	check("rewritten")
}

// A path that is neither a string nor its bytes is an entry of another version, and a path that leads out of the hierarchy is none.
func TestInvalidPathsInJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	f := plan.File{Controller: "cpu", Cgroup: "/batch/c\xff", Name: "cpu.shares"}
	e := entryOf(f, 1)
	e.Original = tick.Ptr("7")
	if err := j.Append([]entry{e}); err != nil {
		t.Fatal(err)
	}
	j.Close()
	line, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const valid = `{"base64":"L2JhdGNoL2P/"}`
	if !strings.Contains(string(line), valid) {
		t.Fatalf("the journal has %s, want %s", line, valid)
	}
	var text strings.Builder
	for _, other := range []string{`{"base64":"?"}`, `7`, `{}`, `{"base64":"Ly4uL2E="}`, `"/a/../b"`, `"/a\u0000"`} {
		text.WriteString(strings.Replace(string(line), valid, other, 1))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := OpenJournal(path, "/", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.UnknownLines() != 2 || again.InvalidLines != 4 || again.Len() != 0 {
		t.Errorf("%d unknown, %d invalid lines and %d records; want 2, 4 and 0", again.UnknownLines(), again.InvalidLines, again.Len())
	}
}
