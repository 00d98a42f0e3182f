package resctrl

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
	"polder/lib/resctrl"
	"polder/lib/tick"
	"polder/tests/await"
	"polder/tests/need"
)

// realGroups uses a directory of cgroup v1's freezer instead of /sys/fs/resctrl: there too the kernel creates a group's files with
// its directory, "tasks" accepts one task ID per write and rejects one that has ended with ESRCH, and a task is in only one group.
// It has no schemata. The pods' cgroups are in another hierarchy, as always.
type realGroups struct {
	t    *testing.T
	root string // of the copy whose sys/fs/resctrl is the freezer's
	dir  string
	h    *cgroup.Hierarchy
	pods string
}

func newRealGroups(t *testing.T) *realGroups {
	t.Helper()
	h := need.CgroupsV1(t, "freezer", "")
	name := fmt.Sprintf("/polder-test-resctrl-%d", os.Getpid())
	dir, _, err := h.Dir("freezer", name)
	if err != nil {
		t.Fatal(err)
	}
	pods, _, err := h.Dir("", name)
	if err != nil || strings.HasPrefix(pods, filepath.Dir(dir)) {
		t.Fatalf("no other hierarchy for the pods: %s, %v", pods, err)
	}
	g := &realGroups{t: t, root: t.TempDir(), dir: dir, h: h, pods: name}
	t.Cleanup(func() {
		for _, made := range []string{filepath.Join(dir, "BE"), filepath.Join(dir, "LS"), filepath.Join(dir, "info"), dir, filepath.Join(pods, "a/c"), filepath.Join(pods, "a"), pods} {
			await.Until(t, time.Minute, "remove cgroup "+made, func() string { // the kernel counts tasks that have just ended
				if err := unix.Rmdir(made); err == unix.EBUSY {
					return err.Error()
				}
				return ""
			})
		}
	})
	for _, make := range []string{dir, filepath.Join(dir, "info"), pods, filepath.Join(pods, "a"), filepath.Join(pods, "a/c")} {
		if err := os.Mkdir(make, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(g.root, "sys/fs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(g.root, resctrl.Dir)); err != nil {
		t.Fatal(err)
	}
	return g
}

// task starts a process in a pod's cgroup.
func (g *realGroups) task(cgroup string) *exec.Cmd {
	g.t.Helper()
	cmd := exec.Command("sleep", "100000")
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := g.h.WriteFile("", cgroup, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
		g.t.Fatal(err)
	}
	return cmd
}

func (g *realGroups) tasks(group string) []string {
	g.t.Helper()
	data, err := os.ReadFile(filepath.Join(g.dir, group, "tasks"))
	if err != nil {
		g.t.Fatal(err)
	}
	out := strings.Fields(string(data))
	slices.Sort(out)
	return out
}

func TestKernelMovesTasks(t *testing.T) {
	g := newRealGroups(t)
	a := New(Options{Root: g.root, Hierarchy: g.h, Contest: 5, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	a.kernel.move = runcTask
	first, second := g.task(g.pods+"/a/c"), g.task(g.pods+"/a")
	want := []string{strconv.Itoa(first.Process.Pid), strconv.Itoa(second.Process.Pid)}
	slices.Sort(want)
	apply := func(group string) tick.Isolation {
		var out tick.Isolation
		a.Apply(&out, []tick.ResctrlGroup{{Group: group, Cgroups: []string{g.pods + "/a"}}})
		return out
	}
	if out := apply("BE"); len(out.Errors) > 0 || out.Applied != 2 || !slices.Equal(g.tasks("BE"), want) {
		t.Fatalf("%s; tasks %v, want %v", summary(out), g.tasks("BE"), want)
	}
	if out := apply("BE"); summary(out) != "" {
		t.Errorf("again: %s", summary(out))
	}

	// The pod's class changes: its tasks move to the other group.
	if out := apply("LS"); len(out.Errors) > 0 || !slices.Equal(g.tasks("LS"), want) || len(g.tasks("BE")) > 0 {
		t.Errorf("%s; LS %v, BE %v, want %v", summary(out), g.tasks("LS"), g.tasks("BE"), want)
	}

	// A task that has ended between the reading and the write is no error, and the following ones are moved.
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	at, err := os.OpenRoot(filepath.Join(g.root, resctrl.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	r := &round{Applier: a, out: &tick.Isolation{}, at: at}
	a.newTasks = []uint64{uint64(ended.Process.Pid), uint64(first.Process.Pid)}
	r.moveTasks("BE")
	if got := summary(*r.out); got != fmt.Sprintf("resctrl/BE tasks \"\" -> \"%d\"\n", first.Process.Pid) || len(g.tasks("BE")) != 1 {
		t.Errorf("%s; BE %v", got, g.tasks("BE"))
	}

	// A task that the kernel rejects is an error that names it; the others are moved.
	r.out = &tick.Isolation{}
	a.newTasks = []uint64{1 << 40, uint64(second.Process.Pid)}
	r.moveTasks("BE")
	if got := summary(*r.out); !strings.Contains(got, "1 of 2 tasks were not moved: move task 1099511627776: ") || len(g.tasks("BE")) != 2 {
		t.Errorf("%s; BE %v", got, g.tasks("BE"))
	}
}

// The kernel's own directory has mode 0555: root without capabilities, as the service runs, creates no group, and the error
// says what to do. A group that was created beforehand is used.
func TestKernelWithoutCapabilities(t *testing.T) {
	g := newRealGroups(t)
	if err := os.Chmod(g.dir, 0o555); err != nil { // as the root of every such file system
		t.Fatal(err)
	}
	task := g.task(g.pods + "/a")
	apply := func() string {
		var out tick.Isolation
		New(Options{Root: g.root, Hierarchy: g.h, Now: time.Now, Log: slog.New(slog.DiscardHandler)}).Apply(&out, []tick.ResctrlGroup{{Group: "BE", Cgroups: []string{g.pods + "/a"}}})
		return summary(out)
	}
	without := func(f func() string) (out string) {
		done := make(chan struct{})
		go func() { // the thread ends with it: capabilities belong to the thread
			defer close(done)
			runtime.LockOSThread()
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			if err := unix.Capset(&header, &make([]unix.CapUserData, 2)[0]); err != nil {
				out = err.Error()
				return
			}
			out = f()
		}()
		<-done
		return out
	}
	if got := without(apply); !strings.Contains(got, "BE: permission denied") || !strings.HasSuffix(got, "create it beforehand, or give isolate CAP_DAC_OVERRIDE\n") {
		t.Errorf("%s", got)
	}
	if err := os.Mkdir(filepath.Join(g.dir, "BE"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := without(apply); got != fmt.Sprintf("resctrl/BE tasks \"\" -> \"%d\"\n", task.Process.Pid) {
		t.Errorf("%s", got)
	}
}
