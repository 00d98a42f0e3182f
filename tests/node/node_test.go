package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
	"polder/tests/node/wire"
)

// The guide's pod, from its YAML to its cgroups and to its deletion.
func TestNode(t *testing.T) {
	n := sharedNode(t)
	c := n.ControlPlane
	start := time.Now()
	c.Apply(Guide("shared-normal-pod"))
	n.AwaitRunning("shared-normal-pod")
	t.Logf("the pod runs after %.1f s", time.Since(start).Seconds())

	cgroup := n.ContainerCgroup("shared-normal-pod", "stress")
	if want := "/kubepods/pod"; !strings.HasPrefix(cgroup, want) {
		t.Errorf("the cgroup of a guaranteed pod's container is %s, want it in %s…", cgroup, want)
	}
	// A container runs for kubelet before its program does.
	n.Eventually(controlplane.Soon, "stress and its hog run", func() string {
		pids := strings.Fields(n.ReadCgroup("cpuset", cgroup, "cgroup.procs"))
		if len(pids) != 2 {
			return fmt.Sprint(pids)
		}
		for _, pid := range pids {
			if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err != nil || !strings.HasPrefix(string(line), "stress\x00-c\x001\x00") {
				return fmt.Sprintf("process %s is %q (%v)", pid, line, err)
			}
		}
		return ""
	})
	if got := n.ReadCgroup("cpu", cgroup, "cpu.cfs_quota_us"); got != "200000" {
		t.Errorf("the quota for a limit of 2 CPUs is %s", got)
	}
	if got := n.Exec("shared-normal-pod", "sh", "-c", "echo from $HOSTNAME"); got != "from shared-normal-pod" {
		t.Errorf("kubectl exec prints %q", got)
	}
	n.Eventually(controlplane.Soon, "the pod's log", func() string {
		if got := n.Kubectl("logs", "shared-normal-pod"); !strings.Contains(got, "dispatching hogs: 1") {
			return got
		}
		return ""
	})
	n.Exec("shared-normal-pod", "sh", "-c", "stress -c 2 -t 600 >/dev/null 2>&1 &")
	n.Eventually(controlplane.Soon, "two more hogs run", func() string {
		if pids := strings.Fields(n.ReadCgroup("cpuset", cgroup, "cgroup.procs")); len(pids) != 5 {
			return fmt.Sprint(pids)
		}
		return ""
	})
	start = time.Now()
	c.Kubectl("delete", "pod", "shared-normal-pod")
	t.Logf("deleted in %.1f s", time.Since(start).Seconds())
	n.Eventually(controlplane.Soon, "its cgroup is removed", func() string {
		if _, err := os.Stat(n.CgroupPath("cpuset", cgroup)); err != nil {
			return ""
		}
		return cgroup
	})
}

// A node whose kubelet has the CPU manager's policy static.
func TestStatic(t *testing.T) {
	n := Start(t, control(t), Options{Name: "inner", CPUManagerPolicy: "static", Kubelet: map[string]any{"cpuManagerReconcilePeriod": "1s"}})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Node)
	}{{"enter", enter}, {"exclusive CPUs", exclusiveCPUs}, {"resized", resized}} {
		t.Run(test.name, func(t *testing.T) { test.run(t, n.For(t)) })
	}
	n.clear(t)
}

// A command run in the node by Enter sees a machine of its own, and can be stopped.
func enter(t *testing.T, n *Node) {
	if got := strings.TrimSpace(n.Enter("hostname")); got != "inner" {
		t.Errorf("the host name is %q", got)
	}
	if got := n.Enter("cat", "/proc/1/comm"); strings.TrimSpace(got) != "guest" {
		t.Errorf("process 1 is %q", got)
	}
	if got := n.Enter("cat", "/proc/self/cgroup"); strings.Contains(got, n.Cgroup) || strings.Contains(got, "..") {
		t.Errorf("the cgroups are not relative to the node's:\n%s", got)
	}
	if got := n.Enter("ls", "/sys/fs/cgroup/cpuset"); !strings.Contains(got, "kubepods") {
		t.Errorf("/sys/fs/cgroup/cpuset has\n%s", got)
	}
	var state struct{ PolicyName string }
	if err := json.Unmarshal([]byte(n.Enter("cat", "/var/lib/kubelet/cpu_manager_state")), &state); err != nil || state.PolicyName != "static" {
		t.Errorf("kubelet's CPU manager: %+v, %v", state, err)
	}
	if data, err := os.ReadFile(n.Path("/var/lib/kubelet/cpu_manager_state")); err != nil || len(data) == 0 {
		t.Errorf("the same file from outside: %q, %v", data, err)
	}
	kubelet := func() string { return strings.TrimSpace(n.Enter("pgrep", "-x", "kubelet")) }
	before := kubelet()
	n.RestartKubelet()
	n.Eventually(controlplane.Soon, "another kubelet", func() string {
		out, err := n.Command(context.Background(), "pgrep", "-x", "kubelet").Output()
		if err == nil && strings.TrimSpace(string(out)) != before {
			return ""
		}
		return fmt.Sprintf("%s, %v", out, err)
	})

	// A signal reaches the command, and its exit code comes back.
	cmd := n.Command(t.Context(), "sh", "-c", `trap "exit 7" TERM; echo ready; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("the command ended with %v", err)
	}
	// The command ends with its local process.
	cmd = n.Command(t.Context(), "sleep", "4321")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// -x: not the process before it executes that command
	sleeping := func() bool { return n.Command(context.Background(), "pgrep", "-x", "-f", "sleep 4321").Run() == nil }
	n.Eventually(controlplane.Soon, "it sleeps", func() string {
		if sleeping() {
			return ""
		}
		return "not yet"
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	// However early it is killed: before the command has started, too.
	for i := range 40 {
		cmd := n.Command(t.Context(), "sleep", "4321")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 4 * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	n.Eventually(controlplane.Soon, "it is gone", func() string {
		if sleeping() {
			return "it sleeps"
		}
		return ""
	})
}

// A node leaves the machine unchanged: no process, mount, cgroup, file, nor value under /proc/sys.
func TestStop(t *testing.T) {
	c := control(t)
	before := machine(t)
	n := Start(t, c, Options{Name: "stopped"})
	c.Apply(n.plain("stop-0", "{}"))
	n.AwaitRunning("stop-0")
	if pids := n.Processes(); len(pids) < 6 {
		t.Errorf("the node's processes are %v: want its first, containerd, kubelet, a shim, pause and sleep at least", pids)
	}
	if during := machine(t); during["mounts"] != before["mounts"] {
		t.Errorf("the node's mounts are the machine's:\n%s", during["mounts"])
	}
	var resident int64
	for _, pid := range n.Processes() {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)) // one may have ended
		var size, pages int64
		_, _ = fmt.Sscan(string(data), &size, &pages)
		resident += pages * int64(os.Getpagesize())
	}
	t.Logf("%d processes, %d MiB resident", len(n.Processes()), resident>>20)
	c.Kubectl("delete", "pod", "stop-0", "--force", "--grace-period=0")
	start := time.Now()
	n.Stop()
	t.Logf("stopped in %.1f s", time.Since(start).Seconds())
	if pids := processes(n.Cgroup); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
	after := machine(t)
	for what, text := range before {
		if after[what] != text {
			t.Errorf("%s before:\n%s\nafter:\n%s", what, text, after[what])
		}
	}
	if _, err := os.Stat(n.dir); err == nil {
		t.Errorf("%s is left", n.dir)
	}
	for _, h := range hierarchies(t) {
		if _, err := os.Stat(filepath.Join(h.Mount, n.Cgroup)); err == nil {
			t.Errorf("the cgroup is left in %s", h.Mount)
		}
	}
}

func hierarchies(t *testing.T) []wire.Hierarchy {
	t.Helper()
	all, err := wire.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// machine is what a node could change. Other programs work on the machine meanwhile: their mounts and files do not count.
func machine(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for line := range strings.Lines(read("/proc/self/mounts")) {
		of := func(name string) bool { return strings.Contains(line, name) }
		if strings.HasPrefix(line, "node ") || slices.ContainsFunc([]string{"kubelet", "containerd", prefix}, of) {
			state["mounts"] += line
		}
	}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/hostname"} {
		state[name] = read("/proc/sys/" + name)
	}
	for _, path := range []string{
		"/run/containerd", "/run/runc", "/run/cni", "/run/nri", "/run/netns", "/run/xtables.lock",
		"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log/pods", "/var/log/containers",
		"/usr/libexec/kubernetes", "/etc/kubernetes", "/etc/containerd", "/etc/cni", "/opt/cni", "/opt/containerd", "/opt/nri",
	} {
		_, err := os.Lstat(path)
		state[path] = fmt.Sprint("is there: ", err == nil)
	}
	return state
}

// A killed test ends its node with it; the next test removes the cgroups that are left.
func TestKilled(t *testing.T) {
	if os.Getenv("POLDER_NODE_VICTIM") == "1" {
		n := Start(t, control(t), Options{})
		fmt.Println("cgroup", n.Cgroup)
		time.Sleep(time.Hour)
	}
	controlplane.Need(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$", "-test.v")
	cmd.Env = append(os.Environ(), "POLDER_NODE_VICTIM=1")
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cgroup, printed := "", bufio.NewScanner(out)
	for cgroup == "" {
		if !printed.Scan() {
			t.Fatalf("the test that is to be killed ended: %v", printed.Err())
		}
		cgroup, _ = strings.CutPrefix(printed.Text(), "cgroup ")
		if cgroup == printed.Text() {
			cgroup = ""
			t.Log(printed.Text())
		}
	}
	if len(processes(cgroup)) == 0 {
		t.Errorf("no process in %s", cgroup)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for deadline := time.Now().Add(3 * controlplane.Soon); len(processes(cgroup)) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, pid := range processes(cgroup) {
				status, _ := os.ReadFile(fmt.Sprintf("/proc/%v/status", pid)) // it may be gone by now
				at, _ := os.ReadFile(fmt.Sprintf("/proc/%v/wchan", pid))
				t.Logf("%v waits in %s:\n%s", pid, at, status)
			}
			t.Fatalf("processes are left: %v", processes(cgroup))
		}
	}
	if err := removeStale(); err != nil {
		t.Fatal(err)
	}
	for _, h := range hierarchies(t) {
		if _, err := os.Stat(filepath.Join(h.Mount, cgroup)); err == nil {
			t.Errorf("the cgroup is left in %s", h.Mount)
		}
	}
}
