package object

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"polder/lib/fields"
	"polder/lib/tick"
)

// FleetDecision is the fleet controller's decision about a node, from a tick of collect fleet and evict fleet.
type FleetDecision struct {
	// Conditions are those of the node's agent; nil where its state is unknown, and then they stay as they are.
	Conditions []Condition
	// Taints are the desired ones of the node; nil means that they and the node's offer stay as they are. A node
	// with taints offers nothing.
	Taints []tick.Taint
	// Why is the mark of a node that offers nothing.
	Why string

	node string
}

// Condition is a condition of a CustomNodeResource.
type Condition struct {
	Type, Status, Reason, Message string
	// Since is when it became so, or, if it is not Exact, when it was observed, which counts only if the condition is new.
	Since time.Time
	Exact bool
	// Seen is when it was observed.
	Seen time.Time
}

// Katalyst's conditions of a node's agent, and their reasons.
const (
	allReady     = "AllAgentsReady"
	notAllReady  = "WithAgentsNotReady"
	unknownReady = "WithAgentsUnknown"
	allFound     = "AllAgentsFound"
	notAllFound  = "withAgentsNotFound"
)

// Values of a condition's status.
const (
	statusTrue    = "True"
	statusFalse   = "False"
	statusUnknown = "Unknown"
)

// markPrefix is the prefix of the fleet controller's marks. Other programs' marks stay.
const markPrefix = "agent-health: "

// ReadFleetDecision reads a tick.
func ReadFleetDecision(t *tick.Tick) FleetDecision {
	c := FleetDecision{node: t.Node}
	if t.Sample == nil || t.Sample.Agent == nil {
		return c
	}
	a := t.Sample.Agent
	since, err := time.Parse(time.RFC3339, a.Since)
	if err == nil && since.UTC().Year() >= 1970 {
		c.Conditions = conditions(a.State, since, t.Time)
	}
	e := t.Eviction
	if e == nil || e.Refused != "" || e.Fleet == nil || e.Fleet.Held || c.Conditions == nil {
		return c
	}
	c.Taints = []tick.Taint{}
	if !e.DryRun && a.State != tick.AgentReady {
		c.Taints = append(c.Taints, e.Taints[:min(len(e.Taints), maxTaints)]...)
		c.Why = markPrefix + "the node's agent has not been ready since " + since.UTC().Format(time.RFC3339)
	}
	return c
}

// conditions are the conditions for an agent in that state; nil where there is no such state.
func conditions(state string, since, now time.Time) []Condition {
	ready := Condition{Type: tick.ConditionAgentReady, Since: since, Exact: true, Seen: now}
	found := Condition{
		Type: tick.ConditionAgentNotFound, Status: statusFalse, Reason: allFound, Message: "The node's agent was found.",
		Since: now, Seen: now,
	}
	switch state {
	case tick.AgentReady:
		ready.Status, ready.Reason, ready.Message = statusTrue, allReady, "The node's agent is ready."
	case tick.AgentNotReady:
		ready.Status, ready.Reason, ready.Message = statusFalse, notAllReady, "The node's agent is not ready."
	case tick.AgentNotFound:
		ready.Status, ready.Reason, ready.Message = statusUnknown, unknownReady, "The node has no agent that could be ready."
		found.Status, found.Reason, found.Message = statusTrue, notAllFound, "No pod of the agent was found on the node."
	default:
		return nil
	}
	return []Condition{ready, found}
}

// Equal reports whether two ticks have the same to report.
func (c FleetDecision) Equal(d FleetDecision) bool {
	same := func(a, b Condition) bool { return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason }
	return slices.EqualFunc(c.Conditions, d.Conditions, same) && (c.Taints == nil) == (d.Taints == nil) && slices.Equal(c.Taints, d.Taints)
}

// Withdraws reports whether the node shall offer nothing.
func (c FleetDecision) Withdraws() bool { return len(c.Taints) > 0 }

// Patch writes the conditions to a CustomNodeResource's status; it is nil where that has them and they were written lately. Other
// conditions stay, and a condition keeps its time unless it changes.
func (c FleetDecision) Patch(cnr map[string]any) Patch {
	have, _ := at(cnr, "status", "conditions").([]any)
	next := slices.Clone(have)
	changed := false
	for _, want := range c.Conditions {
		i := slices.IndexFunc(next, func(v any) bool { return typeOf(v) == want.Type })
		item := want.object()
		if i < 0 {
			next, changed = append(next, item), true
			continue
		}
		old, _ := next[i].(map[string]any)
		same := old["status"] == want.Status
		if since := fields.Time(old, "lastTransitionTime"); same && !want.Exact && !since.IsZero() {
			item["lastTransitionTime"] = old["lastTransitionTime"]
		}
		late := want.Seen.Sub(fields.Time(old, "lastHeartbeatTime")) >= c.heartbeat()
		if same && old["reason"] == want.Reason && old["lastTransitionTime"] == item["lastTransitionTime"] && !late {
			continue
		}
		next[i], changed = item, true
	}
	if !changed {
		return nil
	}
	var p Patch
	p.set(cnr, next, "status", "conditions")
	return p
}

// WithoutConditions removes the agent's conditions; it is nil where there are none.
func WithoutConditions(cnr map[string]any) Patch {
	have, _ := at(cnr, "status", "conditions").([]any)
	next := slices.DeleteFunc(slices.Clone(have), func(v any) bool {
		return typeOf(v) == tick.ConditionAgentReady || typeOf(v) == tick.ConditionAgentNotFound
	})
	if len(next) == len(have) {
		return nil
	}
	var left any
	if len(next) > 0 {
		left = next
	}
	var p Patch
	p.set(cnr, left, "status", "conditions")
	return p
}

// object is the condition as it is written. The API's times are whole seconds: they are rounded up, so that no reader
// acts too early.
func (c Condition) object() map[string]any {
	since := c.Since.UTC()
	if whole := since.Truncate(time.Second); whole.Before(since) {
		since = whole.Add(time.Second)
	}
	return map[string]any{
		"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": since.Format(time.RFC3339), "lastHeartbeatTime": c.Seen.UTC().Format(time.RFC3339),
	}
}

// heartbeat is how old the conditions may become: a little less than collect's limit, by the node's name, so that not all
// nodes are written at once.
func (c FleetDecision) heartbeat() time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.node))
	return tick.AgentHeartbeat * time.Duration(75+h.Sum32()%25) / 100
}

// FleetTaintsOf reads an object's taints, of which the fleet controller's count as ours, those of the node's own agent as others'.
func FleetTaintsOf(cnr map[string]any) Taints {
	return taintsBy(cnr, fleetTaintsAnnotation, taintQoS)
}

// fleetTaintsAnnotation names the fleet controller's taints in the object.
const fleetTaintsAnnotation = "polder/fleet-taints"

// MarkPatch is a JSON merge patch of a node that sets the mark of the fleet controller, or removes it; nil where nothing must be done. A
// mark of another program stays, and has the same effect.
func (c FleetDecision) MarkPatch(node map[string]any) map[string]any {
	have, there := at(node, "metadata", "annotations", WithdrawnAnnotation).(string)
	var mark any
	switch {
	case c.Withdraws() && there, !c.Withdraws() && !strings.HasPrefix(have, markPrefix):
		return nil
	case c.Withdraws():
		mark = c.Why
	}
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{WithdrawnAnnotation: mark}}}
}

// Lacks names the parts of the desired state that the objects lack; it is empty where nothing must be written. A nil cnr does not exist.
func (c FleetDecision) Lacks(node, cnr map[string]any) string {
	var lacks []string
	if c.Patch(cnr) != nil {
		lacks = append(lacks, "conditions")
	}
	if c.Taints == nil {
		return strings.Join(lacks, ", ")
	}
	if t := FleetTaintsOf(cnr); !t.Want(c.Taints, time.Time{}).Equal(t) {
		lacks = append(lacks, "taints")
	}
	if c.MarkPatch(node) != nil {
		lacks = append(lacks, "mark")
	}
	if c.Withdraws() && (!NodeHolds(node, Nothing()) || CNRWithdrawal(cnr) != nil) {
		lacks = append(lacks, "withdrawal")
	}
	return strings.Join(lacks, ", ")
}

// String is for the log.
func (c FleetDecision) String() string {
	var words []string
	for _, x := range c.Conditions {
		words = append(words, fmt.Sprintf("%s=%s (%s)", x.Type, x.Status, x.Reason))
	}
	for _, t := range c.Taints {
		words = append(words, "taint "+t.Key+":"+t.Effect)
	}
	if c.Withdraws() {
		words = append(words, "nothing is offered")
	}
	return strings.Join(words, ", ")
}

// typeOf is a condition's type.
func typeOf(condition any) any {
	m, _ := condition.(map[string]any)
	return m["type"]
}
