package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/lib/tick/ticktest"
	"polder/tests/await"
	"polder/tests/deep"
	"polder/tests/need"
)

// everyMinute is how the crontab says when its two pipes run.
const everyMinute = "* * * * * root "

// The shipped crontab, given to a real cron: its lines run as they stand, and the second run's rates cover the time since the
// first. cron runs a table at whole minutes; so that the test need not wait for them, cron is started twice, and the lines say
// "@reboot" where the table says "every minute". In its long form the test waits for the minutes.
func TestCron(t *testing.T) {
	need.Root(t)
	need.Program(t, "cron", "cron")
	need.Mount(t)
	t.Parallel()
	state := t.TempDir()
	table, err := os.ReadFile("../../deploy/cron/polder")
	if err != nil {
		t.Fatal(err)
	}
	for old, replacement := range map[string]string{"STATE=/var/lib/polder": "STATE=" + state, "PATH=": "PATH=" + bin + ":", everyMinute: deep.Or("@reboot root ", everyMinute)} {
		if !bytes.Contains(table, []byte(old)) {
			t.Fatalf("the crontab has no %s", old)
		}
		table = bytes.ReplaceAll(table, []byte(old), []byte(replacement))
	}
	// cron reads /etc/cron.d of its own mount namespace: a directory with our table alone lies over it there.
	crontabs := t.TempDir()
	put(t, filepath.Join(crontabs, "polder"), string(table))
	if err := os.Chmod(crontabs, 0o755); err != nil {
		t.Fatal(err)
	}
	if !deep.Wanted() {
		runCron(t, crontabs, state, 1)
	}
	runCron(t, crontabs, state, 2)

	ticks := lines(filepath.Join(state, "ticks.jsonl"))
	if err := ticktest.ValidateAll([]byte(strings.Join(ticks, "\n"))); err != nil {
		t.Errorf("the recording: %v", err)
	}
	var at []time.Time
	var covered time.Duration
	for _, line := range ticks[:2] {
		x, err := tick.ParseLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		at, covered = append(at, x.Time), x.Interval()
	}
	if between := at[1].Sub(at[0]); (covered - between).Abs() > time.Second {
		t.Errorf("the second tick's rates cover %s; want the %s since the first", covered, between)
	}
	for _, name := range []string{"collect.json", "advise.json", "evict.json"} {
		if _, err := os.Stat(filepath.Join(state, name)); err != nil {
			t.Errorf("state: %v", err)
		}
	}
	if said := strings.Join(lines(filepath.Join(state, "polder.err")), "\n"); strings.Contains(said, "level=ERROR") {
		t.Errorf("the tools say: %s", said)
	}
}

// lines are those of a file; none where it is not there yet.
func lines(path string) []string {
	data, _ := os.ReadFile(path)
	return strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
}

// runCron runs cron on a directory of crontabs until its lines have run so many times in all.
func runCron(t *testing.T, crontabs, state string, times int) {
	t.Helper()
	need.Mount(t)
	script := `mount --bind "$1" /etc/cron.d && mount -t tmpfs none /run && exec cron -f`
	cron := exec.Command("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh", crontabs)
	var log await.Log
	cron.Stdout, cron.Stderr = &log, &log
	if err := cron.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cron.Process.Kill()
		_ = cron.Wait()
	}()
	await.Until(t, 4*time.Minute, fmt.Sprintf("cron has run the table %d times", times), func() string {
		recorded, shown := lines(filepath.Join(state, "ticks.jsonl")), lines(filepath.Join(state, "polder.log"))
		running := started(t, state)
		if len(recorded) >= times && len(shown) >= times && len(running) == 0 { // state is written at the end
			return ""
		}
		errors, _ := os.ReadFile(filepath.Join(state, "polder.err"))
		return fmt.Sprintf("%d ticks recorded, %d lines shown, %v run; cron says %q, the tools %q", len(recorded), len(shown), running, log.String(), errors)
	})
}
