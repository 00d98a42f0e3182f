package suppress

import (
	"fmt"
	"math"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

const (
	// minQuotaMilliCPU is the batch pods' least quota together, 2 ms of the usual period of 100 ms, and minPartMilliCPU that of
	// one cgroup, 1 ms: less the kernel does not take.
	minQuotaMilliCPU = 20
	minPartMilliCPU  = 10
	// maxQuotaMilliCPU is that of the largest machine the kernel can be built for.
	maxQuotaMilliCPU = 8192 * 1000
)

// byQuota limits the time on all CPUs: policy cfsQuota.
func (c *call) byQuota(b budget) {
	want := min(max(b.milliCPU, minQuotaMilliCPU), maxQuotaMilliCPU)
	present := c.presentQuota()
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
	c.st.Mode, c.st.CPUs, c.st.QuotaMilliCPU = sloconfig.SuppressCFSQuota, "", quota
	c.say("suppression: %s -> quota %dm%s", b.sum, quota, bound)
	if full := c.full(); !full.Equals(c.Online) { // what is kept out is so under either policy
		c.hold(full)
	}
}

// presentQuota is the batch pods' quota: that of their tier in force, else the one that was advised last.
func (c *call) presentQuota() int64 {
	switch {
	case c.tier != nil && c.tier.CPUMaxMilliCPU != nil && !c.outside():
		if now := *c.tier.CPUMaxMilliCPU; now > 0 {
			return min(now, maxQuotaMilliCPU)
		}
	case c.st.QuotaMilliCPU > 0:
		return c.st.QuotaMilliCPU
	}
	return tick.Unlimited
}

// outside reports whether there are suppressed pods that kubelet's cgroup of BestEffort pods does not hold.
func (c *call) outside() bool {
	for i := range c.pods {
		if p := &c.pods[i]; p.held && !p.tier {
			return true
		}
	}
	return false
}

// divide wants the batch pods within a quota together: their tier, and each pod that stands outside with its part, by the CPU
// requests. The parts do not follow use from tick to tick, so that a steady state writes nothing. Below, nothing is limited: on
// cgroup v1 the kernel takes no quota above that is under one below.
func (c *call) divide(quota int64) { c.divideIn(&c.want, quota, true) }

func (c *call) divideIn(w *wants, quota int64, free bool) {
	inTier, sum := 0.0, 0.0
	for i := range c.pods {
		if p := &c.pods[i]; p.held {
			weight := p.request()
			sum += weight
			if p.tier {
				inTier += weight
			}
		}
	}
	unlimited := int64(tick.Unlimited)
	if c.tier != nil {
		part := quota
		if inTier > 0 {
			part = partOf(quota, inTier/sum)
		}
		w.of(c.tier.Cgroup).CPUMaxMilliCPU = &part
	}
	for i := range c.pods {
		p := &c.pods[i]
		if !p.held || p.tier && !free {
			continue
		}
		below := &unlimited
		switch {
		case p.tier:
			if p.own != "" {
				w.of(p.own).CPUMaxMilliCPU = &unlimited
			}
		case p.own != "":
			part := p.within(partOf(quota, p.request()/sum))
			w.of(p.own).CPUMaxMilliCPU = &part
		default:
			part := p.within(partOf(quota, p.request()/sum/float64(max(len(p.containers), 1))))
			below = &part
		}
		if below == &unlimited && !free {
			continue
		}
		for _, j := range p.containers {
			w.of(p.Containers[j].Cgroup).CPUMaxMilliCPU = below
		}
	}
}

func partOf(quota int64, part float64) int64 {
	return max(int64(float64(quota)*min(part, 1)), minPartMilliCPU)
}

// within is a pod's part within its own limit.
func (p *pod) within(part int64) int64 {
	if l := p.Limits; l != nil {
		for _, limit := range []*float64{l.ReclaimedMilliCPU, l.MilliCPU} {
			if limit != nil && *limit > 0 {
				return max(min(part, int64(math.Ceil(bounded(*limit)))), minPartMilliCPU)
			}
		}
	}
	return part
}

// request is what counts of a pod where a quota is divided; a pod that names none counts as one core.
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
