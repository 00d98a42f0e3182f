package report

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// pods makes a tick's sample: the reclaimed pods and what each requests.
func pods(in *tick.Tick, milli map[string]float64) *tick.Tick {
	in.Sample = &tick.Sample{}
	for name, m := range milli {
		in.Sample.Pods = append(in.Sample.Pods, tick.Pod{UID: name, Namespace: "default", Name: name, QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: &m}})
	}
	return in
}

// scheduled is the node that a pod is bound to, or the reason why it is not bound.
func (c *cluster) scheduled(namespace, pod string) string {
	c.t.Helper()
	var o struct {
		Spec   struct{ NodeName string }
		Status struct {
			Conditions []struct{ Type, Reason, Message string }
		}
	}
	c.Get("/api/v1/namespaces/"+namespace+"/pods/"+pod, &o)
	for _, condition := range o.Status.Conditions {
		if condition.Type == "PodScheduled" && o.Spec.NodeName == "" {
			return condition.Reason + ": " + condition.Message
		}
	}
	return o.Spec.NodeName
}

// Under pressure no new reclaimed pod is bound to the node, with an unmodified kube-scheduler: it reads no CustomNodeResource. When the
// pressure has passed, the pending pod is bound.
func TestPressureKeepsPodsAway(t *testing.T) {
	t.Parallel()
	c := begin(t)
	namespace := c.OwnNamespace()
	reclaimed := func(name, milli string) {
		c.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"labels":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores"}},
			"spec":{"nodeSelector":{"kubernetes.io/hostname":%q},"containers":[{"name":"main","image":"none","resources":{"requests":{%q:%q},"limits":{%q:%q}}}]}}`, name, namespace, c.node, milliCPU, milli, milliCPU, milli))
	}
	x := c.start()
	c.settle(x, func() *tick.Tick { return pods(taint(c.offer(44000, bytes)), nil) })
	reclaimed("first", "2k")
	c.Eventually(controlplane.Soon, "a node without pressure gets a pod", func() string {
		if got := c.scheduled(namespace, "first"); got != c.node {
			return "so far: " + got
		}
		return ""
	})
	calm := func() *tick.Tick { return pods(taint(c.offer(44000, bytes)), map[string]float64{"first": 2000}) }
	c.settle(x, calm)
	c.eventually(0, "44k", full("44k"))

	pressure := func() *tick.Tick { return taint(calm(), "MemoryPressure") }
	began := time.Now()
	x.Put(pressure())
	c.eventually(controlplane.Soon, "44k", "2k 0 48") // the CNR has the real figures
	t.Logf("under pressure, the Node offers what is requested after %s", time.Since(began).Round(10*time.Millisecond))
	if out := x.Put(pressure()).Report.Targets; !strings.Contains(out[1].Note, "no more is offered than what the reclaimed pods request; taint node.katalyst.kubewharf.io/MemoryPressure:NoSchedule") || out[0].Note != "" {
		t.Errorf("the tick has %+v", out)
	}
	c.settle(x, pressure)
	if got, want := c.taints(), []string{"node.katalyst.kubewharf.io/MemoryPressure:NoSchedule"}; !slices.Equal(got, want) {
		t.Errorf("taints: %v; want %v", got, want)
	}
	reclaimed("second", "1k")
	probes := 0
	refused := func(while string, next func() *tick.Tick, node string) {
		t.Helper()
		c.settle(x, next)
		c.eventually(0, "44k", node)
		probes++
		probe := fmt.Sprintf("probe-%d", probes) // created after all of that is written
		reclaimed(probe, "1k")
		for _, pod := range []string{probe, "second"} {
			c.Eventually(controlplane.Soon, while+" the scheduler finds no node for "+pod, func() string {
				if got := c.scheduled(namespace, pod); !strings.HasPrefix(got, "Unschedulable: 0/") || !strings.Contains(got, ": 1 Insufficient "+milliCPU) {
					return "so far: " + got
				}
				return ""
			})
		}
		c.Kubectl("-n", namespace, "delete", "pod", probe, "--grace-period=0", "--force")
	}
	refused("under pressure", pressure, "2k 0 48")
	refused("and the list of pods is not to be had", func() *tick.Tick {
		in := pressure()
		in.Sample.Pods, in.Sample.Errors = nil, []tick.SourceError{{Source: "pods", Error: "API server not reachable"}}
		return in
	}, "2k 0 48")
	refused("and the sample is missing", func() *tick.Tick { in := pressure(); in.Sample = nil; return in }, "2k 0 48")
	// The first pod is evicted: its resources are not offered to the second one.
	leaving := func() *tick.Tick {
		in := pressure()
		in.Sample.Pods[0].Terminating = true
		return in
	}
	x.Put(leaving())
	c.eventually(controlplane.Soon, "44k", "0 0 48")
	c.Kubectl("-n", namespace, "delete", "pod", "first", "--grace-period=0", "--force")
	refused("and a pod has gone", leaving, "0 0 48")

	began = time.Now()
	x.Put(pods(taint(c.offer(44000, bytes)), nil))
	c.eventually(controlplane.Soon, "44k", full("44k"))
	t.Logf("after the pressure, the offer is back after %s", time.Since(began).Round(10*time.Millisecond))
	c.Eventually(controlplane.Soon, "the pod that waited is bound", func() string {
		if got := c.scheduled(namespace, "second"); got != c.node {
			return "so far: " + got
		}
		return ""
	})
	c.Eventually(controlplane.Soon, "no taints", func() string { return strings.Join(c.taints(), " ") })
}

// nodeTaints are the Node's, as "key:effect", sorted.
func (c *cluster) nodeTaints() []string {
	c.t.Helper()
	var o struct {
		Spec struct {
			Taints []struct{ Key, Effect string }
		}
	}
	c.Get("/api/v1/nodes/"+c.node, &o)
	var names []string
	for _, taint := range o.Spec.Taints {
		names = append(names, taint.Key+":"+taint.Effect)
	}
	slices.Sort(names)
	return names
}

// The Node's own taints: ours are added and removed beside those of others.
func TestTaintNode(t *testing.T) {
	t.Parallel()
	c := begin(t)
	const cpu, memory, theirs = "node.katalyst.kubewharf.io/CPUPressure:NoSchedule", "node.katalyst.kubewharf.io/MemoryPressure:NoSchedule", "team/a:NoSchedule"
	expect := func(what string, within time.Duration, want ...string) {
		t.Helper()
		slices.Sort(want)
		c.Eventually(within, what, func() string { return cmp.Diff(want, c.nodeTaints()) })
	}
	next := func(keys ...string) func() *tick.Tick {
		return func() *tick.Tick { return taint(c.offer(44000, bytes), keys...) }
	}
	const settled = "^cnr unchanged, node unchanged, node-taints unchanged$"
	c.Kubectl("taint", "node", c.node, "team/a=b:NoSchedule")
	own := "podLabels.test=" + c.node // the account belongs to the test alone: it gets another role
	c.kubeconfig = c.AccountFor("report", own)
	x := c.start("--taint-node")
	// Without the permission, everything else is written nevertheless.
	c.until(x, next("CPUPressure"), "^cnr unchanged, node unchanged, node-taints failed.*: .*forbidden.*with --taint-node and for report fleet also nodes: patch")
	c.Grant(controlplane.Namespace, c.Release(own)+"-report", "report", "report.taintNode=true")
	c.until(x, next("CPUPressure"), settled)
	expect("a taint", 0, theirs, cpu)

	// Another program writes the Node all the time.
	stop := c.patchRepeatedly("/api/v1/nodes/"+c.node, func(i int) string { return fmt.Sprintf(`{"metadata":{"annotations":{"writes":"%d"}}}`, i) })
	for i := range 10 {
		keys := []string{"CPUPressure", "MemoryPressure"}[:i%3]
		c.until(x, next(keys...), settled)
		expect("the taints beside a busy writer", 0, []string{theirs, cpu, memory}[:1+i%3]...)
	}
	stop(20)

	c.until(x, next("CPUPressure", "MemoryPressure"), settled)
	expect("two taints", 0, theirs, cpu, memory)
	// As kubelet does when it registers, and programs that know no other taints: the list is replaced.
	c.API(http.MethodPatch, "/api/v1/nodes/"+c.node, `{"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"}]}}`)
	expect("what was taken away is back, without a tick", controlplane.Soon, "node.kubernetes.io/not-ready:NoExecute", cpu, memory)
	c.API(http.MethodPatch, "/api/v1/nodes/"+c.node, `{"spec":{"taints":null},"metadata":{"annotations":{"polder/taints":null}}}`)
	expect("and once more", controlplane.Soon, cpu, memory)
	c.Kubectl("taint", "node", c.node, "team/a=b:NoSchedule")

	// Taints that a Node cannot have are named in the note, and left out.
	odd := func() *tick.Tick {
		in := taint(c.offer(44000, bytes), "CPUPressure")
		in.Eviction.Taints = append(in.Eviction.Taints, tick.Taint{Key: "node.katalyst.kubewharf.io/Odd", Effect: "NoScheduleForReclaimedTasks"}, tick.Taint{Key: "team/b", Effect: "NoExecute"})
		return in
	}
	c.until(x, odd, settled)
	expect("the one that Nodes have", 0, cpu, theirs)
	if note := x.Put(odd()).Report.Targets[2].Note; !strings.Contains(note, "not for a Node: taint node.katalyst.kubewharf.io/Odd:NoScheduleForReclaimedTasks, team/b:NoExecute") {
		t.Errorf("the note is %q", note)
	}
	x.AwaitLog("not for a Node", 1)
	if n := strings.Count(x.Log(), "not for a Node"); n != 1 {
		t.Errorf("logged %d times", n)
	}

	// The next process knows which taints are ours; and so does --withdraw.
	if err := x.End(); err != nil {
		t.Fatal(err)
	}
	x = c.start("--taint-node")
	c.until(x, next(), settled)
	expect("theirs alone", 0, theirs)
	c.until(x, next("MemoryPressure"), settled)
	x.Kill()
	x = c.start() // without the flag
	c.settle(x, next())
	if note := x.Put(next()()).Report.Targets[1].Note; !strings.Contains(note, "the Node still has taints of a report with --taint-node: "+memory) {
		t.Errorf("the note is %q", note)
	}
	x.Kill()
	w := pipe.Start(t, "report", "--withdraw", "--kubeconfig", c.kubeconfig, "--node", c.node)
	if err := w.End(); err != nil || !strings.Contains(w.Log(), "target=node-taints") {
		t.Errorf("%v: %s", err, w.Log())
	}
	expect("withdrawn", 0, theirs)
	if note := c.Kubectl("get", "node", c.node, "-o", `jsonpath={.metadata.annotations.polder/taints}`); note != "" {
		t.Errorf("the annotation is left: %s", note)
	}
}

// The fleet controller marks the Node: report offers nothing while the mark is there.
func TestMark(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.start()
	next := func() *tick.Tick { return taint(c.offer(44000, bytes), "CPUPressure") }
	calm := func() *tick.Tick { return taint(c.offer(44000, bytes)) }
	mark := func(value string) {
		t.Helper()
		c.API(http.MethodPatch, "/api/v1/nodes/"+c.node, fmt.Sprintf(`{"metadata":{"annotations":{"polder/withdrawn":%s}}}`, value))
	}
	c.settle(x, calm)
	mark(`"agent not ready for 10m"`)
	c.eventually(controlplane.Soon, "", none) // without a tick
	c.settle(x, next)
	c.eventually(0, "", none)
	if got := c.taints(); len(got) != 1 {
		t.Errorf("taints: %v; want evict's taints, with or without the mark", got)
	}
	for _, target := range x.Put(next()).Report.Targets {
		if target.Note != "nothing is offered: the Node is marked polder/withdrawn: agent not ready for 10m" {
			t.Errorf("%+v", target)
		}
	}
	x.AwaitLog("nothing is offered", 2)
	if n := strings.Count(x.Log(), "nothing is offered"); n != 2 {
		t.Errorf("logged %d times; want once a target:\n%s", n, x.Log())
	}
	// Another process, such as one that hangs half of the time, offers nevertheless.
	list := fmt.Sprintf(`{%q:"44k"}`, milliCPU)
	c.API(http.MethodPatch, "/api/v1/nodes/"+c.node+"/status", fmt.Sprintf(`{"status":{"capacity":%s,"allocatable":%s}}`, list, list))
	c.eventually(controlplane.Soon, "", none)
	c.settle(x, calm)
	began := time.Now()
	mark(`null`)
	c.eventually(controlplane.Soon, "44k", full("44k"))
	t.Logf("back %s after the mark was removed", time.Since(began).Round(10*time.Millisecond))

	// A process that starts on a marked node withdraws its predecessor's offer.
	c.settle(x, calm)
	x.Kill()
	mark(`"for maintenance"`)
	c.eventually(0, "44k", full("44k"))
	c.start()
	c.eventually(controlplane.Soon, "", none)
}
