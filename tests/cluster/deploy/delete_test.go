package deploy

import (
	"fmt"
	"strings"
	"testing"
)

// With evict.action=delete, a node's token may delete that node's pods, and no others.
func TestDeleteOwnPodsAlone(t *testing.T) {
	c := cluster(t)
	for _, node := range []string{"del-1", "del-2"} {
		c.MakeNode(node, "4", "8Gi")
	}
	for name, node := range map[string]string{"del-mine": "del-1", "del-mine-too": "del-1", "del-theirs": "del-2", "del-nobodys": ""} {
		c.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores"}},"spec":{"nodeName":%q,"schedulerName":"none","terminationGracePeriodSeconds":0,"containers":[{"name":"main","image":"none"}]}}`, name, node))
	}
	podOn(c, "del-service", "del-1", "", "")
	c.Apply(template(t, "form=single", "serviceAccount.perTool=true", "scheduler.enabled=true", "evict.action=delete"))
	t.Cleanup(func() {
		c.Apply(template(t, "form=single", "serviceAccount.perTool=true", "scheduler.enabled=true"))
		c.Kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "polder-own-pods")
	})
	pod := func(name string) request { return remove(core + "/namespaces/default/pods/" + name) }
	const policy = "ValidatingAdmissionPolicy 'polder-own-pods' with binding 'polder-own-pods' denied request: "
	for _, of := range []struct{ account, mine string }{{"polder-evict", "del-mine"}, {"polder", "del-mine-too"}} {
		mine, unbound := account(t, c, of.account, "del-1"), account(t, c, of.account, "")
		answered(t, []attempt{
			{"another node's", mine, pod("del-theirs"), policy + "Polder's token is of node del-1: it may not delete pods of del-2"},
			{"no node's", mine, pod("del-nobodys"), policy + "Polder's token is of node del-1: it may not delete pods of no node"},
			{"with a token of no node", unbound, pod(of.mine), policy + "Polder's token names no node"},
			{"a service", mine, pod("del-service"), policy + "Polder may delete only reclaimed pods"},
			{"all at once", mine, remove(core + "/namespaces/default/pods"), "cannot deletecollection"},
			{"its own", mine, pod(of.mine), ""},
		})
	}
	if got := c.Kubectl("get", "pods", "-o", "name"); strings.Contains(got, "del-mine") || !strings.Contains(got, "del-theirs") || !strings.Contains(got, "del-nobodys") {
		t.Errorf("there are %s; want the other nodes' pods", got)
	}
	// Other accounts' deletions are not affected.
	c.Kubectl("delete", "pod", "del-theirs", "del-nobodys", "del-service", "--grace-period=0", "--force")
	if strings.Contains(template(t), "polder-own-pods") {
		t.Error("the policy exists without the permission")
	}
}
