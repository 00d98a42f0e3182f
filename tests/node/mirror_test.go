package node

import (
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
)

// kubelet does not run a pod of the API that looks like the mirror of a static pod, and removes it. The chart's admission policies, which
// allow no eviction of a pod with that annotation, rely on it.
func TestForgedMirrorDoesNotRun(t *testing.T) {
	n := sharedNode(t)
	n.Apply(n.plain("real", "{}"))
	n.Apply(strings.Replace(n.plain("forged", "{}"), "{name: forged}",
		`{name: forged, annotations: {kubernetes.io/config.mirror: "0"}}`, 1))
	n.AwaitRunning("real")
	n.Eventually(controlplane.Soon, "kubelet removes the forged pod", func() string {
		phase := n.Kubectl("get", "pod", "forged", "--ignore-not-found", "-o", "jsonpath={.metadata.name} {.status.phase}")
		if strings.HasSuffix(phase, "Running") {
			t.Fatalf("kubelet runs it: %s", phase)
		}
		return phase
	})
}
