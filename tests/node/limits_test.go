package node

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

// guidesPod is one of the guides' example pods that requests resources that kubelet ignores, with its expected limits in the kernel.
type guidesPod struct {
	name, container, yaml string
	// offer is in the node's status; kubelet takes it as it is.
	offer           string
	collect, advise string
	values          []string // of the chart, which has the roles
	// ofPod and ofContainer are what the cgroups have, by controller and file.
	ofPod, ofContainer map[string]string
	isCapped           bool // batch's memory as a whole is, at kubelet's tier
}

// unlimited is how version 1 writes that there is no limit of memory.
const unlimited = "9223372036854771712"

func guidesPods(t *testing.T) []guidesPod {
	t.Helper()
	koordinators, err := os.ReadFile("../vmnode/testdata/be-pod-demo.yaml") // with a service behind it
	if err != nil {
		t.Fatal(err)
	}
	demo, _, _ := strings.Cut(string(koordinators), "\n---")
	// The stream has weights as version 2 has them: 302 is the nearest to the 4096 shares of 4 CPUs.
	quota := map[string]string{"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.shares": "4091", "memory/memory.limit_in_bytes": "4294967296"}
	return []guidesPod{
		{
			name: "reclaimed-normal-pod", container: "stress", yaml: Guide("reclaimed-normal-pod"),
			offer:  `"resource.katalyst.kubewharf.io/reclaimed_millicpu": "2k", "resource.katalyst.kubewharf.io/reclaimed_memory": "4Gi"`,
			advise: "--batch-memory cap", isCapped: true,
			ofPod: map[string]string{"cpu/cpu.cfs_quota_us": "200000"}, ofContainer: map[string]string{"memory/memory.limit_in_bytes": "1073741824"},
		},
		{
			name: "be-pod-demo", container: "stress", yaml: demo,
			offer:   `"kubernetes.io/batch-cpu": "4k", "kubernetes.io/batch-memory": "4Gi"`,
			collect: "--slo-config koordinator-system/slo-controller-config", advise: "--policy koordinator --batch-memory cap", values: []string{"policy=koordinator"},
			ofPod: quota, ofContainer: quota, isCapped: true,
		},
	}
}

// TestGuidesPods runs the guides' own example pods on a node, as they are written: the scheduler binds them once the node offers what they
// request, and their limits of resources that kubelet ignores are in force. A restore leaves kubelet's own values.
func TestGuidesPods(t *testing.T) {
	n := sharedNode(t)
	n.ApplyFile("../../deploy/kubernetes/koordinator/priorityclasses.yaml")
	n.KnowsPriorityClasses("koord-batch")
	n.Apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: |
    {"enable": true}
`)
	for _, p := range guidesPods(t) {
		first := map[string]string{}
		read := func() map[string]string { return n.limitsOf(&p) }
		t.Run(p.name, func(t *testing.T) {
			n := n.For(t)
			n.Apply(p.yaml)
			if status, answer := n.API("PATCH", "/api/v1/nodes/"+n.Name+"/status", fmt.Sprintf(`{"status":{"capacity": {%[1]s}, "allocatable": {%[1]s}}}`, p.offer)); status != 200 {
				t.Fatalf("status %d: %s", status, answer)
			}
			n.Eventually(controlplane.Soon, p.name+" is admitted", func() string {
				phase := n.Kubectl("get", "pod", p.name, "-o", "jsonpath={.status.phase} {.status.reason}")
				// The scheduler may know the node's new resources before kubelet does, which then refuses the pod for good.
				if strings.HasPrefix(phase, "Failed OutOf") {
					n.Kubectl("delete", "pod", p.name, "--now")
					n.Apply(p.yaml)
				}
				if strings.HasPrefix(phase, "Running") {
					return ""
				}
				return phase
			})
			n.AwaitRunning(p.name)
			if cgroup := n.PodCgroup(p.name); !strings.HasPrefix(cgroup, "/kubepods/besteffort/pod") {
				t.Errorf("the pod's cgroup is %s", cgroup)
			}
			first = read()
			line := fmt.Sprintf("PATH=%s:$PATH\ncollect --interval 500ms %s --node %[3]s %s | advise %s | isolate --node %[3]s --journal /run/isolate > /run/ticks",
				binaries.Dir(t), n.account("collect", p.values...), n.Name, p.collect, p.advise)
			cmd := n.Command(context.Background(), "sh", "-c", line)
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			endAfter(t, n, cmd)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the last tick: %s", n.Enter("tail", "-n", "1", "/run/ticks"))
				}
			})
			n.Eventually(controlplane.Soon, "the limits are as written", func() string { return p.lacks(n) })
			t.Logf("in force: %v", read())
		})
		if t.Failed() || len(first) == 0 { // or not asked for
			continue
		}
		n.Enter(binaries.Path(t, "isolate"), "--restore", "--journal", "/run/isolate")
		for file, value := range read() {
			if value != first[file] {
				t.Errorf("%s: after the restore %s is %s; kubelet made it %s", p.name, file, value, first[file])
			}
		}
		n.Kubectl("delete", "pod", p.name, "--grace-period=1")
	}
}

// limitsOf are the values that the test checks, by cgroup and file.
func (n *Node) limitsOf(p *guidesPod) map[string]string {
	n.Helper()
	out := map[string]string{}
	for cgroup, files := range p.files(n) {
		for file := range files {
			controller, name, _ := strings.Cut(file, "/")
			out[cgroup+" "+file] = n.ReadCgroup(controller, cgroup, name)
		}
	}
	return out
}

// files are the expected values of the kernel, by cgroup and file; empty is a limit of which the value does not matter.
func (p *guidesPod) files(n *Node) map[string]map[string]string {
	n.Helper()
	files := map[string]map[string]string{n.PodCgroup(p.name): p.ofPod, n.ContainerCgroup(p.name, p.container): p.ofContainer}
	if p.isCapped {
		files["/kubepods/besteffort"] = map[string]string{"memory/memory.limit_in_bytes": "", "memory/memory.soft_limit_in_bytes": ""}
	}
	return files
}

// lacks returns the limit that is not in force.
func (p *guidesPod) lacks(n *Node) string {
	for cgroup, files := range p.files(n) {
		for file, want := range files {
			controller, name, _ := strings.Cut(file, "/")
			got := n.ReadCgroup(controller, cgroup, name)
			if bytes, err := strconv.ParseInt(got, 10, 64); want == "" && err == nil && got != unlimited && bytes >= 1<<30 {
				continue
			}
			if got != want {
				return fmt.Sprintf("%s of %s is %s; want %q", name, cgroup, got, want)
			}
		}
	}
	return ""
}
