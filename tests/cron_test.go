package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/lib/tick/ticktest"
)

// needRoot skips on a developer's machine and fails in CI, where these tests must run.
func needRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("CI must run this as root")
	default:
		t.Skip("needs root")
	}
}

// The shipped crontab, given to a real cron: its lines run as they stand, and the second minute's rates cover the time
// since the first.
func TestCron(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes: not with -short")
	}
	needRoot(t)
	t.Parallel()
	state := t.TempDir()
	table, err := os.ReadFile("../deploy/cron/polder")
	if err != nil {
		t.Fatal(err)
	}
	for old, replacement := range map[string]string{"STATE=/var/lib/polder": "STATE=" + state, "PATH=": "PATH=" + bin + ":"} {
		if !bytes.Contains(table, []byte(old)) {
			t.Fatalf("the crontab has no %s", old)
		}
		table = bytes.Replace(table, []byte(old), []byte(replacement), 1)
	}

	// cron reads /etc/cron.d of its own mount namespace: a directory with our table alone lies over it there.
	crontabs := t.TempDir()
	if err := os.WriteFile(filepath.Join(crontabs, "polder"), table, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(crontabs, 0o755); err != nil {
		t.Fatal(err)
	}
	script := `mount --bind "$1" /etc/cron.d && mount -t tmpfs none /run && exec cron -f`
	cron := exec.Command("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh", crontabs)
	var log bytes.Buffer
	cron.Stdout, cron.Stderr = &log, &log
	if err := cron.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cron.Process.Kill()
		_ = cron.Wait()
	})

	recording := filepath.Join(state, "ticks.jsonl")
	lines := func(path string) []string {
		data, _ := os.ReadFile(path) // not there before the first minute
		return strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
	}
	// A minute's boundary, twice; the run itself takes a second.
	for deadline := time.Now().Add(150 * time.Second); len(lines(recording)) < 2 || len(lines(filepath.Join(state, "polder.log"))) < 3; time.Sleep(500 * time.Millisecond) {
		if time.Now().After(deadline) {
			errors, _ := os.ReadFile(filepath.Join(state, "polder.err"))
			t.Fatalf("cron has not run the table twice: recording %d lines; cron says %q, the tools %q", len(lines(recording)), &log, errors)
		}
	}
	ticks := lines(recording)
	if err := ticktest.ValidateAll([]byte(strings.Join(ticks, "\n"))); err != nil {
		t.Errorf("the recording: %v", err)
	}
	second, err := tick.ParseLine([]byte(ticks[1]))
	if err != nil {
		t.Fatal(err)
	}
	// cron starts its jobs within some seconds of the minute.
	if covered := second.Interval(); covered < 45*time.Second || covered > 75*time.Second {
		t.Errorf("the second tick's rates cover %s; want the minute since the first", covered)
	}
	for _, name := range []string{"collect.json", "advise.json", "evict.json"} {
		if _, err := os.Stat(filepath.Join(state, name)); err != nil {
			t.Errorf("state: %v", err)
		}
	}
	if said := lines(filepath.Join(state, "polder.err")); len(said) > 0 && strings.Contains(strings.Join(said, "\n"), "level=ERROR") {
		t.Errorf("the tools say: %q", said)
	}
}
