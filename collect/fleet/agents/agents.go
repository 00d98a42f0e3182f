// Package agents finds the state of the agent on each of a cluster's nodes, and since when it has that state. It is pure: the
// cluster's objects and the time are arguments.
package agents

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"polder/collect/kubernetes"
	"polder/lib/tick"
)

// Seen is the observed state of the cluster at one time.
type Seen struct {
	Nodes   []*Node
	Pods    []*Pod // nil pointers are left out
	Records []*Record
	// Stale is the reason why the nodes, the pods or, at the beginning, the records are not current; it is empty where they are.
	// Nothing is concluded from stale ones.
	Stale string
	// Errors and Config are in every tick.
	Errors []tick.SourceError
	Config tick.Raw
}

// Fleet remembers the agents' states. The zero value remembers nothing.
type Fleet struct {
	// Interval is in every tick.
	Interval time.Duration

	began time.Time // the first time at which all lists were current
	nodes map[string]*memory
}

// memory is what is remembered of a node.
type memory struct {
	agent bool // it had one, or has
	known
}

// known is an agent's last observed state, since when it had that, and when it was observed.
type known struct {
	ready       bool
	since, seen time.Time
}

// maxUnobserved is the longest time between two observations over which an agent counts as unchanged if both found the same state.
const maxUnobserved = time.Minute

// Observe observes all agents, and returns the nodes' ticks sorted by name.
func (f *Fleet) Observe(now time.Time, s Seen) []*tick.Tick {
	now = now.UTC().Truncate(time.Millisecond)
	if f.nodes == nil {
		f.nodes = map[string]*memory{}
	}
	if f.began.IsZero() && s.Stale == "" {
		f.began = now
	}
	on := perNode(s)
	total := &tick.Fleet{}
	ticks := make([]*tick.Tick, 0, len(s.Nodes))
	present := make(map[string]bool, len(s.Nodes))
	for _, n := range s.Nodes {
		if n.Name == "" || tick.CheckName(n.Name) != nil || present[n.Name] {
			continue
		}
		present[n.Name] = true
		ticks = append(ticks, &tick.Tick{V: tick.Version, Node: n.Name, Time: now, Sample: &tick.Sample{
			IntervalSeconds: new(f.Interval.Seconds()), Agent: f.agent(now, n, on, s.Stale, total), Fleet: total, Pods: byName(on.reclaimed[n.Name]),
			Labels: n.Labels, Annotations: n.Annotations, Config: s.Config, Errors: s.Errors,
		}})
	}
	if s.Stale == "" { // a list that is not read yet is empty
		maps.DeleteFunc(f.nodes, func(name string, _ *memory) bool { return !present[name] })
	}
	slices.SortFunc(ticks, func(a, b *tick.Tick) int { return strings.Compare(a.Node, b.Node) })
	return ticks
}

// byNode has each node's pods and record, by the node's name.
type byNode struct {
	agents    map[string][]*Pod
	reclaimed map[string][]*kubernetes.Pod
	records   map[string]*Record
}

func perNode(s Seen) byNode {
	on := byNode{map[string][]*Pod{}, map[string][]*kubernetes.Pod{}, map[string]*Record{}}
	for _, p := range s.Pods {
		if p == nil {
			continue
		}
		if p.Agent != nil {
			on.agents[p.NodeName] = append(on.agents[p.NodeName], p)
		}
		if p.Reclaimed != nil {
			on.reclaimed[p.NodeName] = append(on.reclaimed[p.NodeName], p.Reclaimed)
		}
	}
	for _, r := range s.Records {
		on.records[r.Name] = r
	}
	return on
}

// agent is the state of a node's agent, which is counted in total.
func (f *Fleet) agent(now time.Time, n *Node, on byNode, stale string, total *tick.Fleet) *tick.Agent {
	m := f.nodes[n.Name]
	if m == nil {
		m = &memory{}
		f.nodes[n.Name] = m
	}
	pods, record := on.agents[n.Name], on.records[n.Name]
	m.agent = m.agent || len(pods) > 0 || record != nil || n.Offers
	agent := &tick.Agent{Pods: agentPods(pods)}
	switch {
	case !m.agent:
		agent.Reason = "there is no sign of an agent, now or earlier"
		total.WithoutAgent++
		return agent
	case stale != "":
		agent.Reason = stale
		total.Nodes++
		total.Unknown++
		return agent
	}
	m.observe(now, f.began, n, pods, record)
	agent.State, agent.Reason = state(pods)
	agent.Since = written(m.since)
	total.Nodes++
	if m.ready {
		total.Ready++
	} else {
		total.NotReady++
	}
	return agent
}

// state derives the agent's state from its pods. One that is ready is enough: during a rolling update there may be two.
func state(pods []*Pod) (state, reason string) {
	if len(pods) == 0 {
		return tick.AgentNotFound, "no pod of the agent is on the node"
	}
	for _, p := range pods {
		if p.Agent.Ready {
			return tick.AgentReady, ""
		}
	}
	return tick.AgentNotReady, "pod " + pods[0].Agent.Namespace + "/" + pods[0].Agent.Name + " is not ready"
}

// observe notes the agent's state now. Its state before is remembered, or else is in the record that an earlier run has written.
func (m *memory) observe(now, began time.Time, n *Node, pods []*Pod, r *Record) {
	before := m.known
	if now.Sub(before.seen) > tick.AgentTrust && r != nil {
		before = known{r.Ready, r.Since, r.Seen}
	}
	fresh := !before.seen.IsZero() && now.Sub(before.seen) <= tick.AgentTrust && before.seen.Sub(now) <= maxUnobserved
	s, _ := state(pods)
	m.ready = s == tick.AgentReady
	switch {
	case m.ready && fresh && before.ready:
		m.since = before.since
	case m.ready:
		m.since = firstReady(pods, now)
	case fresh && before.ready:
		// It stopped being ready since it was observed. Its pod has the time; without a pod the time is not known.
		m.since = now
		if changed := lastChanged(pods); !changed.IsZero() {
			m.since = later(changed, before.seen)
		}
	case fresh && now.Sub(before.seen) <= maxUnobserved:
		m.since = before.since
	case fresh:
		// It was not observed for some minutes. A pod that changed in between may have been ready.
		m.since = before.since
		if changed := lastChanged(pods); changed.After(before.seen) {
			m.since = changed
		}
	case len(pods) > 0:
		m.since = lastChanged(pods)
	case n.Created.After(began):
		m.since = n.Created
	default:
		m.since = now
	}
	if m.since.IsZero() || m.since.After(now) { // no pod has a time, or its clock is ahead
		m.since = now
	}
	m.seen = now
}

// firstReady is when the first of the pods that are ready became ready.
func firstReady(pods []*Pod, now time.Time) time.Time {
	first := now
	for _, p := range pods {
		if p.Agent.Ready && !p.Changed.IsZero() && p.Changed.Before(first) {
			first = p.Changed
		}
	}
	return first
}

// lastChanged is when the last of the pods that are not ready became so.
func lastChanged(pods []*Pod) (last time.Time) {
	for _, p := range pods {
		last = later(last, p.Changed)
	}
	return last
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func agentPods(pods []*Pod) []tick.AgentPod {
	slices.SortFunc(pods, func(a, b *Pod) int { return names(a.Agent.Namespace, a.Agent.Name, b.Agent.Namespace, b.Agent.Name) })
	var out []tick.AgentPod
	for _, p := range pods {
		out = append(out, *p.Agent)
	}
	return out
}

// byName are a node's pods as its tick has them.
func byName(pods []*kubernetes.Pod) []tick.Pod {
	var list []tick.Pod
	for _, p := range kubernetes.Within(pods) {
		list = append(list, p.Tick)
	}
	slices.SortFunc(list, func(a, b tick.Pod) int { return names(a.Namespace, a.Name, b.Namespace, b.Name) })
	return list
}

func names(aNamespace, aName, bNamespace, bName string) int {
	return cmp.Or(strings.Compare(aNamespace, bNamespace), strings.Compare(aName, bName))
}
