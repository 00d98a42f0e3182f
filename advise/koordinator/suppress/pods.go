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
	class string // Koordinator's, as its label has it
	rule  bool   // it is no pod of Kubernetes
	held  bool   // it is suppressed, and there
	tier  bool   // it is below kubelet's cgroup of BestEffort pods
	// own is the pod's own cgroup; empty where it has none, or others that are not suppressed are below it. Containers are those
	// of its containers' that are not the same.
	own        string
	containers []int
}

// enroll finds kubelet's cgroup, its policy, and what each pod is.
func (c *call) enroll() {
	for i := range c.sample.Tiers {
		if t := &c.sample.Tiers[i]; t.Name == tick.TierBestEffort && strings.HasPrefix(t.Cgroup, "/") && len(t.Cgroup) > 1 {
			c.tier = t
		}
	}
	if c.tier != nil {
		if c.st.Tier != c.tier.Cgroup {
			delete(c.st.Held, c.st.Tier)
		}
		c.st.Tier = c.tier.Cgroup
	}
	if c.sample.Kubelet != nil {
		c.policy = c.sample.Kubelet.CPUManagerPolicy
	}
	c.above = c.policy == "none"

	var others []string // cgroups of what is not suppressed
	for i := range c.sample.Pods {
		p := pod{Pod: &c.sample.Pods[i]}
		if p.Phase == "Succeeded" || p.Phase == "Failed" {
			continue
		}
		p.class = qos.Koordinator(p.Pod)
		p.rule = p.QoSSource == tick.QoSFromRule || p.QoSSource == ""
		p.held = !services(p.Pod) && p.Missing == ""
		p.tier = c.tier != nil && strings.HasPrefix(p.Cgroup, c.tier.Cgroup+"/")
		if p.Missing != tick.MissingCgroup && strings.HasPrefix(p.Cgroup, "/") {
			p.own = p.Cgroup
		}
		for j := range p.Containers {
			if at := p.Containers[j].Cgroup; strings.HasPrefix(at, "/") && at != p.own {
				p.containers = append(p.containers, j)
			}
		}
		if !p.held && p.Cgroup != "" {
			others = append(others, p.Cgroup)
		}
		c.pods = append(c.pods, p)
	}
	slices.Sort(others)
	for i := range c.pods {
		if p := &c.pods[i]; p.held && p.own != "" {
			below := p.own + "/"
			if at, _ := slices.BinarySearch(others, below); at < len(others) && strings.HasPrefix(others[at], below) {
				p.own = ""
			}
		}
	}
}

// services reports whether a pod's use is taken from the budget: one that is not labelled BE, nor of Kubernetes' class
// BestEffort. A pod that the cluster does not know (yet, or any more) is one of these.
func services(p *tick.Pod) bool {
	switch {
	case p.Missing == tick.MissingCluster:
		return true
	case qos.Koordinator(p) == qos.BE:
		return false
	case p.QoSSource == tick.QoSFromRule || p.QoSSource == "": // requests say nothing there
		return true
	}
	return qos.KubernetesOf(p) != qos.BestEffort
}
