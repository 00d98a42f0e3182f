package suppress

import (
	"slices"
	"strings"

	"polder/lib/qos"
	"polder/lib/tick"
)

// pod is a pod with what holds for it in this tick.
type pod struct {
	*tick.Pod
	class      string // Koordinator's, as its label has it
	rule       bool   // it is no pod of Kubernetes
	suppressed bool   // and there
	tier       bool   // it is below kubelet's cgroup of BestEffort pods
	// own is the pod's own cgroup; empty where it has none, or others that are not suppressed are below it. Containers are those
	// of its containers' that are not the same.
	own        string
	containers []int
}

// bestEffortTier is kubelet's cgroup of BestEffort pods; nil where there is none in the sample.
func bestEffortTier(s *tick.Sample) (tier *tick.Tier) {
	for i := range s.Tiers {
		if t := &s.Tiers[i]; t.Name == tick.TierBestEffort && strings.HasPrefix(t.Cgroup, "/") && len(t.Cgroup) > 1 {
			tier = t
		}
	}
	return tier
}

// podsOf returns what each pod is, without those that have ended.
func podsOf(s *tick.Sample, tier *tick.Tier) (pods []pod) {
	var others []string // cgroups of what is not suppressed
	for i := range s.Pods {
		p := pod{Pod: &s.Pods[i]}
		if p.Ended() {
			continue
		}
		p.class = qos.Koordinator(p.Pod)
		p.rule = p.QoSSource == tick.QoSFromRule || p.QoSSource == ""
		p.suppressed = !services(p.Pod) && p.Missing == ""
		p.tier = tier != nil && strings.HasPrefix(p.Cgroup, tier.Cgroup+"/")
		if p.Missing != tick.MissingCgroup && strings.HasPrefix(p.Cgroup, "/") {
			p.own = p.Cgroup
		}
		for j := range p.Containers {
			if at := p.Containers[j].Cgroup; strings.HasPrefix(at, "/") && at != p.own {
				p.containers = append(p.containers, j)
			}
		}
		if !p.suppressed && p.Cgroup != "" {
			others = append(others, p.Cgroup)
		}
		pods = append(pods, p)
	}
	slices.Sort(others)
	for i := range pods {
		if p := &pods[i]; p.suppressed && p.own != "" {
			below := p.own + "/"
			if at, _ := slices.BinarySearch(others, below); at < len(others) && strings.HasPrefix(others[at], below) {
				p.own = ""
			}
		}
	}
	return pods
}

// services reports whether a pod's use is taken from the budget: one that is not labelled BE, nor of Kubernetes' class
// BestEffort. A pod that the cluster does not know (yet, or any more) is one of these.
func services(p *tick.Pod) bool {
	switch {
	case p.Missing == tick.MissingCluster:
		return true
	case qos.Koordinator(p) == qos.BE:
		return false
	case p.QoSSource == tick.QoSFromRule || p.QoSSource == "": // requests show nothing there
		return true
	}
	return qos.KubernetesOf(p) != qos.BestEffort
}
