// Package centre tests evict fleet and report fleet on the real API, with ticks as collect fleet writes them.
package centre

import (
	"encoding/json"
	"fmt"
	"net/http"
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

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}, define) }

func define(c *controlplane.ControlPlane) {
	c.ApplyFile(crds)
	c.Established()
}

// cluster is a control plane with the definitions.
type cluster struct {
	*controlplane.ControlPlane
	t *testing.T
}

func begin(t *testing.T) *cluster {
	t.Helper()
	return &cluster{controlplane.Shared(t), t}
}

// node creates a node; the end of the test deletes it, and its CustomNodeResource.
func (c *cluster) node(name string) {
	c.t.Helper()
	c.t.Cleanup(func() {
		c.API(http.MethodDelete, nodePath+name, "")
		c.API(http.MethodDelete, cnrPath+name, "")
	})
	c.MakeNode(name, "48", "195924424Ki", milliCPU, "44k", memory, "195257901056")
}

// tool starts one of the fleet controller's tools. A tick may wait long for it on a busy machine.
func (c *cluster) tool(name string, args ...string) *pipe.Tool {
	c.t.Helper()
	return pipe.Start(c.t, name, append([]string{"fleet", "--max-age", "10m", "--kubeconfig", c.AccountFor("centre")}, args...)...)
}

// state is the cluster's state of a node: the offers of the Node and the CustomNodeResource, the mark, the taints with their
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

// heard is a node's current tick, in a fleet of so many nodes of which some are not ready: the agent's state since then.
func heard(node, agent string, since time.Time, nodes, notReady int, pods ...tick.Pod) *tick.Tick {
	return &tick.Tick{V: 1, Node: node, Time: time.Now().UTC(), Sample: &tick.Sample{
		IntervalSeconds: new(10.0),
		Agent:           &tick.Agent{State: agent, Since: since.UTC().Format(time.RFC3339Nano)},
		Fleet:           &tick.Fleet{Nodes: nodes, Ready: nodes - notReady, NotReady: notReady},
		Pods:            pods,
	}}
}

// decided is the tick with evict fleet's decision.
func decided(t *tick.Tick, tainted, held bool) *tick.Tick {
	t.Eviction = &tick.Eviction{Fleet: &tick.FleetEviction{Held: held}}
	if tainted {
		key, effect, _ := strings.Cut(unfit, ":")
		t.Eviction.Taints = []tick.Taint{{Key: key, Effect: effect}}
	}
	return t
}

// stateOf is the state of the fleet's target in report's section.
func stateOf(out *tick.Tick) string {
	i := slices.IndexFunc(out.Report.Targets, func(t tick.Target) bool { return t.Target == "fleet" })
	if i < 0 {
		return ""
	}
	return out.Report.Targets[i].State
}

// settle sends a tick to report again and again until nothing is left to do.
func (c *cluster) settle(x *pipe.Tool, next func() *tick.Tick) {
	c.t.Helper()
	c.Eventually(controlplane.Soon, "nothing is left to do", func() string {
		if out := x.Put(next()); stateOf(out) != tick.TargetUnchanged {
			return fmt.Sprintf("%+v", out.Report.Targets)
		}
		return ""
	})
}
