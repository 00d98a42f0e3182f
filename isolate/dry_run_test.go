package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/isolate/apply"
	"polder/lib/stage"
	"polder/lib/tick"
)

// weightedMachine creates a copy of a v2 machine with the cgroup /web.
func weightedMachine(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for path, text := range map[string]string{
		"cgroup.controllers": "cpu memory", "cgroup.procs": "", "web/cgroup.procs": "",
		"web/cpu.weight": "100", "web/memory.max": "1073741824", "web/memory.current": "0", "web/memory.stat": "",
	} {
		writeFile(t, filepath.Join(root, "sys/fs/cgroup", path), text+"\n")
	}
	return root
}

// adviseWeb runs isolate with one tick that advises a weight's factor and a tighter limit for /web.
func adviseWeb(t *testing.T, root string, factor, limit int64, args ...string) (out tick.Isolation, status int) {
	t.Helper()
	line := fmt.Sprintf(`{"v":1,"node":"n","time":%q,"advice":{"policy":"p","cgroups":[{"cgroup":"/web","cpuWeightFactor":%d,`+
		`"memoryMaxBytes":%d,"memoryTighterOnly":true}]}}`+"\n", time.Now().UTC().Format(time.RFC3339), factor, limit)
	var stdout bytes.Buffer
	status = command().Execute(t.Context(), stage.Env{
		Args: append([]string{"isolate", "--root", root, "--node", "n", "--max-age", "10m", "--at-end", "keep"}, args...),
		In:   strings.NewReader(line), Out: &stdout, Err: t.Output(), Getenv: func(string) string { return "" }, Now: time.Now,
	})
	if status != 0 {
		return out, status
	}
	l, err := tick.ParseLine(bytes.TrimSpace(stdout.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := l.Decode(tick.SectionIsolation)
	if err != nil {
		t.Fatal(err)
	}
	return *decoded.Isolation, status
}

func newValues(out tick.Isolation) []string {
	var list []string
	for _, w := range out.Writes {
		list = append(list, w.Key+" "+w.New)
	}
	slices.Sort(list)
	return list
}

// A dry run predicts what the real one would write: with a journal from the original values in it, even while another isolate has it open,
// and without one as if there were none. It changes no file.
func TestDryRunPredictsFromOriginalValues(t *testing.T) {
	const gibibyte = 1 << 30
	root := weightedMachine(t)
	journal := filepath.Join(t.TempDir(), "journal")
	if out, _ := adviseWeb(t, root, 4, gibibyte/2, "--journal", journal); out.Applied != 2 || len(out.Errors) > 0 {
		t.Fatalf("%+v, want both applied", out)
	}
	open, err := apply.OpenJournal(journal, root, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	recorded, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}

	missing := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		name  string
		args  []string
		want  []string
		error string
	}{
		{"the journal of the run before", []string{"--journal", journal}, []string{"cpuWeightFactor 800", "memoryMaxBytes 1073741824"}, ""},
		{"a new journal", []string{"--journal", missing}, []string{"cpuWeightFactor 3200"}, ""},
		{"no journal", nil, nil, "not written without --journal"},
	} {
		out, status := adviseWeb(t, root, 8, 2*gibibyte, append(c.args, "--dry-run")...)
		if got := newValues(out); status != 0 || !out.DryRun || out.Applied != 0 || !slices.Equal(got, c.want) {
			t.Errorf("%s: exit status %d, would write %q, want %q: %+v", c.name, status, got, c.want, out)
		}
		isReported := slices.ContainsFunc(out.Errors, func(e tick.IsolationError) bool {
			return e.Key == "cpuWeightFactor" && strings.Contains(e.Error, c.error)
		})
		if isReported != (c.error != "") || slices.Contains(out.Unavailable, "cpuWeightFactor") != isReported {
			t.Errorf("%s: errors %+v and unavailable %q, want %q", c.name, out.Errors, out.Unavailable, c.error)
		}
	}
	for path, want := range map[string]string{
		journal: string(recorded), filepath.Join(root, "sys/fs/cgroup/web/cpu.weight"): "400",
		filepath.Join(root, "sys/fs/cgroup/web/memory.max"): "536870912",
	} {
		if data, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(data)) != strings.TrimSpace(want) {
			t.Errorf("%s is %q, %v; want %q", path, data, err, want)
		}
	}
	if exists(missing) {
		t.Error("the dry run created a journal")
	}

	// What the real run does with the same advice.
	open.Close()
	want := []string{"cpuWeightFactor 800", "memoryMaxBytes 1073741824"}
	if out, _ := adviseWeb(t, root, 8, 2*gibibyte, "--journal", journal); !slices.Equal(newValues(out), want) {
		t.Errorf("the real run wrote %q, want %q", newValues(out), want)
	}
}

// A dry run refuses a file that is not a journal, as the real run would.
func TestDryRunRefusesForeignJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	writeFile(t, path, "buy milk\n")
	if _, status := adviseWeb(t, weightedMachine(t), 8, 1<<30, "--journal", path, "--dry-run"); status == 0 {
		t.Error("exit status 0, want an error")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "buy milk\n" {
		t.Errorf("the file is %q, %v; want it unchanged", data, err)
	}
}
