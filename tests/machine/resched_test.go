package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	r := adviseResched(t, everyMillisecond, "%s")
	if !h.IsMachineRoot("cpu") { // in a container, for example
		r.awaitUnavailable(t)
		return
	}
	child := r.awaitChild(t, h)
	parent := r.pid(t)
	inside := r.cgroup.PIDs(t)
	if !slices.Contains(inside, strconv.Itoa(parent)) || slices.Contains(inside, strconv.Itoa(child)) {
		t.Errorf("processes %v in isolate's cgroup, want isolate, %d, and not its child, %d", inside, parent, child)
	}
	r.awaitTick(t, `"isolation":{"applied":0,"unchanged":0,"reschedIntervalSeconds":0.001}`)
	if log := r.read("log"); !strings.Contains(log, "CPUs are rescheduled more often than by the kernel's timer interrupt") {
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

// While batch in the idle class and a service both want all CPUs, the service is interrupted at each tick that gives batch its share.
// Then a thread of the child process wakes, on each CPU.
func TestReschedOnWait(t *testing.T) {
	h := need.RootCgroup(t, "cpu")
	need.BPF(t)
	r := adviseResched(t, whenATaskWaits, "%s")
	child := r.awaitChild(t, h)
	r.awaitTick(t, `"isolation":{"applied":0,"unchanged":0,"reschedOnWait":true}`)
	batch, service := group.New(t, nil, "batch"), group.New(t, nil, "service")
	batch.Write(t, "cpu.idle", "1")
	for range 2 * runtime.NumCPU() {
		batch.Busy(t)
		service.Busy(t)
	}
	first := wakesOf(t, child)
	await.Until(t, patient, "a thread has woken on each CPU", func() string {
		now := wakesOf(t, child)
		for cpu, wakes := range first {
			if now[cpu] < wakes+3 {
				return fmt.Sprintf("wakes by CPU: %v, first %v: %s", now, first, r.read("log"))
			}
		}
		return ""
	})
}

// Where the kernel does not permit the program, the tick says so once, and CPUs are rescheduled at the advice's interval.
func TestReschedOnWaitIsRefused(t *testing.T) {
	h := need.RootCgroup(t, "cpu")
	need.Program(t, "setpriv", "util-linux")
	r := adviseResched(t, whenATaskWaits, "setpriv --bounding-set=-all %s")
	r.awaitTick(t, `"isolation":{"applied":0,"unchanged":0,"unavailable":["reschedOnWait"],"reschedIntervalSeconds":0.001}`)
	r.awaitChild(t, h)
	out := r.read("out")
	if n := strings.Count(out, `"key":"reschedOnWait"`); n != 1 || !strings.Contains(out, "CAP_BPF and CAP_PERFMON are needed") {
		t.Errorf("%d errors, want one about the capabilities: %s", n, out)
	}
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
	r := adviseResched(t, everyMillisecond, "unshare --cgroup --mount --propagation private sh -ec 'umount -l "+dir+"; "+mount+"; exec %s'")
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

// Advice about when CPUs are rescheduled.
const (
	everyMillisecond = `"reschedIntervalSeconds":0.001`
	whenATaskWaits   = `"reschedOnWait":true,` + everyMillisecond
)

// adviseResched starts it, with its command in the place of the format's %s. The same tick comes again and again.
func adviseResched(t *testing.T, advice, format string) *rescheduling {
	t.Helper()
	r := &rescheduling{group.New(t, nil, "resched"), t.TempDir()}
	line := `{"v":1,"node":"n1","time":"2023-01-03T16:18:00Z","advice":{"policy":"by hand",` + advice + `}}`
	command := fmt.Sprintf(format, binaries.Path(t, "isolate")+" --node n1 --max-age 0 --stale-after 1h")
	r.cgroup.Run(t, fmt.Sprintf("while echo '%s'; do sleep 0.2; done | %s >%[3]s/out 2>%[3]s/log", line, command, r.dir))
	return r
}

// awaitChild waits until the child process is in the root cgroup, and returns its PID.
func (r *rescheduling) awaitChild(t *testing.T, h *cgroup.Hierarchy) (pid int) {
	t.Helper()
	await.Until(t, patient, "the child process is in the root cgroup", func() string {
		children := childrenOf(r.pid(t))
		if len(children) != 1 || !slices.Contains(processesAtTop(t, h), children[0]) {
			return fmt.Sprintf("the children of isolate are %v: %s%s", children, r.read("log"), r.read("out"))
		}
		pid, _ = strconv.Atoi(children[0]) // the kernel writes numbers
		return ""
	})
	return pid
}

// awaitTick waits for a tick that contains a text.
func (r *rescheduling) awaitTick(t *testing.T, text string) {
	t.Helper()
	await.Until(t, patient, "a tick has "+text, func() string {
		if out := r.read("out"); !strings.Contains(out, text) {
			return "the output is " + out + r.read("log")
		}
		return ""
	})
}

// wakesOf returns how often the thread of each CPU has slept.
func wakesOf(t *testing.T, pid int) map[string]int {
	t.Helper()
	wakes := map[string]int{}
	statuses, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid)) // the pattern is valid
	for _, status := range statuses {
		text, _ := os.ReadFile(status) // a thread that has ended has none
		_, allowed, _ := strings.Cut(string(text), "\nCpus_allowed_list:\t")
		allowed, _, _ = strings.Cut(allowed, "\n")
		_, sleeps, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:\t")
		sleeps, _, _ = strings.Cut(sleeps, "\n")
		if n, err := strconv.Atoi(sleeps); err == nil && !strings.ContainsAny(allowed, ",-") {
			wakes[allowed] = max(wakes[allowed], n)
		}
	}
	if len(wakes) != runtime.NumCPU() {
		t.Fatalf("process %d has threads for the CPUs %v, want %d", pid, wakes, runtime.NumCPU())
	}
	return wakes
}

// awaitUnavailable waits for a tick that says that no thread wakes, and why.
func (r *rescheduling) awaitUnavailable(t *testing.T) {
	t.Helper()
	r.awaitTick(t, `"unavailable":["reschedIntervalSeconds"]`)
	r.awaitTick(t, "only a part of the machine's cgroups is visible")
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
