package resctrl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"polder/lib/resctrl"
)

// A group that is only named, as advise does if resctrl is not mounted, is reported while that lasts; after a mount it is
// neither created, nor is a task moved into one of that name.
func TestOnlyNamed(t *testing.T) {
	m := newMachine(t)
	named := beGroup()
	named.Schemata, named.IfExists = nil, true
	other := named
	other.Group = "theirs"
	m.write(resctrl.Dir+"/theirs/tasks", "")
	if out := m.apply(named, other); summary(out) != "" || out.Applied+out.Missing+out.Unchanged > 0 || out.Unavailable != nil {
		t.Errorf("mounted: %s%+v", summary(out), out)
	}
	if _, err := os.Stat(filepath.Join(m.root, resctrl.Dir, "BE")); err == nil {
		t.Error("a group was made")
	}
	if err := os.RemoveAll(filepath.Join(m.root, resctrl.Dir)); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		out := m.apply(named, other)
		if (round == 0) != (len(out.Errors) == 1) || !slices.Equal(out.Unavailable, []string{"resctrl"}) {
			t.Errorf("not mounted, round %d: %+v", round, out)
		}
	}
	if _, err := os.Stat(filepath.Join(m.root, resctrl.Dir)); err == nil {
		t.Error("something was made where nothing is mounted")
	}
}

func TestNotMounted(t *testing.T) {
	m := newMachine(t)
	if err := os.RemoveAll(filepath.Join(m.root, resctrl.Dir)); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		out := m.apply(beGroup(), beGroup())
		if got := summary(out); round == 0 && (strings.Count(got, "\n") != 1 || !strings.Contains(got, "! resctrl resctrl: unavailable: resctrl is not mounted at ") || !strings.Contains(got, "if the processor supports it")) || round > 0 && got != "" {
			t.Errorf("round %d: %s", round, got)
		}
		if !slices.Equal(out.Unavailable, []string{"resctrl"}) {
			t.Errorf("round %d: unavailable %q", round, out.Unavailable)
		}
	}
	m.write(resctrl.Dir+"/info/last_cmd_status", "ok\n")
	if out := m.apply(beGroup()); out.Unavailable != nil {
		t.Errorf("mounted: %+v", out)
	}
	if err := os.RemoveAll(filepath.Join(m.root, resctrl.Dir)); err != nil {
		t.Fatal(err)
	}
	if out := m.apply(beGroup()); len(out.Errors) != 1 {
		t.Errorf("unmounted again: %+v", out)
	}
	if got := summary(m.apply()); got != "" {
		t.Error(got)
	}
}
