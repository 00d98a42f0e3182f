package deploy

import "testing"

// With report.taintNode, a node's token may taint that node with Polder's own keys, and change nothing else of it.
func TestTaintNode(t *testing.T) {
	c := cluster(t)
	c.MakeNode("taint-1", "4", "8Gi")
	c.MakeNode("taint-2", "4", "8Gi")
	c.Kubectl("taint", "node", "taint-1", "team/a=b:NoSchedule")
	c.Kubectl("annotate", "node", "taint-1", "polder/withdrawn=agent not ready")
	c.Apply(template(t, "form=single", "serviceAccount.perTool=true", "scheduler.enabled=true", "report.taintNode=true"))
	t.Cleanup(func() { c.Apply(template(t, "form=single", "serviceAccount.perTool=true", "scheduler.enabled=true")) })
	s := account(t, c, "polder-report", "taint-1")
	node := func(name string) string { return core + "/nodes/" + name }
	const theirs, ours = `{"key":"team/a","value":"b","effect":"NoSchedule"}`, `{"key":"node.katalyst.kubewharf.io/MemoryPressure","effect":"NoSchedule","timeAdded":"2026-11-21T12:00:00Z"}`
	const policy = "ValidatingAdmissionPolicy 'polder-own-taints'"
	taints := func(list string) string { return `{"spec":{"taints":[` + list + `]}}` }
	var attempts []attempt
	for _, one := range []struct {
		name string
		request
		refusal string // empty where it is allowed
	}{
		{"a taint", patch("json", node("taint-1"), `[{"op":"test","path":"/spec/taints","value":[`+theirs+`]},{"op":"replace","path":"/spec/taints","value":[`+theirs+`,`+ours+`]},
			{"op":"test","path":"/metadata/annotations/polder~1taints","value":null},{"op":"add","path":"/metadata/annotations/polder~1taints","value":"node.katalyst.kubewharf.io/MemoryPressure:NoSchedule"}]`), ""},
		{"another node", patch("merge", node("taint-2"), taints(ours)), "Polder's token is of node taint-1: it may not write nodes taint-2"},
		{"without theirs", patch("merge", node("taint-1"), taints(ours)), policy},
		{"theirs changed", patch("merge", node("taint-1"), taints(`{"key":"team/a","value":"b","effect":"NoExecute"},`+ours)), policy},
		{"one that is not ours", patch("merge", node("taint-1"), taints(theirs+`,`+ours+`,{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}`)), "the taints under node.katalyst.kubewharf.io/ alone"},
		{"cordoned", patch("merge", node("taint-1"), `{"spec":{"unschedulable":true}}`), "the taints alone of a node's spec"},
		{"another provider", patch("merge", node("taint-1"), `{"spec":{"providerID":"x://y"}}`), "the taints alone of a node's spec"},
		{"a label", patch("merge", node("taint-1"), `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`), "labels, finalizers or owners"},
		{"an annotation", patch("merge", node("taint-1"), `{"metadata":{"annotations":{"a":"b"}}}`), "the annotation polder/taints alone"},
		{"the fleet controller's mark", patch("merge", node("taint-1"), `{"metadata":{"annotations":{"polder/withdrawn":null}}}`), "the annotation polder/taints alone"},
		{"deleted", remove(node("taint-1")), "cannot delete"},
		{"removed again", patch("json", node("taint-1"), `[{"op":"replace","path":"/spec/taints","value":[`+theirs+`]},{"op":"remove","path":"/metadata/annotations/polder~1taints"}]`), ""},
	} {
		attempts = append(attempts, attempt{one.name, s, one.request, one.refusal})
	}
	answered(t, attempts)
	if got := c.Kubectl("get", "node", "taint-1", "-o", "jsonpath={.spec.taints}{.metadata.annotations}"); got != `[{"effect":"NoSchedule","key":"team/a","value":"b"}]{"polder/withdrawn":"agent not ready"}` {
		t.Errorf("the node has %s", got)
	}
}
