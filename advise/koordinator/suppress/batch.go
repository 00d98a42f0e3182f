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

// extended is the annotation that Koordinator's webhook writes in addition to the containers' own resources.
type extended struct {
	Containers map[string]struct {
		Requests map[string]any `json:"requests"`
		Limits   map[string]any `json:"limits"`
	} `json:"containers"`
}

// batch adds the weight, quota and memory limit of each pod that is labelled BE and has batch resources, and of its containers: kubelet
// does not know batch resources, and creates their cgroups without limits. While a quota is in force above them, they have none. Tenants
// write labels and annotations: no value is wider than kubelet's from the pod's own resources, and a missing limit changes nothing. If
// quota is false quotas do not change.
func (v *view) batch(want *wants, quota bool) (reasons []string) {
	wrong, first := 0, ""
	for i := range v.pods {
		p := &v.pods[i]
		if p.class != qos.BE || p.Missing != "" {
			continue
		}
		if p.rule {
			v.ruled(want, p, quota)
			continue
		}
		whole, parts, err := p.amounts()
		if err != nil {
			if wrong++; wrong == 1 {
				first = "pod " + clip.Text(policy.Key(p.Pod), shownBytes) + ": " + err.Error()
			}
		}
		if parts == nil {
			continue
		}
		if p.own != "" {
			v.values(want.of(p.own), p, p.Requests, p.Limits, whole, quota)
		}
		for _, j := range p.containers {
			if own := &p.Containers[j]; !unnamed(own) {
				if a, ok := parts(own); ok {
					v.values(want.of(own.Cgroup), p, own.Requests, own.Limits, a, quota)
				}
			}
		}
	}
	switch {
	case wrong > 1:
		reasons = append(reasons, fmt.Sprintf("batch pods' cgroups: %s (and %d pods more)", first, wrong-1))
	case wrong == 1:
		reasons = append(reasons, "batch pods' cgroups: "+first)
	}
	return reasons
}

// ruled adds the values of a cgroup that is not a pod of Kubernetes: only those that a rule sets, because others own its other limits and
// its weight among the machine's services.
func (v *view) ruled(want *wants, p *pod, quota bool) {
	if p.own == "" || p.Limits == nil {
		return
	}
	if limit := valueOf(p.Limits.ReclaimedMilliCPU); limit > 0 && quota {
		want.of(p.own).CPUMaxMilliCPU = new(quotaOf(limit, v.ratio))
	}
	if memory := valueOf(p.Limits.ReclaimedMemoryBytes); memory > 0 {
		want.of(p.own).MemoryMaxBytes = new(bytesOf(memory))
	}
}

// values adds the values of a pod's or a container's cgroup with the given native requests and limits.
func (v *view) values(w *tick.Cgroup, p *pod, requests, limits *tick.Resources, a amounts, quota bool) {
	w.CPUWeight = new(policy.WeightOf(policy.SharesOf(a.weight(p, requests)), v.sample.CgroupVersion))
	native := limits
	if native == nil {
		native = &tick.Resources{}
	}
	if bytes := bytesOf(smallest(a.memory, valueOf(native.MemoryBytes))); bytes != tick.Unlimited {
		w.MemoryMaxBytes = &bytes
	}
	if a.limit > 0 && quota {
		w.CPUMaxMilliCPU = new(withinLimit(quotaOf(a.limit, v.ratio), valueOf(native.MilliCPU)))
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
	least := 0.0
	for _, limit := range limits {
		if limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// withinLimit returns a quota of at most a limit in milli-CPU; a limit of 0 means none.
func withinLimit(quota int64, limit float64) int64 {
	if own := quotaOf(limit, 1); own != tick.Unlimited {
		return min(quota, own)
	}
	return quota
}

// unnamed reports whether it is unknown which of the pod's containers a cgroup belongs to, and what kubelet set there.
func unnamed(c *tick.Container) bool { return c.Name == "" || c.Name == path.Base(c.Cgroup) }

// amounts returns the pod's total, and the amounts of its containers; parts is nil if it has no batch resources. The containers' own
// resources take precedence over the annotation. A pod is limited only if all its known containers are: containers that do not run yet are
// not in a sample, but the pod's sums include them, sidecars and the overhead; init containers count if they request more than all others
// together, as in the scheduler.
func (p *pod) amounts() (whole amounts, parts func(*tick.Container) (amounts, bool), err error) {
	named, sum := false, amounts{}
	limited, held := true, true
	for i := range p.Containers {
		if own := &p.Containers[i]; !unnamed(own) {
			named = named || reclaimed(own.Requests) || reclaimed(own.Limits)
			if l := own.Limits; l == nil { // or a limit of Kubernetes' own, which is not part of the sums of batch resources
				limited, held = false, false
			} else {
				limited, held = limited && valueOf(l.ReclaimedMilliCPU) > 0, held && valueOf(l.ReclaimedMemoryBytes) > 0
			}
			sum.request += ofSpec(own).request
		}
	}
	if !named {
		return p.annotated()
	}
	return p.totals(sum.request, limited, held), func(own *tick.Container) (amounts, bool) { return ofSpec(own), true }, nil
}

// totals returns the pod's amounts, from its own resources: an unknown request is that of the existing containers, and a limit counts only
// if all existing containers have one.
func (p *pod) totals(request float64, limited, held bool) (whole amounts) {
	requests, limits := p.Requests, p.Limits
	if requests == nil {
		requests = &tick.Resources{}
	}
	if limits == nil {
		limits = &tick.Resources{}
	}
	if whole.request = valueOf(requests.ReclaimedMilliCPU); whole.request == 0 {
		whole.request = request
	}
	if limit := valueOf(limits.ReclaimedMilliCPU); limited && limit >= valueOf(requests.ReclaimedMilliCPU) {
		whole.limit = limit
	}
	if limit := valueOf(limits.ReclaimedMemoryBytes); held && limit >= valueOf(requests.ReclaimedMemoryBytes) {
		whole.memory = limit
	}
	return whole
}

// annotated returns the amounts of a pod whose containers' batch resources are unknown: those of the whole pod, which the annotation
// divides among the containers if it asks for no more. The annotation alone has no effect: the tenant writes it, and no scheduler has
// counted it.
func (p *pod) annotated() (whole amounts, parts func(*tick.Container) (amounts, bool), err error) {
	read, err := annotation.Read[extended](p.Annotations, annotation.Extended)
	at := map[string]amounts{}
	var sum amounts
	if read != nil {
		for name, of := range read.Containers {
			a := amounts{
				request: amountOf(of.Requests, qos.BatchCPU), limit: amountOf(of.Limits, qos.BatchCPU),
				memory: amountOf(of.Limits, qos.BatchMemory),
			}
			at[name] = a
			sum.request, sum.limit, sum.memory = sum.request+a.request, sum.limit+a.limit, sum.memory+a.memory
		}
	}
	if !reclaimed(p.Requests) && !reclaimed(p.Limits) {
		if sum != (amounts{}) {
			err = fmt.Errorf("annotation %s does not count: the pod itself requests no batch resources", annotation.Extended)
		}
		return amounts{}, nil, err
	}
	whole = p.totals(0, true, true)
	if sum.request > whole.request || sum.limit > whole.limit || sum.memory > whole.memory {
		err = fmt.Errorf("annotation %s does not count: it has more than the pod's own batch resources", annotation.Extended)
		clear(at)
	}
	return whole, func(own *tick.Container) (amounts, bool) { a, ok := at[own.Name]; return a, ok }, err
}

// amountOf returns the amount of the first of a resource's names that has one; 0 for none, and for an invalid amount.
func amountOf(list map[string]any, names []string) float64 {
	for _, name := range names {
		if v, ok := list[name]; ok {
			if n, err := quantity.Whole(v); err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}

// ofSpec returns a container's amounts. For a kind without batch resources its native ones apply, because kubelet wrote those.
func ofSpec(c *tick.Container) (a amounts) {
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

func reclaimed(r *tick.Resources) bool {
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
