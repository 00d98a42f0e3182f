package supervisor

import (
	"bytes"
	"context"
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
	"polder/tests/pages"
	"polder/tests/processgroup"
)

// everyMinute is the schedule of the crontab's two pipes.
const everyMinute = "* * * * * root "

// cronPage is the page that describes the crontab.
const cronPage = "deploy/cron/README.md"

// The shipped crontab, installed as its page describes and run by a real cron: its lines run unchanged, the second run's rates cover the
// time since the first, and the page's last commands restore every value. cron runs a table at whole minutes; so that the test need not
// wait for them, it starts cron twice, with "@reboot" in place of "every minute". In its long form the test waits for the minutes.
func TestCron(t *testing.T) {
	need.Root(t)
	need.Program(t, "cron", "cron")
	need.Program(t, "script", "bsdutils")
	need.Mount(t)
	t.Parallel()
	blocks, _, err := pages.Of(cronPage)
	if err != nil {
		t.Fatal(err)
	}
	if len(blocks) != 2 || len(blocks[0].Examples) != 3 || len(blocks[1].Examples) != 2 {
		t.Fatalf("%s has the blocks %v; want one of three commands and one of two", cronPage, blocks)
	}
	table, err := os.ReadFile("../../deploy/cron/polder")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(table, []byte(everyMinute)) {
		t.Fatalf("the crontab has no %s", everyMinute)
	}
	m := newCronMachine(t)
	put(t, filepath.Join(m.dir, "deploy/cron/polder"), string(bytes.ReplaceAll(table, []byte(everyMinute), []byte(deep.Or("@reboot root ", everyMinute)))))
	state := filepath.Join(m.dir, "lib/polder")
	m.start(t)
	m.block(t, blocks[0])
	if !deep.Wanted() { // cron reads "@reboot" once
		m.start(t)
		m.ran(t, 1)
		m.start(t)
	}
	m.ran(t, 2)

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
	// A tick's time is that of its beginning. On a busy machine collect reads later than that, and so much later differs from run to run.
	if between := at[1].Sub(at[0]); (covered - between).Abs() > max(time.Second, between/2) {
		t.Errorf("the second tick's rates cover %s; want the %s since the first", covered, between)
	}
	for _, name := range []string{"collect.json", "advise.json", "evict.json"} {
		if _, err := os.Stat(filepath.Join(state, name)); err != nil {
			t.Errorf("state: %v", err)
		}
	}
	if stderr := strings.Join(lines(filepath.Join(state, "polder.err")), "\n"); strings.Contains(stderr, "level=ERROR") {
		t.Errorf("the tools log errors: %s", stderr)
	}
	if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the state's directory is %v, %v; want 0700", info, err)
	}
	m.block(t, blocks[1])
	if left, err := os.ReadDir(filepath.Join(m.dir, "cron.d")); err != nil || len(left) > 0 {
		t.Errorf("/etc/cron.d has %v, %v", left, err)
	}
}

// What any tool logs is in polder.err: cron mails what a line prints, once a minute.
func TestCronMailsNothing(t *testing.T) {
	table, err := os.ReadFile("../../deploy/cron/polder")
	if err != nil {
		t.Fatal(err)
	}
	programs, state := t.TempDir(), t.TempDir()
	for _, tool := range []string{"collect", "advise", "isolate", "evict", "report"} {
		script := "#!/bin/sh\ncat >/dev/null\necho " + tool + " warns >&2\n"
		if err := os.WriteFile(filepath.Join(programs, tool), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	wanted := []int{5, 6} // lines in polder.err after each line of the crontab
	for line := range strings.Lines(string(table)) {
		command, isRun := strings.CutPrefix(strings.TrimSpace(line), everyMinute)
		if !isRun {
			continue
		}
		cmd := exec.Command("sh", "-c", command)
		cmd.Env = []string{"PATH=" + programs + ":/usr/bin:/bin", "STATE=" + state}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("cron would mail %q (%v) of %s", out, err, command)
		}
		if logged := lines(filepath.Join(state, "polder.err")); len(wanted) == 0 || len(logged) != wanted[0] {
			t.Fatalf("polder.err has %q; want a line of each tool, in total %v", logged, wanted)
		}
		wanted = wanted[1:]
	}
	if len(wanted) > 0 {
		t.Errorf("the crontab lacks %d of its lines for every minute", len(wanted))
	}
}

// lines returns the lines of a file; none if it does not exist yet.
func lines(path string) []string {
	data, _ := os.ReadFile(path)
	return strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
}

// cronMachine is a mount namespace with its own tools and crontab directories, in which cron runs.
type cronMachine struct {
	dir  string // the reader's working directory; below it are the machine's directories, as they are seen from here
	cron *exec.Cmd
	log  await.Log
}

func newCronMachine(t *testing.T) *cronMachine {
	t.Helper()
	m := &cronMachine{dir: t.TempDir()}
	for _, name := range []string{"lib", "cron.d", "deploy/cron", "outputs"} {
		if err := os.MkdirAll(filepath.Join(m.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// cron reads its tables again when the directory's time has changed by a second or more. So that the table may be installed in the
	// second in which cron starts, the directory is old.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(m.dir, "cron.d"), old, old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.stop)
	return m
}

func (m *cronMachine) stop() {
	if m.cron != nil {
		_ = m.cron.Process.Kill()
		_ = m.cron.Wait()
	}
}

// start starts cron, as after a boot.
func (m *cronMachine) start(t *testing.T) {
	t.Helper()
	m.stop()
	const script = installed + `mount --bind "$DIR/lib" /var/lib
mount --bind "$DIR/cron.d" /etc/cron.d
mount -t tmpfs none /run
exec cron -f`
	m.cron = exec.Command("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", script)
	m.cron.Env = append(os.Environ(), "BIN="+bin, "REPO="+repository(t), "DIR="+m.dir)
	m.cron.Stdout, m.cron.Stderr = &m.log, &m.log
	if err := m.cron.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "cron runs", func() bool { _, err := m.run("pidof", "cron"); return err == nil }, m.log.String)
}

// run runs a command on the machine.
func (m *cronMachine) run(command ...string) (string, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", m.cron.Process.Pid))
	if err != nil || len(children) == 0 {
		return "", fmt.Errorf("cron is not up: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute) // stops a command that does not end
	defer cancel()
	enter := []string{"--target", strings.TrimSpace(string(children)), "--mount", "--pid", "--wdns=" + m.dir, "--"}
	out, err := processgroup.Command(ctx, "nsenter", append(enter, command...)...).CombinedOutput()
	return string(out), err
}

// block runs a block of the page as it is written.
func (m *cronMachine) block(t *testing.T, b pages.Block) {
	t.Helper()
	if out, err := m.run("bash", "-c", b.Script(filepath.Join(m.dir, "outputs"), nil)); err != nil {
		t.Fatalf("%s:%d: %v: %s", b.Page, b.Line, err, out)
	}
}

// ran waits until the table's lines have run so many times in total.
func (m *cronMachine) ran(t *testing.T, times int) {
	t.Helper()
	state := filepath.Join(m.dir, "lib/polder")
	await.Until(t, 8*time.Minute, fmt.Sprintf("cron has run the table %d times", times), func() string {
		recorded, shown := lines(filepath.Join(state, "ticks.jsonl")), lines(filepath.Join(state, "polder.log"))
		running, _ := m.run("pidof", "collect", "advise", "isolate", "evict", "report")
		if len(recorded) >= times && len(shown) >= times && running == "" { // the state is written at the end
			return ""
		}
		errors, _ := os.ReadFile(filepath.Join(state, "polder.err"))
		return fmt.Sprintf("%d ticks recorded, %d lines shown, %q run; cron logs %q, the tools %q", len(recorded), len(shown), running, m.log.String(), errors)
	})
}
