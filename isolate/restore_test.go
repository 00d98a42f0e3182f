package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/isolate/apply"
	"polder/isolate/resctrl"
	"polder/lib/stage"
)

// runOn runs isolate on a copy of a machine, with an empty input, and returns its exit status.
func runOn(t *testing.T, root string, errs io.Writer, args ...string) int {
	t.Helper()
	return command().Execute(t.Context(), stage.Env{
		Args: append([]string{"isolate", "--root", root}, args...),
		In:   strings.NewReader(""), Out: io.Discard, Err: errs, Getenv: func(string) string { return "" }, Now: time.Now,
	})
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// goneGroup is an entry of a group of resctrl that no longer exists.
const goneGroup = `{"group":"BE","inode":1,"created":true}` + "\n"

// onWrite calls a function with each text that is written.
type onWrite func(text string)

func (f onWrite) Write(text []byte) (int, error) {
	f(string(text))
	return len(text), nil
}

// While --restore restores the groups of resctrl no isolate can start, also if there is no journal of cgroups.
func TestRestoreLocksBothJournals(t *testing.T) {
	for name, text := range map[string]string{"both journals": "", "only groups": "-"} {
		t.Run(name, func(t *testing.T) {
			root, _ := machine(t)
			writeFile(t, filepath.Join(root, "sys/fs/resctrl/info/last_cmd_status"), "ok\n")
			path := filepath.Join(t.TempDir(), "journal")
			if text != "-" {
				writeFile(t, path, text)
			}
			writeFile(t, resctrl.JournalName(path), goneGroup)
			isRestored := false
			status := runOn(t, root, onWrite(func(text string) {
				if !strings.Contains(text, "resctrl: removed") {
					return
				}
				isRestored = true
				if _, err := apply.OpenJournal(path, root, time.Now); !errors.Is(err, apply.ErrInUse) {
					t.Errorf("a second isolate opens the journal: %v; want that it is in use", err)
				}
			}), "--restore", "--journal", path)
			if status != 0 || !isRestored || exists(path) || exists(resctrl.JournalName(path)) {
				t.Errorf("exit status %d, groups restored %t; want 0, true, and no journal", status, isRestored)
			}
		})
	}
}

// A dry run of --restore creates, changes and removes no file.
func TestDryRunOfRestoreChangesNoFile(t *testing.T) {
	root, _ := machine(t)
	writeFile(t, filepath.Join(root, "sys/fs/resctrl/info/last_cmd_status"), "ok\n")
	path := filepath.Join(t.TempDir(), "journal")
	writeFile(t, resctrl.JournalName(path), goneGroup+strings.Replace(goneGroup, `,"created"`, `,"boot":"earlier","created"`, 1))
	const stale = `{"controller":"cpuset","cgroup":"/batch","file":"cpuset.cpus","inode":1,"boot":"earlier","first":"0"}` + "\n"
	for _, text := range []string{"", stale} {
		if text != "" {
			writeFile(t, path, text)
		}
		before := filesIn(t, filepath.Dir(path))
		var errs bytes.Buffer
		if status := runOn(t, root, &errs, "--restore", "--dry-run", "--journal", path); status != 0 {
			t.Errorf("exit status %d: %s", status, errs.String())
		}
		if said := errs.String(); !strings.Contains(said, "isolate: nothing is changed; without --dry-run: resctrl: removed 0 groups") {
			t.Errorf("the dry run says %q", said)
		}
		if after := filesIn(t, filepath.Dir(path)); after != before {
			t.Errorf("before the dry run:\n%s\nafter it:\n%s", before, after)
		}
	}
}

func filesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(e.Name() + ":\n" + string(data))
	}
	return out.String()
}

// Another program's file in the place of the groups' journal is neither written nor removed; the cgroups are restored all the same.
func TestForeignJournalOfGroupsIsRefused(t *testing.T) {
	root, _ := machine(t)
	path := filepath.Join(t.TempDir(), "journal")
	writeFile(t, resctrl.JournalName(path), "theirs\n")
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"--journal", path}, 2},
		{[]string{"--restore", "--dry-run", "--journal", path}, 1},
		{[]string{"--restore", "--journal", path}, 1},
		{[]string{"--restore", "--if-exists", "--journal", path}, 1}, // without a journal of cgroups
	} {
		var errs bytes.Buffer
		status := runOn(t, root, &errs, c.args...)
		message := resctrl.JournalName(path) + " is not a journal of resctrl groups"
		if status != c.want || !strings.Contains(errs.String(), message) {
			t.Errorf("%q: exit status %d, want %d: %s", c.args, status, c.want, errs.String())
		}
		if data, err := os.ReadFile(resctrl.JournalName(path)); err != nil || string(data) != "theirs\n" {
			t.Errorf("%q: the file is %q, %v; want it untouched", c.args, data, err)
		}
	}
	if exists(path) {
		t.Error("the journal of cgroups is still there")
	}
}
