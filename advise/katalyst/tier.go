package katalyst

import (
	"fmt"
	"strings"

	"polder/advise/policy"
	"polder/lib/tick"
)

// tier wants kubelet's cgroup of the BestEffort pods in the reclaim pool, so that a new one is there from its first
// moment. That is safe on version 2, where the containers' lists need not fit, and on version 1 where kubelet does not
// manage CPUs itself; and only while all pods in it are reclaimed ones. Once narrowed it is widened again, not left.
func (n *node) tier(a *tick.Advice, s *tick.Sample, members []member, l *layout) {
	path, many, other := "", false, (*member)(nil)
	for i := range members {
		m := &members[i]
		at := tierOf(m.Cgroup)
		if at == "" && len(m.Containers) > 0 {
			at = tierOf(m.Containers[0].Cgroup)
		}
		switch {
		case at != "":
			many = many || path != "" && path != at
			path = at
		case m.Missing != tick.MissingCgroup || !bestEffort(m.Pod): // it is, or will be, elsewhere
			continue
		}
		if m.QoS != tick.QoSReclaimed && other == nil {
			other = m
		}
	}
	why := ""
	switch {
	case path == "" && n.Tier == "":
		return
	case many:
		why = "there is more than one"
	case other != nil:
		why = fmt.Sprintf("pod %s in it is not of class reclaimed", quote(policy.Key(other.Pod)))
	case l.reclaim.IsEmpty():
		why = "there is no reclaim pool"
	case s.CgroupVersion == 2:
	case s.Kubelet == nil || s.Kubelet.CPUManagerPolicy == "":
		why = "the policy of kubelet's CPU manager is not known"
	case s.Kubelet.CPUManagerPolicy != "none":
		why = fmt.Sprintf("on cgroup v1 kubelet's CPU manager (policy %s) must be able to give its containers any CPU", quote(s.Kubelet.CPUManagerPolicy))
	}
	if why != "" {
		if path != "" {
			a.Reasons = append(a.Reasons, fmt.Sprintf("cgroup %s is not held to the reclaim pool, only the containers in it are: %s", quote(path), why))
		}
		n.widen(a)
		return
	}
	if path == "" {
		path = n.Tier // no pod is in it now
	}
	if n.Tier != path {
		n.widen(a)
		n.Tier = path
	}
	a.Cgroups = append(a.Cgroups, tick.Cgroup{Cgroup: path, CPUSetCPUs: l.reclaim.list})
	a.Fallback = append(a.Fallback, tick.Cgroup{Cgroup: path, CPUSetCPUs: l.floor.list})
}

// widen gives the tier that was narrowed all CPUs.
func (n *node) widen(a *tick.Advice) {
	if n.Tier == "" {
		return
	}
	all := tick.Cgroup{Cgroup: n.Tier, CPUSetCPUs: n.shape.online.list}
	a.Cgroups, a.Fallback = append(a.Cgroups, all), append(a.Fallback, all)
}

// tierOf is kubelet's cgroup of the BestEffort pods above a pod's or a container's: "/kubepods/besteffort", or with the
// systemd driver "/kubepods.slice/kubepods-besteffort.slice", each also below a cgroup of kubelet's own. Empty where the path
// is none of theirs.
func tierOf(path string) string {
	if i := strings.Index(path, "/kubepods/besteffort/pod"); i >= 0 {
		return path[:i+len("/kubepods/besteffort")]
	}
	const slice = "kubepods-besteffort.slice/"
	i := strings.Index(path, slice)
	if i < 0 {
		return ""
	}
	tier := path[:i+len(slice)-1]
	slash := strings.LastIndexByte(tier, '/')
	parent := strings.TrimSuffix(tier[slash+1:], "-besteffort.slice") + ".slice"
	if slash < 1 || !strings.HasSuffix(tier[:slash], "/"+parent) {
		return ""
	}
	if !strings.HasPrefix(path[i+len(slice):], strings.TrimSuffix(tier[slash+1:], ".slice")+"-pod") {
		return ""
	}
	return tier
}

// bestEffort reports whether Kubernetes has the pod in its class BestEffort: without requests or limits of CPU or memory.
func bestEffort(p *tick.Pod) bool {
	for _, r := range []*tick.Resources{p.Requests, p.Limits} {
		if r != nil && (r.MilliCPU != nil && *r.MilliCPU > 0 || r.MemoryBytes != nil && *r.MemoryBytes > 0) {
			return false
		}
	}
	return true
}
