package katalyst

import (
	"math"

	"polder/advise/policy"
	"polder/lib/tick"
)

// confine pins each container to its pool, and in the fallback the reclaimed ones to the floor and the shared ones to all CPUs that this
// frees. Nothing is desired of containers that have CPUs from kubelet, and of pods that have not started. If the reclaimed pods had quotas
// before, their own limits are restored.
func confine(members []member, groups []group, avail named, l *layout, hadQuota bool) (cgroups, fallback []tick.Cgroup) {
	cgroups = make([]tick.Cgroup, 0, len(members)+1)
	fallback = make([]tick.Cgroup, 0, len(members)+1)
	for i := range members {
		m := &members[i]
		if m.kubelet || m.Missing == tick.MissingCgroup {
			continue
		}
		list, floor := listsOf(m, groups, avail, l)
		if list == "" {
			continue
		}
		want := tick.Cgroup{CPUSetCPUs: list, CPUSetMems: m.mems}
		for j := range policy.Cgroups(m.Pod) {
			if want.Cgroup = policy.Cgroup(m.Pod, j); want.Cgroup == "" {
				continue
			}
			if hadQuota && m.class == tick.QoSReclaimed { // CPUs came online: there is room for pools again
				want.CPUMaxMilliCPU = new(limitOf(m.Pod, j))
			}
			cgroups = append(cgroups, want)
			if floor != "" {
				fallback = append(fallback, tick.Cgroup{Cgroup: want.Cgroup, CPUSetCPUs: floor, CPUSetMems: m.mems})
			}
		}
	}
	return cgroups, fallback
}

// listsOf returns the CPUs of a pod, now and in the fallback; empty if it is not confined.
func listsOf(m *member, groups []group, avail named, l *layout) (now, fallback string) {
	switch share := groups[m.group].cpus.list; {
	case m.class == tick.QoSShared && m.ramping:
		return avail.list, l.spare.list
	case m.class == tick.QoSShared:
		return share, l.spare.list
	case m.class == tick.QoSReclaimed && l.reclaim.IsEmpty():
		return l.everywhere, l.everywhere
	case m.class == tick.QoSReclaimed:
		return l.reclaim.list, l.floor.list
	case m.own != "":
		return m.own, m.own
	case m.class == tick.QoSDedicated: // there were no CPUs for it alone
		return share, share
	}
	return "", ""
}

// limitOf returns the CPU limit of a pod's i-th cgroup: the smaller one of the container's and the pod's, or none.
func limitOf(p *tick.Pod, i int) int64 {
	least := int64(tick.Unlimited)
	both := []*tick.Resources{p.Limits, nil}
	if i < len(p.Containers) {
		both[1] = p.Containers[i].Limits
	}
	for _, limits := range both {
		if limits == nil {
			continue
		}
		for _, limit := range []*float64{limits.MilliCPU, limits.ReclaimedMilliCPU} {
			if limit == nil || !(*limit > 0) {
				continue
			}
			if own := int64(math.Ceil(policy.Bounded(*limit))); least == tick.Unlimited || own < least {
				least = own
			}
		}
	}
	return least
}
