package suppress

import (
	"polder/advise/policy"
	"polder/lib/clip"
	"polder/lib/reason"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// nodeUnreadText is why the CPUs and the amount that the node reserves are unknown.
const nodeUnreadText = "the node object could not be read"

// budget is the CPU that the batch pods may use; it may be negative.
type budget struct {
	milliCPU, capacity int64
	outside            policy.OutsideUse
	sum                reason.Budget // for a person to check
}

// budget calculates the budget from the newest sample; why names what is missing.
func (v *view) budget() (b budget, why string) {
	s := v.sample
	switch {
	case s.IsNodeUnread(): // its reservations, by allocatable and by annotation, would count as none
		return b, nodeUnreadText
	case s.Capacity == nil || s.Capacity.MilliCPU == nil || *s.Capacity.MilliCPU <= 0:
		return b, "the node's CPU capacity is unknown"
	case s.CPU == nil || s.CPU.UsageMilliCPU == nil:
		return b, "the node's CPU use is unknown"
	case len(s.Pods) == 0:
		return b, "there are no pods in the sample"
	case policy.PodsUnknown(v.sample):
		return b, "the cluster's pods are still unknown"
	case v.isTierMissing():
		return b, "kubelet's cgroup " + clip.Text(v.tierPath, shownBytes) + " is not in the sample, but pods below it are"
	}
	var podsUse, servicesUse, tierUse float64 // below the tier
	pods, hasCgroups, isAnyKnown, isBatchKnown := 0, false, false, true
	for i := range s.Pods {
		p := &s.Pods[i]
		hasCgroups = hasCgroups || p.Missing != tick.MissingCgroup
		if p.UsageMilliCPU == nil {
			isInTier := v.tier != nil && tick.IsBelow(p.Cgroup, v.tier.Cgroup)
			isBatchKnown = isBatchKnown && (isService(p) || isInTier || p.IsIdle())
			continue
		}
		isAnyKnown = true
		use := bounded(*p.UsageMilliCPU)
		podsUse += use
		if v.tier != nil && tick.IsBelow(p.Cgroup, v.tier.Cgroup) {
			tierUse += use
		}
		if isService(p) {
			servicesUse += use
			pods++
		}
	}
	if hasCgroups && !isAnyKnown {
		return b, "no pod's CPU use is known"
	}
	if v.tier != nil && v.tier.UsageMilliCPU != nil { // pods below it without a rate are not the system's use
		podsUse += max(bounded(*v.tier.UsageMilliCPU)-tierUse, 0)
	}
	b.capacity = int64(bounded(*s.Capacity.MilliCPU))
	percent := sloconfig.Within(v.strategy.Threshold.CPUSuppressThresholdPercent, 65, 0, 100)
	reserved, reservedSource := v.nodeReserved(b.capacity)
	b.outside = v.outside
	system, systemSource := b.outside.Observe(v.now, bounded(*s.CPU.UsageMilliCPU)-podsUse, isBatchKnown), "use outside of pods"
	if system < reserved {
		system, systemSource = reserved, reservedSource
	}
	b.milliCPU = b.capacity*percent/100 - int64(servicesUse) - int64(system)
	b.sum = reason.Budget{
		CapacityMilliCPU: b.capacity, Percent: percent, ServicesMilliCPU: int64(servicesUse), Services: pods,
		SystemMilliCPU: int64(system), SystemFrom: systemSource, RestMilliCPU: b.milliCPU,
	}
	if minimum := v.strategy.Threshold.CPUSuppressMinPercent; minimum != nil {
		percent := sloconfig.Within(minimum, 0, 0, 100)
		if minimum := b.capacity * percent / 100; b.milliCPU < minimum {
			b.milliCPU = minimum
			b.sum.Minimum = reason.AtLeast(minimum, percent)
		}
	}
	return b, ""
}

// nodeReserved returns kubelet's reservation or the annotation's, whichever is larger, and its source.
func (v *view) nodeReserved(capacity int64) (float64, string) {
	kubelet := 0.0
	if a := v.sample.Allocatable; a != nil && a.MilliCPU != nil {
		kubelet = float64(capacity) - bounded(*a.MilliCPU)
	}
	switch {
	case v.reservedMilliCPU > max(kubelet, 0):
		return v.reservedMilliCPU, "reserved by annotation"
	case kubelet > 0:
		return kubelet, "capacity - allocatable"
	}
	return 0, "nothing reserved"
}

// isTierMissing reports whether the confined tier is missing in this sample, though it must exist: its pods alone are not confined, because
// the next tick would undo it.
func (v *view) isTierMissing() bool {
	if v.tier != nil || v.tierPath == "" {
		return false
	}
	for i := range v.sample.Pods {
		if tick.IsBelow(v.sample.Pods[i].Cgroup, v.tierPath) {
			return true
		}
	}
	return false
}

// maxAmount is more than any machine has, and small enough for sums of it to stay whole numbers.
const maxAmount = 1e12

// bounded validates an amount of CPU: a negative value or NaN becomes 0.
func bounded(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	return min(v, maxAmount)
}
