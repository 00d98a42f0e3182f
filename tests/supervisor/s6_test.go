package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick/ticktest"
	"polder/tests/await"
	"polder/tests/binaries"
	"polder/tests/group"
	"polder/tests/need"
)

// supervised is a limit for what takes a second or two on an idle machine.
const supervised = 3 * time.Minute

// eventually waits for condition, and fails with what it waited for, and diagnosis's text.
func eventually(t *testing.T, what string, condition func() bool, diagnosis func() string) {
	t.Helper()
	await.Until(t, supervised, what, func() string {
		if condition() {
			return ""
		}
		return "it is not so yet\n" + diagnosis()
	})
}

// started finds the tools' processes whose command line contains dir.
func started(t *testing.T, dir string) map[string]int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, link := range links {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			t.Fatal(err)
		}
		target := binaries.Program(pid)
		if filepath.Dir(target) != bin {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(dir)) {
			continue
		}
		found[filepath.Base(target)] = pid
	}
	return found
}

// onlyChild is the process that pid started.
func onlyChild(t *testing.T, pid int) int {
	t.Helper()
	child := 0
	eventually(t, fmt.Sprintf("process %d has a child", pid), func() bool {
		list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		child, _ = strconv.Atoi(strings.TrimSpace(string(list)))
		return child != 0
	}, func() string { return "" })
	return child
}

// newest is the time of the last whole tick in a file.
func newest(path string) time.Time {
	data, _ := os.ReadFile(path) // it may not exist yet, or is being replaced
	data = data[:bytes.LastIndexByte(data, '\n')+1]
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	var last struct{ Time time.Time }
	_ = json.Unmarshal(lines[len(lines)-1], &last)
	return last.Time
}

// colocated is a cgroup with a busy service and a busy batch job, and the rules that name them.
type colocated struct {
	top, service, batch *group.Group
	classify            string
}

func newColocated(t *testing.T, name string) *colocated {
	t.Helper()
	c := &colocated{top: group.New(t, nil, name)}
	c.service, c.batch = group.New(t, c.top, "service"), group.New(t, c.top, "batch")
	c.service.Busy(t)
	c.batch.Busy(t)
	c.classify = filepath.Join(t.TempDir(), "classify.yaml")
	put(t, c.classify, fmt.Sprintf("rules:\n  - {cgroup: %s, class: shared}\n  - {cgroup: %s, class: reclaimed}\n", c.service.Name, c.batch.Name))
	return c
}

func (c *colocated) limits() string { return c.service.Limits() + c.batch.Limits() }

// s6 is the manifest of deploy/s6, running in directories of the test.
type s6 struct {
	dir, settings, ticks string
	cmd                  *exec.Cmd
	log                  bytes.Buffer
	ended                chan struct{}
}

// startS6 runs deploy/s6/start, behind the command wrapper if there is one.
func startS6(t *testing.T, settings []string, environment []string, wrapper ...string) *s6 {
	t.Helper()
	s := &s6{dir: t.TempDir()}
	s.settings, s.ticks = filepath.Join(s.dir, "polder.env"), filepath.Join(s.dir, "ticks")
	put(t, s.settings, strings.Join(append(settings, "POLDER_COLLECT_INTERVAL=200ms", "POLDER_REPORT_OUTPUT="+s.ticks), "\n")+"\n")
	start, err := filepath.Abs("../../deploy/s6/start")
	if err != nil {
		t.Fatal(err)
	}
	command := append(wrapper, start)
	s.cmd = exec.Command(command[0], command[1:]...)
	s.cmd.Env = append(os.Environ(), "POLDER_BIN="+bin, "POLDER_RUN="+filepath.Join(s.dir, "run"), "POLDER_STATE="+filepath.Join(s.dir, "state"), "POLDER_ENV="+s.settings)
	s.cmd.Env = append(s.cmd.Env, environment...)
	s.begin(t)
	return s
}

// again runs the same command in the same directories.
func (s *s6) again(t *testing.T) *s6 {
	t.Helper()
	next := &s6{dir: s.dir, settings: s.settings, ticks: s.ticks, cmd: exec.Command(s.cmd.Path, s.cmd.Args[1:]...)}
	next.cmd.Env = s.cmd.Env
	next.begin(t)
	return next
}

// begin starts the command, and ends it after the test.
func (s *s6) begin(t *testing.T) {
	t.Helper()
	s.ended = make(chan struct{})
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no process outlives a killed test
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // the tests check the state
		close(s.ended)
	}()
	t.Cleanup(func() {
		select {
		case <-s.ended:
		default:
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-s.ended:
			case <-time.After(supervised):
				_ = s.cmd.Process.Kill()
			}
		}
		for _, pid := range started(t, s.dir) {
			t.Errorf("process %d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}

// logs is the output of s6 and the tools; the command's own buffer must not be read while it runs.
func (s *s6) logs() string {
	select {
	case <-s.ended:
		return s.log.String()
	default:
		return "(the log is shown when s6 has ended)"
	}
}

func (s *s6) flows(t *testing.T, what string) {
	t.Helper()
	from := time.Now()
	eventually(t, "ticks come through "+what, func() bool { return newest(s.ticks).After(from) }, s.logs)
}

// Under s6, as process 1 of a pid namespace as in a container: whichever tool is killed is restarted, its neighbours do not
// notice, and SIGTERM ends everything and restores the cgroups.
func TestS6(t *testing.T) {
	need.Mount(t)
	t.Parallel()
	need.Program(t, "s6-svscan", "s6")
	c := newColocated(t, "s6")
	before := c.limits()
	s := startS6(t, []string{"POLDER_COLLECT_CLASSIFY=" + c.classify, "POLDER_RESTORE=1"}, nil,
		"unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
	s.flows(t, "at first")
	eventually(t, "the batch job is confined", func() bool { return c.limits() != before }, s.logs)

	info, err := os.Stat(filepath.Join(s.dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o750 {
		t.Errorf("the directory of the FIFOs has mode %o; want 750", got)
	}
	for tool, pid := range started(t, s.dir) {
		if slack, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid)); err != nil || strings.TrimSpace(string(slack)) != "1000000" {
			t.Errorf("%s has a timer slack of %q ns, %v; want 1 ms", tool, slack, err)
		}
	}
	// A panic ends like SIGABRT: it is not a configuration error, though Go's exit status is the same.
	ends := []struct {
		tool   string
		signal syscall.Signal
	}{{"advise", syscall.SIGABRT}}
	for _, tool := range tools {
		ends = append(ends, struct {
			tool   string
			signal syscall.Signal
		}{tool, syscall.SIGKILL})
	}
	for _, end := range ends {
		tool := end.tool
		t.Run(fmt.Sprintf("%s %s", tool, end.signal), func(t *testing.T) {
			was := started(t, s.dir)
			if len(was) != len(tools) {
				t.Fatalf("processes %v; want one of each tool", was)
			}
			at := time.Now()
			if err := syscall.Kill(was[tool], end.signal); err != nil {
				t.Fatal(err)
			}
			var is map[string]int
			eventually(t, tool+" is back", func() bool {
				is = started(t, s.dir)
				return is[tool] != 0 && is[tool] != was[tool]
			}, s.logs)
			t.Logf("back after %s", time.Since(at).Round(10*time.Millisecond))
			want := maps.Clone(was)
			want[tool] = is[tool]
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("the neighbours' processes (-want +got):\n%s", diff)
			}
			s.flows(t, "after "+tool+" was "+end.signal.String())
		})
	}
	eventually(t, "alive sees a tick of the last five seconds", func() bool { _, err := s.alive("5"); return err == nil }, s.logs)

	if err := syscall.Kill(onlyChild(t, s.cmd.Process.Pid), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.ended:
	case <-time.After(supervised):
		t.Fatalf("s6-svscan has not ended %s after SIGTERM", supervised)
	}
	if got := s.cmd.ProcessState.ExitCode(); got != 0 {
		t.Errorf("exit status %d; want 0: %s", got, s.logs())
	}
	if left := started(t, s.dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if diff := cmp.Diff(before, c.limits()); diff != "" {
		t.Errorf("limits after the end (-before +after):\n%s%s", diff, s.logs())
	}
	data, err := os.ReadFile(s.ticks)
	if err != nil {
		t.Fatal(err)
	}
	if err := ticktest.ValidateAll(bytes.TrimSpace(data)); err != nil {
		t.Errorf("the ticks: %v", err)
	}
}

// stopAll is the package's script in a machine with Polder installed, without systemd and journals.
const stopAll = installed + `
for place in /var/lib /run; do mount -t tmpfs none $place; done
exec "$REPO/deploy/package/stop"
`

// A killed s6-svscan leaves its supervisors and their tools running. The next start, and a removal, end them.
func TestS6SvscanKilled(t *testing.T) {
	need.Mount(t)
	t.Parallel()
	need.Program(t, "s6-svscan", "s6")
	s := startS6(t, []string{"POLDER_ISOLATE_DRY_RUN=true"}, []string{"POLDER_LOG=" + filepath.Join(t.TempDir(), "log")})
	s.flows(t, "at first")
	t.Cleanup(func() { _ = exec.Command("../../deploy/s6/end", filepath.Join(s.dir, "run/service")).Run() }) // of a failed test
	kill := func() map[string]int {
		t.Helper()
		was := started(t, s.dir)
		if len(was) != len(tools) {
			t.Fatalf("processes %v; want one of each tool", was)
		}
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		// Until then another one is refused.
		isGone := func() bool { return errors.Is(s.cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) }
		eventually(t, "the killed s6-svscan is gone", isGone, func() string { return "" })
		return was
	}
	// The supervisors also hold the output open: the command has ended only when they have.
	ended := func(was map[string]int) {
		t.Helper()
		select {
		case <-s.ended:
		case <-time.After(supervised):
			t.Fatalf("a supervisor of the killed s6-svscan still runs after %s", supervised)
		}
		for tool, pid := range was {
			if filepath.Dir(binaries.Program(pid)) == bin {
				t.Errorf("%s of the killed s6-svscan still runs", tool)
			}
		}
	}
	was := kill()
	next := s.again(t)
	ended(was)
	next.flows(t, "after s6-svscan was started again")

	s = next
	was = kill()
	stop := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", stopAll)
	stop.Env = append(os.Environ(), "BIN="+bin, "REPO="+repository(t), "POLDER_RUN="+filepath.Join(s.dir, "run"),
		"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	if out, err := stop.CombinedOutput(); err != nil {
		t.Errorf("stop: %v: %s", err, out)
	}
	ended(was)
}

func (s *s6) alive(limit string) ([]byte, error) {
	alive := exec.Command("../../deploy/s6/alive", limit)
	alive.Env = append(os.Environ(), "POLDER_RUN="+filepath.Join(s.dir, "run"))
	return alive.CombinedOutput()
}

// A tool with an invalid configuration stays down and logs the reason once; the others continue. After a correction, s6-svc
// restarts it.
func TestS6ConfigurationError(t *testing.T) {
	need.Root(t)
	t.Parallel()
	need.Program(t, "s6-svscan", "s6")
	bad := []struct {
		tool, setting, message string
	}{
		{"advise", "POLDER_ADVISE_POLICY=guess", `POLDER_ADVISE_POLICY "guess" (--policy): want one of katalyst, koordinator, harvest`},
		{"evict", "POLDER_EVICT_ACTION=ask", "want one of log, evict, delete, freeze, kill"},
	}
	for _, b := range bad {
		t.Run(b.tool, func(t *testing.T) {
			logs := filepath.Join(t.TempDir(), "log")
			s := startS6(t, []string{"POLDER_ISOLATE_DRY_RUN=true", b.setting}, []string{"POLDER_LOG=" + logs})
			current := func() string {
				data, _ := os.ReadFile(filepath.Join(logs, b.tool, "current")) // it may not exist yet
				return string(data)
			}
			eventually(t, b.tool+" stays down", func() bool { return strings.Contains(current(), "it stays down") }, current)
			// s6 does not start what it does not want up; "up" alone may be between two attempts. s6 learns of it once finish, which
			// has written the line, has ended.
			state := func() string {
				out, err := exec.Command("s6-svstat", "-o", "up,wantedup", filepath.Join(s.dir, "run/service", b.tool)).CombinedOutput()
				return fmt.Sprintf("%s, %v", strings.TrimSpace(string(out)), err)
			}
			eventually(t, b.tool+" is neither up nor wanted up", func() bool { return state() == "false false, <nil>" }, state)
			eventually(t, "the others run", func() bool { return len(started(t, s.dir)) == len(tools)-1 }, current)
			if got := current(); strings.Count(got, "it stays down") != 1 || !strings.Contains(got, b.message) {
				t.Errorf("%s's log = %q; want %q, once", b.tool, got, b.message)
			}
			running := started(t, s.dir)
			if _, up := running[b.tool]; up || len(running) != len(tools)-1 {
				t.Errorf("processes %v; want all but %s", running, b.tool)
			}

			put(t, s.settings, "POLDER_COLLECT_INTERVAL=200ms\nPOLDER_ISOLATE_DRY_RUN=true\n")
			if out, err := exec.Command("s6-svc", "-u", filepath.Join(s.dir, "run/service", b.tool)).CombinedOutput(); err != nil {
				t.Fatalf("s6-svc: %v: %s", err, out)
			}
			eventually(t, b.tool+" is up", func() bool { return started(t, s.dir)[b.tool] != 0 }, current)
			s.flows(t, "after "+b.setting+" was mended")
		})
	}
}

// The liveness check: no tick yet, a new one, a stale one, one in the future of a clock that was changed.
func TestS6Alive(t *testing.T) {
	checks := []struct {
		name string
		age  time.Duration
		none bool
		ok   bool
	}{
		{"no tick yet", 0, true, false},
		{"just now", 0, false, true},
		{"an hour ago", time.Hour, false, false},
		{"in an hour", -time.Hour, false, false},
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			s := &s6{dir: t.TempDir()}
			if !c.none {
				beat := filepath.Join(s.dir, "run-report/heartbeat")
				if err := os.MkdirAll(filepath.Dir(beat), 0o755); err != nil {
					t.Fatal(err)
				}
				put(t, beat, "")
				at := time.Now().Add(-c.age)
				if err := os.Chtimes(beat, at, at); err != nil {
					t.Fatal(err)
				}
			}
			out, err := s.alive("600")
			if (err == nil) != c.ok {
				t.Errorf("alive = %v, %q; want ok %t", err, out, c.ok)
			}
			if err != nil && !strings.HasPrefix(string(out), "alive: ") {
				t.Errorf("alive prints %q; want a reason", out)
			}
		})
	}
}

// Every tool has a directory, and all finish scripts are the same.
func TestS6Manifest(t *testing.T) {
	want, err := os.ReadFile("../../deploy/s6/service/collect/finish")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		for _, script := range []string{"run", "finish"} {
			path := filepath.Join("../../deploy/s6/service", tool, script)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o111 == 0 {
				t.Errorf("%s is not executable (%v)", path, err)
			}
			if diff := cmp.Diff(string(want), string(data)); script == "finish" && diff != "" {
				t.Errorf("%s is not collect's (-collect +got):\n%s", path, diff)
			}
			if script == "run" && (bytes.Count(data, []byte("\n")) != 3 || !bytes.Contains(data, []byte("\nexec "+tool+" --"))) {
				t.Errorf("%s = %q; want three lines that end as the tool", path, data)
			}
		}
	}
}

// Under a service manager a tool reports when it is ready, feeds the watchdog with every tick and without ticks, and reports when
// it stops (sd_notify(3)).
func TestNotify(t *testing.T) {
	const tickLine = `{"v":1,"node":"n1","time":"2026-11-21T10:00:00Z","sample":{}}` + "\n"
	commands := []struct {
		name string
		args []string
	}{
		{"collect", []string{"--interval", "100ms"}},
		{"advise", nil},
		{"isolate", []string{"--dry-run"}},
		{"evict", []string{"--dry-run"}},
		{"report", []string{"--to", "table"}},
	}
	for _, c := range commands {
		t.Run(c.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "notify")
			listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			next := func() string {
				t.Helper()
				word := make([]byte, 256)
				if err := listener.SetReadDeadline(time.Now().Add(supervised)); err != nil {
					t.Fatal(err)
				}
				n, err := listener.Read(word)
				if err != nil {
					t.Fatal(err)
				}
				return string(word[:n])
			}

			fifo := filepath.Join(t.TempDir(), "in.fifo")
			args := c.args
			if c.name != "collect" {
				args = append(args, "--input", fifo)
			}
			tool := exec.Command(filepath.Join(bin, c.name), args...)
			// Half an hour: only ticks feed the watchdog. The test below covers missing ticks.
			tool.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=1800000000")
			var log bytes.Buffer
			tool.Stderr = &log
			if err := tool.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = tool.Process.Kill()
				_ = tool.Wait()
			})
			got := []string{next()}
			if c.name != "collect" {
				if f, err := os.OpenFile(fifo, os.O_WRONLY, 0); err != nil {
					t.Fatal(err)
				} else if _, err := f.WriteString(tickLine); err != nil {
					t.Fatal(err)
				}
			}
			got = append(got, next())
			if err := tool.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			last := next()
			for last == "WATCHDOG=1" { // collect's next ticks
				last = next()
			}
			if diff := cmp.Diff([]string{"READY=1", "WATCHDOG=1", "STOPPING=1"}, append(got, last)); diff != "" {
				t.Errorf("its notifications (-want +got):\n%s%s", diff, &log)
			}
			if err := tool.Wait(); err != nil {
				t.Errorf("%v: %s", err, &log)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "notify")
		listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		tool := exec.Command(filepath.Join(bin, "advise"), "--input", filepath.Join(t.TempDir(), "in.fifo"))
		tool.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=300000")
		if err := tool.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = tool.Process.Kill()
			_ = tool.Wait()
		}()
		for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
			word := make([]byte, 64)
			if err := listener.SetReadDeadline(time.Now().Add(supervised)); err != nil {
				t.Fatal(err)
			}
			n, err := listener.Read(word)
			if err != nil || string(word[:n]) != want {
				t.Fatalf("its notification is %q, %v; want %s", word[:n], err, want)
			}
		}
	})
	t.Run("no listener", func(t *testing.T) {
		tool := exec.Command(filepath.Join(bin, "collect"), "--count", "2", "--interval", "50ms")
		tool.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(t.TempDir(), "gone"), "WATCHDOG_USEC=1000000")
		var log bytes.Buffer
		tool.Stderr = &log
		out, err := tool.Output()
		if err != nil || bytes.Count(out, []byte("\n")) != 2 || strings.Contains(log.String(), "gone") {
			t.Errorf("collect = %v, %q, %q; want two ticks, and nothing about the socket", err, out, &log)
		}
	})
}

// removeTree removes a cgroup with all cgroups below it, and ends the processes in them.
func removeTree(t *testing.T, top string) {
	t.Helper()
	await.Until(t, supervised, "remove cgroup "+top, func() string {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // a cgroup that vanishes meanwhile counts as removed
		})
		for _, dir := range slices.Backward(dirs) {
			pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for pid := range strings.FieldsSeq(string(pids)) {
				if n, err := strconv.Atoi(pid); err == nil && n != 0 {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
			_ = os.Remove(dir)
		}
		if _, err := os.Stat(top); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%d directories are left", len(dirs))
		}
		return ""
	})
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
