// Package fleet tests the fleet controller on the real API: collect fleet, evict fleet, report fleet, and the lease that
// several compete for.
package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/cluster/controlplane"
	"polder/tests/cluster/pipe"
)

const (
	manifests = "../../../deploy/kubernetes"
	crds      = manifests + "/crds"
	cnrPath   = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources/"
)

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Options{}, define) }

func define(c *controlplane.ControlPlane) {
	c.ApplyFile(crds)
	c.Established()
}

// lab is a test's part of a control plane: its nodes have its name in theirs and in the label test, and its pods are in two namespaces.
type lab struct {
	*controlplane.ControlPlane
	t             *testing.T
	name          string
	agents, batch string // the namespaces
}

func start(t *testing.T) *lab {
	t.Helper()
	return startOn(t, controlplane.Shared(t))
}

// startAlone is start in a control plane for the test alone, for a test that stops it or changes its definitions.
func startAlone(t *testing.T) *lab {
	t.Helper()
	c := controlplane.Start(t, controlplane.Options{})
	define(c)
	return startOn(t, c)
}

func startOn(t *testing.T, c *controlplane.ControlPlane) *lab {
	t.Helper()
	l := &lab{ControlPlane: c, t: t, name: c.OwnName(), agents: c.OwnNamespace()}
	l.batch = l.agents + "-batch"
	l.MakeNamespace(l.batch)
	return l
}

// node is a node's name.
func (l *lab) node(i int) string { return fmt.Sprintf("%s-%03d", l.name, i) }

// makeNode creates a node without a kubelet, with the test's label.
func (l *lab) makeNode(name string) {
	l.t.Helper()
	l.MakeNode(name, "48", "192Gi")
	l.Kubectl("label", "node", name, "test="+l.name)
}

func (l *lab) collect(args ...string) *pipe.Tool {
	l.t.Helper()
	return pipe.Start(l.t, "collect", append([]string{
		"fleet", "--kubeconfig", l.AccountFor("centre"), "--interval", "200ms",
		"--agent-namespace", l.agents, "--node-selector", "test=" + l.name,
	}, args...)...)
}

// pod creates a pod on a node, with this metadata as JSON.
func (l *lab) pod(namespace, name, node, metadata string) {
	l.t.Helper()
	body := fmt.Sprintf(`{"metadata":{"name":%q,%s},"spec":{"nodeName":%q,"terminationGracePeriodSeconds":1,"containers":[{"name":"c","image":"none"}]}}`, name, metadata, node)
	if status, answer := l.API(http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", body); status != http.StatusCreated {
		l.t.Fatalf("make pod %s: %s", name, answer)
	}
}

const (
	ofAgent   = `"labels":{"app.kubernetes.io/name":"polder"}`
	reclaimed = `"annotations":{"katalyst.kubewharf.io/qos_level":"reclaimed_cores"}`
	ofBatch   = `"labels":{"koordinator.sh/qosClass":"BE"}`
)

// agent creates a node's agent, ready since then.
func (l *lab) agent(node string, since time.Time) {
	l.t.Helper()
	l.pod(l.agents, "polder-"+node, node, ofAgent)
	l.ready(node, "True", since)
}

// ready writes the Ready condition of the node's agent.
func (l *lab) ready(node, status string, since time.Time) {
	l.t.Helper()
	body := fmt.Sprintf(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`, status, since.UTC().Format(time.RFC3339))
	if code, answer := l.API(http.MethodPatch, "/api/v1/namespaces/"+l.agents+"/pods/polder-"+node+"/status", body); code != http.StatusOK {
		l.t.Fatalf("status of %s's agent: %s", node, answer)
	}
}

// until reads ticks until lacks returns "" for those of one time: lacks returns what they still lack.
func (l *lab) until(x *pipe.Tool, what string, lacks func(map[string]*tick.Tick) string) map[string]*tick.Tick {
	l.t.Helper()
	last := "no tick"
	round := map[string]*tick.Tick{}
	for deadline := time.Now().Add(controlplane.Soon); time.Now().Before(deadline); {
		next := x.Next()
		for _, have := range round {
			if have.Time.Equal(next.Time) {
				break
			}
			if last = lacks(round); last == "" {
				return round
			}
			round = map[string]*tick.Tick{}
			break
		}
		round[next.Node] = next
	}
	l.t.Fatalf("%s: not within %s: %s", what, controlplane.Soon, last)
	return nil
}

// states are all nodes' agents, by name.
func states(round map[string]*tick.Tick, nodes ...string) string {
	var out []string
	for _, n := range nodes {
		state := "no tick"
		if t := round[n]; t != nil {
			state = t.Sample.Agent.State
		}
		out = append(out, n+":"+state)
	}
	return strings.Join(out, " ")
}

// want returns a condition for until: these states.
func want(text string) func(map[string]*tick.Tick) string {
	return func(round map[string]*tick.Tick) string {
		var nodes []string
		for x := range strings.FieldsSeq(text) {
			nodes = append(nodes, x[:strings.IndexByte(x, ':')])
		}
		if got := states(round, nodes...); got != text || len(round) != len(nodes) {
			return fmt.Sprintf("%s, of %d nodes; want %s", got, len(round), text)
		}
		return ""
	}
}

func sinceOf(t *tick.Tick) time.Time {
	since, err := time.Parse(time.RFC3339, t.Sample.Agent.Since)
	if err != nil {
		return time.Time{}
	}
	return since
}

// conditions are those of a node's CNR, by type.
func (l *lab) conditions(node string) map[string]map[string]any {
	var cnr struct {
		Status struct{ Conditions []map[string]any }
	}
	_, body := l.API(http.MethodGet, cnrPath+node, "")
	_ = json.Unmarshal(body, &cnr) // it may not exist yet
	out := map[string]map[string]any{}
	for _, c := range cnr.Status.Conditions {
		out[fmt.Sprint(c["type"])] = c
	}
	return out
}

func temp(t *testing.T, name string) string { return filepath.Join(t.TempDir(), name) }
