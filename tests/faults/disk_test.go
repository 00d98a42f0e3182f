package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/tests/group"
	"polder/tests/need"
)

// outputCases are the tools with ticks to write.
var outputCases = [][]string{
	{"collect", "--interval", "10ms", "--count", "20"},
	{"collect", "--once", "--once-over", "10ms"},
	{"advise"},
	{"isolate", "--dry-run"},
	{"isolate", "--node", "n", "--max-age", "1h"},
	{"evict"},
	{"evict", "--action", "kill", "--node", "n", "--max-age", "1h"},
	{"report", "--to", "table"},
	{"report", "--to", "prometheus", "--metrics-file", "x.prom"},
}

// A next stage that has ended ends a tool quietly, a full disk with status 1 and the reason. An output that was never
// open is the null device: Go's runtime opens that in its place.
func TestFaultStdout(t *testing.T) {
	t.Parallel()
	made := newNumbered(2000, "")
	var input bytes.Buffer
	for n := range 50 {
		input.Write(made.line(n))
	}
	for _, c := range outputCases {
		for _, out := range []struct {
			name, redirect string
			status         int
			message        string
		}{
			{"the next stage is gone", "| true", 0, ""},
			{"full", "> /dev/full", 1, "no space left on device"},
			{"closed", ">&-", 0, ""},
		} {
			t.Run(strings.Join(c, " ")+" "+out.name, func(t *testing.T) {
				// The tool's own status, also where it is not the pipe's last. The input comes only when the next stage has ended.
				script := `exec 3>&2; { sleep 0.05; "$@" 2>&3; echo "status $?" >&3; } ` + out.redirect
				cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, "sh", filepath.Join(bin, c[0])}, c[1:]...)...)
				cmd.Dir = t.TempDir()
				var log bytes.Buffer
				cmd.Stdin, cmd.Stderr = bytes.NewReader(input.Bytes()), &log
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %s", err, &log)
				}
				checkLog(t, c[0], log.String())
				rest, status, _ := strings.Cut(log.String(), "status ")
				if want := fmt.Sprintf("%d\n", out.status); status != want || !strings.Contains(rest, out.message) {
					t.Errorf("status %q, standard error %q; want %q and %q", status, rest, want, out.message)
				}
			})
		}
	}
}

// fullDisk is a directory without room for more data until free is called.
func fullDisk(t *testing.T) (dir string, fill, free func()) {
	t.Helper()
	dir = t.TempDir()
	need.Mount(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	full := filepath.Join(dir, "full")
	fill = func() { _ = os.WriteFile(full, make([]byte, 1<<20), 0o600) }
	free = func() {
		if err := os.Remove(full); err != nil {
			t.Error(err)
		}
	}
	return dir, fill, free
}

// A full disk stops no stream: every tick comes out, failed saves are logged, and the old file is complete.
func TestFaultDiskFull(t *testing.T) {
	need.Root(t)
	t.Parallel()
	machine := newMachine(t, 3)
	dir, fill, free := fullDisk(t)
	made := newNumbered(2000, "")
	var input bytes.Buffer
	for n := range 20 {
		input.Write(made.line(n))
	}
	for _, c := range []struct {
		file    string
		status  int // a state that is lost at the end is a failure; lost metrics are not
		message string
		args    []string
	}{
		{"collect.json", 1, "no space left on device", []string{"collect", "--root", machine, "--interval", "10ms", "--count", "20", "--state"}},
		{"advise.json", 1, "no space left on device", []string{"advise", "--state"}},
		{"evict.json", 1, "no space left on device", []string{"evict", "--max-age", "1h", "--node", "n", "--state"}},
		{"node.prom", 0, "no space left on device", []string{"report", "--to", "prometheus", "--max-age", "1h", "--node", "n", "--metrics-file"}},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			path := filepath.Join(dir, c.file)
			args := append(slices.Clip(c.args), path)
			runTool(t, 0, input.Bytes(), args...)
			before, err := os.ReadFile(path)
			if err != nil || len(before) == 0 {
				t.Fatalf("%s: %q, %v", c.file, before, err)
			}
			fill()
			out, log := runTool(t, c.status, input.Bytes(), args...)
			free()
			// On a busy machine collect drops ticks that its reader is too slow for. It counts them, except the last ones.
			ticks, dropped, least := decodeAll(t, out, tick.SectionSample), 0, 20
			if last := ticks[len(ticks)-1].Sample; c.args[0] == "collect" && last != nil {
				dropped, least = int(last.DroppedTicks), 18
			}
			if all := len(ticks) + dropped; all < least || all > 20 {
				t.Errorf("%d ticks came out, and %d were dropped; want 20 in all", len(ticks), dropped)
			}
			if !strings.Contains(log, c.message) {
				t.Errorf("log = %q; want %q", clip(log, 1000), c.message)
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(after, before) {
				t.Errorf("%s is %q, %v; want the old one, whole: %q", c.file, after, err, before)
			}
			runTool(t, 0, input.Bytes(), args...) // with room again it continues
			if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
				t.Errorf("%v, %v are left", left, err)
			}
		})
	}
}

// Without room for the journal isolate writes no cgroup: it changes nothing that it could not restore.
func TestFaultJournalFull(t *testing.T) {
	need.Root(t)
	t.Parallel()
	own := group.New(t, nil, "full")
	dir, fill, free := fullDisk(t)
	journal := filepath.Join(dir, "journal")
	made := newNumbered(100, own.Name)
	args := []string{"isolate", "--node", "n", "--max-age", "1h", "--journal", journal}
	before := fmt.Sprint(isolated(t, own))
	put(t, journal, "") // it can be opened, but not written
	fill()
	out, _ := runTool(t, 0, made.line(1), args...)
	if !bytes.Contains(out, []byte("not written, because the original value could not be recorded")) || !bytes.Contains(out, []byte(`"applied":0`)) {
		t.Errorf("isolation = %s; want nothing applied, and the reason", clip(string(out), 2000))
	}
	if now := fmt.Sprint(isolated(t, own)); now != before {
		t.Errorf("the cgroup is %s; want it untouched, %s", now, before)
	}
	free()
	if out, _ = runTool(t, 0, made.line(2), args...); bytes.Contains(out, []byte(`"applied":0`)) {
		t.Errorf("with room again: %s", clip(string(out), 2000))
	}
	fill() // --restore needs no room
	_, log := runTool(t, 0, nil, "isolate", "--restore", "--if-exists", "--journal", journal)
	if now := fmt.Sprint(isolated(t, own)); now != before {
		t.Errorf("restored on a full disk the cgroup is %s; want %s: %s", now, before, log)
	}
}

// A state file that is torn anywhere, of another version or of another tool is logged and ignored.
func TestFaultTornState(t *testing.T) {
	t.Parallel()
	machine, dir := newMachine(t, 3), t.TempDir()
	made := newNumbered(2000, "")
	input := append(made.line(1), made.line(2)...)
	for _, args := range [][]string{
		{"collect", "--root", machine, "--once", "--once-over", "10ms"},
		{"advise"},
		{"evict", "--max-age", "1h", "--node", "n"},
	} {
		t.Run(args[0], func(t *testing.T) {
			path := filepath.Join(dir, args[0])
			args := append(slices.Clip(args), "--state", path)
			runTool(t, 0, input, args...)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			states := map[string][]byte{
				"empty":           nil,
				"another version": bytes.Replace(whole, []byte(`"version":`), []byte(`"version":9`), 1),
				"another tool":    bytes.Replace(whole, []byte(`"tool":"`), []byte(`"tool":"x`), 1),
				"an array":        []byte("[]\n"),
				"zeros":           make([]byte, 4096),
				"wrong types":     bytes.ReplaceAll(whole, []byte(`:"`), []byte(`:7,"x":"`)),
				"null inside":     bytes.Replace(whole, []byte(`"state":{`), []byte(`"state":null,"x":{`), 1),
				"deep":            []byte(strings.Repeat(`{"state":`, 100_000)),
			}
			for i := range 12 {
				states[fmt.Sprintf("torn at %d of 12", i)] = whole[:len(whole)*i/12]
			}
			for name, state := range states {
				put(t, path, string(state))
				out, log := runTool(t, 0, input, args...)
				if len(out) == 0 || log == "" && name != "null inside" {
					t.Errorf("%s: output %q, log %q; want ticks, and a log that it starts without it", name, clip(string(out), 200), log)
				}
				if again, err := os.ReadFile(path); err != nil || !bytes.Contains(again, []byte(`"version":`)) {
					t.Errorf("%s: the state at the end is %q, %v", name, clip(string(again), 200), err)
				}
			}
		})
	}
}

// A journal that is torn anywhere, or contains foreign lines, is read as far as it is valid, and nothing else is changed.
func TestFaultTornJournal(t *testing.T) {
	need.Root(t)
	t.Parallel()
	own := group.New(t, nil, "torn")
	beside := group.New(t, nil, "beside")
	first, untouched := fmt.Sprint(isolated(t, own)), fmt.Sprint(isolated(t, beside))
	journal := filepath.Join(t.TempDir(), "journal")
	line, err := tick.Marshal(tick.Tick{V: 1, Node: "n", Time: time.Now().UTC(), Advice: &tick.Advice{Cgroups: []tick.Cgroup{
		{Cgroup: own.Name, CPUMaxMilliCPU: new(int64(500)), MemoryMaxBytes: new(int64(1 << 30))},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	apply := func() []byte {
		t.Helper()
		runTool(t, 0, append(line, '\n'), "isolate", "--node", "n", "--max-age", "1h", "--journal", journal)
		data, err := os.ReadFile(journal)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	whole := apply()
	if bytes.Count(whole, []byte("\n")) < 2 {
		t.Fatalf("journal %q", whole)
	}
	foreign := func(from, to string) []byte {
		return append(bytes.ReplaceAll(whole, []byte(from), []byte(to)), whole...)
	}
	for name, text := range map[string][]byte{
		"garbage around":             append(append([]byte("\x00\xff{\"\n[]\nnull\n"), whole...), "{\"contr"...),
		"another file":               foreign(`"file":"`, `"file":"../`),
		"a file that is not written": foreign("cpu.cfs_quota_us", "cgroup.procs"),
		"a path that leads out":      foreign(own.Name, own.Name+"/../"+filepath.Base(beside.Name)),
		"another cgroup's name":      foreign(own.Name, beside.Name),
		"another boot":               foreign(`"boot":"`, `"boot":"x`),
		"huge numbers":               foreign(`"inode":`, `"inode":99999999999999999999`),
	} {
		put(t, journal, string(text))
		want := 0
		if name == "a file that is not written" || name == "huge numbers" { // these entries may be another version's, and stay
			want = 1
		}
		_, log := runTool(t, want, nil, "isolate", "--restore", "--if-exists", "--journal", journal)
		if now := fmt.Sprint(isolated(t, own)); now != first {
			t.Errorf("%s: after --restore %s; want %s: %s", name, now, first, log)
		}
		if now := fmt.Sprint(isolated(t, beside)); now != untouched {
			t.Fatalf("%s: another cgroup was written: %s; want %s", name, now, untouched)
		}
		if err := os.Remove(journal); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		whole = apply()
	}
	for i := range 12 { // torn: complete lines are restored or, where they are not known to be ours, left alone with status 1
		put(t, journal, string(whole[:len(whole)*i/12]))
		runTool(t, anyStatus, nil, "isolate", "--restore", "--if-exists", "--journal", journal)
		if now := fmt.Sprint(isolated(t, beside)); now != untouched {
			t.Fatalf("torn at %d of 12: another cgroup was written: %s", i, now)
		}
	}
}
