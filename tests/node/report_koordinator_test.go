package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"polder/tests/cluster/controlplane"
)

// endAfter ends a pipe that was started in the node when the test is over: collect, and the others at the end of their input. One that
// does not end is killed.
func endAfter(t *testing.T, n *Node, pipe *exec.Cmd) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- pipe.Wait() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if out, err := n.Command(ctx, "pkill", "-TERM", "-x", "collect").CombinedOutput(); err != nil {
			t.Errorf("pkill collect: %v: %s", err, out) // and on: what was started is to be ended
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the pipe: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("the pipe does not end")
			if err := pipe.Process.Kill(); err != nil {
				t.Error(err)
			}
			<-ended
		}
	})
}

// TestBatchOnANode: beside a kubelet, the ConfigMap turns colocation on and off; a pod with batch requests runs on what is
// offered; the offer outlives kubelet's restart, after which it writes the node's status anew; and the NodeMetric names the pod.
func TestBatchOnANode(t *testing.T) {
	config, err := SchedulerConfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := controlplane.Start(t, controlplane.Options{SchedulerConfig: config})
	c.ApplyFile("../../deploy/kubernetes/crds/nodemetrics.yaml")
	c.MakeNamespace("koordinator-system")
	enable := func(on bool) {
		c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: |
    {"enable": %v, "cpuReclaimThresholdPercent": 400, "memoryReclaimThresholdPercent": 90}
`, on))
	}
	enable(true)
	n := Start(t, c, Options{})
	line := fmt.Sprintf(`PATH=%s:$PATH
collect --interval 1s --kubeconfig %[2]s --node %[3]s --slo-config koordinator-system/slo-controller-config | advise --policy koordinator |
report --node %[3]s --to node,nodemetric --kubeconfig %[2]s > /dev/null`, Tools(t), n.Kubeconfig(), n.Name)
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
	n.Eventually(time.Minute, "batch resources", offered)

	c.Apply(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"spark","namespace":"default","labels":{"koordinator.sh/qosClass":"BE"}},"spec":{"containers":[{"name":"c","image":"registry.local/pause:1","imagePullPolicy":"Never",
		"resources":{"requests":{"kubernetes.io/batch-cpu":"100","kubernetes.io/batch-memory":"64Mi"},"limits":{"kubernetes.io/batch-cpu":"200","kubernetes.io/batch-memory":"64Mi"}}}]}}`)
	n.AwaitRunning("spark")

	// Kubelet starts anew, and writes the node's status as it knows it.
	renewed := func() string {
		return n.Kubectl("get", "node", n.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}`)
	}
	before := renewed()
	time.Sleep(time.Second) // the times are whole seconds
	n.RestartKubelet()
	n.Eventually(time.Minute, "kubelet's status after its restart", func() string {
		if renewed() == before {
			return "the last one is of " + before
		}
		return ""
	})
	n.Eventually(30*time.Second, "batch resources after kubelet's restart", offered)

	n.Eventually(90*time.Second, "the pod in the NodeMetric", func() string { // which is written once a minute
		out, err := n.TryKubectl("", "get", "nodemetric", n.Name, "-o", `jsonpath={range .status.podsMetric[*]}{.namespace}/{.name} {.qos} {.priority}{end}`)
		if err != nil || !strings.Contains(out, "default/spark BE koord-batch") {
			return fmt.Sprint(out, err)
		}
		return ""
	})

	enable(false)
	n.Eventually(30*time.Second, "no batch resources", func() string { return strings.TrimSpace(offer()) })
	enable(true)
	n.Eventually(30*time.Second, "batch resources again", offered)
}
