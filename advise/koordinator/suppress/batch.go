package suppress

import (
	"maps"
	"math"
	"path"
	"slices"

	"polder/lib/qos"
	"polder/lib/quantity"
	"polder/lib/tick"
)

// amounts are a container's batch request and limits, in milli-CPU and bytes; 0 is none.
type amounts struct{ request, limit, memory float64 }

// extended is the annotation that Koordinator's webhook writes beside the containers' own resources.
type extended struct {
	Containers map[string]struct {
		Requests map[string]any `json:"requests"`
		Limits   map[string]any `json:"limits"`
	} `json:"containers"`
}

// Names of batch resources: today's, and those of Koordinator's first version.
var (
	batchCPU    = []string{"kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu"}
	batchMemory = []string{"kubernetes.io/batch-memory", "koordinator.sh/batch-memory"}
)

// batch wants the weight, quota and memory limit of each pod that is labelled BE and has batch resources, and of its containers:
// kubelet knows no batch resources, and makes them cgroups without limits. While a quota is in force above, they have none.
func (c *call) batch(decided bool) {
	wrong, first := 0, ""
	for i := range c.pods {
		p := &c.pods[i]
		if p.class != qos.BE || p.Missing != "" {
			continue
		}
		quota := decided || c.st.QuotaMilliCPU == 0 // else they stay as they are
		if p.rule {
			c.ruled(p, quota)
			continue
		}
		whole, parts, err := p.amounts()
		if err != nil {
			if wrong++; wrong == 1 {
				first = "pod " + clip(key(p.Pod)) + ": " + err.Error()
			}
		}
		if parts == nil {
			continue
		}
		if p.own != "" {
			c.values(p.own, whole, quota)
		}
		for _, j := range p.containers {
			if a, ok := parts(&p.Containers[j]); ok {
				c.values(p.Containers[j].Cgroup, a, quota)
			}
		}
	}
	switch {
	case wrong > 1:
		c.say("batch pods' cgroups: %s (and %d pods more)", first, wrong-1)
	case wrong == 1:
		c.say("batch pods' cgroups: %s", first)
	}
}

// ruled are the values of a cgroup that is no pod of Kubernetes: only what a rule says, for its other limits and its weight among
// the machine's services are somebody else's.
func (c *call) ruled(p *pod, quota bool) {
	if p.own == "" || p.Limits == nil {
		return
	}
	if limit := valueOf(p.Limits.ReclaimedMilliCPU); limit > 0 && quota {
		c.want.of(p.own).CPUMaxMilliCPU = tick.Ptr(quotaOf(limit, c.ratio))
	}
	if memory := valueOf(p.Limits.ReclaimedMemoryBytes); memory > 0 {
		c.want.of(p.own).MemoryMaxBytes = tick.Ptr(bytesOf(memory))
	}
}

func (c *call) values(path string, a amounts, quota bool) {
	w := c.want.of(path)
	w.CPUWeight = tick.Ptr(weightOf(sharesOf(a.request), c.sample.CgroupVersion))
	w.MemoryMaxBytes = tick.Ptr(bytesOf(a.memory))
	if quota {
		w.CPUMaxMilliCPU = tick.Ptr(quotaOf(a.limit, c.ratio))
	}
}

// amounts are the pod's together, and those of its containers; parts is nil where it has no batch resources. The containers' own
// resources are preferred to the annotation. A pod is limited only if all its containers are, as far as is known: those that do
// not run yet are not in a sample, but the sums of the pod count them, those that stay beside the others (sidecars) and the
// overhead too; init containers count where they ask for more than all others together, as the scheduler has it.
func (p *pod) amounts() (whole amounts, parts func(*tick.Container) (amounts, bool), err error) {
	named, sum := false, amounts{}
	limited, held := true, true
	for i := range p.Containers {
		if own := &p.Containers[i]; own.Name != "" && own.Name != path.Base(own.Cgroup) { // else it is not known which it is
			named = named || reclaimed(own.Requests) || reclaimed(own.Limits)
			if l := own.Limits; l == nil { // or a limit of Kubernetes' own, which the sums of batch resources do not count
				limited, held = false, false
			} else {
				limited, held = limited && valueOf(l.ReclaimedMilliCPU) > 0, held && valueOf(l.ReclaimedMemoryBytes) > 0
			}
			sum.request += ofSpec(own).request
		}
	}
	if !named && !reclaimed(p.Requests) && !reclaimed(p.Limits) {
		return p.annotated()
	}
	requests, limits := p.Requests, p.Limits
	if requests == nil {
		requests = &tick.Resources{}
	}
	if limits == nil {
		limits = &tick.Resources{}
	}
	if whole.request = valueOf(requests.ReclaimedMilliCPU); whole.request == 0 {
		whole.request = sum.request
	}
	if limit := valueOf(limits.ReclaimedMilliCPU); limited && limit >= valueOf(requests.ReclaimedMilliCPU) {
		whole.limit = limit
	}
	if limit := valueOf(limits.ReclaimedMemoryBytes); held && limit >= valueOf(requests.ReclaimedMemoryBytes) {
		whole.memory = limit
	}
	return whole, func(own *tick.Container) (amounts, bool) {
		return ofSpec(own), own.Name != "" && own.Name != path.Base(own.Cgroup)
	}, nil
}

// annotated are the amounts of the annotation.
func (p *pod) annotated() (whole amounts, parts func(*tick.Container) (amounts, bool), err error) {
	var e extended
	ok, err := annotation(p.Annotations, annotationExtended, &e)
	if !ok || err != nil {
		return whole, nil, err
	}
	at := make(map[string]amounts, len(e.Containers))
	some, limited, held := false, true, true
	for _, name := range slices.Sorted(maps.Keys(e.Containers)) {
		of := e.Containers[name]
		a := amounts{request: amountOf(of.Requests, batchCPU), limit: amountOf(of.Limits, batchCPU), memory: amountOf(of.Limits, batchMemory)}
		some = some || a != amounts{} || amountOf(of.Requests, batchMemory) > 0
		at[name] = a
		limited, held = limited && a.limit > 0, held && a.memory > 0
		whole.request += a.request
		whole.limit += a.limit
		whole.memory += a.memory
	}
	if !some {
		return amounts{}, nil, nil
	}
	if !limited {
		whole.limit = 0
	}
	if !held {
		whole.memory = 0
	}
	return whole, func(own *tick.Container) (amounts, bool) { a, ok := at[own.Name]; return a, ok }, nil
}

// amountOf is the first of a resource's names that has an amount; 0 for none, and for what is no amount.
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

// ofSpec are a container's amounts. Where it has no batch resources of a kind its native ones hold: kubelet wrote those.
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

// valueOf is an amount; what is missing, negative or no number is 0.
func valueOf(v *float64) float64 {
	if v == nil || !(*v > 0) {
		return 0
	}
	return *v
}

// quotaOf is the quota for a limit in milli-CPU, where a CPU of the node is worth ratio of those that limits are counted in.
func quotaOf(limit, ratio float64) int64 {
	switch {
	case limit <= 0:
		return tick.Unlimited
	case limit/ratio >= maxQuotaMilliCPU:
		return maxQuotaMilliCPU
	}
	return max(int64(math.Ceil(limit/ratio)), minPartMilliCPU)
}

// bytesOf is the limit of memory; what is over 2^60 bytes is none.
func bytesOf(limit float64) int64 {
	if limit <= 0 || limit > 1<<60 {
		return tick.Unlimited
	}
	return int64(limit)
}

// Ends of cgroup v1's cpu.shares.
const minShares, maxShares = 2, 262144

// sharesOf is the cpu.shares that a request in milli-CPU stands for.
func sharesOf(request float64) int64 {
	return int64(min(max(request*1024/1000, minShares), maxShares))
}

// weightOf is the weight for cpu.shares. For version 2 it is Koordinator's, and kubelet's up to 1.34: proportional. On
// version 1 isolate makes shares of the weight by opencontainers' curve, 10^((l*l+125*l)/612 - 7/34) with l = log2(shares), so
// there it is the curve's nearest: what is written is within 1 % of the shares from 1024 on, 2.2 % from 256 on, and below that a
// step of the curve.
func weightOf(shares int64, version int) int64 {
	if version != 1 {
		return 1 + (shares-minShares)*9999/(maxShares-minShares)
	}
	l := math.Log2(float64(shares))
	return min(max(int64(math.Round(math.Pow(10, (l*l+125*l)/612-7.0/34))), 1), 10000)
}
