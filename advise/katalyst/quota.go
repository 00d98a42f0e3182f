package katalyst

import (
	"fmt"
	"math"

	"polder/lib/tick"
)

// minQuotaMilliCPU is the least quota that the kernel takes: 1 ms of the usual period of 100 ms.
const minQuotaMilliCPU = 10

// quota holds the reclaimed pods to what the shared ones leave, on machines that are too small to be divided into
// whole cores. The numbers are those of the pools, not rounded.
func (n *node) quota(a *tick.Advice, t *tick.Tick, members []member, e estimate, r resolved, s Settings) {
	all := max(min(n.milliCPU(t.Sample)-int64(n.shape.exclusive.Size())*1000, int64(n.shape.avail.Size())*1000), 0)
	limit := max(all-r.floorMilliCPU, 0)
	raw := float64(r.reserveMilliCPU) + e.milliCPU
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
		fmt.Sprintf("%d CPUs are too few for pools (pool-min-cpus %d: %s): reclaimed pods are held by quota", n.shape.online.Size(), s.PoolMinCPUs, s.source("pool-min-cpus")),
		fmt.Sprintf("share: reserve %dm (%s) + need %.0fm of %s = %.0fm -> %dm%s", r.reserveMilliCPU, r.reserveFrom, e.milliCPU, count(e.containers, "container"), raw, share, bound))
	a.Reclaimed.MilliCPU = &reclaimed
	n.limit(a, members, reclaimed, min(r.floorMilliCPU, all))
	n.Quota = true
}

// limit divides the quota over the reclaimed pods' cgroups in proportion to their reclaimed CPU requests, and equally
// among pods that say none. The parts do not follow use from tick to tick, so that a steady state writes nothing.
func (n *node) limit(a *tick.Advice, members []member, reclaimed, floor int64) {
	a.Fallback = nil
	sum := 0.0
	for i := range members {
		if m := &members[i]; m.class == tick.QoSReclaimed && standing(m.Pod) > 0 {
			sum += weightOf(m.Pod)
		}
	}
	for i := range members {
		m := &members[i]
		if m.kubelet || m.class == "" || m.Missing == tick.MissingCgroup || m.class != tick.QoSReclaimed && !n.Pools {
			continue
		}
		part := weightOf(m.Pod) / float64(max(standing(m.Pod), 1)) / sum
		for j := range cgroups(m.Pod) {
			want := tick.Cgroup{Cgroup: cgroup(m.Pod, j), CPUSetMems: m.mems}
			if want.Cgroup == "" {
				continue
			}
			if n.Pools { // the machine had pools before CPUs went offline
				want.CPUSetCPUs = n.shape.avail.list
			}
			if m.class == tick.QoSReclaimed {
				want.CPUMaxMilliCPU = quotaOf(m.Pod, reclaimed, part)
				a.Fallback = append(a.Fallback, tick.Cgroup{Cgroup: want.Cgroup, CPUMaxMilliCPU: quotaOf(m.Pod, floor, part)})
			}
			a.Cgroups = append(a.Cgroups, want)
		}
	}
}

// standing is the number of a pod's cgroups that exist.
func standing(p *tick.Pod) int {
	number := 0
	if p.Missing == tick.MissingCgroup {
		return 0
	}
	for i := range cgroups(p) {
		if cgroup(p, i) != "" {
			number++
		}
	}
	return number
}

// quotaOf is a cgroup's part of milliCPU, within the pod's own limit and what the kernel takes.
func quotaOf(p *tick.Pod, milliCPU int64, part float64) *int64 {
	quota := int64(float64(milliCPU) * part)
	if limit := limitOf(p); limit > 0 {
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
				return bounded(*request)
			}
		}
	}
	return 1000
}
