package suppress

import (
	"fmt"
	"math"
	"path"

	"polder/advise/koordinator/annotation"
	"polder/advise/policy"
	"polder/lib/clip"
	"polder/lib/qos"
	"polder/lib/quantity"
	"polder/lib/tick"
)

// amounts are a container's batch request and limits, in milli-CPU and bytes; 0 means none.
type amounts struct{ request, limit, memory float64 }

// extendedSpec is the annotation that Koordinator's webhook writes in addition to the containers' own resources.
type extendedSpec struct {
	Containers map[string]struct {
		Requests map[string]any `json:"requests"`
		Limits   map[string]any `json:"limits"`
	} `json:"containers"`
}

// adviseBatch adds the weight, quota and memory limit of each pod that is labelled BE and has batch resources, and of its containers:
// kubelet does not know batch resources, and creates their cgroups without limits. While a quota is in force above them, they have none.
// Tenants write labels and annotations: no value is wider than kubelet's from the pod's own resources, and a missing limit changes nothing.
// If quota is false quotas do not change.
func (v *view) adviseBatch(desired *desiredState, quota bool) (reasons []string) {
	invalid, firstText := 0, ""
	for i := range v.pods {
		p := &v.pods[i]
		if p.class != qos.BE || p.Missing != "" {
			continue
		}
		if p.isFromRule {
			v.adviseRulePod(desired, p, quota)
			continue
		}
		podAmounts, containerAmounts, err := p.amounts()
		if err != nil {
			if invalid++; invalid == 1 {
				firstText = "pod " + clip.Text(policy.Key(p.Pod), shownBytes) + ": " + err.Error()
			}
		}
		if containerAmounts == nil {
			continue
		}
		if p.ownCgroup != "" {
			v.adviseValues(desired.entry(p.ownCgroup), p, p.Requests, p.Limits, podAmounts, quota)
		}
		for _, j := range p.containers {
			if container := &p.Containers[j]; !isUnnamed(container) {
				if a, ok := containerAmounts(container); ok {
					v.adviseValues(desired.entry(container.Cgroup), p, container.Requests, container.Limits, a, quota)
				}
			}
		}
	}
	switch {
	case invalid > 1:
		reasons = append(reasons, fmt.Sprintf("batch pods' cgroups: %s (and %d more pods)", firstText, invalid-1))
	case invalid == 1:
		reasons = append(reasons, "batch pods' cgroups: "+firstText)
	}
	return reasons
}

// adviseRulePod adds the values of a cgroup that is not a pod of Kubernetes: only those that a rule sets, because others own its other
// limits and its weight among the machine's services.
func (v *view) adviseRulePod(desired *desiredState, p *pod, quota bool) {
	if p.ownCgroup == "" || p.Limits == nil {
		return
	}
	if limit := valueOf(p.Limits.ReclaimedMilliCPU); limit > 0 && quota {
		desired.entry(p.ownCgroup).CPUMaxMilliCPU = new(quotaOf(limit, v.ratio))
	}
	if memory := valueOf(p.Limits.ReclaimedMemoryBytes); memory > 0 {
		desired.entry(p.ownCgroup).MemoryMaxBytes = new(bytesOf(memory))
	}
}

// adviseValues adds the values of a pod's or a container's cgroup with the given native requests and limits.
func (v *view) adviseValues(w *tick.Cgroup, p *pod, requests, limits *tick.Resources, a amounts, quota bool) {
	w.CPUWeight = new(policy.WeightOf(policy.SharesOf(a.weight(p, requests)), v.sample.CgroupVersion))
	kubeletLimits := limits
	if kubeletLimits == nil {
		kubeletLimits = &tick.Resources{}
	}
	if bytes := bytesOf(smallest(a.memory, valueOf(kubeletLimits.MemoryBytes))); bytes != tick.Unlimited {
		w.MemoryMaxBytes = &bytes
	}
	if a.limit > 0 && quota {
		w.CPUMaxMilliCPU = new(withinLimit(quotaOf(a.limit, v.ratio), valueOf(kubeletLimits.MilliCPU)))
	}
}

// weight returns the CPU request that a cgroup's weight is calculated from. Only a pod of Kubernetes' class BestEffort gets the weight of
// its batch request: if kubelet set one from a native request, a larger weight would take from the services beside it.
func (a amounts) weight(p *pod, requests *tick.Resources) float64 {
	if qos.KubernetesOf(p.Pod) == qos.BestEffort {
		return a.request
	}
	native := 0.0
	if requests != nil {
		native = valueOf(requests.MilliCPU)
	}
	if a.request > 0 {
		return min(a.request, native)
	}
	return native
}

// smallest returns the smallest limit; 0 if there is none.
func smallest(limits ...float64) float64 {
	result := 0.0
	for _, limit := range limits {
		if limit > 0 && (result == 0 || limit < result) {
			result = limit
		}
	}
	return result
}

// withinLimit returns a quota of at most a limit in milli-CPU; a limit of 0 means none.
func withinLimit(quota int64, limit float64) int64 {
	if limitQuota := quotaOf(limit, 1); limitQuota != tick.Unlimited {
		return min(quota, limitQuota)
	}
	return quota
}

// isUnnamed reports whether it is unknown which of the pod's containers a cgroup belongs to, and what kubelet set there.
func isUnnamed(c *tick.Container) bool { return c.Name == "" || c.Name == path.Base(c.Cgroup) }

// amounts returns the pod's total, and the amounts of its containers; parts is nil if it has no batch resources. The containers' own
// resources take precedence over the annotation. A pod is limited only if all its known containers are: containers that do not run yet are
// not in a sample, but the pod's sums include them, sidecars and the overhead; init containers count if they request more than all others
// together, as in the scheduler.
func (p *pod) amounts() (total amounts, parts func(*tick.Container) (amounts, bool), err error) {
	hasBatch, sum := false, amounts{}
	isCPULimited, isMemoryLimited := true, true
	for i := range p.Containers {
		if container := &p.Containers[i]; !isUnnamed(container) {
			hasBatch = hasBatch || hasReclaimed(container.Requests) || hasReclaimed(container.Limits)
			if l := container.Limits; l == nil { // or a limit of Kubernetes' own, which is not part of the sums of batch resources
				isCPULimited, isMemoryLimited = false, false
			} else {
				isCPULimited, isMemoryLimited = isCPULimited && valueOf(l.ReclaimedMilliCPU) > 0, isMemoryLimited && valueOf(l.ReclaimedMemoryBytes) > 0
			}
			sum.request += specAmounts(container).request
		}
	}
	if !hasBatch {
		return p.annotatedAmounts()
	}
	parts = func(container *tick.Container) (amounts, bool) { return specAmounts(container), true }
	return p.totals(sum.request, isCPULimited, isMemoryLimited), parts, nil
}

// totals returns the pod's amounts, from its own resources: an unknown request is that of the existing containers, and a limit counts only
// if all existing containers have one.
func (p *pod) totals(request float64, isCPULimited, isMemoryLimited bool) (total amounts) {
	requests, limits := p.Requests, p.Limits
	if requests == nil {
		requests = &tick.Resources{}
	}
	if limits == nil {
		limits = &tick.Resources{}
	}
	if total.request = valueOf(requests.ReclaimedMilliCPU); total.request == 0 {
		total.request = request
	}
	if limit := valueOf(limits.ReclaimedMilliCPU); isCPULimited && limit >= valueOf(requests.ReclaimedMilliCPU) {
		total.limit = limit
	}
	if limit := valueOf(limits.ReclaimedMemoryBytes); isMemoryLimited && limit >= valueOf(requests.ReclaimedMemoryBytes) {
		total.memory = limit
	}
	return total
}

// annotatedAmounts returns the amounts of a pod whose containers' batch resources are unknown: those of the whole pod, which the annotation
// divides among the containers if it asks for no more. The annotation alone has no effect: the tenant writes it, and no scheduler has
// counted it.
func (p *pod) annotatedAmounts() (total amounts, parts func(*tick.Container) (amounts, bool), err error) {
	read, err := annotation.Read[extendedSpec](p.Annotations, annotation.Extended)
	byName := map[string]amounts{}
	var sum amounts
	if read != nil {
		for name, spec := range read.Containers {
			a := amounts{
				request: amountOf(spec.Requests, qos.BatchCPU), limit: amountOf(spec.Limits, qos.BatchCPU),
				memory: amountOf(spec.Limits, qos.BatchMemory),
			}
			byName[name] = a
			sum.request, sum.limit, sum.memory = sum.request+a.request, sum.limit+a.limit, sum.memory+a.memory
		}
	}
	if !hasReclaimed(p.Requests) && !hasReclaimed(p.Limits) {
		if sum != (amounts{}) {
			err = fmt.Errorf("annotation %s is ignored: the pod itself requests no batch resources", annotation.Extended)
		}
		return amounts{}, nil, err
	}
	total = p.totals(0, true, true)
	if sum.request > total.request || sum.limit > total.limit || sum.memory > total.memory {
		err = fmt.Errorf("annotation %s is ignored: it exceeds the pod's own batch resources", annotation.Extended)
		clear(byName)
	}
	return total, func(container *tick.Container) (amounts, bool) { a, ok := byName[container.Name]; return a, ok }, err
}

// amountOf returns the amount of the first of a resource's names that has one; 0 for none, and for an invalid amount.
func amountOf(list map[string]any, names []string) float64 {
	for _, name := range names {
		if v, ok := list[name]; ok {
			if n, err := quantity.Integer(v); err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}

// specAmounts returns a container's amounts. For a kind without batch resources its native ones apply, because kubelet wrote those.
func specAmounts(c *tick.Container) (a amounts) {
	first := func(batch, native *float64) float64 {
		if v := valueOf(batch); v > 0 {
			return v
		}
		return valueOf(native)
	}
	if r := c.Requests; r != nil {
		a.request = first(r.ReclaimedMilliCPU, r.MilliCPU)
	}
	if l := c.Limits; l != nil {
		a.limit, a.memory = first(l.ReclaimedMilliCPU, l.MilliCPU), first(l.ReclaimedMemoryBytes, l.MemoryBytes)
	}
	return a
}

func hasReclaimed(r *tick.Resources) bool {
	return r != nil && (valueOf(r.ReclaimedMilliCPU) > 0 || valueOf(r.ReclaimedMemoryBytes) > 0)
}

// valueOf returns an amount; 0 if it is missing, negative or not a number.
func valueOf(v *float64) float64 {
	if v == nil || !(*v > 0) {
		return 0
	}
	return *v
}

// quotaOf returns the quota of a limit in milli-CPU, if a CPU of the node is worth ratio of the CPUs that limits are counted in.
func quotaOf(limit, ratio float64) int64 {
	if limit <= 0 {
		return tick.Unlimited
	}
	return int64(min(max(math.Ceil(limit/ratio), minPartMilliCPU), maxQuotaMilliCPU))
}

// bytesOf returns the memory limit; more than 2^60 bytes means none.
func bytesOf(limit float64) int64 {
	if limit <= 0 || limit > 1<<60 {
		return tick.Unlimited
	}
	return int64(limit)
}
