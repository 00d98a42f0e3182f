package profiles

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"polder/tests/cluster/controlplane"
)

const batchCPU, batchMemory = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"

// Pods that a profile assigns to koord-scheduler are bound to the node with most batch resources left, and wait if there are none.
func TestScheduling(t *testing.T) {
	c := cluster(t)
	ns := space(t, c, "schedule", map[string]string{"schedule-batch": `{"qosClass":"BE","priorityClassName":"koord-batch","schedulerName":"koord-scheduler"}`})
	c.MakeNode("plain", "96", "400Gi")
	c.MakeNode("small", "48", "195924424Ki", batchCPU, "10k", batchMemory, "100Gi")
	// Less of all other resources, more of the offered ones.
	c.MakeNode("large", "24", "97962212Ki", batchCPU, "36k", batchMemory, "100Gi")
	c.SeenByScheduler("koord-scheduler", "plain", "small", "large")
	create := func(name, requests string) {
		t.Helper()
		if status, answer := c.API("POST", podsOf(ns), pod(name, "{}", "", container("c", requests, requests))); status != http.StatusCreated {
			t.Fatalf("status %d: %s", status, answer)
		}
	}
	// The fractions left: 4 of 10 against 30 of 36, 24 of 36, 18 of 36, and then 12 of 36.
	var got []string
	for i := range 4 {
		name := fmt.Sprintf("p%d", i)
		create(name, `"cpu":"6"`)
		got = append(got, node(t, c, ns, name))
	}
	if want := "large large large small"; strings.Join(got, " ") != want {
		t.Errorf("the pods are on %v, want %s", got, want)
	}
	// 4 and 18 are left.
	create("too-large", `"cpu":"18001m"`)
	waits := func() string {
		return c.Kubectl("-n", ns, "get", "pod", "too-large", "-o", `jsonpath={.status.phase} {.status.conditions[?(@.type=="PodScheduled")].reason}: {.status.conditions[?(@.type=="PodScheduled")].message}`)
	}
	c.Eventually(soon, "too-large has the reason in its condition", func() string {
		if got := waits(); !strings.HasPrefix(got, "Pending Unschedulable: 0/3 nodes are available: ") || !strings.Contains(got, "3 Insufficient "+batchCPU) {
			return "so far: " + got
		}
		return ""
	})
	c.Eventually(soon, "the event", func() string {
		got := c.Kubectl("-n", ns, "get", "events", "--field-selector", "involvedObject.name=too-large", "-o", "jsonpath={range .items[*]}{.type} {.reason} {.message}{end}")
		if !strings.HasPrefix(got, "Warning FailedScheduling ") || !strings.Contains(got, "Insufficient "+batchCPU) {
			return "there is " + got
		}
		return ""
	})
	// When the node offers more, the pod is bound.
	c.Kubectl("patch", "node", "large", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":{"allocatable":{%q:"37k"},"capacity":{%q:"37k"}}}`, batchCPU, batchCPU))
	if got := node(t, c, ns, "too-large"); got != "large" {
		t.Errorf("it is on %s", got)
	}
}

// node waits until a pod is bound, and returns its node.
func node(t *testing.T, c *controlplane.ControlPlane, namespace, name string) string {
	t.Helper()
	var p struct {
		Spec   struct{ NodeName string }
		Status struct{ Conditions []struct{ Message string } }
	}
	c.Eventually(soon, name+" is bound", func() string {
		if c.Get(podsOf(namespace)+"/"+name, &p); p.Spec.NodeName == "" {
			return fmt.Sprint("it waits: ", p.Status)
		}
		return ""
	})
	return p.Spec.NodeName
}
