package katalyst

import (
	"math"

	"polder/advise/policy"
	"polder/lib/tick"
)

// confine pins each container to its pool, and in the fallback the reclaimed ones to the floor and the shared ones to all CPUs that this
// frees. Nothing is desired of containers that have CPUs from kubelet, and of pods that have not started. If the reclaimed pods had quotas
// before, their own limits are restored.
func confine(s *shape, members []member, groups []group, avail cpuSet, l *layout, hadQuota bool) (cgroups, fallback []tick.Cgroup) {
	cgroups = make([]tick.Cgroup, 0, len(members)+1)
	fallback = make([]tick.Cgroup, 0, len(members)+1)
	for i := range members {
		m := &members[i]
		if m.hasExclusive || m.Missing == tick.MissingCgroup {
			continue
		}
		list, floor := listsOf(s, m, groups, avail, l)
		if list == "" {
			continue
		}
		desired := tick.Cgroup{CPUSetCPUs: list, CPUSetMems: m.mems}
		for j := range policy.Cgroups(m.Pod) {
			if desired.Cgroup = policy.Cgroup(m.Pod, j); desired.Cgroup == "" {
				continue
			}
			if hadQuota && m.class == tick.QoSReclaimed { // CPUs came online: there is room for pools again
				desired.CPUMaxMilliCPU = new(limitOf(m.Pod, j))
			}
			cgroups = append(cgroups, desired)
			if floor != "" {
				fallback = append(fallback, tick.Cgroup{Cgroup: desired.Cgroup, CPUSetCPUs: floor, CPUSetMems: m.mems})
			}
		}
	}
	return cgroups, fallback
}

// listsOf returns the CPUs of a pod, now and in the fallback; empty if it is not confined.
func listsOf(s *shape, m *member, groups []group, avail cpuSet, l *layout) (current, fallback string) {
	switch share := groups[m.group].cpus.list; {
	case m.class == tick.QoSShared && m.isRampingUp:
		return avail.list, l.exceptFloor.list
	case m.overlaps && m.class == tick.QoSReclaimed:
		return avail.list, l.floor.list
	case m.overlaps:
		return s.union(groups[m.group].cpus, l.reclaim).list, avail.list
	case m.class == tick.QoSShared:
		return share, l.exceptFloor.list
	case m.class == tick.QoSReclaimed && l.reclaim.IsEmpty():
		return l.withoutPool, l.withoutPool
	case m.class == tick.QoSReclaimed:
		return l.reclaim.list, l.floor.list
	case m.ownCPUs != "":
		return m.ownCPUs, m.ownCPUs
	case m.class == tick.QoSDedicated: // there were no CPUs for it alone
		return share, share
	}
	return "", ""
}

// limitOf returns the CPU limit of a pod's i-th cgroup: the smaller one of the container's and the pod's, or none.
func limitOf(p *tick.Pod, i int) int64 {
	smallest := int64(tick.Unlimited)
	sources := []*tick.Resources{p.Limits, nil}
	if i < len(p.Containers) {
		sources[1] = p.Containers[i].Limits
	}
	for _, limits := range sources {
		if limits == nil {
			continue
		}
		for _, limit := range []*float64{limits.MilliCPU, limits.ReclaimedMilliCPU} {
			if limit == nil || !(*limit > 0) {
				continue
			}
			if value := int64(math.Ceil(policy.Bounded(*limit))); smallest == tick.Unlimited || value < smallest {
				smallest = value
			}
		}
	}
	return smallest
}
