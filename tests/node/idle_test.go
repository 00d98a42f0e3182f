package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

// TestSchedIdleOnANode: a BestEffort tier that was left idle keeps kubelet from starting. The pipe corrects it, makes the batch pods
// idle instead, and kubelet then restarts any number of times; the next pod is made idle as well.
func TestSchedIdleOnANode(t *testing.T) {
	const tier = "/kubepods/besteffort"
	var n *Node
	set := func(file, value string) {
		if err := os.WriteFile(filepath.Join(n.CgroupPath("cpu", tier), file), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // after isolate --restore
		if n == nil {
			return
		}
		if got := n.ReadCgroup("cpu", tier, "cpu.idle"); got != "1" {
			t.Errorf("after isolate --restore the tier's cpu.idle is %s, and was 1", got)
		}
		set("cpu.idle", "0")
		set("cpu.shares", "2")
	})
	n = sharedNode(t)
	c := n.ControlPlane
	schedIdle := func(on int) {
		c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  resource-qos-config: |
    {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": true, "schedIdle": %d}}}}
`, on))
	}
	schedIdle(1)
	has := func(cgroup, idle, shares string) func() string {
		return func() string {
			gotIdle, gotShares := n.ReadCgroup("cpu", cgroup, "cpu.idle"), n.ReadCgroup("cpu", cgroup, "cpu.shares")
			if gotIdle != idle || gotShares != shares {
				return fmt.Sprintf("cpu.idle %s, cpu.shares %s; want %s and %s", gotIdle, gotShares, idle, shares)
			}
			return ""
		}
	}
	start := func(pod string) {
		c.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","labels":{"koordinator.sh/qosClass":"BE"}},
			"spec":{"containers":[{"name":"c","image":"registry.local/pause:1","imagePullPolicy":"Never"}]}}`, pod))
		n.AwaitRunning(pod)
	}
	logged := func(log, text string) int {
		data, err := os.ReadFile(n.path(log))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(data), text)
	}
	const ended, failed = "kubelet ended", "Failed to start ContainerManager"

	start("first")
	set("cpu.idle", "1")
	before := logged("kubelet.log", failed)
	n.RestartKubelet()
	n.Eventually(controlplane.Soon, "kubelet does not start beside an idle tier", func() string {
		if logged("kubelet.log", failed) == before {
			return "it has logged nothing of its ContainerManager"
		}
		return ""
	})

	line := fmt.Sprintf(`PATH=%s:$PATH
collect --interval 500ms %s --node %[3]s --slo-config koordinator-system/slo-controller-config | advise --policy koordinator |
isolate --node %[3]s --journal /run/isolate > /dev/null`, binaries.Dir(t), n.account("collect", "policy=koordinator"), n.Name)
	cmd := n.Command(context.Background(), "sh", "-c", line)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	endAfter(t, n, cmd)
	n.Eventually(controlplane.Soon, "the tier is corrected", has(tier, "0", "2"))
	n.Eventually(controlplane.Soon, "the first pod is idle", has(n.PodCgroup("first"), "1", "3")) // the kernel's weight of an idle cgroup
	start("second")                                                                               // by a kubelet that works again
	n.Eventually(controlplane.Soon, "the second pod is idle", has(n.PodCgroup("second"), "1", "3"))

	ends, failures := logged("guest.log", ended), logged("kubelet.log", failed)
	n.RestartKubelet()
	start("third")
	n.Eventually(controlplane.Soon, "the third pod is idle", has(n.PodCgroup("third"), "1", "3"))
	if got := logged("guest.log", ended) - ends; got != 1 || logged("kubelet.log", failed) != failures {
		t.Errorf("kubelet ended %d times; want once, when it was killed", got)
	}
	if lacks := has(tier, "0", "2")(); lacks != "" {
		t.Errorf("the tier after kubelet's start: %s", lacks)
	}

	schedIdle(0)
	for _, pod := range []string{"first", "second", "third"} {
		n.Eventually(controlplane.Soon, pod+" is not idle any more", has(n.PodCgroup(pod), "0", "2"))
	}
}
