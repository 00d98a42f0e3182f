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
// while lastHeartbeatTime shows that somebody has looked within AgentTrust: an agent that was ready in between, while nobody
// did, would pass for one that never was. So it is written again at least every AgentHeartbeat.
const (
	ConditionAgentReady    = "AgentReady"
	ConditionAgentNotFound = "AgentNotFound"

	AgentHeartbeat = 5 * time.Minute
	AgentTrust     = 3 * AgentHeartbeat
)

// Agent is what the cluster has of a node's agent, in the ticks of collect fleet.
type Agent struct {
	// State is AgentReady, AgentNotReady or AgentNotFound; empty where it is not known now, because what the API server
	// had last is old or was never read. Nobody acts on that.
	State string `json:"state,omitempty"`
	// Since is when it came to be ready, or when it ceased to be: a change between notReady and notFound does not count
	// again. Empty where State is.
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
	// together), and those of which it is not known.
	Nodes    int `json:"nodes"`
	Ready    int `json:"ready"`
	NotReady int `json:"notReady"`
	Unknown  int `json:"unknown,omitempty"`
	// Without are further ones that bear no sign of an agent, now or before: they are in no other count, and their state
	// is empty.
	Without int `json:"without,omitempty"`
}

// FleetEviction is what evict fleet decided with the whole fleet in mind.
type FleetEviction struct {
	// Protection is why nothing new is done to any node, as where many agents are not ready at once; empty where there is
	// no reason.
	Protection string `json:"protection,omitempty"`
	// Held means that nothing new is done to this node, because of the protection or because it is not known how its agent is:
	// the taint, the resources and the pods stay as they are.
	Held bool `json:"held,omitempty"`
	// Waiting counts the nodes whose pods are to be evicted and that wait for their turn.
	Waiting int `json:"waiting,omitempty"`
}
