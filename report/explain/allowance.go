package explain

import (
	"cmp"
	"fmt"

	"polder/lib/cpus"
	"polder/lib/phrase"
	"polder/lib/tick"
	"polder/report/view"
)

// allowance is what the advice allowed a pod to use.
type allowance struct {
	quota     *int64 // milli-CPU, nil where there is none
	quotaOf   string // the cgroup above the pod that has it; empty where the quota is the pod's own
	cpus      string
	size      int // of cpus
	idle      bool
	weight    *int64
	memory    *int64 // bytes, nil where the advice has no limit
	memorySet string // the name of that limit's file
	named     bool   // the advice names the pod's cgroups at all
}

func allowanceOf(t *tick.Tick, p *tick.Pod) (a allowance) {
	if t.Advice == nil || p == nil || p.Cgroup == "" {
		return a
	}
	containers := map[string]bool{}
	for i := range p.Containers {
		if c := p.Containers[i].Cgroup; c != "" && c != p.Cgroup {
			containers[c] = true
		}
	}
	var parts []int64 // the containers' quotas
	for i := range t.Advice.Cgroups {
		c := &t.Advice.Cgroups[i]
		own, inside := c.Cgroup == p.Cgroup, containers[c.Cgroup]
		above := c.Cgroup != "/" && tick.IsBelow(p.Cgroup, c.Cgroup)
		if !own && !inside && !above {
			continue
		}
		a.named = true
		switch q := c.CPUMaxMilliCPU; {
		case q == nil || *q <= 0:
		case inside:
			parts = append(parts, *q)
		case above:
			a.limit(*q, c.Cgroup)
		default:
			a.limit(*q, "")
		}
		a.allow(c, own, above)
	}
	if len(parts) > 0 && len(parts) == len(containers) { // a container without a quota may use the whole of the pod's
		a.limit(sumOf(parts), "")
	}
	if a.cpus == "" {
		a.cpus = poolOf(t, p)
	}
	if set, err := cpus.Parse(a.cpus); err == nil {
		a.size = set.Size()
	}
	return a
}

// limit notes a quota, which is that of a cgroup above the pod or, where above is empty, its own; the smallest one counts.
func (a *allowance) limit(quota int64, above string) {
	if a.quota == nil || quota < *a.quota {
		a.quota, a.quotaOf = &quota, above
	}
}

func sumOf(list []int64) (sum int64) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// allow notes the other values that the advice has for one of the pod's cgroups or for one above it.
func (a *allowance) allow(c *tick.Cgroup, own, above bool) {
	if c.CPUSetCPUs != "" && (a.cpus == "" || !above) {
		a.cpus = c.CPUSetCPUs
	}
	if c.CPUIdle != nil {
		a.idle = a.idle || *c.CPUIdle
	}
	if c.CPUWeight != nil && (a.weight == nil || own) {
		a.weight = c.CPUWeight
	}
	for _, m := range [...]struct {
		limit *int64
		name  string
	}{{c.MemoryMaxBytes, "memory.max"}, {c.MemoryHighBytes, "memory.high"}} {
		if m.limit != nil && *m.limit > 0 && own && (a.memory == nil || *m.limit < *a.memory) {
			a.memory, a.memorySet = m.limit, m.name
		}
	}
}

// poolOf is the CPUs of the pod's own pool, if it has one.
func poolOf(t *tick.Tick, p *tick.Pod) string {
	for _, pool := range t.Advice.Pools {
		if pool.Name == tick.PoolDedicatedPrefix+p.Namespace+"/"+p.Name {
			return pool.CPUs
		}
	}
	return ""
}

// milliCPU is the most that the pod may use, false where neither a quota nor a list of CPUs bounds it.
func (a allowance) milliCPU() (float64, bool) {
	most, known := 0.0, false
	if a.quota != nil {
		most, known = float64(*a.quota), true
	}
	if a.size > 0 && (!known || float64(a.size)*1000 < most) {
		most, known = float64(a.size)*1000, true
	}
	return most, known
}

// comesLast reports whether the pod has a class below the services'.
func (a allowance) comesLast() bool { return a.idle || a.weight != nil && *a.weight == smallestWeight }

// smallestWeight is the kernel's smallest CPU weight; class weight is that.
const smallestWeight = 1

// class names the class of a pod that comes last.
func (a allowance) class() string {
	if a.idle {
		return "the idle class"
	}
	return "the smallest weight"
}

// describe returns the allowance in sentences.
func (a allowance) describe(t *tick.Tick, p *tick.Pod) []string {
	var s []string
	if a.size > 0 {
		text := fmt.Sprintf("It could run on %s (%s)", phrase.Count(a.size, "CPU"), brief(a.cpus))
		if others := len(podsOn(t, a.cpus)) - 1; others > 0 {
			text += fmt.Sprintf(", which it shared with %s", phrase.Count(others, "other pod"))
		}
		s = append(s, text+".")
	}
	switch {
	case a.quota != nil && a.quotaOf != "":
		s = append(s, fmt.Sprintf("Its quota was that of %s: %s of CPU time for all pods in it.", brief(a.quotaOf), coresOf(float64(*a.quota))))
	case a.quota != nil:
		s = append(s, fmt.Sprintf("Its quota was %s of CPU time.", coresOf(float64(*a.quota))))
	}
	switch {
	case a.idle:
		s = append(s, "It was in the kernel's idle class: it runs when nothing else wants the CPU.")
	case a.weight != nil:
		s = append(s, fmt.Sprintf("Its CPU weight was %d (the default is 100): beside busy services it gets that share.", *a.weight))
	}
	if a.size == 0 && a.quota == nil {
		s = append(s, "Polder set neither a quota nor CPUs for it.")
	}
	if own := ownLimit(p); own != nil && (a.quota == nil || float64(*a.quota) > *own) {
		s = append(s, fmt.Sprintf("Its own CPU limit is %s.", coresOf(*own)))
	}
	switch own := ownMemory(p); {
	case a.memory != nil:
		s = append(s, fmt.Sprintf("Memory: at most %s (%s).", bytesOf(float64(*a.memory)), a.memorySet))
	case own != nil:
		s = append(s, fmt.Sprintf("Memory: its own limit of %s.", bytesOf(*own)))
	default:
		s = append(s, "Memory: no limit of its own.")
	}
	return s
}

// podsOn are the pods that the advice confines to a list of CPUs; none where there is no advice.
func podsOn(t *tick.Tick, list string) (pods []*tick.Pod) {
	if t.Advice == nil || t.Sample == nil {
		return nil
	}
	on := map[string]bool{}
	for i := range t.Advice.Cgroups {
		if t.Advice.Cgroups[i].CPUSetCPUs == list {
			on[t.Advice.Cgroups[i].Cgroup] = true
		}
	}
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		found := on[p.Cgroup]
		for j := range p.Containers {
			found = found || on[p.Containers[j].Cgroup]
		}
		if found {
			pods = append(pods, p)
		}
	}
	return pods
}

// ownLimit is the CPU limit in the pod's specification.
func ownLimit(p *tick.Pod) *float64 {
	if p.Limits == nil {
		return nil
	}
	return cmp.Or(p.Limits.ReclaimedMilliCPU, p.Limits.MilliCPU)
}

func ownMemory(p *tick.Pod) *float64 {
	if p.Limits == nil {
		return nil
	}
	return cmp.Or(p.Limits.ReclaimedMemoryBytes, p.Limits.MemoryBytes)
}

// used describes the pod's use.
func used(p *tick.Pod) string {
	var parts []string
	if p.UsageMilliCPU != nil {
		parts = append(parts, "used "+coresOf(*p.UsageMilliCPU))
	}
	if p.Load1 != nil {
		parts = append(parts, "had "+phrase.Decimal(*p.Load1, 1)+" threads ready to run on average")
	}
	if p.Memory != nil {
		held := p.Memory.WorkingSetBytes
		if held == nil {
			held = p.Memory.UsageBytes
		}
		if held != nil {
			parts = append(parts, "held "+view.Bytes(held)+" of memory")
		}
	}
	if len(parts) == 0 {
		return "What it used is unknown."
	}
	return "It " + list(parts) + "."
}
