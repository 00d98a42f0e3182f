package report

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// The guide's steps: 44k, 42k, 40k.
func TestGuide(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.start()
	tick44 := func() *tick.Tick {
		in := taint(c.offer(44000, bytes))
		in.Sample = &tick.Sample{
			Topology: &tick.Topology{CPUs: "0-47", Sockets: []string{"0-11,24-35", "12-23,36-47"}, NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: "0-11,24-35"}, {ID: 1, CPUs: "12-23,36-47"}}},
			Pods: []tick.Pod{{
				UID: "u", Namespace: "default", Name: "reclaimed-normal-pod", QoS: tick.QoSReclaimed,
				Requests: &tick.Resources{ReclaimedMilliCPU: new(2000.0)}, Containers: []tick.Container{{CPUSetCPUs: "12-21"}},
			}},
		}
		return in
	}
	if got, want := targetStates(x.Put(tick44())), "cnr pending changed, node pending changed"; got != want {
		t.Errorf("first tick: %s; want %s", got, want)
	}
	c.until(x, tick44, "node written changed")
	c.settle(x, tick44)
	c.eventually(0, "44k", full("44k"))
	out := c.Kubectl("get", "kcnr", c.node)
	if match := `(?m)^guide +44k +195257901056 +\S+$`; !regexp.MustCompile(match).MatchString(out) {
		t.Errorf("kubectl get kcnr: %s", out)
	}
	first := c.cnr()
	zone, _ := at(first, "status", "topologyZone").([]any)
	if len(zone) != 2 {
		t.Fatalf("topologyZone: %v; want two sockets", zone)
	}
	numa, _ := at(zone[1], "children").([]any)
	want := []any{map[string]any{"consumer": "default/reclaimed-normal-pod/u", "requests": map[string]any{milliCPU: "2k"}}}
	if d := cmp.Diff(want, at(numa[0], "allocations")); d != "" {
		t.Errorf("allocations of the second NUMA node (-want +got):\n%s", d)
	}
	owner, _ := at(first, "metadata", "ownerReferences").([]any)
	if len(owner) != 1 || at(owner[0], "uid") != c.Kubectl("get", "node", c.node, "-o", "jsonpath={.metadata.uid}") {
		t.Errorf("owned by %v; want the node", owner)
	}
	fields, _ := at(first, "metadata", "managedFields").([]any)
	applied := false
	for _, f := range fields {
		applied = applied || at(f, "manager") == "polder-report" && at(f, "operation") == "Apply" && at(f, "subresource") == "status"
	}
	if !applied {
		t.Errorf("no server-side apply of the status by polder-report: %v", fields)
	}

	// No change and a small change are not written.
	version := func() string {
		return fmt.Sprint(at(c.cnr(), "metadata", "resourceVersion"), c.Kubectl("get", "node", c.node, "-o", "jsonpath={.metadata.resourceVersion}"))
	}
	before := version()
	for range 20 {
		in := tick44()
		*in.Advice.Reclaimed.MilliCPU += 2000 // 4.5 %
		if got := targetStates(x.Put(in)); got != "cnr unchanged, node unchanged" {
			t.Errorf("a small change: %s", got)
		}
	}
	if after := version(); after != before {
		t.Errorf("written needlessly: %s, %s", before, after)
	}

	// A smaller offer is written at once, with a taint.
	c.until(x, func() *tick.Tick { in := taint(c.offer(42000, bytes)); in.Sample = tick44().Sample; return in }, "cnr written changed")
	c.eventually(controlplane.Soon, "42k", full("42k"))
	tick40 := func() *tick.Tick { return taint(c.offer(40000, bytes), "CPUPressure") }
	x.Put(tick40())
	c.eventually(controlplane.Soon, "40k", full("40k"))
	c.Eventually(controlplane.Soon, "kubectl get kcnr with the taint", func() string {
		out := c.Kubectl("get", "kcnr", c.node)
		if strings.Contains(out, "node.katalyst.kubewharf.io/CPUPressure") && strings.Contains(out, "40k") {
			return ""
		}
		return "so far: " + out
	})
	c.settle(x, tick40)
	spec := c.Kubectl("get", "kcnr", c.node, "-o", "jsonpath={.spec}")
	if !regexp.MustCompile(`^\{"taints":\[\{"effect":"NoSchedule","key":"node.katalyst.kubewharf.io/CPUPressure","qosLevel":"reclaimed_cores","timeAdded":"[^"]+Z"\}\]\}$`).MatchString(spec) {
		t.Errorf("spec: %s", spec)
	}
	c.until(x, func() *tick.Tick { return taint(c.offer(40000, bytes)) }, "cnr written changed")
	if got := c.taints(); len(got) > 0 {
		t.Errorf("taints: %v; want none", got)
	}
	if err := x.End(); err != nil {
		t.Errorf("end of input: %v", err)
	}
	c.eventually(0, "40k", full("40k")) // stopping is not withdrawing
}

// The interval has passed after which a small change is written.
func TestResync(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.start("--resync", "3s")
	c.settle(x, c.same(40000, bytes))
	c.until(x, c.same(41000, bytes), "cnr written changed")
	c.eventually(controlplane.Soon, "41k", full("41k"))
}

// One process for many nodes.
func TestAllNodes(t *testing.T) {
	t.Parallel()
	c := begin(t)
	const nodes = 40
	for i := range nodes {
		c.MakeNode(fmt.Sprintf("all-%d", i), "48", "195924424Ki")
	}
	x := pipe.Start(t, "report", "--max-age", "10m", "--to", "cnr,node", "--kubeconfig", c.kubeconfig, "--all-nodes")
	for _, milli := range []int64{44000, 42000, 40000} {
		for i := range nodes {
			c.node = fmt.Sprintf("all-%d", i)
			x.Put(c.offer(milli-int64(i), bytes))
		}
	}
	c.node = "../../x"
	if got := targetStates(x.Put(c.offer(1, 1))); !strings.Contains(got, `node failed: "../../x" is not a name of a node in a cluster`) {
		t.Errorf("an invalid name: %s", got)
	}
	if err := x.End(); err != nil { // waits for the writes
		t.Fatal(err)
	}
	for i := range nodes {
		c.node = fmt.Sprintf("all-%d", i)
		want := fmt.Sprint(40000 - i)
		if i == 0 {
			want = "40k"
		}
		c.eventually(0, want, full(want))
	}
}

// A node that is deleted and has no more ticks is forgotten by the process for all nodes: that is no failure, and nothing is to be set.
func TestDeletedNode(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.MakeNode("deleted-1", "48", "195924424Ki")
	x := pipe.Start(t, "report", "--max-age", "10m", "--to", "cnr,node", "--kubeconfig", c.kubeconfig, "--all-nodes", "--stale-after", "3s")
	remaining := c.node
	put := func(node string) string {
		c.node = node
		return targetStates(x.Put(c.offer(44000, bytes)))
	}
	for _, node := range []string{"deleted-1", remaining} {
		c.Eventually(controlplane.Soon, "the offer of "+node, func() string {
			put(node)
			if got := c.offered(milliCPU, memory); got != fmt.Sprintf("44k %d", bytes) {
				return got
			}
			return ""
		})
	}
	c.Kubectl("delete", "node", "deleted-1")
	for range 20 {
		put(remaining)
		time.Sleep(500 * time.Millisecond)
	}
	if err := x.End(); err != nil || strings.Contains(x.Log(), "level=ERROR") {
		t.Errorf("%v\n%s", err, x.Log())
	}
}

// A single tick is written before the tool ends.
func TestOneTick(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.start()
	x.Put(c.offer(44000, bytes))
	if err := x.End(); err != nil {
		t.Fatal(err)
	}
	c.eventually(0, "44k", full("44k"))
	x = pipe.Start(t, "report", "--max-age", "10m", "--to", "node", "--kubeconfig", c.kubeconfig, "--node", "unknown")
	c.node = "unknown"
	x.Put(c.offer(44000, bytes))
	if err := x.End(); err == nil || !strings.Contains(x.Log(), `not written at the end of the input: the cluster has no node "unknown"`) {
		t.Errorf("exit %v, log %s", err, x.Log())
	}
}
