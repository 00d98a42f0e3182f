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
	// mostNodes bounds the nodes that are remembered.
	mostNodes = 10_000
	// leastAlive is how long a node without ticks keeps its turn, for intervals up to a third of it.
	leastAlive = time.Minute
	// forgetAfter is how long a node's taint is remembered.
	forgetAfter = time.Hour
	// longestInterval bounds the time between two rounds, and so how many nodes are evicted from together.
	longestInterval = time.Minute
	// longestDown exceeds any real downtime: an older time is an error.
	longestDown = 10 * 365 * 24 * time.Hour
	// early is the part of a pause by which a node may be served too early.
	early = 20
)

// State is the state of the fleet. The state file contains it as JSON.
type State struct {
	// Next is when the next node may be served.
	Next time.Time `json:"next,omitzero"`
	// Nodes are those whose agent is not ready.
	Nodes map[string]*Node `json:"nodes,omitempty"`

	swept time.Time // when nodes that are gone were last forgotten
}

// Init prepares a state that was read from a file: it drops invalid entries.
func (s *State) Init() {
	maps.DeleteFunc(s.Nodes, func(_ string, n *Node) bool { return n == nil })
}

// Node is the state of one of them.
type Node struct {
	Tainted bool `json:"tainted,omitempty"`
	// Waits means that it has pods to evict; Since is when its agent stopped being ready, Served when its pods were last evicted.
	Waits  bool      `json:"waits,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Served time.Time `json:"served,omitzero"`
	// Until is when it loses its turn unless another tick comes.
	Until time.Time `json:"until,omitzero"`
}

// Decision is the result for one tick and its node.
type Decision struct {
	Pressures []tick.PressureFinding
	Taints    []tick.Taint
	Errors    []string
	Fleet     tick.FleetEviction
	// Due means that the agent has not been ready for long enough, and that nothing forbids an eviction.
	Due bool
	// Message is the reason, if Due; Victims are the pods that are evicted now, by name.
	Message string
	Victims []*tick.Pod
}

// Decide decides on a tick. Evictable returns which of the node's reclaimed pods may be evicted now: neither protected ones nor those
// whose eviction is in progress.
func (s *State) Decide(set Settings, t *tick.Tick, evictable func(*tick.Pod) bool) Decision {
	d := Decision{}
	d.Fleet.Protection = protection(t)
	if ready(t) {
		delete(s.Nodes, t.Node)
		d.Pressures = findings(set, 0, time.Time{})
		d.Fleet.Waiting = s.waiting(t.Time)
		return d
	}
	since, why := notReady(t)
	if why == "" {
		d.Pressures = findings(set, t.Time.Sub(since), since)
		why = d.Fleet.Protection
	}
	n, full := s.node(t)
	why = cmp.Or(why, full)
	n.Until = t.Time.Add(alive(t))
	if why != "" {
		d.Fleet.Held = true
		d.Errors = append(d.Errors, why+": nothing new is done about this node")
		n.Waits = false
	} else {
		s.act(set, t, n, since, evictable, &d)
	}
	if n.Tainted {
		d.Taints = []tick.Taint{Taint}
	}
	d.Fleet.Waiting = s.waiting(t.Time)
	return d
}

// act taints the node and evicts its pods, if the time has come and it is the node's turn.
func (s *State) act(set Settings, t *tick.Tick, n *Node, since time.Time, evictable func(*tick.Pod) bool, d *Decision) {
	down := t.Time.Sub(since)
	n.Tainted = n.Tainted || down >= set.TaintAfter
	d.Due = down >= set.EvictAfter
	var pods []*tick.Pod
	if d.Due {
		d.Message = fmt.Sprintf("the node's agent has not been ready for %s (%s now), over the threshold of %s", down.Round(time.Second), words(t.Sample.Agent.State), set.EvictAfter)
		pods = Reclaimed(t, evictable)
	}
	n.Since = since
	turns := s.turns(set, t)
	if n.Waits = len(pods) > 0; !n.Waits || turns == 0 || s.ahead(t.Node, t.Time, turns) {
		return
	}
	s.Next = s.Next.Add(pauseOf(set))
	n.Served, n.Waits = t.Time, false
	d.Victims = pods
}

func words(state string) string {
	if state == tick.AgentNotFound {
		return "there is none"
	}
	return "it is there"
}

// node returns the state of the tick's node; if there are too many nodes, an empty one and the reason.
func (s *State) node(t *tick.Tick) (*Node, string) {
	n := s.Nodes[t.Node]
	if n != nil {
		return n, ""
	}
	s.sweep(t.Time)
	n = &Node{}
	if _, unknown := notReady(t); unknown != "" {
		return n, "" // it has no taint of Polder's, and gets none
	}
	if len(s.Nodes) >= mostNodes {
		return n, fmt.Sprintf("more than %d nodes", mostNodes)
	}
	if s.Nodes == nil {
		s.Nodes = map[string]*Node{}
	}
	s.Nodes[t.Node] = n
	return n, ""
}

// sweep forgets nodes that are gone.
func (s *State) sweep(now time.Time) {
	keep := forgetAfter
	if len(s.Nodes) >= mostNodes {
		keep = 0
	} else if since := now.Sub(s.swept); since >= 0 && since < forgetAfter {
		return
	}
	s.swept = now
	for name, n := range s.Nodes {
		if now.Sub(n.Until) >= keep {
			delete(s.Nodes, name)
		}
	}
}

// turns returns how many nodes may be served now. All ticks of a round have the same time: if a round takes longer than the
// pause between two nodes, the nodes of one round are evicted from together.
func (s *State) turns(set Settings, t *tick.Tick) int {
	pause := pauseOf(set)
	earliest := t.Time.Add(-max(0, interval(t)-pause))
	switch {
	case s.Next.Before(earliest):
		s.Next = earliest
	case s.Next.Sub(t.Time) > pause: // the clock was set back: the wait starts over
		s.Next = t.Time.Add(pause)
	}
	late := t.Time.Add(pause / early).Sub(s.Next) // rounds sometimes come a little early; the average rate stays the same
	if late < 0 {
		return 0
	}
	return int(late/pause) + 1
}

// ahead reports whether so many nodes wait before the node that no turn is left for it. A node that was never served comes
// before one that was, then the one whose agent has been missing for longest, then by name.
func (s *State) ahead(name string, now time.Time, turns int) bool {
	n := s.Nodes[name]
	if n == nil {
		return true
	}
	for other, o := range s.Nodes {
		if o.Waits && o != n && o.Until.After(now) && before(other, o, name, n) {
			if turns--; turns == 0 {
				return true
			}
		}
	}
	return false
}

func before(a string, x *Node, b string, y *Node) bool {
	if c := x.Served.Compare(y.Served); c != 0 { // the zero time is the earliest
		return c < 0
	}
	if c := x.Since.Compare(y.Since); c != 0 {
		return c < 0
	}
	return a < b
}

// waiting counts the nodes that wait for their turn.
func (s *State) waiting(now time.Time) int {
	count := 0
	for _, n := range s.Nodes {
		if n.Waits && n.Until.After(now) {
			count++
		}
	}
	return count
}

// alive returns how long the node keeps its turn: three intervals.
func alive(t *tick.Tick) time.Duration { return max(leastAlive, 3*interval(t)) }

// interval returns the time between two rounds, 0 if unknown.
func interval(t *tick.Tick) time.Duration {
	if t.Sample == nil || t.Sample.IntervalSeconds == nil || !(*t.Sample.IntervalSeconds > 0) {
		return 0
	}
	return time.Duration(min(*t.Sample.IntervalSeconds, longestInterval.Seconds()) * float64(time.Second))
}

func protection(t *tick.Tick) string {
	if t.Sample == nil || t.Sample.Fleet == nil {
		return ""
	}
	return Protection(t.Sample.Fleet)
}

func ready(t *tick.Tick) bool {
	return t.Sample != nil && t.Sample.Agent != nil && t.Sample.Agent.State == tick.AgentReady
}

// notReady returns since when the agent has not been ready, or why that is unknown.
func notReady(t *tick.Tick) (time.Time, string) {
	switch {
	case t.Sample == nil:
		return time.Time{}, "the tick has no sample"
	case t.Sample.Agent == nil || t.Sample.Fleet == nil:
		return time.Time{}, "the tick has nothing about the node's agent and the fleet (is it collect fleet that runs before?)"
	}
	a := t.Sample.Agent
	switch a.State {
	case tick.AgentNotReady, tick.AgentNotFound:
	case "":
		if a.Reason != "" {
			return time.Time{}, "it is not known how the node's agent is: " + a.Reason
		}
		return time.Time{}, "it is not known how the node's agent is"
	default:
		return time.Time{}, fmt.Sprintf("the agent's state %.40q is none of %s, %s, %s", a.State, tick.AgentReady, tick.AgentNotReady, tick.AgentNotFound)
	}
	since, err := time.Parse(time.RFC3339, a.Since)
	switch {
	case t.Sample.Fleet.NotReady < 1:
		return time.Time{}, "the fleet's totals know of no node whose agent is not ready"
	case err != nil, since.Before(t.Time.Add(-longestDown)):
		return time.Time{}, fmt.Sprintf("it is not known since when the node's agent is not ready (%.40q)", a.Since)
	case since.After(t.Time): // a clock that is ahead
		return t.Time, ""
	}
	return since, ""
}

// findings returns both thresholds as findings.
func findings(set Settings, down time.Duration, since time.Time) []tick.PressureFinding {
	finding := func(threshold time.Duration, hard bool) tick.PressureFinding {
		f := tick.PressureFinding{
			Rule: Rule, Scope: Scope, Value: down.Seconds(), Threshold: threshold.Seconds(), Met: !since.IsZero() && down >= threshold, Hard: hard,
		}
		if f.Met {
			f.Since = since.Add(threshold).UTC().Format(time.RFC3339Nano)
		}
		return f
	}
	return []tick.PressureFinding{finding(set.TaintAfter, false), finding(set.EvictAfter, true)}
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
		twice := seen[p.UID]
		seen[p.UID] = true
		return twice
	})
}
