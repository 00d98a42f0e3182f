package controlplane

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

const soon = Soon

// Most tests share a control plane, whose scheduler configuration has the form of a shipped file.
func TestMain(m *testing.M) {
	Main(m, Options{SchedulerConfig: "testdata/scheduler.yaml"}, nil)
}

const widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.polder}
spec:
  group: test.polder
  scope: Cluster
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wg]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
`

// pod is a pod with a request, and optional further fields of its spec.
func pod(name, cpu, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, labels: {app: %s}}
spec:
  containers: [{name: main, image: none, resources: {requests: {%s}}}]
%s`, name, name, cpu, more)
}

func (c *ControlPlane) bound(t *testing.T, name, node string) {
	t.Helper()
	c.Eventually(soon, name+" is bound", func() string {
		var pod struct {
			Spec   struct{ NodeName string }
			Status json.RawMessage
		}
		c.Get("/api/v1/namespaces/default/pods/"+name, &pod)
		if pod.Spec.NodeName == node {
			return ""
		}
		return "on node " + pod.Spec.NodeName + ": " + string(pod.Status)
	})
}

func resident(c *ControlPlane) (total int64) {
	for _, bytes := range c.ResidentBytes() {
		total += bytes
	}
	return total >> 20
}

// The API server and the scheduler.
func TestScheduler(t *testing.T) {
	c := Shared(t)
	c.Apply(widgets)
	c.Established()
	c.Apply("apiVersion: test.polder/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n")
	if got := c.Kubectl("get", "wg", "w", "-o", "jsonpath={.spec.size}"); got != "3" {
		t.Errorf("the widget's size is %q", got)
	}

	t.Cleanup(func() { c.Kubectl("delete", "pods", "--all", "--grace-period=0", "--force") })
	c.MakeNode("n1", "4", "8Gi", "example.com/thing", "5k")
	c.MakeNode("n2", "1", "8Gi")
	c.SeenByScheduler("first", "n1", "n2")
	c.Apply(pod("big", "cpu: 3", "  schedulerName: first\n"))
	c.bound(t, "big", "n1")
	c.Apply(pod("thing", "cpu: 100m", "  schedulerName: second\n"))
	c.bound(t, "thing", "n2") // the less loaded node
	c.Apply(pod("toobig", "cpu: 3", "  schedulerName: second\n"))
	c.Eventually(soon, "toobig is refused", func() string {
		message := c.Kubectl("get", "pod", "toobig", "-o", `jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}`)
		if strings.Contains(message, "Insufficient cpu") {
			return ""
		}
		return message
	})
	t.Logf("%d MiB resident: %v", resident(c), c.ResidentBytes())
}

// Without a controller-manager the test writes its part.
func TestEviction(t *testing.T) {
	evict(t, Shared(t), false)
}

func evict(t *testing.T, c *ControlPlane, managed bool) {
	c.EnsureNamespace("other")
	node := c.OwnName() // the scheduler that knows this node knows that earlier tests' nodes are gone
	c.MakeNode(node, "4", "8Gi")
	c.SeenByScheduler("default-scheduler", node)
	for _, name := range []string{"guarded", "free"} {
		c.Apply(pod(name, "cpu: 1", ""))
		c.bound(t, name, node)
		c.SetPodReady("default", name)
	}
	c.Apply(`apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guard, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
`)
	const budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/guard"
	if !managed {
		c.patch(budget+"/status", map[string]any{"status": map[string]any{
			"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "disruptionsAllowed": 0,
		}})
	}
	c.Eventually(soon, "the budget is counted", func() string {
		var b struct {
			Status struct{ CurrentHealthy int }
		}
		if c.Get(budget, &b); b.Status.CurrentHealthy == 1 {
			return ""
		}
		return fmt.Sprint(b)
	})
	if status, answer := c.Evict("default", "guarded"); status != http.StatusTooManyRequests {
		t.Errorf("eviction of a pod whose budget forbids it: status %d: %s", status, answer)
	}
	if status, answer := c.Evict("default", "free"); status != http.StatusCreated {
		t.Errorf("eviction of a free pod: status %d: %s", status, answer)
	}
	t.Logf("%d MiB resident: %v", resident(c), c.ResidentBytes())
}

// A service account can do what its role allows, and is refused everything else.
func TestServiceAccount(t *testing.T) {
	c := Shared(t)
	c.MakeNode("n1", "4", "8Gi")
	c.Apply(`apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
`)
	as := "--kubeconfig=" + c.KubeconfigFor("default", "reader")
	c.Eventually(soon, "the server knows the role", func() string {
		if got, err := c.TryKubectl("", as, "get", "nodes", "-o", "name"); err != nil || got != "node/n1" {
			return fmt.Sprint(got, err)
		}
		return ""
	})
	for _, refused := range [][]string{{"get", "pods"}, {"delete", "node", "n1"}, {"label", "node", "n1", "a=b"}} {
		if out, err := c.TryKubectl("", append(refused, as)...); err == nil || !strings.Contains(err.Error(), "Forbidden") {
			t.Errorf("kubectl %v: %s %v, want it forbidden", refused, out, err)
		}
	}
}

// With a controller-manager, in a namespace that it completes. The programs and files of a control plane end with it.
func TestClose(t *testing.T) {
	Need(t, programs...)
	start := time.Now()
	p, err := Open(Options{Scheduler: true, ControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %.1f s", time.Since(start).Seconds())
	t.Run("eviction", func(t *testing.T) { evict(t, p.For(t), true) })
	var pids []int
	for _, one := range p.all() {
		pids = append(pids, one.PID)
	}
	if len(pids) != 4 {
		t.Errorf("%d programs run", len(pids))
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
	if _, err := os.Stat(p.Dir()); err == nil {
		t.Errorf("%s is still there", p.Dir())
	}
}

// A port that another process takes between its choice and its use costs another attempt, for each program.
func TestPortTaken(t *testing.T) {
	Need(t, programs...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken, tries := l.Addr().(*net.TCPAddr).Port, 0
	choosePorts = func() (ports, error) {
		p, err := freePorts()
		switch tries++; tries {
		case 1:
			p.etcd = taken
		case 2:
			p.api = taken
		}
		return p, err
	}
	defer func() { choosePorts = freePorts }()
	c := Start(t, Options{})
	if tries != 3 {
		t.Errorf("%d attempts", tries)
	}
	t.Run("outage", func(t *testing.T) { outage(t, c.Plane.For(t)) })
}

// The server is away, and back with all data; then suspended, and back.
func outage(t *testing.T, c *ControlPlane) {
	c.MakeNode("n1", "4", "8Gi")
	c.Kubectl("create", "configmap", "kept", "--from-literal=a=b")
	c.StopAPIServer()
	if out, err := c.TryKubectl("", "get", "nodes"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("kubectl with no API server: %s %v", out, err)
	}
	start := time.Now()
	c.StartAPIServer()
	t.Logf("back in %.1f s", time.Since(start).Seconds())
	if got := c.Kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}"); got != "b" {
		t.Errorf("the value is %q", got)
	}
	if got := c.Kubectl("get", "nodes", "-o", "name"); got != "node/n1" {
		t.Errorf("the nodes are %q", got)
	}
	c.FreezeAPIServer()
	if _, err := c.TryKubectl("", "get", "nodes", "--request-timeout=1s"); err == nil {
		t.Error("a frozen API server answers")
	}
	c.ThawAPIServer()
	c.Kubectl("get", "nodes")
}
