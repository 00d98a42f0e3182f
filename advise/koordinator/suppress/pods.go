package suppress

import (
	"slices"
	"strings"

	"polder/lib/qos"
	"polder/lib/tick"
)

// pod is a pod with its properties in this tick.
type pod struct {
	*tick.Pod
	class        string // Koordinator's, from its label
	isFromRule   bool   // it is not a pod of Kubernetes
	isSuppressed bool   // it exists and is suppressed
	isInTier     bool   // it is below kubelet's cgroup of BestEffort pods
	// ownCgroup is the pod's own cgroup; empty if it has none, or if cgroups that are not suppressed are below it. Containers are those of its
	// containers' cgroups that differ from it.
	ownCgroup  string
	containers []int
}

// podsOf returns the pods with their properties, without those that have ended.
func podsOf(s *tick.Sample, tier *tick.Tier) (pods []pod) {
	var others []string // cgroups that are not suppressed
	for i := range s.Pods {
		p := pod{Pod: &s.Pods[i]}
		if p.Ended() {
			continue
		}
		p.class = qos.Koordinator(p.Pod)
		p.isFromRule = p.QoSSource == tick.QoSFromRule || p.QoSSource == ""
		p.isSuppressed = !isService(p.Pod) && p.Missing == ""
		p.isInTier = tier != nil && tick.IsBelow(p.Cgroup, tier.Cgroup)
		if p.Missing != tick.MissingCgroup && strings.HasPrefix(p.Cgroup, "/") {
			p.ownCgroup = p.Cgroup
		}
		for j := range p.Containers {
			if at := p.Containers[j].Cgroup; strings.HasPrefix(at, "/") && at != p.ownCgroup {
				p.containers = append(p.containers, j)
			}
		}
		if !p.isSuppressed && p.Cgroup != "" {
			others = append(others, p.Cgroup)
		}
		pods = append(pods, p)
	}
	slices.Sort(others)
	for i := range pods {
		if p := &pods[i]; p.isSuppressed && p.ownCgroup != "" {
			below := p.ownCgroup + "/"
			if at, _ := slices.BinarySearch(others, below); at < len(others) && strings.HasPrefix(others[at], below) {
				p.ownCgroup = ""
			}
		}
	}
	return pods
}

// isService reports whether a pod's use is subtracted from the budget: a pod that is neither labelled BE nor of Kubernetes' class
// BestEffort. A pod that the API server does not know is one of these.
func isService(p *tick.Pod) bool {
	switch {
	case p.Missing == tick.MissingCluster:
		return true
	case qos.Koordinator(p) == qos.BE:
		return false
	case p.QoSSource == tick.QoSFromRule || p.QoSSource == "": // requests have no meaning there
		return true
	}
	return qos.KubernetesOf(p) != qos.BestEffort
}
