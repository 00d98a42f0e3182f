package katalyst

import (
	"fmt"
	"math"

	"polder/advise/policy"
	"polder/lib/tick"
)

// minQuotaMilliCPU is the smallest quota that the kernel accepts: 1 ms of the usual period of 100 ms.
const minQuotaMilliCPU = 10

// byQuota limits the reclaimed pods to what the shared ones leave, on machines that are too small to be divided into whole cores. The
// numbers are those of the pools, not rounded.
func byQuota(in inputs, members []member, systemMilliCPU float64, before divided) division {
	d := division{divided: before, perNUMA: in.shape.perNUMA()}
	d.Bound, d.owned, d.part.Reasons = bind(in, members, nil, nil, before)
	d.need = need(in, members, make([]group, 1))
	d.need.system = systemMilliCPU

	all := max(min(in.milliCPU-int64(in.shape.Exclusive.Size())*1000, int64(in.shape.avail.Size())*1000), 0)
	limit := max(all-in.floorMilliCPU, 0)
	raw := float64(in.reserveMilliCPU) + d.need.milliCPU + systemMilliCPU
	want := int64(math.Ceil(min(raw, float64(limit))))
	last := min(before.ShareMilliCPU, limit) // CPUs may have gone offline since
	share, bound := want, ""
	switch left := d.remaining(in.now, in.settings.Hold); {
	case in.off:
		want, share = limit, limit
		bound = fmt.Sprintf("; nothing is reclaimed, so it has all but the floor of %dm (%s)", in.floorMilliCPU, in.floorFrom)
	case raw > float64(limit):
		bound = fmt.Sprintf("; the reclaimed pods keep their floor of %dm (%s)", in.floorMilliCPU, in.floorFrom)
	case want >= last:
	case left > 0:
		bound = fmt.Sprintf("; held at %dm for %.0fs more (hold %s: %s)", last, math.Ceil(left.Seconds()), in.settings.Hold, in.settings.source("hold"))
		share = last
	default:
		share = max(want, last-max(in.settings.ShrinkStepMilliCPU, 1))
	}
	d.remember(in.now, int(last), int(share), int(want))
	d.Share, d.ShareMilliCPU, d.Dedicated, d.Named = "", share, nil, nil
	d.because("share: reserve %dm (%s) + %s = %.0fm -> %dm%s",
		in.reserveMilliCPU, in.reserveFrom, needText(d.need.milliCPU, d.need.containers, systemMilliCPU), raw, share, bound)

	reclaimed := all - share
	d.part.Reclaimed = &tick.Reclaimed{MilliCPU: &reclaimed}
	d.limit(in, members, reclaimed, min(in.floorMilliCPU, all))
	policy.WidenTier(&d.part, d.Tier, in.shape.online.list)
	return d
}

// limit divides the quota over the reclaimed pods' cgroups in proportion to their reclaimed CPU requests, and equally among pods without
// one. The parts do not depend on use, so that a steady state writes nothing. Pods in a scheduling class below the services' have no quota
// except their own limits.
func (d *division) limit(in inputs, members []member, reclaimed, floor int64) {
	sum, byQuota, byClass := 0.0, 0, 0
	for i := range members {
		switch m := &members[i]; {
		case m.class != tick.QoSReclaimed || standing(m.Pod) == 0:
		case in.settings.byQuota(m.Pod):
			sum += weightOf(m.Pod)
			byQuota++
		default:
			byClass++
		}
	}
	for i := range members {
		m := &members[i]
		if m.kubelet || m.class == "" || m.Missing == tick.MissingCgroup || m.class != tick.QoSReclaimed && !d.Pools {
			continue
		}
		part := weightOf(m.Pod) / float64(max(standing(m.Pod), 1)) / sum
		for j := range policy.Cgroups(m.Pod) {
			want := tick.Cgroup{Cgroup: policy.Cgroup(m.Pod, j), CPUSetMems: m.mems}
			if want.Cgroup == "" {
				continue
			}
			if d.Pools { // the machine had pools before CPUs went offline
				want.CPUSetCPUs = in.shape.avail.list
			}
			switch {
			case m.class != tick.QoSReclaimed:
			case in.settings.byQuota(m.Pod):
				want.CPUMaxMilliCPU = quotaOf(m.Pod, j, reclaimed, part)
				d.part.Fallback = append(d.part.Fallback, tick.Cgroup{Cgroup: want.Cgroup, CPUMaxMilliCPU: quotaOf(m.Pod, j, floor, part)})
			default:
				if own := limitOf(m.Pod, j); d.Quota || own != tick.Unlimited { // without a limit or an earlier quota it is left alone
					want.CPUMaxMilliCPU = &own
					d.part.Fallback = append(d.part.Fallback, tick.Cgroup{Cgroup: want.Cgroup, CPUMaxMilliCPU: &own})
				}
			}
			if want.CPUSetCPUs != "" || want.CPUSetMems != "" || want.CPUMaxMilliCPU != nil {
				d.part.Cgroups = append(d.part.Cgroups, want)
			}
		}
	}
	d.Quota = d.Quota || byQuota > 0
	by := " by quota"
	switch {
	case byQuota > 0 && byClass > 0:
		by = ", by quota or, on their own, by their scheduling class"
	case byClass > 0:
		by = " by their scheduling class"
	}
	d.because("%d CPUs are too few for pools (pool-min-cpus %d: %s): reclaimed pods are limited%s",
		in.shape.online.Size(), in.settings.PoolMinCPUs, in.settings.source("pool-min-cpus"), by)
}

// standing returns the number of a pod's cgroups that exist.
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

// quotaOf returns the part of milliCPU of a pod's i-th cgroup, within its limits and what the kernel accepts.
func quotaOf(p *tick.Pod, i int, milliCPU int64, part float64) *int64 {
	quota := int64(float64(milliCPU) * part)
	if limit := limitOf(p, i); limit > 0 {
		quota = min(quota, limit)
	}
	quota = max(quota, minQuotaMilliCPU)
	return &quota
}

// weightOf returns a reclaimed pod's CPU request; a pod without one counts as one core.
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
