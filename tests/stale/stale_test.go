package stale

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The files of a process that has ended are removed; those of a running one, and other files, stay.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf("lab-%d-", ended.Process.Pid)
	for _, name := range []string{left + "a", left + "b", Name("lab-") + "own", "lab-of-nobody", "other-1"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(dir, "lab-", os.RemoveAll); err != nil {
		t.Fatal(err)
	}
	var got []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff([]string{Name("lab-") + "own", "lab-of-nobody", "other-1"}, got); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
