package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
)

// A pod that is resized in place has in the sample what the scheduler counts: a size that kubelet refuses for ever does not count, one that
// it has put off does. The limits are never above the actual ones. Under the policy "static" kubelet refuses to resize Guaranteed pods; the
// API server itself refuses more CPUs than the node has.
func resized(t *testing.T, n *Node) {
	n.clear(t)
	resources := func(request, limit, memory string) string {
		return fmt.Sprintf(`{"requests":{"cpu":%q,"memory":%q},"limits":{"cpu":%q,"memory":"64Mi"}}`, request, memory, limit)
	}
	memory := map[string]string{"guaranteed": "64Mi", "burstable": "16Mi"}
	n.Apply(n.plain("guaranteed", resources("500m", "500m", memory["guaranteed"])))
	n.Apply(n.plain("burstable", resources("100m", "300m", memory["burstable"])))
	n.AwaitRunning("guaranteed")
	n.AwaitRunning("burstable")
	w := n.pipe(t)
	for _, step := range []struct {
		pod, request, limit, condition string
		counted, limited               float64
	}{
		{"burstable", "200m", "400m", "", 200, 400},
		{"guaranteed", "600m", "600m", "PodResizePending Infeasible", 500, 500},
		{"burstable", "900m", "900m", "PodResizePending Deferred", 900, 400},
		{"burstable", "100m", "200m", "", 100, 200},
	} {
		what := fmt.Sprintf("requests of %s and limits of %s for %s", step.request, step.limit, step.pod)
		n.Kubectl("patch", "pod", step.pod, "--subresource", "resize", "-p",
			fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":%s}]}}`, resources(step.request, step.limit, memory[step.pod])))
		n.Eventually(controlplane.Soon, "kubelet's answer to "+what, func() string {
			got := n.Kubectl("get", "pod", step.pod, "-o",
				`jsonpath={range .status.conditions[?(@.status=="True")]}{.type} {.reason}{"\n"}{end}`)
			return lacksCondition(got, step.condition)
		})
		w.until(what, func(x *tick.Tick) string {
			p := podIn(x, step.pod)
			if p == nil || p.Requests == nil || p.Limits == nil || p.Requests.MilliCPU == nil || p.Limits.MilliCPU == nil {
				return fmt.Sprintf("the pod is %+v", p)
			}
			if *p.Requests.MilliCPU != step.counted || *p.Limits.MilliCPU != step.limited {
				return fmt.Sprintf("requests of %v, limits of %v; want %v and %v", *p.Requests.MilliCPU, *p.Limits.MilliCPU, step.counted, step.limited)
			}
			return ""
		})
	}
}

// lacksCondition returns what the conditions of a pod, one in each line, lack: the one of its resize, or, if that is "", that there is none.
func lacksCondition(conditions, want string) string {
	if want == "" && !strings.Contains(conditions, "PodResize") || want != "" && slices.Contains(strings.Split(conditions, "\n"), want) {
		return ""
	}
	return fmt.Sprintf("the conditions are %q; want %q", conditions, want)
}
