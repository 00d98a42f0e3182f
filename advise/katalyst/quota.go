package katalyst

import (
	"math"

	"polder/advise/policy"
	"polder/lib/reason"
	"polder/lib/tick"
)

// divideByQuota limits the reclaimed pods to what the shared ones leave, on machines that are too small to be divided into whole cores. The
// numbers are the pools' numbers, not rounded.
func divideByQuota(in inputs, members []member, systemMilliCPU float64, previous divided) division {
	d := division{divided: previous, perNUMA: in.shape.perNUMA()}
	d.Bound, d.ownedNodes, d.advice.Reasons = bind(in, members, nil, nil, previous)
	d.need = sumNeeds(in, members, make([]group, 1))
	d.need.system = systemMilliCPU

	total := max(min(in.milliCPU-int64(in.shape.Exclusive.Size())*1000, int64(in.shape.avail.Size())*1000), 0)
	limit := max(total-in.floorMilliCPU, 0)
	raw := float64(in.reserveMilliCPU) + d.need.milliCPU + systemMilliCPU
	desired := int64(math.Ceil(min(raw, float64(limit))))
	previousSize := min(previous.ShareMilliCPU, limit) // CPUs may have gone offline since
	share, boundText := desired, ""
	switch remaining := d.remaining(in.now, in.settings.Hold); {
	case in.isOff:
		desired, share = limit, limit
		boundText = reason.Off{Floor: reason.Amount{MilliCPU: in.floorMilliCPU}, FloorFrom: in.floorFrom}.String()
	case raw > float64(limit):
		boundText = reason.Floor{Floor: reason.Amount{MilliCPU: in.floorMilliCPU}, FloorFrom: in.floorFrom}.String()
	case desired >= previousSize:
	case remaining > 0:
		boundText = in.holdText(reason.Amount{MilliCPU: previousSize}, remaining)
		share = previousSize
	default:
		share = max(desired, previousSize-max(in.settings.ShrinkStepMilliCPU, 1))
	}
	d.record(in.now, int(previousSize), int(share), int(desired))
	d.Share, d.ShareMilliCPU, d.Dedicated, d.Named = "", share, nil, nil
	d.addReason("%s", reason.Share{
		Pool: tick.PoolShare, ReserveMilliCPU: in.reserveMilliCPU, ReserveFrom: in.reserveFrom, NeedMilliCPU: d.need.milliCPU,
		Containers: d.need.containers, SystemMilliCPU: systemMilliCPU, SumMilliCPU: raw, Size: reason.Amount{MilliCPU: share}, Bound: boundText,
	})

	reclaimed := total - share
	d.advice.Reclaimed = &tick.Reclaimed{MilliCPU: &reclaimed}
	d.limitPods(in, members, reclaimed, min(in.floorMilliCPU, total))
	policy.WidenTier(&d.advice, d.Tier, in.shape.online.list)
	return d
}

// limitPods divides the quota over the reclaimed pods' cgroups in proportion to their reclaimed CPU requests, and equally among pods
// without one. The parts do not depend on use, so that a steady state writes nothing. Pods in a scheduling class below the services' have
// no quota except their own limits.
func (d *division) limitPods(in inputs, members []member, reclaimed, floor int64) {
	sum, quotaPods, classPods := 0.0, 0, 0
	for i := range members {
		switch m := &members[i]; {
		case m.class != tick.QoSReclaimed || existingCgroups(m.Pod) == 0:
		case in.settings.isLimitedByQuota(m.Pod):
			sum += weightOf(m.Pod)
			quotaPods++
		default:
			classPods++
		}
	}
	d.HadBatchList = d.HadBatchList || in.shape.avail.Size() < in.shape.online.Size()
	for i := range members {
		m := &members[i]
		isBatch := m.class == tick.QoSReclaimed
		if m.hasExclusive || m.class == "" || m.Missing == tick.MissingCgroup || !isBatch && !d.HadPools {
			continue
		}
		part := weightOf(m.Pod) / float64(max(existingCgroups(m.Pod), 1)) / sum
		for j := range policy.Cgroups(m.Pod) {
			desired := tick.Cgroup{Cgroup: policy.Cgroup(m.Pod, j), CPUSetMems: m.mems}
			if desired.Cgroup == "" {
				continue
			}
			fallback := tick.Cgroup{Cgroup: desired.Cgroup}
			if d.HadPools { // the machine had pools before CPUs went offline
				desired.CPUSetCPUs = in.shape.avail.list
			}
			if isBatch && d.HadBatchList { // some CPUs are, or were, not for batch: reserved ones, and kubelet's exclusive ones
				desired.CPUSetCPUs, fallback.CPUSetCPUs = in.shape.avail.list, in.shape.avail.list
			}
			switch {
			case !isBatch:
			case in.settings.isLimitedByQuota(m.Pod):
				desired.CPUMaxMilliCPU, fallback.CPUMaxMilliCPU = quotaOf(m.Pod, j, reclaimed, part), quotaOf(m.Pod, j, floor, part)
			default:
				if limit := limitOf(m.Pod, j); d.HadQuota || limit != tick.Unlimited { // without a limit or an earlier quota it is left alone
					desired.CPUMaxMilliCPU, fallback.CPUMaxMilliCPU = &limit, &limit
				}
			}
			if fallback.CPUSetCPUs != "" || fallback.CPUMaxMilliCPU != nil {
				d.advice.Fallback = append(d.advice.Fallback, fallback)
			}
			if desired.CPUSetCPUs != "" || desired.CPUSetMems != "" || desired.CPUMaxMilliCPU != nil {
				d.advice.Cgroups = append(d.advice.Cgroups, desired)
			}
		}
	}
	d.HadQuota = d.HadQuota || quotaPods > 0
	limitText := " by quota"
	switch {
	case quotaPods > 0 && classPods > 0:
		limitText = ", some by quota and some by their scheduling class"
	case classPods > 0, quotaPods == 0 && !in.settings.isQuotaForAll(): // without pods, the configured way
		limitText = " by their scheduling class"
	}
	d.addReason("%d CPUs are too few for pools (pool-min-cpus %d: %s): reclaimed pods are limited%s",
		in.shape.online.Size(), in.settings.PoolMinCPUs, in.settings.source("pool-min-cpus"), limitText)
}

// existingCgroups returns the number of a pod's cgroups that exist.
func existingCgroups(p *tick.Pod) int {
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
	quota = max(quota, policy.MinQuotaMilliCPU)
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
