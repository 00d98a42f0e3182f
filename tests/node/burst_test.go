package node

import (
	"context"
	"fmt"
	"os"
	"testing"

	"polder/tests/binaries"
	"polder/tests/cluster/controlplane"
)

// TestBurstOnANode: beside a kubelet, the ConfigMap and a pod's annotation let pods save up CPU time, each with its own amount;
// kubelet can still lower a pod's limit in place; and when bursts are turned off all values are kubelet's.
func TestBurstOnANode(t *testing.T) {
	n := sharedNode(t)
	c := n.ControlPlane
	burst := func(policy string) {
		c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  cpu-burst-config: |
    {"clusterStrategy": {"policy": %q}}
`, policy))
	}
	burst("none")
	for _, pod := range []struct{ name, annotations string }{
		{"plain", `{}`}, {"own", `{"koordinator.sh/cpuBurst":"{\"policy\":\"cpuBurstOnly\",\"cpuBurstPercent\":50}"}`},
	} {
		c.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","annotations":%s},"spec":{"containers":[{"name":"c","image":"registry.local/pause:1",
			"imagePullPolicy":"Never","resources":{"requests":{"cpu":"100m","memory":"16Mi"},"limits":{"cpu":"300m","memory":"64Mi"}}}]}}`, pod.name, pod.annotations))
		n.AwaitRunning(pod.name)
	}
	line := fmt.Sprintf(`PATH=%s:$PATH
collect --interval 500ms %s --node %[3]s --slo-config koordinator-system/slo-controller-config | advise --policy koordinator |
isolate --node %[3]s --journal /run/isolate > /dev/null`, binaries.Dir(t), n.account("collect", "policy=koordinator"), n.Name)
	cmd := n.Command(context.Background(), "sh", "-c", line)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	endAfter(t, n, cmd)
	// has returns what a pod's cgroups lack of a quota and a burst in microseconds.
	has := func(pod, quota, burst string) string {
		for _, cgroup := range []string{n.ContainerCgroup(pod, "c"), n.PodCgroup(pod)} {
			for file, want := range map[string]string{"cpu.cfs_quota_us": quota, "cpu.cfs_burst_us": burst} {
				if got := n.ReadCgroup("cpu", cgroup, file); got != want {
					return fmt.Sprintf("%s of %s is %s; want %s", file, cgroup, got, want)
				}
			}
		}
		return ""
	}
	both := func(what, plain, own string) {
		t.Helper()
		n.Eventually(controlplane.Soon, what, func() string {
			if lacks := has("plain", "30000", plain); lacks != "" {
				return lacks
			}
			return has("own", "30000", own)
		})
	}
	both("the annotation's burst", "0", "15000")
	burst("cpuBurstOnly")
	both("the ConfigMap's burst, held to the quota", "30000", "15000")

	c.Kubectl("patch", "pod", "plain", "--subresource", "resize", "-p", `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"200m"}}}]}}`)
	n.Eventually(controlplane.Soon, "a lower limit under the burst", func() string { return has("plain", "20000", "20000") })
	c.Kubectl("patch", "pod", "plain", "--subresource", "resize", "-p", `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"300m"}}}]}}`)
	both("the first limit", "30000", "15000")

	burst("none")
	both("no burst but the annotation's", "0", "15000")
	c.Kubectl("annotate", "pod", "own", "koordinator.sh/cpuBurst-")
	both("no burst", "0", "0")
}
