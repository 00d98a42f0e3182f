package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/collect/classify"
	"polder/collect/source"
	"polder/lib/cgroup"
	"polder/lib/host"
	"polder/lib/tick"
)

// controllers are those of version 1 that collect reads.
var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "pids"}

// subtree is a cgroup of the test's own, in all hierarchies of version 1.
type subtree struct {
	t    *testing.T
	h    *cgroup.Hierarchy
	base string
}

// newSubtree makes the cgroup, and removes it with all that is in it when the test ends.
func newSubtree(t *testing.T) *subtree {
	t.Helper()
	cannot := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	if os.Getuid() != 0 {
		cannot("not root")
	}
	h, err := cgroup.Detect("/")
	if err != nil {
		cannot("no cgroups: %v", err)
	}
	for _, c := range controllers {
		if h.Version(c) != 1 {
			cannot("no cgroup v1 with the controller %s", c)
		}
	}
	s := &subtree{t: t, h: h, base: fmt.Sprintf("/polder-test-%d-%d", os.Getpid(), time.Now().UnixNano()%1e6)}
	t.Cleanup(func() { s.remove(s.base) })
	if err := os.Mkdir(s.dir("cpuacct", s.base), 0o755); err != nil {
		cannot("cgroups cannot be written: %v", err)
	}
	s.mkdir(s.base)
	return s
}

func (s *subtree) dir(controller, cgroup string) string {
	s.t.Helper()
	dir, _, err := s.h.Dir(controller, cgroup)
	if err != nil {
		s.t.Fatal(err)
	}
	return dir
}

// mkdir makes a cgroup in all hierarchies.
func (s *subtree) mkdir(cgroup string) {
	s.t.Helper()
	for _, c := range controllers {
		if err := os.Mkdir(s.dir(c, cgroup), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			s.t.Fatal(err)
		}
	}
	for _, name := range []string{"cpuset.mems", "cpuset.cpus"} { // empty in a new cgroup, which then takes no process
		value, err := os.ReadFile(filepath.Join(s.dir("cpuset", filepath.Dir(cgroup)), name))
		if err != nil {
			s.t.Fatal(err)
		}
		s.write("cpuset", cgroup, name, string(value))
	}
}

func (s *subtree) write(controller, cgroup, name, value string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir(controller, cgroup), name), []byte(value), 0); err != nil {
		s.t.Fatal(err)
	}
}

// remove removes a cgroup and all below it. Processes that have ended may be in it for a moment more.
func (s *subtree) remove(cgroup string) {
	if children, err := s.h.Children("", cgroup); err == nil {
		for _, name := range children {
			s.remove(cgroup + "/" + name)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, c := range controllers {
		for {
			err := os.Remove(s.dir(c, cgroup))
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if time.Now().After(deadline) {
				s.t.Errorf("remove cgroup %s: %v", cgroup, err)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// start runs a shell line in a cgroup until the test ends or stop is called.
func (s *subtree) start(cgroup, line string) (stop func()) {
	s.t.Helper()
	pid := s.run(line, func(pid string) {
		for _, c := range controllers {
			s.write(c, cgroup, "cgroup.procs", pid)
		}
	})
	return func() { _ = syscall.Kill(-pid, syscall.SIGKILL) }
}

// run starts a shell line once place has put its process where it belongs, and ends it with the test.
func (s *subtree) run(line string, place func(pid string)) int {
	s.t.Helper()
	cmd := exec.Command("sh", "-c", "read x; "+line)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its children end with it
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	place(strconv.Itoa(cmd.Process.Pid))
	if _, err := in.Write([]byte("\n")); err != nil {
		s.t.Fatal(err)
	}
	return cmd.Process.Pid
}

// asleep waits until a cgroup's directory has so many processes, and none of them runs any more: a shell takes a moment to
// start what it is to wait for.
func asleep(t *testing.T, dir string, processes int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for quiet := 0; quiet < 3; time.Sleep(10 * time.Millisecond) {
		pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		list := strings.Fields(string(pids))
		quiet++
		for _, pid := range list {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if err != nil || cgroup.ThreadState(stat) != 'S' {
				quiet = 0
			}
		}
		if len(list) != processes {
			quiet = 0
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d processes in %s are not asleep after 5 s; want %d", len(list), dir, processes)
		}
	}
}

// ranSeconds is how long a process's first thread has run, by the scheduler's own account.
func ranSeconds(t *testing.T, pid string) float64 {
	t.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/schedstat")
	if err != nil {
		t.Fatal(err)
	}
	nanoseconds, err := strconv.ParseFloat(strings.Fields(string(data))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return nanoseconds / 1e9
}

const busyLoop = "while :; do :; done"

// collector samples the subtree. skipped is added to its clock.
func (s *subtree) collector(skipped *time.Duration) *source.Collector {
	s.t.Helper()
	rules, err := classify.Parse("test.yaml", []byte("rules:\n- {cgroup: "+s.base+"/pod*, class: shared, containers: children}\n- {cgroup: "+s.base+"/*, class: reclaimed}\n"))
	if err != nil {
		s.t.Fatal(err)
	}
	h, err := host.New("/")
	if err != nil {
		s.t.Fatal(err)
	}
	c := source.New(&source.Env{
		Host: h, Rules: rules, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now: func() time.Time { return time.Now().Add(*skipped) },
	})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// pod finds a pod of a sample by name.
func pod(sample *tick.Sample, name string) *tick.Pod {
	for i := range sample.Pods {
		if sample.Pods[i].Name == name {
			return &sample.Pods[i]
		}
	}
	return nil
}

// eventually reads without a rescan until ok says so.
func eventually(t *testing.T, c *source.Collector, what string, ok func(*tick.Sample) bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok(c.Read(false)) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 10 s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func within(t *testing.T, what string, got *float64, low, high float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is absent; want %v to %v", what, low, high)
	} else if *got < low || *got > high {
		t.Errorf("%s = %v; want %v to %v", what, *got, low, high)
	}
}
