package node

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"polder/tests/cluster/controlplane"
)

// Command returns a command that will run in the node: its namespaces and cgroups, the test's environment and directory. Signals TERM, INT,
// HUP, USR1 and USR2 reach it, and it ends with the returned command. The exit code is its own, or 128 and the signal's number.
func (n *Node) Command(ctx context.Context, command ...string) *exec.Cmd {
	args := append([]string{"enter", n.dir, strconv.Itoa(n.guest.PID)}, command...)
	cmd := exec.CommandContext(ctx, n.program, args...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Enter runs a command in the node and returns its standard output.
func (n *Node) Enter(command ...string) string {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), controlplane.Soon)
	defer cancel()
	cmd := n.Command(ctx, command...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		n.Fatalf("in %s: %s: %v: %s", n.Name, strings.Join(command, " "), err, errs.String())
	}
	return string(out)
}

// Exec runs a command in a pod of the namespace default, by kubectl exec.
func (n *Node) Exec(pod string, command ...string) string {
	n.Helper()
	return n.Kubectl(append([]string{"exec", pod, "--"}, command...)...)
}

// Path is the host's path of one of the node's files: /var/lib/kubelet/cpu_manager_state.
func (n *Node) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(n.guest.PID), "root", path)
}

// status is the part of a pod that the helpers read.
type status struct {
	Metadata struct {
		UID         string
		Annotations map[string]string
	}
	Status struct {
		Phase, QOSClass   string
		ContainerStatuses []struct {
			Name, ContainerID string
			Ready             bool
			RestartCount      int
			State             json.RawMessage
		}
	}
}

// AwaitRunning waits until all containers of a pod of the namespace default run.
func (n *Node) AwaitRunning(pod string) {
	n.Helper()
	n.Eventually(controlplane.Soon, pod+" runs", func() string {
		var s status
		n.Get("/api/v1/namespaces/default/pods/"+pod, &s)
		ready := s.Status.Phase == "Running"
		for _, container := range s.Status.ContainerStatuses {
			ready = ready && container.Ready
		}
		if ready {
			return ""
		}
		text, _ := json.Marshal(s.Status) // it came as JSON
		return string(text)
	})
}

// PodCgroup is a pod's cgroup as the node sees it: /kubepods/burstable/podUID. The pod is in the namespace default.
func (n *Node) PodCgroup(pod string) string {
	n.Helper()
	var s status
	n.Get("/api/v1/namespaces/default/pods/"+pod, &s)
	class := map[string]string{"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}[s.Status.QOSClass]
	return filepath.Join("/kubepods", class, "pod"+s.Metadata.UID)
}

// ContainerCgroup is the cgroup of a pod's container, likewise.
func (n *Node) ContainerCgroup(pod, container string) string {
	n.Helper()
	var s status
	n.Get("/api/v1/namespaces/default/pods/"+pod, &s)
	for _, c := range s.Status.ContainerStatuses {
		if id, ok := strings.CutPrefix(c.ContainerID, "containerd://"); ok && c.Name == container {
			return filepath.Join(n.PodCgroup(pod), id)
		}
	}
	n.Fatalf("pod %s has no running container %s", pod, container)
	return ""
}

// CgroupPath is a cgroup's directory on the machine; controller is cpu, cpuacct, cpuset, memory….
func (n *Node) CgroupPath(controller, cgroup string) string {
	return filepath.Join("/sys/fs/cgroup", controller, n.Cgroup, cgroup)
}

// ReadCgroup reads a cgroup's file.
func (n *Node) ReadCgroup(controller, cgroup, file string) string {
	n.Helper()
	data, err := os.ReadFile(filepath.Join(n.CgroupPath(controller, cgroup), file))
	if err != nil {
		n.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// Processes are the PIDs on the machine of all processes under a cgroup of the node.
func (n *Node) Processes() []int {
	n.Helper()
	return processes(n.Cgroup)
}

// processes finds those whose cgroup in some hierarchy is this one or below it.
func processes(cgroup string) []int {
	found, _ := filepath.Glob("/proc/[0-9]*/cgroup") // the pattern is valid
	var pids []int
	for _, path := range found {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), ":"+cgroup) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))) // digits by the pattern
			pids = append(pids, pid)
		}
	}
	return pids
}

// RestartKubelet kills kubelet, which is restarted at once; its pods stay.
func (n *Node) RestartKubelet() {
	n.Helper()
	n.Enter("pkill", "-KILL", "-x", "kubelet")
}

// AwaitHeartbeat waits until kubelet writes the node's status again, which it does every five seconds: a restarted kubelet
// works from then on.
func (n *Node) AwaitHeartbeat() {
	n.Helper()
	last := func() string {
		return n.Kubectl("get", "node", n.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}`)
	}
	before := last()
	n.Eventually(controlplane.Soon, "kubelet writes the node's status", func() string {
		if last() == before {
			return "the last one is of " + before
		}
		return ""
	})
}

// SchedulerConfig is a configuration of kube-scheduler with the guide's scheduler, for controlplane.Options.
func SchedulerConfig(dir string) (string, error) {
	path := filepath.Join(dir, "scheduler.yaml")
	return path, os.WriteFile(path, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: default-scheduler\n- schedulerName: katalyst-scheduler\n"), 0o600)
}

//go:embed testdata
var testdata embed.FS

// Guide is the YAML of one of the guide's pods: shared-normal-pod or reclaimed-normal-pod.
func Guide(pod string) string {
	data, err := testdata.ReadFile("testdata/" + pod + ".yaml")
	if err != nil {
		panic(fmt.Sprintf("no such pod in the guide: %s", pod))
	}
	return string(data)
}
