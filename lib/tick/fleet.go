package tick

import "time"

// These are the states of a node's agent, as in [Agent.State]. If the state is unknown, it is absent.
const (
	AgentReady    = "ready"
	AgentNotReady = "notReady"
	AgentNotFound = "notFound"
)

// These are conditions of Katalyst's CustomNodeResource, which preserve Since across restarts of collect: report fleet writes them, and
// collect fleet reads them when it starts. AgentReady is "True" while the state is ready, and its lastTransitionTime is Since. That is
// valid if lastHeartbeatTime shows that the agent was observed within AgentTrust: otherwise an agent that was ready in between, unobserved,
// would look like one that never was. So it is written again at least every AgentHeartbeat.
const (
	ConditionAgentReady    = "AgentReady"
	ConditionAgentNotFound = "AgentNotFound"

	AgentHeartbeat = 5 * time.Minute
	AgentTrust     = 3 * AgentHeartbeat
)

// Agent is the state of a node's agent in the cluster, in the ticks of collect fleet.
type Agent struct {
	// State is AgentReady, AgentNotReady or AgentNotFound; empty if it is unknown, because the API server's objects are
	// stale or were never read. No tool acts on an unknown state.
	State string `json:"state,omitempty"`
	// Since is when it became ready, or stopped being ready: a change between notReady and notFound does not count.
	// It is empty if State is.
	Since string `json:"since,omitempty"`
	// Reason says briefly why the state is not ready, or why it is unknown.
	Reason string `json:"reason,omitempty"`
	// Pods are the agent's pods on the node; from the last known list if State is empty.
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

// Fleet counts the nodes of one instant; all ticks of that instant contain the same counts.
type Fleet struct {
	// Nodes counts the nodes that have or had an agent: those that are ready, those that are not (notReady and
	// notFound together), and the unknown ones.
	Nodes    int `json:"nodes"`
	Ready    int `json:"ready"`
	NotReady int `json:"notReady"`
	Unknown  int `json:"unknown,omitempty"`
	// WithoutAgent counts further nodes that never showed any sign of an agent: no other count includes them, and their
	// state is empty.
	WithoutAgent int `json:"without,omitempty"`
}

// FleetEviction is evict fleet's decision about the whole fleet.
type FleetEviction struct {
	// Protection is why no new action is taken on any node, for example because many agents are not ready at once; empty if
	// there is no reason.
	Protection string `json:"protection,omitempty"`
	// Held means that no new action is taken on this node, because of the protection or because its agent's state is unknown:
	// the taint, the resources and the pods do not change.
	Held bool `json:"held,omitempty"`
	// Waiting counts the nodes whose eviction waits because of the rate limit.
	Waiting int `json:"waiting,omitempty"`
}
