package resctrl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/resctrl"
	"polder/lib/tick"
)

// Created groups are removed, changed lines are restored; each part also after a kill.
func TestRestore(t *testing.T) {
	m := newMachine(t)
	m.write(filepath.Join(resctrl.Dir, "theirs/schemata"), "L3:0=ff0;1=ff0\nMB:0=50;1=50\n")
	m.write(filepath.Join(resctrl.Dir, "theirs/tasks"), "7\n")
	m.a = m.applier(m.journal())
	theirs := tick.ResctrlGroup{Group: "theirs", Schemata: []string{"L3:0=f"}, Cgroups: []string{"/ls"}}
	if out := m.apply(beGroup(), theirs); len(out.Errors) > 0 {
		t.Fatal(summary(out))
	}
	theirs.Schemata[0] = "L3:0=3f"
	m.apply(beGroup(), theirs)
	if got := m.read("theirs/tasks"); got != "7 201" {
		t.Fatalf("tasks %s", got)
	}

	dry := m.applier(m.journal()) // as after a kill: read from the disk
	dry.DryRun = true
	if out, err := dry.Restore(false); err != nil || out != (Restored{Groups: 1, Lines: 1}) || m.read("BE/tasks") == "-" || dry.Journal.Len() != 2 {
		t.Errorf("dry run: %s, %v", out, err)
	}

	a := m.applier(m.journal())
	out, err := a.Restore(false)
	if err != nil || out != (Restored{Groups: 1, Lines: 1}) {
		t.Errorf("%s, %v", out, err)
	}
	if m.read("BE/tasks") != "-" || !strings.HasSuffix(m.read("theirs/schemata"), "L3:0=ff0") {
		t.Errorf("BE %s, theirs %s", m.read("BE/tasks"), m.read("theirs/schemata"))
	}
	if _, err := os.Stat(a.Journal.Path()); err == nil {
		t.Error("the journal is still there")
	}
	if out, err := m.applier(m.journal()).Restore(false); err != nil || out != (Restored{}) {
		t.Errorf("once more: %s, %v", out, err)
	}
}

func TestRestoreSkipsExternal(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(m *machine)
		force     bool
		want      Restored
	}{
		"changed by another":         {func(m *machine) { m.write(filepath.Join(resctrl.Dir, "theirs/schemata"), "L3:0=c\n") }, false, Restored{Groups: 1, External: 1}},
		"changed by another, forced": {func(m *machine) { m.write(filepath.Join(resctrl.Dir, "theirs/schemata"), "L3:0=c\n") }, true, Restored{Groups: 1, Lines: 1}},
		"back already":               {func(m *machine) { m.write(filepath.Join(resctrl.Dir, "theirs/schemata"), "L3:0=ff0\n") }, false, Restored{Groups: 1, Unchanged: 1}},
		"gone":                       {func(m *machine) { os.RemoveAll(filepath.Join(m.root, resctrl.Dir, "BE")) }, false, Restored{Gone: 1, Lines: 1}},
		"made again": {func(m *machine) {
			old := filepath.Join(m.root, resctrl.Dir, "BE")
			if err := os.Rename(old, old+".old"); err != nil {
				panic(err)
			}
			m.write(filepath.Join(resctrl.Dir, "BE/tasks"), "9\n")
		}, false, Restored{Gone: 1, Lines: 1}},
		"unreadable": {func(m *machine) {
			os.Remove(filepath.Join(m.root, resctrl.Dir, "theirs/schemata"))
		}, false, Restored{Groups: 1, Failed: 1}},
		"not mounted here": {func(m *machine) { os.RemoveAll(filepath.Join(m.root, resctrl.Dir)) }, false, Restored{Failed: 2}},
		"rebooted":         {func(m *machine) { m.write(bootFile, "boot-2\n") }, false, Restored{}},
	} {
		m := newMachine(t)
		m.write(filepath.Join(resctrl.Dir, "theirs/schemata"), "L3:0=ff0;1=ff0\n")
		m.a = m.applier(m.journal())
		if out := m.apply(beGroup(), tick.ResctrlGroup{Group: "theirs", Schemata: []string{"L3:0=f"}}); len(out.Errors) > 0 {
			t.Fatal(summary(out))
		}
		c.meanwhile(m)
		out, err := m.applier(m.journal()).Restore(c.force)
		if err != nil || out != c.want {
			t.Errorf("%s: %s, %v; want %s", name, out, err, c.want)
		}
		_, statErr := os.Stat(filepath.Join(m.root, "journal.resctrl"))
		if kept := statErr == nil; kept != (out.Failed+out.External > 0) {
			t.Errorf("%s: journal kept %v", name, kept)
		}
		if name == "made again" && m.read("BE/tasks") != "9" {
			t.Error("another's group of that name was removed")
		}
	}
}

// After a restore that was not complete, the journal has only the rest: what another program sets afterwards is its own.
func TestIncompleteRestoreKeepsTheRest(t *testing.T) {
	m := newMachine(t)
	m.setTheirs("L3:0=ff0")
	m.a = m.applier(m.journal())
	if out := m.apply(beGroup(), theirs("L3:0=f")); len(out.Errors) > 0 {
		t.Fatal(summary(out))
	}
	remove := m.a.kernel.rmdir
	a := m.applier(m.journal())
	a.kernel.rmdir = func(*os.Root, string) error { return os.ErrPermission }
	if out, err := a.Restore(false); err != nil || out != (Restored{Lines: 1, Failed: 1}) {
		t.Fatalf("%s, %v", out, err)
	}
	m.setTheirs("L3:0=f")
	a = m.applier(m.journal())
	a.kernel.rmdir = remove
	if out, err := a.Restore(false); err != nil || out != (Restored{Groups: 1}) || m.read("theirs/schemata") != "L3:0=f" {
		t.Errorf("%s, %v, the file is %s", out, err, m.read("theirs/schemata"))
	}
}

// After a kill between creating a group and recording its inode, the group is removed all the same. One that could not be created is not.
func TestJournal(t *testing.T) {
	m := newMachine(t)
	j := m.journal()
	for _, err := range []error{j.recordCreation("BE"), j.recordCreation("LS")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	j.recordNotCreated("LS")
	m.write(filepath.Join(resctrl.Dir, "BE/tasks"), "")
	m.write(filepath.Join(resctrl.Dir, "LS/tasks"), "")
	text, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	bad := "{\"group\":\"../x\",\"boot\":\"boot-1\",\"creates\":true}\n\x00\n\n{\"group\":\"info\",\"creates\":true}\n" + string(text) + `{"group":"LS","boot":"boot-1","crea`
	if err := os.WriteFile(j.Path(), []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	again := m.journal()
	if again.Len() != 1 || again.InvalidLines != 4 {
		t.Fatalf("%d groups, %d bad lines; want 1 and 4", again.Len(), again.InvalidLines)
	}
	if err := again.recordCreated("LS", 5); err != nil { // instead of the line that was cut off
		t.Fatal(err)
	}
	if third := m.journal(); third.Len() != 2 || third.InvalidLines != 3 {
		t.Fatalf("%d groups, %d bad lines", third.Len(), third.InvalidLines)
	}
	if out, err := m.applier(m.journal()).Restore(false); err != nil || out != (Restored{Groups: 1, Gone: 1}) {
		t.Errorf("%s, %v", out, err)
	}
	if m.read("LS/tasks") == "-" {
		t.Error("a group of another program was removed")
	}

	// What cannot be restored is not changed.
	nowhere, err := OpenJournal(filepath.Join(m.root, "no/such/dir/journal"), m.root, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	m.a = m.applier(nowhere)
	if got := summary(m.apply(beGroup())); !strings.Contains(got, "not created, because the journal failed") || m.read("BE/tasks") != "-" {
		t.Error(got)
	}
	if got := summary(m.apply(tick.ResctrlGroup{Group: "LS", Schemata: []string{"L3:0=f"}})); !strings.Contains(got, "! resctrl/LS schemata") {
		t.Error(got)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(m.root, "journal.resctrl")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(filepath.Join(m.root, "journal"), m.root, time.Now); err == nil {
		t.Error("a journal that is a link is opened")
	}
}

// What another version of isolate wrote stays in the journal, and the restore reports it.
func TestRestoreKeepsEntriesOfAnotherVersion(t *testing.T) {
	m := newMachine(t)
	unknown := `{"group":"LS","inode":7,"boot":"boot-1","time":"2026-01-01T00:00:00Z","monitors":"x"}` + "\n"
	text := `{"group":"BE","inode":1,"boot":"boot-1","created":true}` + "\n" + unknown
	if err := os.WriteFile(JournalName(filepath.Join(m.root, "journal")), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dryRun := range []bool{true, false, false} {
		a := m.applier(m.journal())
		a.DryRun = dryRun
		if out, err := a.Restore(false); err != nil || out.Unknown != 1 || out.IsComplete() {
			t.Errorf("%s, %v; want one entry left", out, err)
		}
		got, err := os.ReadFile(a.Journal.Path())
		if want := unknown; err != nil || !dryRun && string(got) != want || dryRun && string(got) != text {
			t.Errorf("dry run %t: the journal is %q, %v", dryRun, got, err)
		}
	}
}

// Compact removes the lines of earlier boots, damaged ones, and those of groups that were not created.
func TestJournalIsCompacted(t *testing.T) {
	const stamp = `,"time":"2026-01-01T00:00:00Z"`
	m := newMachine(t)
	want := `{"group":"BE","boot":"boot-1"` + stamp + `,"creates":true}` + "\n" +
		`{"group":"LS","inode":7,"boot":"boot-1"` + stamp + `,"created":true}` + "\n" +
		`{"group":"theirs","inode":8,"boot":"boot-1"` + stamp + `,"first":"L3:0=ff0;1=ff0"}` + "\n" +
		`{"group":"theirs","inode":8,"boot":"boot-1"` + stamp + `,"wrote":"L3:0=f"}` + "\n" +
		`{"group":"theirs","inode":8,"boot":"boot-1"` + stamp + `,"wrote":"L3:0=3f"}` + "\n"
	obsolete := strings.ReplaceAll(want, "boot-1", "boot-0") + `{"group":"no","boot":"boot-1"` + stamp + `,"creates":true}` + "\n" +
		`{"group":"no","boot":"boot-1"` + stamp + `,"not":true}` + "\n\x00\n"
	path := JournalName(filepath.Join(m.root, "journal"))
	if err := os.WriteFile(path, []byte(obsolete+want), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		j := m.journal()
		if err := j.Compact(); err != nil || j.Len() != 3 {
			t.Errorf("%v, %d groups; want 3", err, j.Len())
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("the journal is\n%s, %v; want\n%s", got, err, want)
		}
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"group":"BE","boot":"b","creates":true}` + "\n" + `{"group":"LS","inode":7,"boot":"b","first":"L3:0=f","wrote":"L3:0=3"}`))
	f.Add([]byte(`{"group":"BE","boot":"b","not":true}` + "\n{\x00\n" + `{"group":"a/b"}`))
	root := f.TempDir()
	path := filepath.Join(root, "journal")
	if err := os.MkdirAll(filepath.Dir(filepath.Join(root, bootFile)), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, bootFile), []byte("b\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(JournalName(path), data, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(path, root, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		for group, r := range j.records {
			if CheckName(group) != nil || r.isCreated && len(r.originals) > 0 {
				t.Fatalf("%q: %+v", group, r)
			}
			for d, wrote := range r.written {
				if len(wrote) > maxWritten || r.originals[d.resource].Resource != "" && r.originals[d.resource].Resource != d.resource {
					t.Fatalf("%q: %+v", group, r)
				}
			}
		}
	})
}
