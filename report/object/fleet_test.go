package object

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"polder/lib/tick"
)

var unfit = tick.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoScheduleForReclaimedTasks"}

// fleetTick is a tick of the fleet controller at noon, with what evict fleet decided.
func fleetTick(state string, since time.Time, e *tick.Eviction) *tick.Tick {
	return &tick.Tick{V: 1, Node: "n1", Time: noon, Eviction: e, Sample: &tick.Sample{Agent: &tick.Agent{State: state, Since: since.Format(time.RFC3339Nano)}}}
}

func TestReadFleetDecision(t *testing.T) {
	since := noon.Add(-time.Hour)
	held, tainted := &tick.FleetEviction{Held: true}, []tick.Taint{unfit}
	for _, tt := range []struct {
		name                 string
		tick                 *tick.Tick
		conditions, withdraw bool // it has conditions; a withdrawal
		silent               bool // it has no taints
	}{
		{"no sample", &tick.Tick{}, false, false, true},
		{"a node's own tick", &tick.Tick{Sample: &tick.Sample{}, Eviction: &tick.Eviction{Taints: tainted}}, false, false, true},
		{"an unknown state", fleetTick("", since, &tick.Eviction{Fleet: &tick.FleetEviction{}, Taints: tainted}), false, false, true},
		{"no such state", fleetTick("ill", since, &tick.Eviction{Fleet: &tick.FleetEviction{}, Taints: tainted}), false, false, true},
		{"no time", &tick.Tick{Sample: &tick.Sample{Agent: &tick.Agent{State: tick.AgentNotReady}}, Eviction: &tick.Eviction{Fleet: &tick.FleetEviction{}, Taints: tainted}}, false, false, true},
		{"no decision", fleetTick(tick.AgentNotReady, since, nil), true, false, true},
		{"refused", fleetTick(tick.AgentNotReady, since, &tick.Eviction{Refused: "old", Fleet: &tick.FleetEviction{}, Taints: tainted}), true, false, true},
		{"a node's own evict", fleetTick(tick.AgentNotReady, since, &tick.Eviction{Taints: tainted}), true, false, true},
		{"held", fleetTick(tick.AgentNotReady, since, &tick.Eviction{Fleet: held, Taints: tainted}), true, false, true},
		{"no taint", fleetTick(tick.AgentNotReady, since, &tick.Eviction{Fleet: &tick.FleetEviction{}}), true, false, false},
		{"a dry run", fleetTick(tick.AgentNotReady, since, &tick.Eviction{Fleet: &tick.FleetEviction{}, Taints: tainted, DryRun: true}), true, false, false},
		{"a taint", fleetTick(tick.AgentNotFound, since, &tick.Eviction{Fleet: &tick.FleetEviction{}, Taints: tainted}), true, true, false},
		{"a taint of a ready node", fleetTick(tick.AgentReady, since, &tick.Eviction{Fleet: &tick.FleetEviction{}, Taints: tainted}), true, false, false},
	} {
		c := ReadFleetDecision(tt.tick)
		if (c.Conditions != nil) != tt.conditions || c.Withdraws() != tt.withdraw || (c.Taints == nil) != tt.silent {
			t.Errorf("%s: %+v", tt.name, c)
		}
		if c.Withdraws() && c.Why != "agent-health: the node's agent has not been ready since 2026-11-21T11:00:00Z" {
			t.Errorf("%s: the mark is %q", tt.name, c.Why)
		}
	}
}

// Conditions are merged with the present ones: others stay, and a time changes only with its condition.
func TestFleetConditions(t *testing.T) {
	since := noon.Add(-time.Hour - 200*time.Millisecond)
	const then, at = "2026-11-21T11:00:00Z", "2026-11-21T12:00:00Z" // since, rounded up
	condition := func(kind, status, reason, changed, seen string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "lastTransitionTime": changed, "lastHeartbeatTime": seen}
	}
	theirs := map[string]any{"type": "Theirs", "status": "True"}
	found := condition("AgentNotFound", "False", "AllAgentsFound", "2026-01-01T00:00:00Z", at)
	dead := condition("AgentReady", "False", "WithAgentsNotReady", then, at)
	late := noon.Add(-tick.AgentHeartbeat).Format(time.RFC3339)
	for _, tt := range []struct {
		name string
		have []any
		want []any // nil: nothing is written
	}{
		{"none", nil, []any{dead, condition("AgentNotFound", "False", "AllAgentsFound", at, at)}},
		{"others'", []any{theirs}, []any{theirs, dead, condition("AgentNotFound", "False", "AllAgentsFound", at, at)}},
		{"as they are to be", []any{found, theirs, dead}, nil},
		{"it was ready", []any{condition("AgentReady", "True", "AllAgentsReady", at, at), found}, []any{dead, found}},
		{"another reason", []any{condition("AgentReady", "False", "Other", then, at), found}, []any{dead, found}},
		{"since another time", []any{condition("AgentReady", "False", "WithAgentsNotReady", at, at), found}, []any{dead, found}},
		{
			"it was not there",
			[]any{condition("AgentReady", "Unknown", "WithAgentsUnknown", then, at), condition("AgentNotFound", "True", "withAgentsNotFound", then, at)},
			[]any{dead, condition("AgentNotFound", "False", "AllAgentsFound", at, at)},
		},
		{"written long ago", []any{dead, condition("AgentNotFound", "False", "AllAgentsFound", "2026-01-01T00:00:00Z", late)}, []any{dead, found}},
		{"no conditions at all", []any{"x", 7, nil, map[string]any{"type": 1}}, []any{"x", 7, nil, map[string]any{"type": 1}, dead, condition("AgentNotFound", "False", "AllAgentsFound", at, at)}},
	} {
		cnr := map[string]any{"status": map[string]any{"conditions": tt.have}}
		if tt.have == nil {
			cnr = map[string]any{}
		}
		c := ReadFleetDecision(fleetTick(tick.AgentNotReady, since, nil))
		p := c.Patch(cnr)
		if tt.want == nil {
			if p != nil || c.Lacks(nil, cnr) != "" {
				t.Errorf("%s: written: %v", tt.name, p)
			}
			continue
		}
		if p == nil || c.Lacks(nil, cnr) != "conditions" {
			t.Fatalf("%s: not written", tt.name)
		}
		got, _ := p[len(p)-1]["value"].([]any)
		if status, ok := p[len(p)-1]["value"].(map[string]any); ok { // the whole status, where there was none
			got, _ = conditionsIn(status).([]any)
		}
		for _, x := range got {
			if m, ok := x.(map[string]any); ok {
				delete(m, "message")
			}
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
		if p := WithoutConditions(map[string]any{"status": map[string]any{"conditions": got}}); p == nil {
			t.Errorf("%s: nothing to remove", tt.name)
		}
	}
}

func conditionsIn(m map[string]any) any {
	if status, ok := m["status"].(map[string]any); ok {
		m = status
	}
	return m["conditions"]
}

func TestMarkPatch(t *testing.T) {
	away := FleetDecision{Taints: []tick.Taint{unfit}, Why: markPrefix + "because"}
	none := FleetDecision{Taints: []tick.Taint{}}
	for _, tt := range []struct {
		name string
		c    FleetDecision
		have string
		want string
	}{
		{"set", away, "", `"agent-health: because"`},
		{"there already", away, "agent-health: for another reason", ""},
		{"another program's has the same effect", away, "maintenance", ""},
		{"none", none, "", ""},
		{"taken away", none, "agent-health: because", "null"},
		{"another program's stays", none, "maintenance", ""},
	} {
		node := map[string]any{"metadata": map[string]any{"annotations": map[string]any{}}}
		if tt.have != "" {
			node["metadata"] = map[string]any{"annotations": map[string]any{WithdrawnAnnotation: tt.have}}
		}
		got := ""
		if p := tt.c.MarkPatch(node); p != nil {
			text, _ := json.Marshal(at(p, "metadata", "annotations", WithdrawnAnnotation))
			got = string(text)
		}
		if got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

// A node that offers nothing has none of both dialects' resources, of either prefix.
func TestFleetWithdrawsBothDialects(t *testing.T) {
	c := ReadFleetDecision(fleetTick(tick.AgentNotFound, noon.Add(-time.Hour), &tick.Eviction{Fleet: &tick.FleetEviction{}, Taints: []tick.Taint{unfit}}))
	for name, lacks := range map[string]bool{
		ReclaimedMilliCPU: true, ReclaimedMemory: true,
		"kubernetes.io/batch-cpu": true, "kubernetes.io/batch-memory": true, "kubernetes.io/mid-cpu": true, "kubernetes.io/mid-memory": true,
		"koordinator.sh/batch-cpu": true, "koordinator.sh/mid-memory": true,
		"example.com/thing": false, "cpu": false,
	} {
		offers := map[string]any{"memory": "1", name: "1"}
		node := map[string]any{"status": map[string]any{"capacity": offers, "allocatable": offers}}
		if got := c.Lacks(node, nil); strings.Contains(got, "withdrawal") != lacks {
			t.Errorf("with %s: %q", name, got)
		}
	}
}

// The fleet controller's taints are set and removed without changing those of the node's own writer.
func TestFleetTaintsAreItsOwn(t *testing.T) {
	const name = "node.kubernetes.io/unschedulable:NoScheduleForReclaimedTasks"
	own := map[string]any{"key": "node.katalyst.kubewharf.io/MemoryPressure", "effect": "NoSchedule", "qosLevel": taintQoS}
	cnr := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{taintsAnnotation: "node.katalyst.kubewharf.io/MemoryPressure:NoSchedule"}},
		"spec":     map[string]any{"taints": []any{own}},
	}
	next := FleetTaintsOf(cnr).Want([]tick.Taint{unfit}, noon)
	if len(next.List()) != 2 || taintName(next.List()[1]) != name {
		t.Fatalf("%v", next.List())
	}
	cnr["spec"] = map[string]any{"taints": next.List()}
	cnr["metadata"] = map[string]any{"annotations": map[string]any{
		taintsAnnotation: "node.katalyst.kubewharf.io/MemoryPressure:NoSchedule", fleetTaintsAnnotation: name,
	}}
	if mine := TaintsOf(cnr).Want([]tick.Taint{}, noon); len(mine.List()) != 1 || taintName(mine.List()[0]) != name {
		t.Errorf("the node's own writer leaves %v; want the fleet controller's", mine.List())
	}
	if left := FleetTaintsOf(cnr).Want([]tick.Taint{}, noon); len(left.List()) != 1 || taintName(left.List()[0]) != taintName(own) {
		t.Errorf("the fleet controller leaves %v; want the node's own", left.List())
	}
}

// A node without a taint in the tick never loses anything, and one that lacks nothing is not written.
func TestFleetProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.SampledFrom([]string{tick.AgentReady, tick.AgentNotReady, tick.AgentNotFound, "", "x"}).Draw(t, "state")
		x := fleetTick(state, noon.Add(-time.Duration(rapid.IntRange(-10, 1000).Draw(t, "since"))*time.Second), nil)
		if rapid.Bool().Draw(t, "decided") {
			x.Eviction = &tick.Eviction{DryRun: rapid.Bool().Draw(t, "dry"), Refused: rapid.SampledFrom([]string{"", "old"}).Draw(t, "refused")}
			if rapid.Bool().Draw(t, "fleet") {
				x.Eviction.Fleet = &tick.FleetEviction{Held: rapid.Bool().Draw(t, "held")}
			}
			if rapid.Bool().Draw(t, "taint") {
				x.Eviction.Taints = []tick.Taint{unfit}
			}
		}
		annotations := map[string]any{}
		if mark := rapid.SampledFrom([]string{"", markPrefix + "x", "maintenance"}).Draw(t, "mark"); mark != "" {
			annotations[WithdrawnAnnotation] = mark
		}
		offers := map[string]any{"cpu": "48"}
		if rapid.Bool().Draw(t, "offers") {
			maps.Copy(offers, map[string]any{ReclaimedMilliCPU: "44k", ReclaimedMemory: "1"})
		}
		node := map[string]any{"metadata": map[string]any{"annotations": annotations}, "status": map[string]any{"capacity": offers, "allocatable": offers}}
		c := ReadFleetDecision(x)
		lacks := c.Lacks(node, nil)
		tainted := x.Eviction != nil && len(x.Eviction.Taints) > 0
		if strings.Contains(lacks, "withdrawal") && (!tainted || x.Eviction.Fleet == nil || x.Eviction.Fleet.Held || x.Eviction.DryRun || x.Eviction.Refused != "" || state == tick.AgentReady || state == "") {
			t.Fatalf("%q is written by %+v of an agent that is %q", lacks, x.Eviction, state)
		}
		if c.Conditions == nil && lacks != "" {
			t.Fatalf("the agent's state is unknown, and %q is written", lacks)
		}
	})
}
