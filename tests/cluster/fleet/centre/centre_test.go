// Package centre shows evict --fleet and report --fleet on the real API, by ticks as collect --fleet writes them.
package centre

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

const (
	crds     = "../../../../deploy/kubernetes/crds/customnoderesources.yaml"
	cnrPath  = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources/"
	nodePath = "/api/v1/nodes/"
	milliCPU = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
	memory   = "resource.katalyst.kubewharf.io/reclaimed_memory"
	mark     = "polder/withdrawn"
	unfit    = "node.kubernetes.io/unschedulable:NoScheduleForReclaimedTasks"
)

// shared is the control plane of the package's tests.
var shared *controlplane.Plane

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if _, err := controlplane.Programs(); err == nil {
			if shared, err = controlplane.Open(controlplane.Options{}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			defer shared.Close()
		}
		return pipe.Main(m)
	}())
}

// accounts may do what the manuals say, and no more: a node's report, and the centre.
const accounts = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: report, namespace: kube-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: centre, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: report}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
- {apiGroups: [node.katalyst.kubewharf.io], resources: [customnoderesources], verbs: [get, list, watch, create, patch]}
- {apiGroups: [node.katalyst.kubewharf.io], resources: [customnoderesources/status], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: centre}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch, patch]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
- {apiGroups: [node.katalyst.kubewharf.io], resources: [customnoderesources], verbs: [get, list, watch, create, patch]}
- {apiGroups: [node.katalyst.kubewharf.io], resources: [customnoderesources/status], verbs: [patch]}
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: report}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: report}
subjects: [{kind: ServiceAccount, name: report, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: centre}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: centre}
subjects: [{kind: ServiceAccount, name: centre, namespace: kube-system}]
`

// cluster is the control plane with the accounts and the definitions.
type cluster struct {
	*controlplane.ControlPlane
	t *testing.T
}

func begin(t *testing.T) *cluster {
	t.Helper()
	controlplane.Need(t)
	return furnish(t, shared.For(t))
}

func furnish(t *testing.T, plane *controlplane.ControlPlane) *cluster {
	t.Helper()
	c := &cluster{plane, t}
	c.Apply(accounts)
	c.ApplyFile(crds)
	c.Kubectl("wait", "--for=condition=Established", "crd/customnoderesources.node.katalyst.kubewharf.io")
	return c
}

// node makes a node; the test's end takes it away, with its CustomNodeResource.
func (c *cluster) node(name string) {
	c.t.Helper()
	c.t.Cleanup(func() {
		c.API(http.MethodDelete, nodePath+name, "")
		c.API(http.MethodDelete, cnrPath+name, "")
	})
	c.MakeNode(name, "48", "195924424Ki", milliCPU, "44k", memory, "195257901056")
}

// tool starts one of the centre's tools.
func (c *cluster) tool(name string, args ...string) *pipe.Tool {
	c.t.Helper()
	return pipe.Start(c.t, name, append([]string{"--fleet", "--kubeconfig", c.KubeconfigFor("kube-system", "centre")}, args...)...)
}

// state is what the cluster has of a node: what the Node and the CustomNodeResource offer, the mark, the taints with their
// class and the conditions without their heartbeat.
type state struct {
	offers, cnrOffers, mark string
	taints                  []string
	conditions              map[string]string
	version                 string
}

func (c *cluster) state(name string) state {
	c.t.Helper()
	var n struct {
		Metadata struct {
			ResourceVersion string
			Annotations     map[string]string
		}
		Status struct{ Capacity, Allocatable map[string]string }
	}
	c.Get(nodePath+name, &n)
	s := state{mark: n.Metadata.Annotations[mark], version: n.Metadata.ResourceVersion, conditions: map[string]string{}}
	if n.Status.Capacity["cpu"] != "48" {
		c.t.Errorf("%s: the node has lost its own resources: %v", name, n.Status.Capacity)
	}
	if s.offers = n.Status.Allocatable[milliCPU]; s.offers != n.Status.Capacity[milliCPU] {
		s.offers += " of " + n.Status.Capacity[milliCPU]
	}
	status, body := c.API(http.MethodGet, cnrPath+name, "")
	if status == http.StatusNotFound {
		return s
	}
	var o struct {
		Metadata struct{ ResourceVersion string }
		Spec     struct {
			Taints []struct{ Key, Effect, QosLevel string }
		}
		Status struct {
			Resources  struct{ Allocatable map[string]string }
			Conditions []struct{ Type, Status, Reason, LastTransitionTime string }
		}
	}
	if err := json.Unmarshal(body, &o); err != nil {
		c.t.Fatal(err)
	}
	s.version += " " + o.Metadata.ResourceVersion
	s.cnrOffers = o.Status.Resources.Allocatable[milliCPU]
	for _, t := range o.Spec.Taints {
		s.taints = append(s.taints, t.Key+":"+t.Effect+" "+t.QosLevel)
	}
	for _, x := range o.Status.Conditions {
		s.conditions[x.Type] = strings.Join([]string{x.Status, x.Reason, x.LastTransitionTime}, " ")
	}
	return s
}

// heard is a node's tick of now, in a fleet of so many nodes of which some are not ready: the agent's state since then.
func heard(node, agent string, since time.Time, nodes, notReady int, pods ...tick.Pod) *tick.Tick {
	return &tick.Tick{V: 1, Node: node, Time: time.Now().UTC(), Sample: &tick.Sample{
		IntervalSeconds: tick.Ptr(10.0),
		Agent:           &tick.Agent{State: agent, Since: since.UTC().Format(time.RFC3339Nano)},
		Fleet:           &tick.Fleet{Nodes: nodes, Ready: nodes - notReady, NotReady: notReady},
		Pods:            pods,
	}}
}

// decided is the tick with what evict --fleet says of it.
func decided(t *tick.Tick, tainted, held bool) *tick.Tick {
	t.Eviction = &tick.Eviction{Fleet: &tick.FleetEviction{Held: held}}
	if tainted {
		key, effect, _ := strings.Cut(unfit, ":")
		t.Eviction.Taints = []tick.Taint{{Key: key, Effect: effect}}
	}
	return t
}

// settle gives report a tick again and again until nothing is left to do, and returns all that it said.
func (c *cluster) settle(x *pipe.Tool, next func() *tick.Tick) []tick.Target {
	c.t.Helper()
	var all []tick.Target
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		last := x.Put(next()).Report.Targets
		all = append(all, last...)
		if i := slices.IndexFunc(last, func(t tick.Target) bool { return t.Target == "fleet" }); i >= 0 && last[i].State == tick.TargetUnchanged {
			return all
		}
	}
	c.t.Fatalf("not settled: %+v", all[len(all)-1])
	return nil
}
