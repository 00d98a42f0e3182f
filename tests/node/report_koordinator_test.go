package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

// endAfter ends a pipe that was started in the node when the test is over: collect, and the others at the end of their input. A pipe that
// does not end is killed.
func endAfter(t *testing.T, n *Node, pipe *exec.Cmd) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- pipe.Wait() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), controlplane.Soon)
		defer cancel()
		if out, err := n.Command(ctx, "pkill", "-TERM", "-x", "collect").CombinedOutput(); err != nil {
			t.Errorf("pkill collect: %v: %s", err, out) // continue: the pipe has to be ended
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the pipe: %v", err)
			}
		case <-time.After(controlplane.Soon):
			t.Error("the pipe does not end")
			if err := pipe.Process.Kill(); err != nil {
				t.Error(err)
			}
			<-ended
		}
	})
}

// TestBatchOnANode: beside a kubelet, the ConfigMap turns colocation on and off; a pod with batch requests runs on the
// offer; the offer outlives kubelet's restart, after which kubelet writes the node's status again; and the NodeMetric names the pod.
func TestBatchOnANode(t *testing.T) {
	n := sharedNode(t)
	c := n.ControlPlane
	enable := func(on bool) {
		c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: |
    {"enable": %v, "metricReportIntervalSeconds": 30, "cpuReclaimThresholdPercent": 400, "memoryReclaimThresholdPercent": 90}
`, on))
	}
	enable(true)
	line := fmt.Sprintf(`PATH=%s:$PATH
collect --interval 1s %s --node %[3]s --slo-config koordinator-system/slo-controller-config | advise --policy koordinator |
report --node %[3]s --grow-interval 0s --to node,nodemetric %[4]s > /dev/null`,
		binaries.Dir(t), n.account("collect", "policy=koordinator"), n.Name, n.account("report", "policy=koordinator"))
	cmd := n.Command(context.Background(), "sh", "-c", line)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	endAfter(t, n, cmd)
	offer := func() string {
		return n.Kubectl("get", "node", n.Name, "-o", `jsonpath={.status.capacity.kubernetes\.io/batch-cpu} {.status.allocatable.kubernetes\.io/batch-memory}`)
	}
	offered := func() string {
		if w := strings.Fields(offer()); len(w) != 2 || w[0] == "0" || w[1] == "0" {
			return fmt.Sprintf("the node offers %q", offer())
		}
		return ""
	}
	n.Eventually(controlplane.Soon, "batch resources", offered)

	c.Apply(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"spark","namespace":"default","labels":{"koordinator.sh/qosClass":"BE"}},"spec":{"containers":[{"name":"c","image":"registry.local/pause:1","imagePullPolicy":"Never",
		"resources":{"requests":{"kubernetes.io/batch-cpu":"100","kubernetes.io/batch-memory":"64Mi"},"limits":{"kubernetes.io/batch-cpu":"200","kubernetes.io/batch-memory":"64Mi"}}}]}}`)
	n.AwaitRunning("spark")

	// Kubelet restarts, and writes the node's status as it knows it.
	n.RestartKubelet()
	n.AwaitHeartbeat()
	n.Eventually(controlplane.Soon, "batch resources after kubelet's restart", offered)

	n.Eventually(controlplane.Soon, "the pod in the NodeMetric", func() string {
		out, err := n.TryKubectl("", "get", "nodemetric", n.Name, "-o", `jsonpath={range .status.podsMetric[*]}{.namespace}/{.name} {.qos} {.priority}{end}`)
		if err != nil || !strings.Contains(out, "default/spark BE koord-batch") {
			return fmt.Sprint(out, err)
		}
		return ""
	})

	enable(false)
	n.Eventually(controlplane.Soon, "no batch resources", func() string { return strings.TrimSpace(offer()) })
	enable(true)
	n.Eventually(controlplane.Soon, "batch resources again", offered)
}
