// Package report tests report --to cnr and --to node on the real API.
package report

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

const (
	crds     = "../../../deploy/kubernetes/crds/customnoderesources.yaml"
	milliCPU = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
	memory   = "resource.katalyst.kubewharf.io/reclaimed_memory"
	bytes    = int64(195257901056)
)

// The tests share a control plane, with a scheduler and the definitions.
func TestMain(m *testing.M) {
	controlplane.Main(m, controlplane.Options{Scheduler: true}, define)
}

func define(c *controlplane.ControlPlane) {
	for _, crd := range []string{crds, nodeMetricCRD} {
		c.ApplyFile(crd)
	}
	c.Established()
}

// toAll makes the chart grant report the permissions of all its targets.
const toAll = "report.to={cnr,node,nodemetric}"

// cluster is a control plane with a node and an account for the test.
type cluster struct {
	*controlplane.ControlPlane
	t                *testing.T
	node, kubeconfig string
}

// begin creates a node for the test in the shared control plane.
func begin(t *testing.T) *cluster {
	t.Helper()
	return beginOn(t, controlplane.Shared(t))
}

// beginOn is begin in a control plane for the test alone, which has the definitions.
func beginOn(t *testing.T, plane *controlplane.ControlPlane) *cluster {
	t.Helper()
	c := &cluster{plane, t, plane.OwnName(), plane.AccountFor("report", toAll)}
	node := c.node
	t.Cleanup(func() { // for -count
		c.API(http.MethodDelete, cnrPath+node, "")
		c.API(http.MethodDelete, nodeMetricPath+node, "")
	})
	c.MakeNode(c.node, "48", "195924424Ki")
	return c
}

// bare is a control plane for the test alone, with a node and an account without any permission, and no definitions.
func bare(t *testing.T, node string) *cluster {
	t.Helper()
	c := &cluster{controlplane.Start(t, controlplane.Options{}), t, node, ""}
	c.MakeNode(node, "48", "195924424Ki")
	c.kubeconfig = c.KubeconfigFor("default", "default")
	return c
}

// start starts report for the node. A tick may wait long for it on a busy machine, but not for an hour.
func (c *cluster) start(args ...string) *pipe.Tool {
	c.t.Helper()
	return pipe.Start(c.t, "report", append([]string{"--max-age", "10m", "--to", "cnr,node", "--kubeconfig", c.kubeconfig, "--node", c.node, "--grow-interval", "0s", "--min-interval", "30s"}, args...)...)
}

// offer is a current tick with this offer.
func (c *cluster) offer(milli, bytes int64) *tick.Tick {
	return &tick.Tick{
		V: 1, Node: c.node, Time: time.Now().UTC(),
		Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: &milli, MemoryBytes: &bytes}},
	}
}

// taint adds taints to the tick, and, if it has no sample, pods that request more than the offer, so that the taints do not
// lower it.
func taint(in *tick.Tick, keys ...string) *tick.Tick {
	in.Eviction = &tick.Eviction{}
	if in.Sample == nil {
		in.Sample = &tick.Sample{Pods: []tick.Pod{{
			UID: "u", Namespace: "d", Name: "large", QoS: tick.QoSReclaimed,
			Requests: &tick.Resources{ReclaimedMilliCPU: new(1e6), ReclaimedMemoryBytes: new(1e15)},
		}}}
	}
	for _, k := range keys {
		in.Eviction.Taints = append(in.Eviction.Taints, tick.Taint{Key: "node.katalyst.kubewharf.io/" + k, Effect: "NoSchedule"})
	}
	return in
}

// targetStates lists the states of a tick's targets: "cnr written, node unchanged".
func targetStates(out *tick.Tick) string {
	var words []string
	for _, t := range out.Report.Targets {
		word := t.Target + " " + t.State
		if t.Changed {
			word += " changed"
		}
		if t.Error != "" {
			word += ": " + t.Error
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// until sends ticks to the tool until the targets' states match.
func (c *cluster) until(x *pipe.Tool, next func() *tick.Tick, pattern string) {
	c.t.Helper()
	match := regexp.MustCompile(pattern)
	c.Eventually(controlplane.Soon, "report's targets: "+pattern, func() string {
		if last := targetStates(x.Put(next())); !match.MatchString(last) {
			return "it reports " + last
		}
		return ""
	})
}

// settle sends the same figures to the tool until nothing is left to write.
func (c *cluster) settle(x *pipe.Tool, next func() *tick.Tick) {
	c.t.Helper()
	c.until(x, next, "^cnr unchanged, node unchanged$")
}

// holds waits until the cluster has these figures while the tool gets ticks: between two of them it may withdraw what it has written.
func (c *cluster) holds(x *pipe.Tool, next func() *tick.Tick, cnr, node string) {
	c.t.Helper()
	c.Eventually(controlplane.Soon, "the figures "+cnr+" and "+node, func() string {
		x.Put(next())
		if gotCNR, gotNode := c.inCNR(), c.onNode(); gotCNR != cnr || gotNode != node {
			return gotCNR + " and " + gotNode
		}
		return ""
	})
}

func (c *cluster) same(milli, bytes int64) func() *tick.Tick {
	return func() *tick.Tick { return c.offer(milli, bytes) }
}

const cnrPath = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources/"

func (c *cluster) cnr() map[string]any {
	c.t.Helper()
	var o map[string]any
	status, body := c.API(http.MethodGet, cnrPath+c.node, "")
	if status == http.StatusNotFound {
		return nil
	}
	if err := json.Unmarshal(body, &o); err != nil {
		c.t.Fatal(err)
	}
	return o
}

// onNode is the node's status: capacity and allocatable of the two resources and of another one.
func (c *cluster) onNode() string {
	c.t.Helper()
	var o struct {
		Status struct{ Capacity, Allocatable map[string]string }
	}
	c.Get("/api/v1/nodes/"+c.node, &o)
	brief := func(l map[string]string) string { return fmt.Sprint(l[milliCPU], " ", l[memory], " ", l["cpu"]) }
	if a, b := brief(o.Status.Capacity), brief(o.Status.Allocatable); a != b {
		return a + " but " + b
	}
	return brief(o.Status.Capacity)
}

// at is the value at a path.
func at(v any, path ...string) any {
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// inCNR is the CPU that the object offers under both names; empty where it has no offer.
func (c *cluster) inCNR() string {
	o := c.cnr()
	var all []string
	for _, path := range [][]string{
		{"resourceAllocatable", "katalyst.kubewharf.io/reclaimed_millicpu"},
		{"resourceCapacity", "katalyst.kubewharf.io/reclaimed_millicpu"},
		{"resources", "allocatable", milliCPU},
		{"resources", "capacity", milliCPU},
	} {
		text, _ := at(o, append([]string{"status"}, path...)...).(string)
		all = append(all, text)
	}
	if all[0] == all[1] && all[0] == all[2] && all[0] == all[3] {
		return all[0]
	}
	return strings.Join(all, "/")
}

// eventually waits for the cluster's state.
func (c *cluster) eventually(within time.Duration, cnr, node string) {
	c.t.Helper()
	c.Eventually(within, "the figures "+cnr+" and "+node, func() string {
		if gotCNR, gotNode := c.inCNR(), c.onNode(); gotCNR != cnr || gotNode != node {
			return gotCNR + " and " + gotNode
		}
		return ""
	})
}

// taints are the object's, as "key=since".
func (c *cluster) taints() []string {
	list, _ := at(c.cnr(), "spec", "taints").([]any)
	var names []string
	for _, t := range list {
		names = append(names, fmt.Sprint(at(t, "key"), ":", at(t, "effect")))
	}
	return names
}

func full(milli string) string { return milli + " 195257901056 48" }

const none = "  48" // a node with its CPUs alone
