// Package kubernetes converts a cluster's objects for one node: pods and the node to parts of a tick, and it finds each pod's
// cgroup. It is pure: [polder/collect/kubernetes/live] watches the cluster.
package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"polder/lib/fields"
	"polder/lib/qos"
	"polder/lib/tick"
)

// annotationHash is kubelet's hash of a static pod's file: the UID in its cgroup's name. Anybody can write it and the other
// annotations of static pods (config.mirror, config.source), so a pod counts as static only if its Node owns it.
const annotationHash = "kubernetes.io/config.hash"

// systemNamespace is the namespace whose pods may be of the system class unless the administrator names others.
const systemNamespace = "kube-system"

// Pod is what is kept of a pod object. It is immutable.
type Pod struct {
	// Tick is the pod's part of a tick, without the values of its cgroup.
	Tick tick.Pod
	// CgroupUID is the UID in the name of its cgroup, NodeName the node to which it is bound.
	CgroupUID, NodeName string
	Containers          []Container
	// HasRuntimeClass means that its containers may run in a virtual machine, which has a single cgroup.
	HasRuntimeClass bool

	// size is what tenants write of it; see [Within].
	size  int
	ranks podRanks
}

// Container is what is kept of one of a pod's containers, of all three kinds.
type Container struct {
	// ID is the runtime's; it is empty until the status has it.
	Name, ID string
	// Awaited means that it may be running with another ID than the status has: it has not ended for good.
	Awaited          bool
	Requests, Limits *tick.Resources
}

// Reading has the settings by which pods are read.
type Reading struct {
	// BestEffort is the class of Kubernetes' BestEffort pods without a dialect's label or annotation.
	BestEffort string
	// Annotations are keys that are passed on besides the dialects', and before them: evict's opt-outs are among these.
	Annotations []string
	// SystemNamespaces are those whose pods may be of the system class; nil means [systemNamespace] alone.
	SystemNamespaces []string
}

func (r *Reading) system(namespace string) bool {
	if r.SystemNamespaces == nil {
		return namespace == systemNamespace
	}
	return namespace != "" && slices.Contains(r.SystemNamespaces, namespace)
}

// maxProblems bounds the errors about one pod or node.
const maxProblems = 8

// Pod reads a pod object. The pod's errors name what is invalid in it.
func (r *Reading) Pod(o object) *Pod {
	p := &Pod{NodeName: fields.Text(o, "spec", "nodeName")}
	t := &p.Tick
	complain := func(problem string) {
		switch {
		case len(t.Errors) < maxProblems:
			t.Errors = append(t.Errors, problem)
		case len(t.Errors) == maxProblems:
			t.Errors = append(t.Errors, "and more")
		}
	}
	t.UID = fields.Text(o, "metadata", "uid")
	t.Namespace, t.Name = name(o, "namespace", complain), name(o, "name", complain)
	labels, annotations := fields.TextMap(o, "metadata", "labels"), fields.TextMap(o, "metadata", "annotations")
	p.ranks = r.ranks()
	own := marks{labels, annotations}.passedOn(p.ranks, complain)
	t.Labels, t.Annotations = own.labels, own.annotations

	t.OwnerKind = ownerKind(o)
	t.Static = ownedByItsNode(o)
	p.CgroupUID = t.UID
	if hash := annotations[annotationHash]; hash != "" && t.Static {
		p.CgroupUID = hash
	}
	t.Terminating = fields.Text(o, "metadata", "deletionTimestamp") != ""
	t.Phase = fields.Clip(fields.Text(o, "status", "phase"))
	t.StartTime = fields.Clip(fields.Text(o, "status", "startTime"))
	if n, ok := fields.Integer(o, "spec", "priority"); ok {
		t.Priority = &n
	}
	p.HasRuntimeClass = fields.Text(o, "spec", "runtimeClassName") != ""
	sums := p.read(o, complain)

	t.KubernetesQOS = kubernetesClass(o)
	marked := qos.Pod{
		Labels: labels, Annotations: annotations, Kubernetes: t.KubernetesQOS,
		Batch: sums.batch, Reclaimed: sums.reclaimed, System: r.system(t.Namespace),
	}
	var problems []string
	t.QoS, t.QoSSource, problems = marked.Class(r.BestEffort)
	for _, problem := range problems {
		complain(problem)
	}
	var err error
	if t.KoordinatorPriority, err = marked.Priority(); err != nil {
		complain(err.Error())
	}
	p.size = written(t)
	return p
}

// ownerKind is the kind of the object that controls the pod, or else of the first that owns it.
func ownerKind(o object) string {
	owners := fields.List(o, "metadata", "ownerReferences")
	for _, owner := range owners {
		if control, _ := fields.Any(owner, "controller").(bool); control {
			return fields.Clip(fields.Text(owner, "kind"))
		}
	}
	if len(owners) == 0 {
		return ""
	}
	return fields.Clip(fields.Text(owners[0], "kind"))
}

// ownedByItsNode reports whether a Node owns the pod, as kubelet writes it on the mirrors of static pods: the Node on which it runs,
// if both are named. If somebody else writes such an owner without knowing the Node's UID, the cluster's garbage collector deletes the pod.
func ownedByItsNode(o object) bool {
	node := fields.Text(o, "spec", "nodeName")
	return slices.ContainsFunc(fields.List(o, "metadata", "ownerReferences"), func(owner object) bool {
		version, name := fields.Text(owner, "apiVersion"), fields.Text(owner, "name")
		return fields.Text(owner, "kind") == "Node" && (version == "" || version == "v1") && (name == "" || node == "" || name == node)
	})
}

// name is a part of the pod's name. The API server admits no invalid one, but a file may have one.
func name(o object, which string, complain func(string)) string {
	s := fields.Text(o, "metadata", which)
	if err := tick.CheckName(s); err != nil {
		complain("metadata." + which + ": " + err.Error())
		return ""
	}
	return s
}

// kubernetesClass is the class in the status, or else the class that follows from the resources.
func kubernetesClass(o object) string {
	switch class := fields.Text(o, "status", "qosClass"); class {
	case qos.Guaranteed, qos.Burstable, qos.BestEffort:
		return class
	}
	guaranteed, any := true, false
	for _, c := range append(fields.List(o, "spec", "containers"), fields.List(o, "spec", "initContainers")...) {
		for _, name := range []string{"cpu", "memory"} {
			request, limit := fields.Any(c, "resources", "requests", name), fields.Any(c, "resources", "limits", name)
			any = any || request != nil || limit != nil
			guaranteed = guaranteed && limit != nil && (request == nil || fmt.Sprint(request) == fmt.Sprint(limit))
		}
	}
	switch {
	case !any:
		return qos.BestEffort
	case guaranteed:
		return qos.Guaranteed
	}
	return qos.Burstable
}

// statuses are the states of a pod's containers by name.
func statuses(o object, which string) map[string]object {
	out := map[string]object{}
	for _, s := range fields.List(o, "status", which) {
		out[fields.Text(s, "name")] = s
	}
	return out
}

// container reads a container's name and state. With once it is not started again after a success, with never not at all.
func container(spec object, statuses map[string]object, once, never bool) Container {
	c := Container{Name: fields.Text(spec, "name"), Awaited: true}
	if tick.CheckName(c.Name) != nil {
		c.Name = ""
	}
	s := statuses[c.Name]
	c.ID = runtimeID(fields.Text(s, "containerID"))
	if ended := fields.Child(s, "state", "terminated"); ended != nil {
		code, ok := fields.Integer(ended, "exitCode")
		c.Awaited = !never && !(once && ok && code == 0)
	}
	return c
}

// runtimeID is the ID in "containerd://ID".
func runtimeID(s string) string {
	_, id, ok := strings.Cut(s, "://")
	if !ok || len(id) > 253 || strings.ContainsFunc(id, func(r rune) bool { return !word(r) && r != '_' }) {
		return ""
	}
	return id
}

func word(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.'
}
