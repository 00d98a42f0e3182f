package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

const milliCPU = "resource.katalyst.kubewharf.io/reclaimed_millicpu"

// offers are the offers of a node and its CNR: two figures, empty where it has no offer.
func (l *lab) offers(node string) string {
	l.t.Helper()
	var n struct {
		Status struct{ Allocatable map[string]string }
	}
	var cnr struct {
		Status struct {
			ResourceAllocatable map[string]string
			Resources           struct{ Allocatable map[string]string }
		}
	}
	l.Get("/api/v1/nodes/"+node, &n)
	if status, body := l.API(http.MethodGet, cnrPath+node, ""); status == http.StatusOK { // it may not exist yet
		if err := json.Unmarshal(body, &cnr); err != nil {
			l.t.Fatal(err)
		}
	}
	return strings.Join([]string{n.Status.Allocatable[milliCPU], cnr.Status.Resources.Allocatable[milliCPU], cnr.Status.ResourceAllocatable["katalyst.kubewharf.io/reclaimed_millicpu"]}, " ")
}

// mark is the fleet controller's mark on the node.
func (l *lab) mark(node string) string {
	l.t.Helper()
	var n struct {
		Metadata struct{ Annotations map[string]string }
	}
	l.Get("/api/v1/nodes/"+node, &n)
	return n.Metadata.Annotations["polder/withdrawn"]
}

// own is the part of a node's own agent that offers: report --to cnr,node with a tick twice a second; last is its latest output.
type own struct {
	end  func() // also called at the end of the test
	last atomic.Pointer[tick.Tick]
}

func (l *lab) own(node string) *own {
	l.t.Helper()
	x := pipe.Start(l.t, "report", "--max-age", "10m", "--to", "cnr,node", "--kubeconfig", l.AccountFor("report"), "--node", node)
	stop, ended := make(chan struct{}), make(chan struct{})
	o := &own{}
	go func() {
		defer close(ended)
		interval := time.NewTicker(500 * time.Millisecond)
		defer interval.Stop()
		for {
			select {
			case <-stop:
				return
			case <-interval.C:
			}
			o.last.Store(x.Put(&tick.Tick{
				V: 1, Node: node, Time: time.Now().UTC(),
				Sample: &tick.Sample{IntervalSeconds: new(0.5)},
				Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{
					MilliCPU:    new(int64(44000)),
					MemoryBytes: new(int64(195257901056)),
				}},
			}))
		}
	}()
	o.end = sync.OnceFunc(func() {
		close(stop)
		<-ended
		x.Kill()
	})
	l.t.Cleanup(o.end)
	return o
}

// The four stages of the failure and return of a node's agent, with shortened times: not ready; the node is closed to reclaimed pods and
// offers nothing, though the agent's report still runs; its reclaimed pods are evicted; the agent is back, and so is everything else.
func TestFourStages(t *testing.T) {
	t.Parallel()
	l := start(t)
	n1, n2 := l.node(1), l.node(2)
	kwok := l.Kwok("test=" + l.name)
	for i := 1; i <= 6; i++ {
		node := l.node(i)
		if status, answer := l.API(http.MethodPost, "/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"test":%q}}}`, node, l.name)); status != http.StatusCreated {
			t.Fatalf("%s", answer)
		}
		l.pod(l.agents, "polder-"+node, node, ofAgent)
	}
	for _, name := range []string{"a", "b", "c"} {
		l.pod(l.batch, name, n1, reclaimed)
		l.pod(l.batch, "other-"+name, n2, reclaimed)
	}
	l.pod(l.batch, "service", n1, `"annotations":{"katalyst.kubewharf.io/qos_level":"shared_cores"}`)
	agentOf := l.own(n1)
	const full, nothing = "44k 44k 44k", "  "
	await := func(what, want string, get func() string) {
		t.Helper()
		l.Eventually(controlplane.Soon, what, func() string {
			if got := get(); got != want {
				return fmt.Sprintf("%q; want %q\n%s", got, want, kwok.Tail(3))
			}
			return ""
		})
	}
	offered := func() string { return l.offers(n1) }
	agent := func() string {
		c := l.conditions(n1)
		return fmt.Sprint(c["AgentReady"]["status"], " ", c["AgentReady"]["reason"], " ", c["AgentNotFound"]["status"])
	}
	c := l.centre("centre", map[string]string{"evict.taint-after": "6s", "evict.evict-after": "13s"})

	// 1. The agent is ready.
	await("n1 has its agent's offer", full, offered)
	await("n1's agent is reported ready", "True AllAgentsReady False", agent)

	// 2. The agent is not ready: it was killed, and has withdrawn nothing. Nothing happens for some time.
	agentOf.end()
	down := time.Now().Truncate(time.Second)
	l.ready(n1, "False", down)
	await("n1's agent is reported not ready", "False WithAgentsNotReady False", agent)
	taints, offer := l.taints(n1), offered()
	if time.Since(down) < 6*time.Second && (taints != "" || offer != full) { // a busy machine may be late
		t.Fatalf("%s after the agent's death: taints %q, offers %q; want none yet, and %q", time.Since(down), taints, offer, full)
	}
	l.awaitTaint(n1, closedTaint)
	if d := time.Since(down); d < 6*time.Second {
		t.Errorf("tainted after %s; want 6 s", d)
	}
	await("n1's offer is withdrawn", nothing, offered)
	if got := l.mark(n1); !strings.HasPrefix(got, "agent-health: ") {
		t.Errorf("n1's mark is %q", got)
	}
	// The agent's report still runs, and does not offer.
	agentOf = l.own(n1)
	l.Eventually(controlplane.Soon, "the agent's report gives the reason why it does not offer", func() string {
		out := agentOf.last.Load()
		if out == nil || len(out.Report.Targets) != 2 {
			return "no tick"
		}
		for _, target := range out.Report.Targets {
			if target.State != tick.TargetUnchanged || !strings.HasPrefix(target.Note, "nothing is offered: the Node is marked") {
				return fmt.Sprintf("%+v", target)
			}
		}
		return ""
	})
	if got := offered(); got != nothing {
		t.Errorf("the agent's report offers %q", got)
	}
	if all, leaving := l.podsOn(n1); time.Since(down) < 13*time.Second && (all != 4 || leaving != 0) {
		t.Errorf("of n1's pods %d of 4 are there, %d are leaving: too early", all, leaving)
	}

	// 3. evict evicts the reclaimed pods, and no others.
	await("n1's reclaimed pods are evicted", "service", func() string {
		return l.Kubectl("get", "pods", "-n", l.batch, "--field-selector", "spec.nodeName="+n1, "-o", "jsonpath={.items[*].metadata.name}")
	})
	if d := time.Since(down); d < 13*time.Second {
		t.Errorf("evicted after %s; want 13 s", d)
	}
	if all, _ := l.podsOn(n2); all != 3 {
		t.Errorf("n2 has %d pods; want 3", all)
	}
	l.Eventually(controlplane.Soon, "the events of the evictions", func() string {
		events := l.Kubectl("get", "events", "-n", l.batch, "-o", `jsonpath={range .items[*]}{.reason} {.involvedObject.name}: {.message}{"\n"}{end}`)
		for _, want := range []string{"EvictCreated a:", "EvictSucceeded b:", "agent-health"} {
			if !strings.Contains(events, want) {
				return "so far: " + events
			}
		}
		return ""
	})

	// 4. Ready again: the taint is removed, and the node's own report offers again.
	l.ready(n1, "True", time.Now())
	l.awaitTaint(n1, "")
	await("n1 offers again", full, offered)
	await("n1's mark is gone", "", func() string { return l.mark(n1) })
	await("n1's agent is reported ready again", "True AllAgentsReady False", agent)
	if got := l.Evictions(l.batch); got != 3 {
		t.Errorf("%d evictions; want 3", got)
	}
	agentOf.end()
	// On a busy machine the first ticks come before the list of pods, and the server may answer late.
	busy := regexp.MustCompile(`no new eviction on any node|deadline exceeded|[Tt]imeout|[Tt]imed out`)
	for line := range strings.Lines(c.Tail(1000)) {
		if strings.Contains(line, "level=ERROR") && !busy.MatchString(line) {
			t.Errorf("the log has an error: %s", line)
		}
	}
}
