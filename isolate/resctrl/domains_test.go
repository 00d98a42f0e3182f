package resctrl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/lib/resctrl"
	"polder/lib/tick"
)

// setTheirs sets the schemata of an existing group to what the kernel shows, whose file always has all domains.
func (m *machine) setTheirs(text string) {
	m.t.Helper()
	m.write(filepath.Join(resctrl.Dir, "theirs/schemata"), text+"\n")
}

func theirs(line string) tick.ResctrlGroup {
	return tick.ResctrlGroup{Group: "theirs", Schemata: []string{line}}
}

// Each domain's first value is recorded and restored, also that of a domain that only a later advice names, and after a compaction. Naming
// it is no external change.
func TestLaterDomainIsRestored(t *testing.T) {
	for _, isCompacted := range []bool{false, true} {
		m := newMachine(t)
		m.setTheirs("L3:0=ff0;1=ff0;2=ff0")
		m.a = m.applier(m.journal())
		m.write(filepath.Join(resctrl.Dir, "schemata"), "L3:0=fff;1=fff;2=fff\n")
		m.a.Contest = 0 // one external change would already end the writes
		for _, c := range []struct{ advised, shown string }{
			{"L3:0=f", "L3:0=f;1=ff0;2=ff0"},
			{"L3:0=f;1=f", "L3:0=f;1=f;2=ff0"},
			{"L3:1=3f", "L3:0=f;1=3f;2=ff0"},
			{"L3:2=f", "L3:0=f;1=3f;2=f"}, // no domain of the advice before
		} {
			if out := m.apply(theirs(c.advised)); len(out.Errors) > 0 || out.Applied != 1 {
				t.Errorf("%s: %d writes\n%s", c.advised, out.Applied, summary(out))
			}
			m.setTheirs(c.shown)
		}
		j := m.journal()
		if isCompacted {
			j.StaleLines = 1
			if err := j.Compact(); err != nil {
				t.Fatal(err)
			}
			j = m.journal()
		}
		out, err := m.applier(j).Restore(false)
		if err != nil || out != (Restored{Lines: 1}) || !strings.HasSuffix(m.read("theirs/schemata"), " L3:0=ff0;1=ff0;2=ff0") {
			t.Errorf("compacted %t: %s, %v, the file is %s; want all domains restored", isCompacted, out, err, m.read("theirs/schemata"))
		}
		if _, err := os.Stat(j.Path()); err == nil {
			t.Errorf("compacted %t: the journal is still there", isCompacted)
		}
	}
}

// A change of a domain that the advice before named is an external change, also if the advice changes at the same time.
func TestChangedDomainIsExternal(t *testing.T) {
	m := newMachine(t)
	m.setTheirs("L3:0=ff0;1=ff0")
	m.a = m.applier(m.journal())
	m.apply(theirs("L3:0=f"))
	m.setTheirs("L3:0=c;1=ff0")
	want := "! resctrl/theirs schemata: changed externally from L3:0=f to L3:0=c\n"
	if got := summary(m.apply(theirs("L3:0=f;1=f"))); !strings.HasSuffix(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// A domain that another program changed is skipped, and its record stays; the others of its line are restored.
func TestRestoreSkipsExternalDomain(t *testing.T) {
	m := newMachine(t)
	m.setTheirs("L3:0=ff0;1=ff0")
	m.a = m.applier(m.journal())
	m.apply(theirs("L3:0=f;1=f"))
	m.setTheirs("L3:0=f;1=c")
	if out, err := m.applier(m.journal()).Restore(false); err != nil || out != (Restored{Lines: 1, External: 1}) ||
		!strings.HasSuffix(m.read("theirs/schemata"), " L3:0=ff0") {
		t.Errorf("%s, %v, the file is %s; want only domain 0 restored", out, err, m.read("theirs/schemata"))
	}
	m.setTheirs("L3:0=ff0;1=c")
	if out, err := m.applier(m.journal()).Restore(false); err != nil || out != (Restored{External: 1}) {
		t.Errorf("again: %s, %v", out, err)
	}
	if out, err := m.applier(m.journal()).Restore(true); err != nil || out != (Restored{Lines: 1}) ||
		!strings.HasSuffix(m.read("theirs/schemata"), " L3:0=ff0;1=ff0") {
		t.Errorf("forced: %s, %v, the file is %s; want all domains restored", out, err, m.read("theirs/schemata"))
	}
}

// A domain that an earlier version of isolate wrote without its original value has none: isolate's own value is not taken for it.
func TestWrittenDomainHasNoOriginal(t *testing.T) {
	m := newMachine(t)
	m.setTheirs("L3:0=f;1=f")
	at, err := os.OpenRoot(filepath.Join(m.root, resctrl.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	j := m.journal()
	for _, e := range []entry{{Original: "L3:0=ff0", Written: "L3:0=f"}, {Written: "L3:0=f;1=f"}} {
		e.Group, e.Inode = "theirs", inodeOf(at, "theirs")
		if err := j.add(e); err != nil {
			t.Fatal(err)
		}
	}
	m.a = m.applier(j)
	m.apply(theirs("L3:0=3f;1=3f"))
	if got := textOf(j.records["theirs"].originals["L3"]); got != "L3:0=ff0" {
		t.Errorf("the original line is %s, want L3:0=ff0", got)
	}
}

// Writes that the kernel refuses do not hide the value that a domain keeps, also for another process.
func TestRefusedWritesDoNotHideWrittenValue(t *testing.T) {
	m := newMachine(t)
	m.setTheirs("L3:0=ff0;1=ff0")
	m.a = m.applier(m.journal())
	m.apply(theirs("L3:0=f;1=f"))
	for _, advised := range []string{"L3:0=3f", "L3:0=7f", "L3:0=3;1=3", "L3:0=7;1=7", "L3:0=fc;1=fc"} {
		m.setTheirs("L3:0=f;1=f") // as the kernel leaves it
		m.apply(theirs(advised))
	}
	m.setTheirs("L3:0=f;1=f")
	if out, err := m.applier(m.journal()).Restore(false); err != nil || out != (Restored{Lines: 1}) ||
		!strings.HasSuffix(m.read("theirs/schemata"), " L3:0=ff0;1=ff0") {
		t.Errorf("%s, %v, the file is %s; want all domains restored", out, err, m.read("theirs/schemata"))
	}
}
