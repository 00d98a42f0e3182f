package tick

import "time"

// States of a node's agent, as in [Agent.State]. Where it is not known, the state is absent.
const (
	AgentReady    = "ready"
	AgentNotReady = "notReady"
	AgentNotFound = "notFound"
)

// Conditions of a CustomNodeResource, Katalyst's, by which Since outlives collect: report fleet writes them, collect fleet
// reads them when it begins. AgentReady is "True" while the state is ready, and its lastTransitionTime is Since. That counts
// while lastHeartbeatTime shows that the agent was observed within AgentTrust: otherwise an agent that was ready in between,
// unobserved, would look like one that never was. So it is written again at least every AgentHeartbeat.
const (
	ConditionAgentReady    = "AgentReady"
	ConditionAgentNotFound = "AgentNotFound"

	AgentHeartbeat = 5 * time.Minute
	AgentTrust     = 3 * AgentHeartbeat
)

// Agent is what the cluster has of a node's agent, in the ticks of collect fleet.
type Agent struct {
	// State is AgentReady, AgentNotReady or AgentNotFound; empty where it is unknown now, because the API server's objects
	// are stale or were never read. Nothing acts on an unknown state.
	State string `json:"state,omitempty"`
	// Since is when it became ready, or when it ceased to be: a change between notReady and notFound does not count.
	// Empty where State is.
	Since string `json:"since,omitempty"`
	// Reason is, in a few words, why the state is not ready, or why there is none.
	Reason string `json:"reason,omitempty"`
	// Pods are the agent's pods on the node; of the last known list where State is empty.
	Pods []AgentPod `json:"pods,omitempty"`
}

// AgentPod is a pod of the agent.
type AgentPod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Ready     bool   `json:"ready"`
	// Since is when the pod's condition Ready last changed.
	Since string `json:"since,omitempty"`
	// Terminating means that its deletion has begun.
	Terminating bool `json:"terminating,omitempty"`
}

// Fleet counts the nodes of one instant, in each of its ticks alike.
type Fleet struct {
	// Nodes are those that have an agent, or had one: those that are ready, those that are not (notReady and notFound
	// together), and the unknown ones.
	Nodes    int `json:"nodes"`
	Ready    int `json:"ready"`
	NotReady int `json:"notReady"`
	Unknown  int `json:"unknown,omitempty"`
	// Without are further ones without any sign of an agent, now or before: they are in no other count, and their state
	// is empty.
	Without int `json:"without,omitempty"`
}

// FleetEviction is evict fleet's decision about the whole fleet.
type FleetEviction struct {
	// Protection is why no new action is taken on any node, as where many agents are not ready at once; empty where there is
	// no reason.
	Protection string `json:"protection,omitempty"`
	// Held means that no new action is taken on this node, because of the protection or because its agent's state is unknown:
	// the taint, the resources and the pods stay as they are.
	Held bool `json:"held,omitempty"`
	// Waiting counts the nodes whose pods shall be evicted and that wait because of the rate.
	Waiting int `json:"waiting,omitempty"`
}
