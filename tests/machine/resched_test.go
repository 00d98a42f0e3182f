package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"polder/lib/cgroup"
	"polder/tests/await"
	"polder/tests/binaries"
	"polder/tests/group"
	"polder/tests/need"
)

// isolate's child process, whose threads wake CPUs, is in the machine's root cgroup wherever isolate is, and ends when isolate is killed.
func TestReschedIsInRootCgroup(t *testing.T) {
	h := need.Cgroups(t, "cpu")
	r := adviseResched(t, "%s")
	if !h.IsMachineRoot("cpu") { // in a container, for example
		r.awaitUnavailable(t)
		return
	}
	child := 0
	await.Until(t, patient, "the child process is in the root cgroup", func() string {
		children := childrenOf(r.pid(t))
		if len(children) != 1 || !slices.Contains(processesAtTop(t, h), children[0]) {
			return fmt.Sprintf("the children of isolate are %v: %s%s", children, r.read("log"), r.read("out"))
		}
		child, _ = strconv.Atoi(children[0]) // the kernel writes numbers
		return ""
	})
	parent := r.pid(t)
	inside := r.cgroup.PIDs(t)
	if !slices.Contains(inside, strconv.Itoa(parent)) || slices.Contains(inside, strconv.Itoa(child)) {
		t.Errorf("processes %v in isolate's cgroup, want isolate, %d, and not its child, %d", inside, parent, child)
	}
	await.Until(t, patient, "the tick has the interval", func() string {
		if out := r.read("out"); !strings.Contains(out, `"isolation":{"applied":0,"unchanged":0,"reschedIntervalSeconds":0.001}`) {
			return out
		}
		return ""
	})
	if log := r.read("log"); !strings.Contains(log, "CPUs choose again what they run more often than at the kernel's tick") {
		t.Error(log)
	}
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.Until(t, patient, "the child has ended", func() string {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child)) // it has ended
		if strings.HasPrefix(string(line), "isolate-resched\x00") {
			return "it still runs"
		}
		return ""
	})
}

// Where only a part of the hierarchy is visible, as in a container, no thread wakes, and the tick says so.
func TestReschedNeedsRootCgroup(t *testing.T) {
	h := need.Cgroups(t, "cpu")
	dir, _, err := h.Dir("cpu", "/")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	mount := "mount -t cgroup2 none " + dir
	if h.Version("cpu") == 1 {
		mount = fmt.Sprintf("mount -t cgroup -o %s none %s", filepath.Base(dir), dir) // a directory is named after its controllers
	}
	r := adviseResched(t, "unshare --cgroup --mount --propagation private sh -ec 'umount -l "+dir+"; "+mount+"; exec %s'")
	r.awaitUnavailable(t)
	if children := childrenOf(r.pid(t)); len(children) > 0 {
		t.Errorf("isolate has the children %v", children)
	}
}

// rescheduling is an isolate in a cgroup of its own whose advice is to wake CPUs.
type rescheduling struct {
	cgroup *group.Group
	dir    string
}

// adviseResched starts it, with its command in the place of the format's %s.
func adviseResched(t *testing.T, format string) *rescheduling {
	t.Helper()
	r := &rescheduling{group.New(t, nil, "resched"), t.TempDir()}
	const line = `{"v":1,"node":"n1","time":"2023-01-03T16:18:00Z","advice":{"policy":"by hand","reschedIntervalSeconds":0.001}}`
	command := fmt.Sprintf(format, binaries.Path(t, "isolate")+" --node n1 --max-age 0 --stale-after 1h")
	r.cgroup.Run(t, fmt.Sprintf("{ echo '%s'; exec sleep 1000; } | %s >%[3]s/out 2>%[3]s/log", line, command, r.dir))
	return r
}

// awaitUnavailable waits for a tick that says that no thread wakes, and why.
func (r *rescheduling) awaitUnavailable(t *testing.T) {
	t.Helper()
	await.Until(t, patient, "the tick says that no thread wakes", func() string {
		out := r.read("out")
		if !strings.Contains(out, `"unavailable":["reschedIntervalSeconds"]`) ||
			!strings.Contains(out, "only a part of the machine's cgroups is visible") {
			return out + r.read("log")
		}
		return ""
	})
}

// read returns what isolate has written to a file; empty until it exists.
func (r *rescheduling) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(r.dir, name)) // it may not exist yet
	return string(text)
}

// pid is isolate's; 0 until it runs.
func (r *rescheduling) pid(t *testing.T) int {
	t.Helper()
	for _, text := range r.cgroup.PIDs(t) {
		if pid, err := strconv.Atoi(text); err == nil && filepath.Base(binaries.Program(pid)) == "isolate" {
			return pid
		}
	}
	return 0
}

// childrenOf are the children of a process' threads.
func childrenOf(pid int) (children []string) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that has ended has none
		children = append(children, strings.Fields(string(text))...)
	}
	return children
}

// processesAtTop are the PIDs in the root of the hierarchy with the cpu controller.
func processesAtTop(t *testing.T, h *cgroup.Hierarchy) []string {
	t.Helper()
	list, err := h.ReadFile("cpu", "/", "cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(list)
}
