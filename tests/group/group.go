// Package group makes cgroups for tests on the machine's own kernel: in every hierarchy of version 1, or in version 2's.
package group

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/tests/await"
	"polder/tests/need"
)

// Group is a cgroup of a test's own.
type Group struct {
	Name string   // from the root of the hierarchy
	Dirs []string // one directory a hierarchy
}

// Controllers are the hierarchies of version 1 that a group is in.
var Controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "freezer"}

// New creates a cgroup below the root, or below parent, and removes it at the end of the test with all that is in it. A name
// below the root gets this process's number: tests of other packages run at the same time.
func New(t testing.TB, parent *Group, name string) *Group {
	t.Helper()
	var above []string
	switch v2 := "/sys/fs/cgroup/cgroup.controllers"; {
	case parent != nil:
		above, name = parent.Dirs, parent.Name+"/"+name
	case exists(v2):
		need.Cgroups(t, "cpu", "cpuset", "memory", "pids")
		above = []string{"/sys/fs/cgroup"}
	default:
		need.Cgroups(t, Controllers...)
		for _, controller := range Controllers {
			above = append(above, "/sys/fs/cgroup/"+controller)
		}
	}
	if parent == nil {
		name = fmt.Sprintf("polder-test-%d-%s", os.Getpid(), name)
	}
	g := &Group{Name: "/" + strings.TrimPrefix(name, "/")}
	t.Cleanup(func() { g.remove(t) })
	for _, dir := range above {
		own := filepath.Join(dir, filepath.Base(name))
		if err := os.Mkdir(own, 0o755); err != nil {
			t.Fatal(err)
		}
		g.Dirs = append(g.Dirs, own)
		for _, file := range []string{"cpuset.mems", "cpuset.cpus"} { // v1: empty until written
			if data, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				put(t, filepath.Join(own, file), strings.TrimSpace(string(data)))
			}
		}
		if control := filepath.Join(dir, "cgroup.subtree_control"); exists(control) {
			put(t, control, "+cpu +cpuset +memory +pids")
		}
	}
	return g
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// remove kills the cgroup's processes and removes it. The kernel still counts a process that has just ended.
func (g *Group) remove(t testing.TB) {
	await.Until(t, time.Minute, "remove cgroup "+g.Name, func() string {
		left := ""
		for _, dir := range g.Dirs {
			pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // none if the directory is gone
			for pid := range strings.FieldsSeq(string(pids)) {
				if n, err := strconv.Atoi(pid); err == nil && n != 0 {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				left = err.Error()
			}
		}
		return left
	})
}

// Enter puts a process into the cgroup.
func (g *Group) Enter(t testing.TB, pid int) {
	t.Helper()
	for _, dir := range g.Dirs {
		put(t, filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
	}
}

// Run runs a shell script in the cgroup until the test ends.
func (g *Group) Run(t testing.TB, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read go; "+script)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	g.Enter(t, cmd.Process.Pid)
	fmt.Fprintln(in, "go")
	return cmd
}

// Busy runs a busy loop in the cgroup.
func (g *Group) Busy(t testing.TB) {
	t.Helper()
	g.Run(t, "while :; do :; done")
}

// Sleep runs an idle process in the cgroup.
func (g *Group) Sleep(t testing.TB) {
	t.Helper()
	g.Run(t, "exec sleep 1000")
}

// PIDs are the processes in the cgroup.
func (g *Group) PIDs(t testing.TB) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(g.Dirs[0], "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// Read reads a file of the cgroup, by the first of the names that exists in any hierarchy; empty if none exists.
func (g *Group) Read(names ...string) string {
	for _, name := range names {
		for _, dir := range g.Dirs {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
	}
	return ""
}

// Write writes a file of the cgroup, in the first hierarchy that has it.
func (g *Group) Write(t testing.TB, name, text string) {
	t.Helper()
	for _, dir := range g.Dirs {
		if path := filepath.Join(dir, name); exists(path) {
			put(t, path, text)
			return
		}
	}
	t.Fatalf("cgroup %s has no file %s", g.Name, name)
}

// CPUTime is the CPU time that the cgroup has used.
func (g *Group) CPUTime(t testing.TB) time.Duration {
	t.Helper()
	if text := g.Read("cpuacct.usage"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n)
	}
	for line := range strings.Lines(g.Read("cpu.stat")) {
		var n int64
		if _, err := fmt.Sscanf(line, "usage_usec %d", &n); err == nil {
			return time.Duration(n) * time.Microsecond
		}
	}
	t.Fatalf("%s: its CPU time is in no file", g.Name)
	return 0
}

// Kill ends the cgroup's processes, except those that are spared, and waits until they are gone.
func (g *Group) Kill(t testing.TB, spared ...string) {
	t.Helper()
	await.Until(t, time.Minute, "end of the processes of "+g.Name, func() string {
		pids := slices.DeleteFunc(g.PIDs(t), func(pid string) bool { return slices.Contains(spared, pid) })
		for _, pid := range pids {
			if n, err := strconv.Atoi(pid); err == nil && n > 0 {
				if err := syscall.Kill(n, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Fatal(err)
				}
			}
		}
		return strings.Join(pids, " ")
	})
}

// Limits is the pipe's settings of a batch cgroup, as the kernel prints them.
func (g *Group) Limits() string {
	var b strings.Builder
	for _, dir := range g.Dirs {
		for _, file := range []string{"cpu.cfs_quota_us", "cpu.max", "cpuset.cpus", "cpu.idle", "cpu.shares", "cpu.weight"} {
			if data, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				fmt.Fprintf(&b, "%s %s; ", file, strings.TrimSpace(string(data)))
			}
		}
	}
	return b.String()
}
