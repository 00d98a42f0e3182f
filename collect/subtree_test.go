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
	"polder/collect/host"
	"polder/collect/source"
	"polder/lib/cgroup"
	"polder/lib/tick"
	"polder/tests/await"
	"polder/tests/need"
)

// controllers are those of version 1 that collect reads.
var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "pids"}

// subtree is the test's own cgroup, in all hierarchies of version 1.
type subtree struct {
	t    *testing.T
	h    *cgroup.Hierarchy
	base string
}

// newSubtree creates the cgroup, and removes it with everything in it when the test ends.
func newSubtree(t *testing.T) *subtree {
	t.Helper()
	h := need.CgroupsV1(t, controllers...)
	s := &subtree{t: t, h: h, base: fmt.Sprintf("/polder-test-%d-%d", os.Getpid(), time.Now().UnixNano()%1e6)}
	t.Cleanup(func() { s.remove(s.base) })
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

// mkdir creates a cgroup in all hierarchies.
func (s *subtree) mkdir(cgroup string) {
	s.t.Helper()
	for _, c := range controllers {
		if err := os.Mkdir(s.dir(c, cgroup), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			s.t.Fatal(err)
		}
	}
	for _, name := range []string{"cpuset.mems", "cpuset.cpus"} { // empty in a new cgroup, which then accepts no process
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
	for _, c := range controllers {
		removeDir(s.t, s.dir(c, cgroup))
	}
}

// removeDir removes a cgroup's directory as soon as the kernel lets go of the last process.
func removeDir(t *testing.T, dir string) {
	t.Helper()
	await.Until(t, time.Minute, "remove cgroup "+dir, func() string {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err.Error()
		}
		return ""
	})
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

// run starts a shell line after place has moved its process to its cgroup, and ends it with the test.
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
// start the process for which it waits.
func asleep(t *testing.T, dir string, processes int) {
	t.Helper()
	quiet := 0
	await.Until(t, time.Minute, fmt.Sprintf("%d processes in %s are asleep", processes, dir), func() string {
		pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		list := strings.Fields(string(pids))
		if len(list) != processes {
			quiet = 0
			return fmt.Sprintf("there are %d", len(list))
		}
		quiet++
		for _, pid := range list {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if err != nil || cgroup.ThreadState(stat) != 'S' {
				quiet = 0
			}
		}
		if quiet < 3 {
			return fmt.Sprintf("they were so %d times in a row", quiet)
		}
		return ""
	})
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

// collector samples the subtree, by a clock.
func (s *subtree) collector(now func() time.Time) *source.Collector {
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
		Now: now,
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

// eventually reads without a rescan until ok is true.
func eventually(t *testing.T, c *source.Collector, what string, ok func(*tick.Sample) bool) {
	t.Helper()
	await.Until(t, time.Minute, what, await.Is(func() bool { return ok(c.Read(false)) }))
}

func within(t *testing.T, what string, got *float64, low, high float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is absent; want %v to %v", what, low, high)
	} else if *got < low || *got > high {
		t.Errorf("%s = %v; want %v to %v", what, *got, low, high)
	}
}

// counts are the kernel's own counters of some cgroups.
type counts struct{ usage, periods, throttled map[string]float64 } // seconds, and numbers of periods

func (s *subtree) counts(names ...string) counts {
	s.t.Helper()
	out := counts{map[string]float64{}, map[string]float64{}, map[string]float64{}}
	for _, name := range names {
		usage, err := os.ReadFile(filepath.Join(s.dir("cpuacct", s.base+name), "cpuacct.usage"))
		if err != nil {
			s.t.Fatal(err)
		}
		nanoseconds, err := strconv.ParseFloat(strings.TrimSpace(string(usage)), 64)
		if err != nil {
			s.t.Fatal(err)
		}
		stat, err := os.ReadFile(filepath.Join(s.dir("cpu", s.base+name), "cpu.stat"))
		if err != nil {
			s.t.Fatal(err)
		}
		var periods, throttled float64
		if _, err := fmt.Sscanf(string(stat), "nr_periods %g\nnr_throttled %g\n", &periods, &throttled); err != nil {
			s.t.Fatalf("cpu.stat %q: %v", stat, err)
		}
		out.usage[name], out.periods[name], out.throttled[name] = nanoseconds/1e9, periods, throttled
	}
	return out
}

// bracketed has the counters before and after an action, and the times.
type bracketed[T any] struct {
	before, after T
	begun, ended  time.Time
}

func bracket[T any](look func() T, do func()) (b bracketed[T]) {
	b.before, b.begun = look(), time.Now()
	do()
	b.ended, b.after = time.Now(), look()
	return b
}
