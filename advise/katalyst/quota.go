package katalyst

import (
	"fmt"
	"math"

	"polder/advise/policy"
	"polder/lib/tick"
)

// minQuotaMilliCPU is the least quota that the kernel takes: 1 ms of the usual period of 100 ms.
const minQuotaMilliCPU = 10

// quota holds the reclaimed pods to what the shared ones leave, on machines that are too small to be divided into
// whole cores. The numbers are those of the pools, not rounded.
func (n *node) quota(a *tick.Advice, t *tick.Tick, members []member, e estimate, r resolved, s Settings) {
	all := max(min(n.milliCPU(t.Sample)-int64(n.shape.exclusive.Size())*1000, int64(n.shape.avail.Size())*1000), 0)
	limit := max(all-r.floorMilliCPU, 0)
	raw := float64(r.reserveMilliCPU) + e.milliCPU + e.system
	want := int64(math.Ceil(min(raw, float64(limit))))
	present := min(n.ShareMilliCPU, limit) // CPUs may have gone offline since
	share, bound := want, ""
	switch {
	case r.off:
		want, share = limit, limit
		bound = fmt.Sprintf("; nothing is reclaimed, so it has all but the floor of %dm (%s)", r.floorMilliCPU, r.floorFrom)
	case raw > float64(limit):
		bound = fmt.Sprintf("; the reclaimed pods keep their floor of %dm (%s)", r.floorMilliCPU, r.floorFrom)
	case want >= present:
	case n.held(t.Time, s.Hold) > 0:
		bound = fmt.Sprintf("; held at %dm for %.0fs more (hold %s: %s)", present, math.Ceil(n.held(t.Time, s.Hold).Seconds()), s.Hold, s.source("hold"))
		share = present
	default:
		share = max(want, present-max(s.ShrinkStepMilliCPU, 1))
	}
	n.remember(t.Time, int(present), int(share), int(want))
	n.Share, n.ShareMilliCPU, n.Dedicated, n.Named = "", share, nil, nil

	reclaimed := all - share
	a.Reasons = append(a.Reasons,
		fmt.Sprintf("share: reserve %dm (%s) + %s = %.0fm -> %dm%s", r.reserveMilliCPU, r.reserveFrom, needText(e.milliCPU, e.containers, e.system), raw, share, bound))
	a.Reclaimed.MilliCPU = &reclaimed
	n.limit(a, members, reclaimed, min(r.floorMilliCPU, all), s)
}

// limit divides the quota over the reclaimed pods' cgroups in proportion to their reclaimed CPU requests, and equally
// among pods that say none. The parts do not follow use from tick to tick, so that a steady state writes nothing. What its scheduling
// class keeps from the services has no quota but that of its own limits.
func (n *node) limit(a *tick.Advice, members []member, reclaimed, floor int64, s Settings) {
	a.Fallback = nil
	sum, byQuota, byClass := 0.0, 0, 0
	for i := range members {
		switch m := &members[i]; {
		case m.class != tick.QoSReclaimed || standing(m.Pod) == 0:
		case s.byQuota(m.Pod):
			sum += weightOf(m.Pod)
			byQuota++
		default:
			byClass++
		}
	}
	for i := range members {
		m := &members[i]
		if m.kubelet || m.class == "" || m.Missing == tick.MissingCgroup || m.class != tick.QoSReclaimed && !n.Pools {
			continue
		}
		part := weightOf(m.Pod) / float64(max(standing(m.Pod), 1)) / sum
		for j := range policy.Cgroups(m.Pod) {
			want := tick.Cgroup{Cgroup: policy.Cgroup(m.Pod, j), CPUSetMems: m.mems}
			if want.Cgroup == "" {
				continue
			}
			if n.Pools { // the machine had pools before CPUs went offline
				want.CPUSetCPUs = n.shape.avail.list
			}
			switch {
			case m.class != tick.QoSReclaimed:
			case s.byQuota(m.Pod):
				want.CPUMaxMilliCPU = quotaOf(m.Pod, j, reclaimed, part)
				a.Fallback = append(a.Fallback, tick.Cgroup{Cgroup: want.Cgroup, CPUMaxMilliCPU: quotaOf(m.Pod, j, floor, part)})
			default:
				if own := limitOf(m.Pod, j); n.Quota || own != tick.Unlimited { // what no limit and no earlier quota is known of is left alone
					want.CPUMaxMilliCPU = &own
					a.Fallback = append(a.Fallback, tick.Cgroup{Cgroup: want.Cgroup, CPUMaxMilliCPU: &own})
				}
			}
			if want.CPUSetCPUs != "" || want.CPUSetMems != "" || want.CPUMaxMilliCPU != nil {
				a.Cgroups = append(a.Cgroups, want)
			}
		}
	}
	n.Quota = n.Quota || byQuota > 0
	held := ""
	switch {
	case byQuota > 0 && byClass > 0:
		held = ", by quota or, on their own, by their scheduling class"
	case byClass > 0:
		held = " by their scheduling class"
	default:
		held = " by quota"
	}
	a.Reasons = append(a.Reasons, fmt.Sprintf("%d CPUs are too few for pools (pool-min-cpus %d: %s): reclaimed pods are held%s", n.shape.online.Size(), s.PoolMinCPUs, s.source("pool-min-cpus"), held))
}

// standing is the number of a pod's cgroups that exist.
func standing(p *tick.Pod) int {
	number := 0
	if p.Missing == tick.MissingCgroup {
		return 0
	}
	for i := range policy.Cgroups(p) {
		if policy.Cgroup(p, i) != "" {
			number++
		}
	}
	return number
}

// quotaOf is the part of milliCPU of a pod's i-th cgroup, within its limits and what the kernel takes.
func quotaOf(p *tick.Pod, i int, milliCPU int64, part float64) *int64 {
	quota := int64(float64(milliCPU) * part)
	if limit := limitOf(p, i); limit > 0 {
		quota = min(quota, limit)
	}
	quota = max(quota, minQuotaMilliCPU)
	return &quota
}

// weightOf is a reclaimed pod's CPU request; a pod that names none counts as one core.
func weightOf(p *tick.Pod) float64 {
	if p.Requests != nil {
		for _, request := range []*float64{p.Requests.ReclaimedMilliCPU, p.Requests.MilliCPU} {
			if request != nil && *request > 0 {
				return policy.Bounded(*request)
			}
		}
	}
	return 1000
}
