// Package health decides about nodes whose agent is not ready: when a node is closed to reclaimed pods, and when its reclaimed
// pods are evicted. It is pure: its inputs are the ticks of collect fleet, its settings and its state.
package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"polder/lib/reason"
	"polder/lib/tick"
)

// Rule and Scope name the measurement: how long the agent has not been ready.
const (
	Rule  = "agent-health"
	Scope = "AgentReady"
)

// Taint is Katalyst's taint for such a node.
var Taint = tick.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoScheduleForReclaimedTasks"}

const (
	// maxNodes bounds the nodes that are remembered.
	maxNodes = 10_000
	// minTurnLifetime is how long a node without ticks keeps its turn, for intervals up to a third of it.
	minTurnLifetime = time.Minute
	// taintRetention is how long a node's taint is remembered.
	taintRetention = time.Hour
	// maxInterval bounds the time between two rounds, and so how many nodes are evicted from together.
	maxInterval = time.Minute
	// maxDowntime exceeds any real downtime: an older time is an error.
	maxDowntime = 10 * 365 * 24 * time.Hour
	// earlyDivisor divides the pause: a node may be served too early by that part of it.
	earlyDivisor = 20
)

// State is the state of the fleet. The state file contains it as JSON.
type State struct {
	// NextTurn is when the next node may be served.
	NextTurn time.Time `json:"next,omitzero"`
	// Nodes are those whose agent is not ready.
	Nodes map[string]*Node `json:"nodes,omitempty"`

	lastCleanup time.Time // when removed nodes were last dropped
}

// Init prepares a state that was read from a file: it drops invalid entries.
func (s *State) Init() {
	maps.DeleteFunc(s.Nodes, func(_ string, n *Node) bool { return n == nil })
}

// Node is the state of one of them.
type Node struct {
	Tainted bool `json:"tainted,omitempty"`
	// IsWaiting means that it has pods to evict; NotReadySince is when its agent stopped being ready, LastEviction when its pods were
	// last evicted.
	IsWaiting     bool      `json:"waits,omitempty"`
	NotReadySince time.Time `json:"since,omitzero"`
	LastEviction  time.Time `json:"served,omitzero"`
	// TurnExpires is when it loses its turn unless another tick comes.
	TurnExpires time.Time `json:"until,omitzero"`
}

// Decision is the result for one tick and its node.
type Decision struct {
	Pressures []tick.PressureFinding
	Taints    []tick.Taint
	Errors    []string
	Fleet     tick.FleetEviction
	// IsDue means that the agent has not been ready for long enough, and that nothing forbids an eviction.
	IsDue bool
	// Message is the reason, if IsDue; Victims are the pods that are evicted now, by name.
	Message string
	Victims []*tick.Pod
}

// Decide decides on a tick. Evictable returns which of the node's reclaimed pods may be evicted now: neither protected ones nor those
// whose eviction is in progress.
func (s *State) Decide(settings Settings, t *tick.Tick, evictable func(*tick.Pod) bool) Decision {
	d := Decision{}
	d.Fleet.Protection = protection(t)
	if isReady(t) {
		delete(s.Nodes, t.Node)
		d.Pressures = findings(settings, 0, time.Time{})
		d.Fleet.Waiting = s.countWaiting(t.Time)
		return d
	}
	since, why := notReadySince(t)
	if why == "" {
		d.Pressures = findings(settings, t.Time.Sub(since), since)
		why = d.Fleet.Protection
	}
	n, tooMany := s.node(t)
	why = cmp.Or(why, tooMany)
	n.TurnExpires = t.Time.Add(turnLifetime(t))
	if why != "" {
		d.Fleet.Held = true
		d.Errors = append(d.Errors, why+": no new action on this node")
		n.IsWaiting = false
	} else {
		s.act(settings, t, n, since, evictable, &d)
	}
	if n.Tainted {
		d.Taints = []tick.Taint{Taint}
	}
	d.Fleet.Waiting = s.countWaiting(t.Time)
	return d
}

// act taints the node and evicts its pods, if the time has come and it is the node's turn.
func (s *State) act(settings Settings, t *tick.Tick, n *Node, since time.Time, evictable func(*tick.Pod) bool, d *Decision) {
	downtime := t.Time.Sub(since)
	n.Tainted = n.Tainted || downtime >= settings.TaintAfter
	d.IsDue = downtime >= settings.EvictAfter
	var pods []*tick.Pod
	if d.IsDue {
		d.Message = fmt.Sprintf("the node's agent has not been ready for %s (%s now), over the "+reason.Threshold+"%s",
			downtime.Round(time.Second), describeState(t.Sample.Agent.State), settings.EvictAfter)
		pods = Reclaimed(t, evictable)
	}
	n.NotReadySince = since
	availableTurns := s.availableTurns(settings, t)
	if n.IsWaiting = len(pods) > 0; !n.IsWaiting || availableTurns == 0 || s.mustWait(t.Node, t.Time, availableTurns) {
		return
	}
	s.NextTurn = s.NextTurn.Add(pauseBetweenNodes(settings))
	n.LastEviction, n.IsWaiting = t.Time, false
	d.Victims = pods
}

func describeState(state string) string {
	if state == tick.AgentNotFound {
		return "not found"
	}
	return "it exists"
}

// node returns the state of the tick's node; if there are too many nodes, an empty one and the reason.
func (s *State) node(t *tick.Tick) (*Node, string) {
	n := s.Nodes[t.Node]
	if n != nil {
		return n, ""
	}
	s.dropOldNodes(t.Time)
	n = &Node{}
	if _, unknown := notReadySince(t); unknown != "" {
		return n, "" // it has no taint of Polder's, and gets none
	}
	if len(s.Nodes) >= maxNodes {
		return n, fmt.Sprintf("more than %d nodes", maxNodes)
	}
	if s.Nodes == nil {
		s.Nodes = map[string]*Node{}
	}
	s.Nodes[t.Node] = n
	return n, ""
}

// dropOldNodes drops removed nodes.
func (s *State) dropOldNodes(now time.Time) {
	retention := taintRetention
	if len(s.Nodes) >= maxNodes {
		retention = 0
	} else if since := now.Sub(s.lastCleanup); since >= 0 && since < taintRetention {
		return
	}
	s.lastCleanup = now
	for name, n := range s.Nodes {
		if now.Sub(n.TurnExpires) >= retention {
			delete(s.Nodes, name)
		}
	}
}

// availableTurns returns how many nodes may be served now. All ticks of a round have the same time: if a round takes longer than the
// pause between two nodes, the nodes of one round are evicted from together.
func (s *State) availableTurns(settings Settings, t *tick.Tick) int {
	pause := pauseBetweenNodes(settings)
	earliest := t.Time.Add(-max(0, interval(t)-pause))
	switch {
	case s.NextTurn.Before(earliest):
		s.NextTurn = earliest
	case s.NextTurn.Sub(t.Time) > pause: // the clock was set back: the wait starts over
		s.NextTurn = t.Time.Add(pause)
	}
	lateness := t.Time.Add(pause / earlyDivisor).Sub(s.NextTurn) // rounds sometimes come a little early; the average rate stays the same
	if lateness < 0 {
		return 0
	}
	return int(lateness/pause) + 1
}

// mustWait reports whether so many nodes wait before the node that no turn is left for it. A node that was never served comes
// before one that was, then the one whose agent has been missing for longest, then by name.
func (s *State) mustWait(name string, now time.Time, availableTurns int) bool {
	n := s.Nodes[name]
	if n == nil {
		return true
	}
	for other, o := range s.Nodes {
		if o.IsWaiting && o != n && o.TurnExpires.After(now) && isBefore(other, o, name, n) {
			if availableTurns--; availableTurns == 0 {
				return true
			}
		}
	}
	return false
}

func isBefore(a string, x *Node, b string, y *Node) bool {
	if c := x.LastEviction.Compare(y.LastEviction); c != 0 { // the zero time is the earliest
		return c < 0
	}
	if c := x.NotReadySince.Compare(y.NotReadySince); c != 0 {
		return c < 0
	}
	return a < b
}

// countWaiting counts the nodes that wait for their turn.
func (s *State) countWaiting(now time.Time) int {
	count := 0
	for _, n := range s.Nodes {
		if n.IsWaiting && n.TurnExpires.After(now) {
			count++
		}
	}
	return count
}

// turnLifetime returns how long the node keeps its turn: three intervals.
func turnLifetime(t *tick.Tick) time.Duration { return max(minTurnLifetime, 3*interval(t)) }

// interval returns the time between two rounds, 0 if unknown.
func interval(t *tick.Tick) time.Duration {
	if t.Sample == nil || t.Sample.IntervalSeconds == nil || !(*t.Sample.IntervalSeconds > 0) {
		return 0
	}
	return time.Duration(min(*t.Sample.IntervalSeconds, maxInterval.Seconds()) * float64(time.Second))
}

func protection(t *tick.Tick) string {
	if t.Sample == nil || t.Sample.Fleet == nil {
		return ""
	}
	return Protection(t.Sample.Fleet)
}

func isReady(t *tick.Tick) bool {
	return t.Sample != nil && t.Sample.Agent != nil && t.Sample.Agent.State == tick.AgentReady
}

// notReadySince returns since when the agent has not been ready, or why that is unknown.
func notReadySince(t *tick.Tick) (time.Time, string) {
	switch {
	case t.Sample == nil:
		return time.Time{}, "the tick has no sample"
	case t.Sample.Agent == nil || t.Sample.Fleet == nil:
		return time.Time{}, "the tick has no state of the node's agent and of the fleet (does collect fleet run before evict fleet?)"
	}
	a := t.Sample.Agent
	switch a.State {
	case tick.AgentNotReady, tick.AgentNotFound:
	case "":
		if a.Reason != "" {
			return time.Time{}, "the state of the node's agent is unknown: " + a.Reason
		}
		return time.Time{}, "the state of the node's agent is unknown"
	default:
		return time.Time{}, fmt.Sprintf("the agent's state %.40q is none of %s, %s, %s", a.State, tick.AgentReady, tick.AgentNotReady, tick.AgentNotFound)
	}
	since, err := time.Parse(time.RFC3339, a.Since)
	switch {
	case t.Sample.Fleet.NotReady < 1:
		return time.Time{}, "the fleet's totals count no node whose agent is not ready"
	case err != nil, since.Before(t.Time.Add(-maxDowntime)):
		return time.Time{}, fmt.Sprintf("the time since which the node's agent has not been ready is unknown (%.40q)", a.Since)
	case since.After(t.Time): // a clock that is ahead
		return t.Time, ""
	}
	return since, ""
}

// findings returns both thresholds as findings.
func findings(settings Settings, downtime time.Duration, since time.Time) []tick.PressureFinding {
	finding := func(threshold time.Duration, hard bool) tick.PressureFinding {
		f := tick.PressureFinding{
			Rule: Rule, Scope: Scope, Value: downtime.Seconds(), Threshold: threshold.Seconds(),
			Met: !since.IsZero() && downtime >= threshold, Hard: hard,
		}
		if f.Met {
			f.Since = since.Add(threshold).UTC().Format(time.RFC3339Nano)
		}
		return f
	}
	return []tick.PressureFinding{finding(settings.TaintAfter, false), finding(settings.EvictAfter, true)}
}

// Reclaimed returns the node's reclaimed pods that may be evicted, by name.
func Reclaimed(t *tick.Tick, evictable func(*tick.Pod) bool) []*tick.Pod {
	var pods []*tick.Pod
	for i := range t.Sample.Pods {
		if p := &t.Sample.Pods[i]; p.QoS == tick.QoSReclaimed && evictable(p) {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *tick.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(pods, func(p *tick.Pod) bool { // one that is listed twice is evicted once
		isDuplicate := seen[p.UID]
		seen[p.UID] = true
		return isDuplicate
	})
}
