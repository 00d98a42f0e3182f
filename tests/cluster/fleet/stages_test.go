package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
	"polder/tests/cluster/program"
)

// kwokStages have kwok play the kubelets: nodes become ready, pods run, and pods that are deleted end.
const kwokStages = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-initialize}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions: [{key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}]
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - {lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}, message: {{ .message | Quote }}, reason: {{ .reason | Quote }}, status: {{ .status | Quote }}, type: {{ .type | Quote }}}
      {{ end }}
      capacity: {cpu: "48", memory: 195924424Ki, pods: "110"}
      allocatable: {cpu: "48", memory: 195924424Ki, pods: "110"}
      phase: Running
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.phase', operator: NotIn, values: [Running]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      startTime: {{ $now | Quote }}
      conditions:
      - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions: [{key: '.metadata.deletionTimestamp', operator: Exists}]
  next:
    finalizers: {empty: true}
    delete: true
`

const milliCPU = "resource.katalyst.kubewharf.io/reclaimed_millicpu"

// offers is what a node and its CNR offer: two figures, empty where there is none.
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
	if status, body := l.API(http.MethodGet, cnrPath+node, ""); status == http.StatusOK { // there may be none yet
		if err := json.Unmarshal(body, &cnr); err != nil {
			l.t.Fatal(err)
		}
	}
	return strings.Join([]string{n.Status.Allocatable[milliCPU], cnr.Status.Resources.Allocatable[milliCPU], cnr.Status.ResourceAllocatable["katalyst.kubewharf.io/reclaimed_millicpu"]}, " ")
}

// mark is the node's mark.
func (l *lab) mark(node string) string {
	l.t.Helper()
	var n struct {
		Metadata struct{ Annotations map[string]string }
	}
	l.Get("/api/v1/nodes/"+node, &n)
	return n.Metadata.Annotations["polder/withdrawn"]
}

// own is a node's own agent, as far as it offers: report --to cnr,node with a tick twice a second. It ends with the function.
func (l *lab) own(node string) (end func()) {
	l.t.Helper()
	x := pipe.Start(l.t, "report", "--to", "cnr,node", "--kubeconfig", l.Kubeconfig(), "--node", node)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Millisecond):
			}
			x.Send(&tick.Tick{V: 1, Node: node, Time: time.Now().UTC(),
				Sample: &tick.Sample{IntervalSeconds: tick.Ptr(0.5)},
				Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: tick.Ptr[int64](44000), MemoryBytes: tick.Ptr[int64](195257901056)}}})
		}
	}()
	end = sync.OnceFunc(func() {
		close(stop)
		<-ended
		x.Kill()
	})
	l.t.Cleanup(end)
	return end
}

// The four stages of a node agent's death and return, with shortened times: not ready; the node is closed to reclaimed pods and
// offers nothing, though its agent is half alive; its reclaimed pods go; the agent is back, and so is all else.
func TestFourStages(t *testing.T) {
	dir := controlplane.Need(t, "kwok")
	l := start(t)
	stage := temp(t, "stages.yaml")
	if err := os.WriteFile(stage, []byte(kwokStages), 0o644); err != nil {
		t.Fatal(err)
	}
	kwok, err := program.Start(temp(t, "kwok.log"), exec.Command(filepath.Join(dir, "kwok"), "--kubeconfig", l.Kubeconfig(), "--config", stage,
		"--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--cidr=10.0.0.0/8"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kwok.Kill)
	for i := 1; i <= 6; i++ {
		node := fmt.Sprintf("n%d", i)
		if status, answer := l.API(http.MethodPost, "/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":%q}}`, node)); status != http.StatusCreated {
			t.Fatalf("%s", answer)
		}
		l.pod("polder-system", "polder-"+node, node, ofAgent)
	}
	for _, name := range []string{"a", "b", "c"} {
		l.pod("batch", name, "n1", reclaimed)
		l.pod("batch", "other-"+name, "n2", reclaimed)
	}
	l.pod("batch", "service", "n1", `"annotations":{"katalyst.kubewharf.io/qos_level":"shared_cores"}`)
	die := l.own("n1")
	const full, nothing = "44k 44k 44k", "  "
	await := func(what, want string, get func() string) {
		t.Helper()
		l.Eventually(40*time.Second, what, func() string {
			if got := get(); got != want {
				return fmt.Sprintf("%q; want %q\n%s", got, want, kwok.Tail(3))
			}
			return ""
		})
	}
	offered := func() string { return l.offers("n1") }
	agent := func() string {
		c := l.conditions("n1")
		return fmt.Sprint(c["AgentReady"]["status"], " ", c["AgentReady"]["reason"], " ", c["AgentNotFound"]["status"])
	}
	c := l.centre("centre", map[string]string{"evict.taint-after": "6s", "evict.evict-after": "16s"})

	// 1. All is well.
	await("n1 offers what its agent says", full, offered)
	await("n1's agent is seen to be ready", "True AllAgentsReady False", agent)

	// 2. The agent is not ready: killed, it has withdrawn nothing. Nothing happens for some time.
	die()
	down := time.Now().Truncate(time.Second)
	l.ready("n1", "False", down)
	await("n1's agent is seen not to be ready", "False WithAgentsNotReady False", agent)
	if got := l.taints("n1"); got != "" || offered() != full || time.Since(down) > 5*time.Second {
		t.Fatalf("%s after the agent's death: taints %q, offers %q; want none yet, and %q", time.Since(down), got, offered(), full)
	}
	l.awaitTaint("n1", closed_, 15*time.Second)
	if d := time.Since(down); d < 6*time.Second || d > 10*time.Second {
		t.Errorf("tainted after %s; want 6 s", d)
	}
	await("what n1 offers is withdrawn", nothing, offered)
	if got := l.mark("n1"); !strings.HasPrefix(got, "agent-health: ") {
		t.Errorf("n1's mark is %q", got)
	}
	// Half alive: it reports, and does not offer.
	die = l.own("n1")
	time.Sleep(3 * time.Second)
	if got := offered(); got != nothing {
		t.Errorf("an agent that is half alive offers %q", got)
	}
	if all, leaving := l.podsOn("n1"); all != 4 || leaving != 0 {
		t.Errorf("of n1's pods %d of 4 are there, %d are leaving: too early", all, leaving)
	}

	// 3. The reclaimed pods go, and nobody else's.
	await("n1's reclaimed pods go", "service", func() string {
		return l.Kubectl("get", "pods", "-n", "batch", "--field-selector", "spec.nodeName=n1", "-o", "jsonpath={.items[*].metadata.name}")
	})
	if d := time.Since(down); d < 16*time.Second || d > 25*time.Second {
		t.Errorf("evicted after %s; want 16 s", d)
	}
	if all, _ := l.podsOn("n2"); all != 3 {
		t.Errorf("n2 has %d pods; want 3", all)
	}
	l.Eventually(10*time.Second, "the events say so", func() string {
		events := l.Kubectl("get", "events", "-n", "batch", "-o", `jsonpath={range .items[*]}{.reason} {.involvedObject.name}: {.message}{"\n"}{end}`)
		for _, want := range []string{"EvictCreated a:", "EvictSucceeded b:", "agent-health"} {
			if !strings.Contains(events, want) {
				return "so far: " + events
			}
		}
		return ""
	})

	// 4. Ready again: the taint goes, and the node's own report offers again.
	l.ready("n1", "True", time.Now())
	l.awaitTaint("n1", "", 10*time.Second)
	await("n1 offers again", full, offered)
	await("n1's mark is gone", "", func() string { return l.mark("n1") })
	await("n1's agent is seen to be ready again", "True AllAgentsReady False", agent)
	if got := l.evictions(); got != 3 {
		t.Errorf("%d evictions; want 3", got)
	}
	die()
	if log := c.Tail(200); strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has errors:\n%s", log)
	}
}
