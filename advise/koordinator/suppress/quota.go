package suppress

import (
	"fmt"
	"math"

	"polder/lib/reason"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

const (
	// minQuotaMilliCPU is the smallest total quota of the batch pods, 2 ms of the usual period of 100 ms, and minPartMilliCPU that of one
	// cgroup, 1 ms: the kernel accepts no less.
	minQuotaMilliCPU = 20
	minPartMilliCPU  = 10
	// maxQuotaMilliCPU is that of the largest machine that the kernel supports.
	maxQuotaMilliCPU = 8192 * 1000
)

// decideQuota limits the time on all CPUs: policy cfsQuota.
func (v *view) decideQuota(b budget, previous limit) decision {
	desired := min(max(b.milliCPU, minQuotaMilliCPU), maxQuotaMilliCPU)
	current := v.currentQuota(previous)
	quota, boundText := desired, ""
	switch deadBand, step := b.capacity/100, b.capacity/10; {
	case desired == minQuotaMilliCPU && b.milliCPU < desired:
		boundText = "; no CPU is left for batch pods, they keep the minimum"
	case current == tick.Unlimited:
	case desired > minQuotaMilliCPU && current >= minQuotaMilliCPU && max(desired-current, current-desired) < deadBand:
		quota, boundText = current, fmt.Sprintf("; %dm is within a hundredth of the machine (%dm) of the current %dm, which stays", desired, deadBand, current)
	case desired > current+step:
		quota, boundText = current+step, fmt.Sprintf("; it grows by a tenth of the machine a step: from %dm by %dm", current, step)
	}
	d := decision{limit: limit{mode: sloconfig.SuppressCFSQuota, quotaMilliCPU: quota}, isDecided: true}
	d.addReason("%s", reason.Suppression{Budget: b.sum, Result: fmt.Sprintf("quota %dm%s", quota, boundText)})
	if allowed := v.unsuppressedCPUs(); !allowed.Equals(v.Online) { // CPUs are kept out under either policy
		d.confined = allowed
	}
	return d
}

// currentQuota returns the batch pods' quota: that of their tier in force, else the last advised one.
func (v *view) currentQuota(previous limit) int64 {
	switch {
	case v.tier != nil && v.tier.CPUMaxMilliCPU != nil && !v.hasPodsOutsideTier():
		if inForce := *v.tier.CPUMaxMilliCPU; inForce > 0 {
			return min(inForce, maxQuotaMilliCPU)
		}
	case previous.quotaMilliCPU > 0:
		return previous.quotaMilliCPU
	}
	return tick.Unlimited
}

// hasPodsOutsideTier reports whether there are suppressed pods outside of kubelet's cgroup of BestEffort pods.
func (v *view) hasPodsOutsideTier() bool {
	for i := range v.pods {
		if p := &v.pods[i]; p.isSuppressed && !p.isInTier {
			return true
		}
	}
	return false
}

// divideQuota limits the batch pods to a total quota: their tier, and each pod outside of it with its part, by the CPU requests. The parts
// do not depend on use, so that a steady state writes nothing.
func (v *view) divideQuota(w *desiredState, quota int64) {
	inTier, sum := 0.0, 0.0
	for i := range v.pods {
		if p := &v.pods[i]; p.isSuppressed {
			weight := p.requestWeight()
			sum += weight
			if p.isInTier {
				inTier += weight
			}
		}
	}
	if v.tier != nil {
		tier := quota
		if inTier > 0 {
			tier = partOf(quota, inTier/sum)
		}
		w.entry(v.tier.Cgroup).CPUMaxMilliCPU = &tier
	}
	for i := range v.pods {
		p := &v.pods[i]
		if !p.isSuppressed || p.isInTier {
			continue
		}
		part := p.requestWeight() / sum
		if p.ownCgroup != "" {
			w.entry(p.ownCgroup).CPUMaxMilliCPU = new(clampToLimits(partOf(quota, part), p.Limits))
			continue
		}
		containerQuota := clampToLimits(partOf(quota, part/float64(max(len(p.containers), 1))), p.Limits)
		for _, j := range p.containers {
			container := &p.Containers[j]
			w.entry(container.Cgroup).CPUMaxMilliCPU = new(clampToLimits(containerQuota, container.Limits))
		}
	}
}

// limitBelowLikeKubelet leaves only kubelet's limits below the cgroups that divideQuota has limited: on cgroup v1 the kernel rejects a
// quota that is smaller than one below.
func (v *view) limitBelowLikeKubelet(w *desiredState) {
	for i := range v.pods {
		p := &v.pods[i]
		limited := p.ownCgroup
		if p.isInTier {
			limited = v.tier.Cgroup
		}
		if !p.isSuppressed || limited == "" {
			continue
		}
		quota := *w.entry(limited).CPUMaxMilliCPU
		if p.isInTier && p.ownCgroup != "" {
			w.entry(p.ownCgroup).CPUMaxMilliCPU = new(unlessLimited(p.Limits, quota))
		}
		for _, j := range p.containers {
			container := &p.Containers[j]
			w.entry(container.Cgroup).CPUMaxMilliCPU = new(unlessLimited(container.Limits, quota))
		}
	}
}

// unlessLimited returns no quota; if kubelet set one, the smaller one of that and the parent's.
func unlessLimited(limits *tick.Resources, parentQuota int64) int64 {
	if limits == nil || valueOf(limits.MilliCPU) == 0 {
		return tick.Unlimited
	}
	return min(quotaOf(valueOf(limits.MilliCPU), 1), parentQuota)
}

func partOf(quota int64, part float64) int64 {
	return max(int64(float64(quota)*min(part, 1)), minPartMilliCPU)
}

// clampToLimits bounds a part by the limits of a pod, or of one of its containers.
func clampToLimits(part int64, limits *tick.Resources) int64 {
	if limits == nil {
		return part
	}
	if limit := smallest(valueOf(limits.ReclaimedMilliCPU), valueOf(limits.MilliCPU)); limit > 0 {
		part = max(min(part, int64(math.Ceil(bounded(limit)))), minPartMilliCPU)
	}
	return part
}

// requestWeight returns a pod's weight for dividing a quota; a pod without a request counts as one core.
func (p *pod) requestWeight() float64 {
	if r := p.Requests; r != nil {
		for _, request := range []*float64{r.ReclaimedMilliCPU, r.MilliCPU} {
			if request != nil && *request > 0 {
				return bounded(*request)
			}
		}
	}
	return 1000
}
