package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// packaged is the machine with systemd on which Polder is installed by its .deb, and removed.
var packaged = suite{
	name: "package", doc: "the .deb on Debian: installed, started, looked at, removed",
	mount: func() error { return nil }, // systemd has mounted them
	tests: []test{
		{"installed", packageInstalled},
		{"started", packageStarted},
		{"screen", packageScreen},
		{"upgraded", packageUpgraded},
		{"removed", packageRemoved},
		{"purged", packagePurged},
	},
}

const debFile = "/root/polder.deb"

func (t *T) run(words ...string) string {
	out, err := run(words...)
	t.Must(err)
	return out
}

// packageInstalled installs it: all files exist, and no unit runs.
func packageInstalled(t *T) {
	if !within(func() bool {
		state, _ := run("systemctl", "is-system-running")
		return state == "running" || state == "degraded"
	}) {
		t.Fatalf("the system does not come up")
	}
	t.Logf("%s", t.run("dpkg", "--install", debFile))
	t.equal("ActiveState", each("ActiveState"), all("inactive"))
	if out, _ := run("systemctl", "is-enabled", "polder.target"); out != "disabled" {
		t.Errorf("polder.target is %s", out)
	}
	t.Logf("%s", t.run("collect", "--version"))
	t.run("collect", "--check-config", "/etc/polder/classify.yaml")
	t.run("systemd-analyze", "verify", "--man=no", "polder.target", "polder.service", "polder-restore.service", "polder-heartbeat.timer")
	if out := t.run("stat", "-c", "%A %U:%G", "/run/polder/1.fifo"); out != "prw-rw---- root:polder" {
		t.Errorf("the FIFOs are %s", out)
	}
	if out := t.run("dpkg", "--verify", "polder"); out != "" {
		t.Errorf("dpkg --verify: %s", out)
	}
}

// packageStarted starts it beside a batch job, which gets limits.
func packageStarted(t *T) {
	t.run("systemd-run", "--unit=job", "--slice=batch.slice", "/usr/bin/guest", "spin", "1")
	if !within(func() bool { return show("job.service", "ActiveState") == "active" }) {
		t.Fatalf("no job in batch.slice")
	}
	var err error
	atFirst, err = values(batchSlice)
	t.Must(err)
	t.run("systemctl", "start", "polder.target")
	t.flows("after systemctl start polder.target")
	t.equal("ActiveState", each("ActiveState"), all("active"))
	if !within(func() bool { return !maps.Equal(atFirst, t.values()) }) {
		t.Fatalf("nothing of batch.slice has changed: %s", unitLogs())
	}
}

// screen is a program's output on a terminal.
type screen struct {
	mu    sync.Mutex
	drawn bytes.Buffer
}

func (s *screen) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drawn.Write(data)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drawn.String()
}

// packageScreen shows the stream in place of report, as docs/supervisor.md describes, on its own terminal.
func packageScreen(t *T) {
	t.run("systemctl", "stop", unit("report"))
	s := &screen{}
	report := exec.Command("script", "--quiet", "--command", "stty rows 40 cols 120; exec report --to tty --input fifo:/run/polder/4.fifo", "/dev/null")
	report.Stdout, report.Stderr = s, s
	input, err := report.StdinPipe() // its end would be the terminal's
	t.Must(err)
	t.Must(report.Start())
	if !within(func() bool {
		return strings.Contains(s.String(), "\x1b[") && strings.Contains(s.String(), "batch.slice") && strings.Contains(s.String(), "node-8")
	}) {
		t.Errorf("the screen is %q", s)
	}
	t.Send("screen", []byte(s.String()))
	_ = report.Process.Kill() // its terminal ends with it, and report by SIGHUP
	_ = report.Wait()
	input.Close()
	if !within(func() bool { out, _ := run("pgrep", "-x", "report"); return out == "" }) {
		t.Errorf("report runs without its terminal")
	}
	// The watch for silence ignores a tool that was stopped on purpose.
	pids := each("MainPID")
	t.run("systemctl", "start", "polder-heartbeat.service")
	t.equal("processes", each("MainPID"), pids)
	t.run("systemctl", "start", unit("report"))
	t.flows("after a look at the screen")
}

// packageUpgraded installs it again: running units are restarted, and limits stay in force.
func packageUpgraded(t *T) {
	before, pids := t.values(), each("MainPID")
	t.run("dpkg", "--install", debFile)
	t.flows("after the upgrade")
	now := each("MainPID")
	for tool, pid := range now {
		if pid == pids[tool] || pid == "0" {
			t.Errorf("%s runs as process %s, before the upgrade as %s", tool, pid, pids[tool])
		}
	}
	if maps.Equal(atFirst, t.values()) {
		t.Errorf("batch.slice has what it had before Polder; want its limits to stay %v", before)
	}
}

// packageRemoved removes it while it runs: the cgroups are restored, and no program is left.
func packageRemoved(t *T) {
	t.Logf("%s", t.run("dpkg", "--remove", "polder"))
	t.same(atFirst, t.values())
	for _, unit := range []string{"polder.target", "polder-isolate.service", "polder-heartbeat.timer"} {
		if got := show(unit, "LoadState") + " " + show(unit, "ActiveState"); got != "not-found inactive" {
			t.Errorf("%s is %s", unit, got)
		}
	}
	for _, tool := range tools {
		if out, _ := run("pgrep", "-x", tool); out != "" {
			t.Errorf("%s still runs: %s", tool, out)
		}
		if _, err := os.Stat("/usr/bin/" + tool); err == nil {
			t.Errorf("/usr/bin/%s is still there", tool)
		}
	}
	if _, err := os.Stat("/etc/polder/polder.env"); err != nil {
		t.Errorf("the configuration was removed without --purge: %v", err)
	}
}

// packagePurged removes configuration, states and group.
func packagePurged(t *T) {
	t.Logf("%s", t.run("dpkg", "--purge", "polder"))
	left := t.run("find", "/", "-xdev", "(", "-path", "/proc", "-o", "-path", "/sys", ")", "-prune", "-o", "-name", "*polder*", "-print")
	for line := range strings.SplitSeq(left, "\n") {
		// The package itself, the test's own settings, and systemd's files of a cgroup or a run.
		if line != "" && line != debFile && !strings.HasPrefix(line, "/etc/systemd/system/") && !strings.HasPrefix(line, "/run/") && !strings.HasPrefix(line, "/var/log/") {
			t.Errorf("left behind: %s", line)
		}
	}
	if out, err := run("getent", "group", "polder"); err == nil {
		t.Errorf("the group is still there: %s", out)
	}
	t.run("systemctl", "stop", "job.service")
}
