package suppress

import (
	"fmt"
	"math"

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

// byQuota limits the time on all CPUs: policy cfsQuota.
func (v *view) byQuota(b budget, before limit) decision {
	want := min(max(b.milliCPU, minQuotaMilliCPU), maxQuotaMilliCPU)
	present := v.presentQuota(before)
	quota, bound := want, ""
	switch band, step := b.capacity/100, b.capacity/10; {
	case want == minQuotaMilliCPU && b.milliCPU < want:
		bound = "; no CPU is left for batch pods, they keep the minimum"
	case present == tick.Unlimited:
	case want > minQuotaMilliCPU && present >= minQuotaMilliCPU && max(want-present, present-want) < band:
		quota, bound = present, fmt.Sprintf("; %dm is within a hundredth of the machine (%dm) of the present %dm, which stays", want, band, present)
	case want > present+step:
		quota, bound = present+step, fmt.Sprintf("; it grows by a tenth of the machine a step: from %dm by %dm", present, step)
	}
	d := decision{limit: limit{mode: sloconfig.SuppressCFSQuota, quotaMilliCPU: quota}, decided: true}
	d.because("suppression: %s -> quota %dm%s", b.sum, quota, bound)
	if full := v.full(); !full.Equals(v.Online) { // CPUs are kept out under either policy
		d.confined = full
	}
	return d
}

// presentQuota returns the batch pods' quota: that of their tier in force, else the last advised one.
func (v *view) presentQuota(before limit) int64 {
	switch {
	case v.tier != nil && v.tier.CPUMaxMilliCPU != nil && !v.outside():
		if now := *v.tier.CPUMaxMilliCPU; now > 0 {
			return min(now, maxQuotaMilliCPU)
		}
	case before.quotaMilliCPU > 0:
		return before.quotaMilliCPU
	}
	return tick.Unlimited
}

// outside reports whether there are suppressed pods outside of kubelet's cgroup of BestEffort pods.
func (v *view) outside() bool {
	for i := range v.pods {
		if p := &v.pods[i]; p.suppressed && !p.tier {
			return true
		}
	}
	return false
}

// divide limits the batch pods to a total quota: their tier, and each pod outside of it with its part, by the CPU requests. The parts do
// not depend on use, so that a steady state writes nothing. Below them, only kubelet's limits apply: on cgroup v1 the kernel rejects a
// quota that is smaller than one below. If free is false nothing is desired below.
func (v *view) divide(w *wants, quota int64, free bool) {
	inTier, sum := 0.0, 0.0
	for i := range v.pods {
		if p := &v.pods[i]; p.suppressed {
			weight := p.request()
			sum += weight
			if p.tier {
				inTier += weight
			}
		}
	}
	tier := quota
	if v.tier != nil {
		if inTier > 0 {
			tier = partOf(quota, inTier/sum)
		}
		w.of(v.tier.Cgroup).CPUMaxMilliCPU = &tier
	}
	for i := range v.pods {
		p := &v.pods[i]
		if !p.suppressed || p.tier && !free {
			continue
		}
		part, above, alone := int64(tick.Unlimited), tier, false
		switch {
		case p.tier:
			if p.own != "" {
				w.of(p.own).CPUMaxMilliCPU = new(unlessLimited(p.Limits, tier))
			}
		case p.own != "":
			above = within(partOf(quota, p.request()/sum), p.Limits)
			w.of(p.own).CPUMaxMilliCPU = &above
		default:
			part, alone = within(partOf(quota, p.request()/sum/float64(max(len(p.containers), 1))), p.Limits), true
		}
		for _, j := range p.containers {
			switch own := &p.Containers[j]; {
			case alone:
				w.of(own.Cgroup).CPUMaxMilliCPU = new(within(part, own.Limits))
			case free:
				w.of(own.Cgroup).CPUMaxMilliCPU = new(unlessLimited(own.Limits, above))
			}
		}
	}
}

// unlessLimited returns no quota; if kubelet set one, the smaller one of that and the one above.
func unlessLimited(limits *tick.Resources, above int64) int64 {
	if limits == nil || valueOf(limits.MilliCPU) == 0 {
		return tick.Unlimited
	}
	return min(quotaOf(valueOf(limits.MilliCPU), 1), above)
}

func partOf(quota int64, part float64) int64 {
	return max(int64(float64(quota)*min(part, 1)), minPartMilliCPU)
}

// within bounds a part by the limits of a pod, or of one of its containers.
func within(part int64, limits *tick.Resources) int64 {
	if limits == nil {
		return part
	}
	if limit := smallest(valueOf(limits.ReclaimedMilliCPU), valueOf(limits.MilliCPU)); limit > 0 {
		part = max(min(part, int64(math.Ceil(bounded(limit)))), minPartMilliCPU)
	}
	return part
}

// request returns a pod's weight for dividing a quota; a pod without a request counts as one core.
func (p *pod) request() float64 {
	if r := p.Requests; r != nil {
		for _, request := range []*float64{r.ReclaimedMilliCPU, r.MilliCPU} {
			if request != nil && *request > 0 {
				return bounded(*request)
			}
		}
	}
	return 1000
}
