package report

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

// batch is a current tick with this offer of Koordinator's policy.
func (c *cluster) batch(milli, bytes int64) *tick.Tick {
	in := c.offer(milli, bytes)
	in.Advice.Policy = "koordinator"
	return in
}

// configured is the tick with strategies, as collect reads them from the ConfigMap.
func configured(in *tick.Tick, colocation string) *tick.Tick {
	if in.Sample == nil {
		in.Sample = &tick.Sample{}
	}
	in.Sample.Config = tick.Raw(`{"koordinator":{"from":"koordinator-system/slo-controller-config","colocation":` + colocation + `}}`)
	return in
}

// offered is the node's status of these names, as "cpu memory"; both values where capacity and allocatable differ.
func (c *cluster) offered(names ...string) string {
	c.t.Helper()
	var o struct {
		Status struct{ Capacity, Allocatable map[string]string }
	}
	c.Get("/api/v1/nodes/"+c.node, &o)
	brief := func(l map[string]string) string {
		var words []string
		for _, name := range names {
			if v, ok := l[name]; ok {
				words = append(words, v)
			} else {
				words = append(words, "-")
			}
		}
		return strings.Join(words, " ")
	}
	if a, b := brief(o.Status.Capacity), brief(o.Status.Allocatable); a != b {
		return a + " but " + b
	}
	return brief(o.Status.Capacity)
}

var (
	batchNames = []string{"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"}
	oldNames   = []string{"koordinator.sh/batch-cpu", "koordinator.sh/batch-memory"}
)

func (c *cluster) offers(within time.Duration, want string, names ...string) {
	c.t.Helper()
	c.Eventually(within, "the offer "+want, func() string {
		if got := c.offered(names...); got != want {
			return "so far: " + got
		}
		return ""
	})
}

func (c *cluster) toNode(args ...string) *pipe.Tool {
	c.t.Helper()
	return pipe.Start(c.t, "report", append([]string{"--max-age", "10m", "--to", "node", "--kubeconfig", c.kubeconfig, "--node", c.node, "--grow-interval", "0s"}, args...)...)
}

// The guide's kubectl describe node.
func TestGuideDescribesNode(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.toNode("--resource-prefix", "koordinator.sh")
	next := func() *tick.Tick { return c.batch(4541, 17236565027) }
	c.until(x, next, "^node unchanged$")
	out := c.Kubectl("describe", "node", c.node)
	for _, part := range []string{"Capacity", "Allocatable"} {
		_, rest, _ := strings.Cut(out, "\n"+part+":\n")
		end := regexp.MustCompile(`(?m)^\S`).FindStringIndex(rest)
		if end == nil {
			t.Fatalf("no %s:\n%s", part, out)
		}
		section := rest[:end[0]]
		for _, line := range []string{`koordinator\.sh/batch-cpu: +4541`, `koordinator\.sh/batch-memory: +17236565027`} {
			if !regexp.MustCompile(`(?m)^ +` + line + `$`).MatchString(section) {
				t.Errorf("%s has no line %s:\n%s", part, line, section)
			}
		}
	}
	if got := c.offered(append(batchNames, milliCPU, memory)...); got != "- - - - - -" {
		t.Errorf("under other names: %s", got)
	}
}

// When batch resources are published, withdrawn and restored.
func TestKoordinatorPublishes(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.toNode()
	until := func(next func() *tick.Tick, pattern string) {
		t.Helper()
		c.until(x, next, pattern)
	}
	same := func(milli int64) func() *tick.Tick { return func() *tick.Tick { return c.batch(milli, 1<<34) } }
	until(same(10000), "^node unchanged$")
	c.offers(0, "10k 17179869184 - -", batchNames...)

	// A change of 10 % is not above resourceDiffThreshold; a little more is.
	for _, milli := range []int64{11000, 9000, 9999, 10001} {
		for range 5 {
			if got := targetStates(x.Put(same(milli)())); got != "node unchanged" {
				t.Fatalf("%d of 10000: %s", milli, got)
			}
		}
	}
	until(same(8999), "node written changed")
	c.offers(controlplane.Soon, "8999 17179869184 - -", batchNames...)
	until(same(9900), "node written changed")
	c.offers(controlplane.Soon, "9900 17179869184 - -", batchNames...)

	// The ConfigMap has another threshold, and a time after which a small change is published as well.
	strict := func() *tick.Tick { return configured(c.batch(9700, 1<<34), `{"resourceDiffThreshold":0.01}`) }
	written := time.Now() // at the earliest
	until(strict, "node written changed")
	timed := func() *tick.Tick { return configured(c.batch(9701, 1<<34), `{"updateTimeThresholdSeconds":20}`) }
	if got := targetStates(x.Put(timed())); got != "node unchanged" && time.Since(written) < 20*time.Second {
		t.Errorf("a small change at once: %s", got)
	}
	began := time.Now()
	c.Eventually(controlplane.Soon, "the small change", func() string {
		text := targetStates(x.Put(timed()))
		if got := c.offered(batchNames...); got != "9701 17179869184 - -" {
			return text + ": " + got
		}
		return ""
	})
	t.Logf("a small change was published after %s", time.Since(began).Round(100*time.Millisecond))

	// Mid resources are published, and withdrawn on their own when advice has none.
	mid := func() *tick.Tick {
		in := same(9701)()
		in.Advice.Mid = &tick.Reclaimed{MilliCPU: new(int64(500)), MemoryBytes: new(int64(1 << 30))}
		return in
	}
	until(mid, "^node unchanged$")
	c.offers(controlplane.Soon, "9701 17179869184 500 1073741824", batchNames...)

	// Kubelet restarts on a machine that looks new to it, and sets foreign resources to zero.
	for _, value := range []string{`null`, `"0"`} {
		list := fmt.Sprintf(`{%q:%s,%q:%s}`, batchNames[0], value, batchNames[1], value)
		c.API(http.MethodPatch, "/api/v1/nodes/"+c.node+"/status", fmt.Sprintf(`{"status":{"capacity":%s,"allocatable":%s}}`, list, list))
		c.offers(controlplane.Soon, "9701 17179869184 500 1073741824", batchNames...) // without a tick
	}

	// When colocation is disabled, the resources are deleted, not zeroed, at once; and restored afterwards.
	gone := func() *tick.Tick {
		return &tick.Tick{V: 1, Node: c.node, Time: time.Now().UTC(), Advice: &tick.Advice{Policy: "koordinator", Withdrawn: "colocation is disabled for the node"}}
	}
	began = time.Now()
	out := x.Put(gone())
	c.offers(controlplane.Soon, "- - - -", batchNames...)
	t.Logf("withdrawn after %s", time.Since(began).Round(10*time.Millisecond))
	if note := out.Report.Targets[0].Note; note != "nothing is offered: colocation is disabled for the node" {
		t.Errorf("the note is %q", note)
	}
	until(mid, "^node unchanged$")
	c.offers(0, "9701 17179869184 500 1073741824", batchNames...)

	// After a change of policy, the same write removes what this process has published under the old policy's names.
	katalyst := func() *tick.Tick { return c.offer(44000, bytes) }
	until(katalyst, "^node unchanged$")
	c.offers(0, "- - - -", batchNames...)
	c.offers(0, "44k 195257901056", milliCPU, memory)
	// Values that appear under those names later belong to another program.
	c.API(http.MethodPatch, "/api/v1/nodes/"+c.node+"/status", `{"status":{"capacity":{"kubernetes.io/batch-cpu":"7"},"allocatable":{"kubernetes.io/batch-cpu":"7"}}}`)
	until(katalyst, "^node unchanged$")
	c.offers(0, "7 - - -", batchNames...)
	until(mid, "^node unchanged$")
	c.offers(0, "9701 17179869184 500 1073741824", batchNames...)
	c.offers(0, "- -", milliCPU, memory)
	if err := x.End(); err != nil {
		t.Fatal(err)
	}

	// --withdraw does not know the former policy: it removes both dialects' names.
	c.API(http.MethodPatch, "/api/v1/nodes/"+c.node+"/status", fmt.Sprintf(`{"status":{"capacity":{%q:"7","koordinator.sh/batch-cpu":"8"},"allocatable":{%q:"7","koordinator.sh/batch-cpu":"8"}}}`, milliCPU, milliCPU))
	w := pipe.Start(t, "report", "--withdraw", "--to", "node", "--kubeconfig", c.kubeconfig, "--node", c.node)
	if err := w.End(); err != nil {
		t.Fatalf("report --withdraw: %v\n%s", err, w.Log())
	}
	c.offers(0, "- - - - - -", append([]string{milliCPU, memory}, batchNames...)...)
	c.offers(0, "8 -", oldNames...) // another prefix
}

// A policy that changes with a restart: the first write under Koordinator's names removes those of Katalyst's policy. Koordinator's names
// stay after a change back, as a koord-manager may keep them, until --withdraw names them; the running process then restores
// its own.
func TestPolicyOverARestart(t *testing.T) {
	t.Parallel()
	c := begin(t)
	names := append([]string{milliCPU, memory}, batchNames...)
	run := func(next func() *tick.Tick) *pipe.Tool {
		t.Helper()
		x := c.toNode()
		c.until(x, next, "^node unchanged$")
		return x
	}
	end := func(x *pipe.Tool) {
		t.Helper()
		if err := x.End(); err != nil {
			t.Fatalf("%v\n%s", err, x.Log())
		}
	}
	end(run(c.same(44000, bytes)))
	c.offers(0, "44k 195257901056 - - - -", names...)
	end(run(func() *tick.Tick { return c.batch(4541, 17236565027) }))
	c.offers(0, "- - 4541 17236565027 - -", names...)
	x := run(c.same(44000, bytes))
	c.offers(0, "44k 195257901056 4541 17236565027 - -", names...)

	// The arguments of a pod that reports NodeMetrics, too.
	end(pipe.Start(t, "report", "--withdraw", "--to", "node,nodemetric", "--kubeconfig", c.kubeconfig, "--node", c.node))
	c.offers(controlplane.Soon, "44k 195257901056 - - - -", names...)
	end(x)

	// Policy koordinator without an offer removes them as well.
	gone := func() *tick.Tick {
		return &tick.Tick{V: 1, Node: c.node, Time: time.Now().UTC(), Advice: &tick.Advice{Policy: "koordinator", Withdrawn: "colocation is disabled for the node"}}
	}
	y := c.toNode()
	c.until(y, gone, "^node unchanged$")
	c.offers(controlplane.Soon, "- - - - - -", names...)
	end(y)
}

// report withdraws when ticks stop, under either policy; and a process that never reads a tick withdraws its predecessor's offer.
func TestKoordinatorSilence(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.toNode("--stale-after", "5s")
	next := func() *tick.Tick { return c.batch(4541, 17236565027) }
	c.Eventually(controlplane.Soon, "the offer", func() string {
		x.Put(next())
		return cmp.Diff("4541 17236565027 - -", c.offered(batchNames...))
	})
	c.offers(controlplane.Soon, "- - - -", batchNames...)
	x.Kill()
	x = c.toNode("--stale-after", "1h") // has time until it is killed
	c.until(x, next, "^node unchanged$")
	x.Kill()
	c.offers(0, "4541 17236565027 - -", batchNames...)
	y := c.toNode("--stale-after", "5s")
	c.offers(controlplane.Soon, "- - - -", batchNames...)
	if err := y.End(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// A node with a pressure taint offers no more than its batch pods request, under these names, too; and nothing while the fleet
// controller has marked it.
func TestKoordinatorHeld(t *testing.T) {
	t.Parallel()
	c := begin(t)
	x := c.toNode()
	held := func(keys ...string) func() *tick.Tick {
		return func() *tick.Tick {
			in := c.batch(4541, 17236565027)
			in.Sample = &tick.Sample{Pods: []tick.Pod{{
				UID: "u", Namespace: "d", Name: "spark", QoS: tick.QoSReclaimed,
				Requests: &tick.Resources{ReclaimedMilliCPU: new(1000.0), ReclaimedMemoryBytes: new(float64(1 << 30))},
			}}}
			return taint(in, keys...)
		}
	}
	c.until(x, held(), "^node unchanged$")
	c.until(x, held("MemoryPressure"), "node written changed")
	c.offers(controlplane.Soon, "1k 1073741824 - -", batchNames...)
	c.until(x, held(), "^node unchanged$")
	c.offers(0, "4541 17236565027 - -", batchNames...)
	c.Kubectl("annotate", "node", c.node, "polder/withdrawn=agent-health: gone")
	c.offers(controlplane.Soon, "- - - -", batchNames...)
	c.Kubectl("annotate", "node", c.node, "polder/withdrawn-")
	c.until(x, held(), "^node unchanged$")
	c.offers(controlplane.Soon, "4541 17236565027 - -", batchNames...)
}

// The real scheduler binds pods by the published offer: as many as fit, and to the node with room.
func TestBatchPodsAreBound(t *testing.T) {
	t.Parallel()
	c := begin(t)
	namespace := c.OwnNamespace()
	c.MakeNode("small", "48", "195924424Ki")
	c.Kubectl("label", "node", c.node, "small", "test="+c.node)
	x := pipe.Start(t, "report", "--max-age", "10m", "--to", "node", "--kubeconfig", c.kubeconfig, "--all-nodes")
	node := c.node
	offer := func() string {
		last := ""
		for name, milli := range map[string]int64{node: 4541, "small": 1000} {
			in := c.batch(milli, 17236565027)
			in.Node = name
			last += targetStates(x.Put(in)) + " "
		}
		return last
	}
	c.Eventually(controlplane.Soon, "both are published", func() string {
		if out := offer(); out != "node unchanged node unchanged " {
			return "so far: " + out
		}
		return ""
	})
	pod := func(name string, milli int) {
		// Batch CPU may be over-committed: its limit may exceed the request, which Kubernetes forbids for extended resources of other domains.
		c.Apply(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"labels":{"koordinator.sh/qosClass":"BE"}},"spec":{"nodeSelector":{"test":%q},"containers":[{"name":"c","image":"registry.local/pause:1",
			"resources":{"requests":{"kubernetes.io/batch-cpu":"%d","kubernetes.io/batch-memory":"1Gi"},"limits":{"kubernetes.io/batch-cpu":"%d","kubernetes.io/batch-memory":"2Gi"}}}]}}`, name, namespace, c.node, milli, 2*milli))
	}
	bound := func(name string) string {
		return c.Kubectl("-n", namespace, "get", "pod", name, "-o", "jsonpath={.spec.nodeName}")
	}
	pod("fits", 4000)
	c.Eventually(controlplane.Soon, "the pod that fits one node is bound to it", func() string {
		if got := bound("fits"); got != node {
			return "so far: " + got
		}
		return ""
	})
	pod("waits", 1001)
	c.Eventually(controlplane.Soon, "the pod that asks for more than is left pends", func() string {
		out := c.Kubectl("-n", namespace, "get", "pod", "waits", "-o", `jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}`)
		if !strings.Contains(out, "2 Insufficient kubernetes.io/batch-cpu") || bound("waits") != "" {
			return "so far: " + out
		}
		return ""
	})
	pod("small", 1000)
	c.Eventually(controlplane.Soon, "the pod that fits the other one", func() string {
		if got := bound("small"); got != "small" {
			return "so far: " + got
		}
		return ""
	})
	// The offer grows, and the scheduler learns of it.
	in := c.batch(5541, 17236565027)
	in.Node = node
	x.Put(in)
	c.Eventually(controlplane.Soon, "the pod that waited is bound", func() string {
		if got := bound("waits"); got != node {
			return "so far: " + got
		}
		return ""
	})
}

// The fleet controller withdraws the offer of a node without an agent under either dialect's names.
func TestCentreWithdrawsBatch(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.API(http.MethodPatch, "/api/v1/nodes/"+c.node+"/status", fmt.Sprintf(`{"status":{"capacity":{%[1]q:"1",%[2]q:"2",%[3]q:"3"},"allocatable":{%[1]q:"1",%[2]q:"2",%[3]q:"3"}}}`, batchNames[0], batchNames[3], milliCPU))
	c.offers(0, "1 - - 2 3", append(batchNames, milliCPU)...)
	x := pipe.Start(t, "report", "fleet", "--max-age", "10m", "--kubeconfig", c.AccountFor("centre"))
	c.Eventually(controlplane.Soon, "nothing is offered", func() string {
		out := x.Put(&tick.Tick{
			V: 1, Node: c.node, Time: time.Now().UTC(),
			Sample:   &tick.Sample{Agent: &tick.Agent{State: tick.AgentNotFound, Since: time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}},
			Eviction: &tick.Eviction{Fleet: &tick.FleetEviction{}, Taints: []tick.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: "NoScheduleForReclaimedTasks"}}},
		})
		if got := c.offered(append(batchNames, milliCPU)...); got != "- - - - -" {
			return got + ": " + targetStates(out)
		}
		return ""
	})
	if out := c.Kubectl("get", "node", c.node, "-o", `jsonpath={.metadata.annotations.polder/withdrawn}`); !strings.Contains(out, "agent-health: ") {
		t.Errorf("the mark: %q", out)
	}
}
