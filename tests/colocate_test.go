package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// group is a cgroup of a test's own, in every hierarchy of v1 or in v2's.
type group struct {
	name string
	dirs []string
}

// newGroup makes a cgroup below the root, or below parent, and removes it at the end with all that is in it.
func newGroup(t *testing.T, parent *group, name string) *group {
	t.Helper()
	var above []string
	switch v2 := "/sys/fs/cgroup/cgroup.controllers"; {
	case parent != nil:
		above, name = parent.dirs, parent.name+"/"+name
	case exists(v2):
		above = []string{"/sys/fs/cgroup"}
	default:
		for _, controller := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "freezer"} {
			if dir := "/sys/fs/cgroup/" + controller; exists(dir) {
				above = append(above, dir)
			}
		}
	}
	g := &group{name: "/" + strings.TrimPrefix(name, "/")}
	for _, dir := range above {
		own := filepath.Join(dir, filepath.Base(name))
		if err := os.Mkdir(own, 0o755); err != nil {
			t.Fatal(err)
		}
		g.dirs = append(g.dirs, own)
		for _, file := range []string{"cpuset.mems", "cpuset.cpus"} { // v1: empty until written
			if data, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				put(t, filepath.Join(own, file), strings.TrimSpace(string(data)))
			}
		}
		if control := filepath.Join(dir, "cgroup.subtree_control"); exists(control) {
			put(t, control, "+cpu +cpuset +memory +pids")
		}
	}
	t.Cleanup(func() { g.remove(t) })
	return g
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (g *group) remove(t *testing.T) {
	for range 100 {
		left := false
		for _, dir := range g.dirs {
			pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for pid := range strings.FieldsSeq(string(pids)) {
				if n, err := strconv.Atoi(pid); err == nil {
					_ = syscall.Kill(n, syscall.SIGKILL)
				}
			}
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				left = true
			}
		}
		if !left {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("cgroup %s cannot be removed", g.name)
}

// busy runs a busy loop in the cgroup.
func (g *group) busy(t *testing.T) {
	t.Helper()
	g.runs(t, "while :; do :; done")
}

// limits is all that the pipe may change of the cgroup, as the kernel prints it.
func (g *group) limits() string {
	var b strings.Builder
	for _, dir := range g.dirs {
		for _, file := range []string{"cpu.cfs_quota_us", "cpu.max", "cpuset.cpus"} {
			if data, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				fmt.Fprintf(&b, "%s %s; ", file, strings.TrimSpace(string(data)))
			}
		}
	}
	return b.String()
}

// running counts the processes of our own binaries that run.
func running(t *testing.T, names ...string) []string {
	t.Helper()
	var found []string
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		for _, name := range names {
			if err == nil && target == filepath.Join(bin, name) {
				found = append(found, filepath.Base(filepath.Dir(link)))
			}
		}
	}
	return found
}

// However the pipe ends (Ctrl-C, SIGTERM, a stage that is killed), all of it ends and everything is put back.
func TestColocatePutsEverythingBack(t *testing.T) {
	needRoot(t)
	top := newGroup(t, nil, fmt.Sprintf("polder-test-%d-colocate", os.Getpid()))
	service, batch := newGroup(t, top, "service"), newGroup(t, top, "batch")
	service.busy(t)
	batch.busy(t)
	classify := filepath.Join(t.TempDir(), "classify.yaml")
	put(t, classify, fmt.Sprintf("rules:\n  - {cgroup: %s, class: shared}\n  - {cgroup: %s, class: reclaimed}\n", service.name, batch.name))
	before := service.limits() + batch.limits()

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
			for _, pid := range running(t, tool) {
				n, err := strconv.Atoi(pid)
				if err != nil {
					t.Fatal(err)
				}
				if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}, 1})
	}
	for _, end := range ends {
		t.Run(end.name, func(t *testing.T) {
			colocate := exec.Command("../scripts/colocate", "--interval", "200ms", "--classify", classify, "--", "--to", "table")
			colocate.Env = append(os.Environ(), "POLDER_BIN="+bin, "TMPDIR="+t.TempDir())
			var out, log bytes.Buffer
			colocate.Stdout, colocate.Stderr = &out, &log
			if err := colocate.Start(); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, func() bool { return service.limits()+batch.limits() != before }, "the batch job is confined", &log)
			end.how(t, colocate)
			var exit *exec.ExitError
			if err := colocate.Wait(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := colocate.ProcessState.ExitCode(); got != end.status {
				t.Errorf("exit status %d; want %d: %s", got, end.status, &log)
			}
			if end.status == 1 && !strings.Contains(log.String(), "colocate: "+strings.TrimSuffix(end.name, " killed")+" ended with status 137") {
				t.Errorf("stderr = %q; want it to name the stage", &log)
			}
			if after := service.limits() + batch.limits(); after != before {
				t.Errorf("limits = %s; want them as before, %s: %s", after, before, &log)
			}
			if left := running(t, tools...); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

func waitUntil(t *testing.T, condition func() bool, what string, log *bytes.Buffer) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s; %s", what, log)
		}
	}
}

// reclaimedColumn is the table's RECLAIMED of each line, in cores.
func reclaimedColumn(t *testing.T, table string) []float64 {
	t.Helper()
	var values []float64
	column := -1
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] == "TIME" {
			for i, f := range fields {
				if f == "RECLAIMED" {
					column = i
				}
			}
			continue
		}
		if column < 0 || column >= len(fields) {
			t.Fatalf("no column RECLAIMED in %q of %s", line, table)
		}
		if fields[column] == "-" { // a first reading is not decided on
			continue
		}
		v, err := strconv.ParseFloat(fields[column], 64)
		if err != nil {
			t.Fatalf("RECLAIMED: %v in %q", err, line)
		}
		values = append(values, v)
	}
	return values
}

func demo(t *testing.T, command ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "POLDER_BIN="+bin, "DEMO_SECONDS=12", "DEMO_PACE=0.1")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("demo: %v: %s", err, &log)
	}
	return out.String(), log.String()
}

// The demo on real cgroups: less is offered when the service gets busy, and nothing is left behind.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute: not with -short")
	}
	needRoot(t)
	out, log := demo(t, "../scripts/demo")
	values := reclaimedColumn(t, out)
	if len(values) < 8 {
		t.Fatalf("%d lines in 12 s: %s%s", len(values), out, log)
	}
	if calm, peak := values[2], values[len(values)-1]; peak > calm-0.25 {
		t.Errorf("reclaimed %.2f cores when the service is calm and %.2f when it is busy; want clearly less\n%s", calm, peak, out)
	}
	if !strings.Contains(log, "restored") {
		t.Errorf("stderr = %q; want what was put back", log)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/polder-demo-*"); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if left := running(t, tools...); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// Where cgroups cannot be written the demo says so in one line and plays the recording of a 48-core node.
func TestDemoWithoutCgroups(t *testing.T) {
	needRoot(t)
	readOnly := `for m in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts) /sys/fs/cgroup; do mount -o remount,bind,ro "$m"; done; exec ../scripts/demo`
	out, log := demo(t, "unshare", "--mount", "--propagation", "private", "sh", "-ec", readOnly)
	if first, rest, _ := strings.Cut(log, "\n"); !strings.HasPrefix(first, "demo: cgroups cannot be written here (") || !strings.Contains(first, "Read-only file system") || rest != "" {
		t.Errorf("stderr = %q; want one line that says why", log)
	}
	// At ten times its pace isolate may drop a tick for a newer one.
	if values := reclaimedColumn(t, out); len(values) < 8 || values[0] < 20 {
		t.Errorf("reclaimed = %v; want about 12 ticks of a large node", values)
	}
}
