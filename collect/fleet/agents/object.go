package agents

import (
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"polder/collect/kubernetes"
	"polder/lib/fields"
	"polder/lib/tick"
)

// Object is an API object as decoded from JSON.
type Object = fields.Object

// Node is what is kept of a node object.
type Node struct {
	Name    string
	Created time.Time
	// Offers means that the node has the resources under which our agent publishes its offer, so our agent has run there. Koordinator's
	// batch- and koordinator.sh/ resources are no sign of our agent: a node that has only Koordinator's agent must not be tainted.
	Offers              bool
	Labels, Annotations map[string]string
}

// ownPrefix is the prefix of the project's own annotations.
const ownPrefix = "polder/"

// NodeOf reads a node object.
func NodeOf(o Object) *Node {
	k := kubernetes.NodeOf(o)
	n := &Node{
		Name: k.Name, Created: fields.Time(o, "metadata", "creationTimestamp"), Labels: k.Labels,
		Annotations: maps.Clone(k.Annotations),
	}
	for key, value := range fields.TextMap(o, "metadata", "annotations") {
		if strings.HasPrefix(key, ownPrefix) && len(key)+len(value) < longestOwn {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[key] = value
		}
	}
	for _, list := range []string{"capacity", "allocatable"} {
		for name := range fields.Child(o, "status", list) {
			n.Offers = n.Offers || strings.HasPrefix(name, reclaimedPrefix)
		}
	}
	return n
}

const (
	longestOwn = 1 << 10
	// reclaimedPrefix is the prefix of the extended resources that the agent's report writes to its node.
	reclaimedPrefix = "resource.katalyst.kubewharf.io/reclaimed_"
)

// Pod is what is kept of a pod. Only the agent's pods and reclaimed pods are kept.
type Pod struct {
	NodeName string
	// Agent is nil where the pod is not the agent's. Changed is when its condition Ready changed last, or else when it was created.
	Agent   *tick.AgentPod
	Changed time.Time
	// Reclaimed is nil where the pod is of another class. It is without its containers.
	Reclaimed *kubernetes.Pod
}

// Reading has the settings by which pods are read.
type Reading struct {
	kubernetes.Reading
	// Agent and AgentNamespace select the agent's pods; an empty namespace is any.
	Agent          labels.Selector
	AgentNamespace string
}

// Pod reads a pod object; it returns nil where nothing of it is needed.
func (r *Reading) Pod(o Object) *Pod {
	p := &Pod{NodeName: fields.Text(o, "spec", "nodeName")}
	if p.NodeName == "" {
		return nil // it is not bound yet
	}
	namespace := fields.Text(o, "metadata", "namespace")
	if (r.AgentNamespace == "" || namespace == r.AgentNamespace) && r.Agent.Matches(labels.Set(fields.TextMap(o, "metadata", "labels"))) {
		p.agent(o, namespace)
	}
	if k := r.Reading.Pod(o); k.Tick.QoS == tick.QoSReclaimed && !k.Tick.Ended() {
		p.Reclaimed, k.Containers = k, nil
	}
	if p.Agent == nil && p.Reclaimed == nil {
		return nil
	}
	return p
}

func (p *Pod) agent(o Object, namespace string) {
	p.Agent = &tick.AgentPod{
		UID: fields.Text(o, "metadata", "uid"), Namespace: namespace, Name: fields.Text(o, "metadata", "name"),
		Terminating: fields.Text(o, "metadata", "deletionTimestamp") != "",
	}
	p.Changed = fields.Time(o, "metadata", "creationTimestamp")
	for _, c := range fields.List(o, "status", "conditions") {
		if fields.Text(c, "type") != "Ready" {
			continue
		}
		p.Agent.Ready = fields.Text(c, "status") == "True"
		if changed := fields.Time(c, "lastTransitionTime"); !changed.IsZero() {
			p.Changed = changed
			p.Agent.Since = written(changed)
		}
	}
}

// Record is the agent's state as an earlier run wrote it to a CustomNodeResource's condition.
type Record struct {
	Name string
	// Ready is the state that the agent had since Since and still had at Seen. Both times are zero where there is no condition.
	Ready       bool
	Since, Seen time.Time
}

// RecordOf reads a CustomNodeResource.
func RecordOf(o Object) *Record {
	r := &Record{Name: fields.Text(o, "metadata", "name")}
	for _, c := range fields.List(o, "status", "conditions") {
		since, seen := fields.Time(c, "lastTransitionTime"), fields.Time(c, "lastHeartbeatTime")
		if fields.Text(c, "type") != tick.ConditionAgentReady || since.IsZero() || seen.IsZero() {
			continue
		}
		r.Ready, r.Since, r.Seen = fields.Text(c, "status") == "True", since, seen
	}
	return r
}

func written(t time.Time) string { return t.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano) }
