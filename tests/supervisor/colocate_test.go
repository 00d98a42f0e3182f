package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"polder/tests/await"
	"polder/tests/binaries"
	"polder/tests/need"
)

// However the pipe ends (Ctrl-C, SIGTERM, a stage that is killed), all of its processes end and every value is restored.
func TestColocatePutsEverythingBack(t *testing.T) {
	need.Root(t)
	t.Parallel()
	bin := t.TempDir() // other tests of this package run meanwhile, and their processes must survive
	if err := binaries.Link(bin); err != nil {
		t.Fatal(err)
	}
	c := newColocated(t, "colocate")
	before := c.limits()

	signal := func(s syscall.Signal) func(*testing.T, *exec.Cmd) {
		return func(t *testing.T, c *exec.Cmd) {
			if err := c.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	type end struct {
		name   string
		how    func(*testing.T, *exec.Cmd)
		status int
	}
	ends := []end{
		{"SIGINT", signal(syscall.SIGINT), 0},
		{"SIGTERM", signal(syscall.SIGTERM), 0},
	}
	for _, tool := range tools {
		ends = append(ends, end{tool + " killed", func(t *testing.T, _ *exec.Cmd) {
			for _, pid := range binaries.Running(t, bin, tool) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}, 1})
	}
	// The end of one stage must end the others, also one that does not react to SIGTERM.
	ends = append(ends, end{"evict killed, isolate stopped", func(t *testing.T, _ *exec.Cmd) {
		for _, x := range []struct {
			tool   string
			signal syscall.Signal
		}{{"isolate", syscall.SIGSTOP}, {"evict", syscall.SIGKILL}} {
			for _, pid := range binaries.Running(t, bin, x.tool) {
				if err := syscall.Kill(pid, x.signal); err != nil {
					t.Fatal(err)
				}
			}
		}
	}, 1})
	for _, end := range ends {
		t.Run(end.name, func(t *testing.T) {
			colocate := exec.Command("../../scripts/colocate", "--interval", "200ms", "--classify", c.classify, "--", "--to", "table")
			colocate.Env = append(os.Environ(), "POLDER_BIN="+bin, "TMPDIR="+t.TempDir())
			var out, log await.Log
			colocate.Stdout, colocate.Stderr = &out, &log
			if err := colocate.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the batch job is confined", func() bool { return c.limits() != before }, log.String)
			// The first tick has no rates: batch's usage is counted from the second one on.
			eventually(t, "a header and three ticks", func() bool { return strings.Count(out.String(), "\n") >= 4 }, log.String)
			end.how(t, colocate)
			var exit *exec.ExitError
			if err := colocate.Wait(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := colocate.ProcessState.ExitCode(); got != end.status {
				t.Errorf("exit status %d; want %d: %s", got, end.status, &log)
			}
			stage, _, _ := strings.Cut(end.name, " ")
			if want := "colocate: " + stage + " ended with status 137"; end.status == 1 && !strings.Contains(log.String(), want) {
				t.Errorf("stderr = %q; want it to name the stage", &log)
			}
			if end.name != "report killed" && !strings.Contains(log.String(), "colocate: batch got ") {
				t.Errorf("stderr = %q; want batch's usage in it", &log)
			}
			if after := c.limits(); after != before {
				t.Errorf("limits = %s; want them as before, %s: %s", after, before, &log)
			}
			if left := binaries.Running(t, bin, tools...); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

// What evict has frozen runs again when the pipe has ended.
func TestColocateThaws(t *testing.T) {
	need.Root(t)
	t.Parallel()
	bin := t.TempDir()
	if err := binaries.Link(bin); err != nil {
		t.Fatal(err)
	}
	c := newColocated(t, "freezing")
	const requests = "    requests: {reclaimedMilliCPU: 90000}\n" // more than any offer: the pod is evicted
	const rules = "rules:\n  - {cgroup: %s, class: shared}\n  - cgroup: %s\n    class: reclaimed\n%s"
	put(t, c.classify, fmt.Sprintf(rules, c.service.Name, c.batch.Name, requests))
	settings := filepath.Join(t.TempDir(), "evict.yaml")
	put(t, settings, "reclaimed-tolerance: 0s\n")
	colocate := exec.Command("../../scripts/colocate", "--interval", "200ms", "--classify", c.classify,
		"--evict", settings, "--action", "freeze")
	colocate.Env = append(os.Environ(), "POLDER_BIN="+bin, "TMPDIR="+t.TempDir())
	var log await.Log
	colocate.Stdout, colocate.Stderr = &log, &log
	if err := colocate.Start(); err != nil {
		t.Fatal(err)
	}
	state := func() string { return strings.TrimSpace(c.batch.Read("freezer.state", "cgroup.freeze")) }
	eventually(t, "the batch job is frozen", func() bool { return state() == "FROZEN" || state() == "1" }, log.String)
	if err := colocate.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := colocate.Wait(); err != nil {
		t.Errorf("%v: %s", err, &log)
	}
	if got := state(); got != "THAWED" && got != "0" {
		t.Errorf("the batch job is %s after the end: %s", got, &log)
	}
	if want := "thawed " + c.batch.Name; !strings.Contains(log.String(), want) {
		t.Errorf("stderr = %q; want %q", &log, want)
	}
}

// unreaped is process 1 of a container that reaps nobody: an orphan that has ended stays in its process group.
const unreaped = `{
	../../scripts/colocate --interval 200ms --classify "$CLASSIFY" -- --to table >"$WORK/out" 2>"$WORK/log" &
	pid=$!
	until [ -e "$WORK/end" ]; do sleep 0.1; done
	eval "$END"
	wait "$pid"
	echo $? >"$WORK/status.new"
	mv "$WORK/status.new" "$WORK/status"
} &
exec sleep infinity
`

// Where process 1 reaps nobody, colocate ends and restores as elsewhere, also if somebody has killed the leader of its process group.
func TestColocateWhereNobodyReaps(t *testing.T) {
	need.Root(t)
	need.Mount(t)
	t.Parallel()
	for name, end := range map[string]string{
		"SIGTERM":           `kill -TERM "$pid"`,
		"a tool is killed":  `pkill -KILL -x evict`,
		"leader killed":     `kill -KILL "$(ps -o pgid= -p "$(pgrep -x collect)" | tr -d " ")"`,
		"a stage is killed": `kill -KILL "$(ps -o ppid= -p "$(pgrep -x advise)" | tr -d " ")"; kill -TERM "$pid"`,
	} {
		t.Run(name, func(t *testing.T) {
			bin, work := t.TempDir(), t.TempDir()
			if err := binaries.Link(bin); err != nil {
				t.Fatal(err)
			}
			c := newColocated(t, "reaper-"+strings.ReplaceAll(name, " ", "-"))
			before := c.limits()
			first := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", unreaped)
			first.Env = append(os.Environ(), "POLDER_BIN="+bin, "TMPDIR="+t.TempDir(), "WORK="+work, "CLASSIFY="+c.classify, "END="+end)
			first.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = first.Process.Kill()
				_ = first.Wait()
			})
			text := func(name string) string {
				data, _ := os.ReadFile(filepath.Join(work, name)) // it may not exist yet
				return string(data)
			}
			log := func() string { return text("log") }
			eventually(t, "the batch job is confined", func() bool { return c.limits() != before }, log)
			eventually(t, "a header and three ticks", func() bool { return strings.Count(text("out"), "\n") >= 4 }, log)
			put(t, filepath.Join(work, "end"), "")
			eventually(t, "colocate has ended", func() bool { return text("status") != "" }, log)
			if want := "0\n"; name == "SIGTERM" && text("status") != want {
				t.Errorf("exit status %q; want %q: %s", text("status"), want, log())
			}
			if after := c.limits(); after != before {
				t.Errorf("limits = %s; want them as before, %s: %s", after, before, log())
			}
			if left := binaries.Running(t, bin, tools...); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}
