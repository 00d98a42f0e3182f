package policy

import (
	"fmt"
	"math"
	"slices"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// WithoutPartitions restricts a policy to the CPUs that pods may have: those of a CPU partition are for the cgroups in it, and giving one
// to a sibling makes the partition invalid. If all pods are in a partition, only its CPUs are for them. A pod in another partition needs
// none of these CPUs, nor do the host's own programs outside. The returned function finishes the advice: it removes the values of pods in
// other partitions, and adds a reason with the CPUs.
func WithoutPartitions(t *tick.Tick) (*tick.Tick, func(*tick.Advice)) {
	if t.Sample == nil || t.Sample.Topology == nil || len(t.Sample.Partitions) == 0 {
		return t, func(*tick.Advice) {}
	}
	var foreign, common []tick.Partition // common are those that all pods are in
	var foreignCPUs, outside cpus.Set    // in foreign partitions; outside of the common ones
	online, _ := cpus.Parse(t.Sample.Topology.CPUs)
	for _, p := range t.Sample.Partitions {
		set, err := cpus.Parse(p.CPUs)
		switch {
		case err != nil:
			continue
		case p.ContainsAllPods(t.Sample.Pods):
			common, outside = append(common, p), outside.Union(online.Difference(set))
		default:
			foreign, foreignCPUs = append(foreign, p), foreignCPUs.Union(set.Intersection(online))
		}
	}
	s := *t.Sample
	s.Topology = withoutCPUs(s.Topology, foreignCPUs.Union(outside))
	remaining := float64(online.Difference(foreignCPUs).Difference(outside).Size()) * 1000
	s.Capacity = subtractCPU(s.Capacity, float64(foreignCPUs.Size())*1000, remaining)
	s.Allocatable = subtractCPU(s.Allocatable, float64(foreignCPUs.Size())*1000, remaining)
	clearPods(&s, func(cgroup string) bool {
		return cgroup != "" && (slices.ContainsFunc(foreign, func(p tick.Partition) bool { return p.Contains(cgroup) }) ||
			slices.ContainsFunc(common, func(p tick.Partition) bool { return !p.Contains(cgroup) }))
	})
	restricted := *t
	restricted.Sample = &s
	return &restricted, func(a *tick.Advice) {
		a.Cgroups, a.Fallback = dropCPULists(a.Cgroups, foreign), dropCPULists(a.Fallback, foreign)
		for _, p := range foreign {
			a.Reasons = append(a.Reasons, fmt.Sprintf("CPUs %s are in no pool: they belong to the CPU partition %s", Quote(p.CPUs), Quote(p.Cgroup)))
		}
		if !outside.IsEmpty() {
			a.Reasons = append(a.Reasons, fmt.Sprintf("CPUs %s are in no pool: the pods are in a CPU partition without them", outside))
		}
	}
}

// clearPods makes the pods that run on other CPUs need no CPU. Their known use is not use of the remaining CPUs either.
func clearPods(s *tick.Sample, isElsewhere func(cgroup string) bool) {
	used, cloned := 0.0, false
	for i := range s.Pods {
		if !isElsewhere(s.Pods[i].Cgroup) {
			continue
		}
		if !cloned {
			s.Pods, cloned = slices.Clone(s.Pods), true
		}
		p := &s.Pods[i]
		used += Amount(p.UsageMilliCPU)
		clearCPUNeed(p)
	}
	if used > 0 && s.CPU != nil && s.CPU.UsageMilliCPU != nil {
		node := *s.CPU
		node.UsageMilliCPU = new(math.Max(0, *node.UsageMilliCPU-used))
		s.CPU = &node
	}
	if used > 0 { // which NUMA nodes they use is unknown
		s.NUMANodes = slices.Clone(s.NUMANodes)
		for i := range s.NUMANodes {
			s.NUMANodes[i].UsageMilliCPU = nil
		}
	}
}

// clearCPUNeed makes a pod need no CPU. A pod of class dedicated then asks for none.
func clearCPUNeed(p *tick.Pod) {
	withoutCPU := func(r *tick.Resources) *tick.Resources {
		out := tick.Resources{}
		if r != nil {
			out = *r
		}
		out.MilliCPU = new(0.0)
		return &out // its limits stay: they are written to cgroups
	}
	if p.QoS == tick.QoSDedicated {
		p.QoS = tick.QoSShared
	}
	p.UsageMilliCPU, p.Load1, p.Load5, p.Requests = new(0.0), new(0.0), new(0.0), withoutCPU(p.Requests)
	p.Containers = slices.Clone(p.Containers)
	for i := range p.Containers {
		c := &p.Containers[i]
		c.UsageMilliCPU, c.Load1, c.Load5, c.Requests = new(0.0), new(0.0), new(0.0), withoutCPU(c.Requests)
	}
}

// withoutCPUs returns a topology without some of its CPUs.
func withoutCPUs(t *tick.Topology, removed cpus.Set) *tick.Topology {
	if removed.IsEmpty() {
		return t
	}
	reduce := func(list string) string {
		set, err := cpus.Parse(list)
		if err != nil {
			return list // the policy reports the invalid list
		}
		return set.Difference(removed).String()
	}
	reduceAll := func(lists []string) (out []string) {
		for _, list := range lists {
			if reduced := reduce(list); reduced != "" {
				out = append(out, reduced)
			}
		}
		return out
	}
	out := &tick.Topology{
		CPUs: reduce(t.CPUs), Cores: reduceAll(t.Cores), Sockets: reduceAll(t.Sockets), L3: reduceAll(t.L3), NUMANodes: slices.Clone(t.NUMANodes),
	}
	for i := range out.NUMANodes {
		out.NUMANodes[i].CPUs = reduce(out.NUMANodes[i].CPUs)
	}
	return out
}

// subtractCPU subtracts removed CPU from a node's resources; the result is at most bound, the CPU that remains.
func subtractCPU(r *tick.Resources, removed, bound float64) *tick.Resources {
	if r == nil || r.MilliCPU == nil {
		return r
	}
	out := *r
	out.MilliCPU = new(math.Max(0, math.Min(*r.MilliCPU-removed, bound)))
	return &out
}

// dropCPULists drops the CPU lists of cgroups in other partitions.
func dropCPULists(cgroups []tick.Cgroup, foreign []tick.Partition) []tick.Cgroup {
	isForeign := func(c *tick.Cgroup) bool {
		return (c.CPUSetCPUs != "" || c.CPUSetMems != "") && slices.ContainsFunc(foreign, func(p tick.Partition) bool {
			return p.Contains(c.Cgroup)
		})
	}
	cloned := false
	for i := range cgroups {
		if !isForeign(&cgroups[i]) {
			continue
		}
		if !cloned { // the policy may keep a reference to the advice
			cgroups, cloned = slices.Clone(cgroups), true
		}
		cgroups[i].CPUSetCPUs, cgroups[i].CPUSetMems = "", ""
	}
	return cgroups
}
