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
// none of these CPUs. The returned function finishes the advice: it removes such a pod's values, and adds a reason with the CPUs.
func WithoutPartitions(t *tick.Tick) (*tick.Tick, func(*tick.Advice)) {
	if t.Sample == nil || t.Sample.Topology == nil || len(t.Sample.Partitions) == 0 {
		return t, func(*tick.Advice) {}
	}
	var foreign []tick.Partition
	var taken, elsewhere cpus.Set // in foreign partitions; outside of the partition that all pods are in
	online, _ := cpus.Parse(t.Sample.Topology.CPUs)
	for _, p := range t.Sample.Partitions {
		set, err := cpus.Parse(p.CPUs)
		switch {
		case err != nil:
			continue
		case p.IsHome(t.Sample.Pods):
			elsewhere = elsewhere.Union(online.Difference(set))
		default:
			foreign, taken = append(foreign, p), taken.Union(set.Intersection(online))
		}
	}
	s := *t.Sample
	s.Topology = cut(s.Topology, taken.Union(elsewhere))
	left := float64(online.Difference(taken).Difference(elsewhere).Size()) * 1000
	s.Capacity = lessCPU(s.Capacity, float64(taken.Size())*1000, left)
	s.Allocatable = lessCPU(s.Allocatable, float64(taken.Size())*1000, left)
	withoutOwnCPUs(&s, foreign)
	own := *t
	own.Sample = &s
	return &own, func(a *tick.Advice) {
		a.Cgroups, a.Fallback = leaveAlone(a.Cgroups, foreign), leaveAlone(a.Fallback, foreign)
		for _, p := range foreign {
			a.Reasons = append(a.Reasons, fmt.Sprintf("CPUs %s are in no pool: they are of the CPU partition %s", Quote(p.CPUs), Quote(p.Cgroup)))
		}
		if !elsewhere.IsEmpty() {
			a.Reasons = append(a.Reasons, fmt.Sprintf("CPUs %s are in no pool: the pods are in a CPU partition without them", elsewhere))
		}
	}
}

// withoutOwnCPUs makes the pods in other partitions need no CPU, because they have CPUs of their own. Their known use is not use of the
// node's other CPUs either.
func withoutOwnCPUs(s *tick.Sample, foreign []tick.Partition) {
	used, cloned := 0.0, false
	for i := range s.Pods {
		if !slices.ContainsFunc(foreign, func(p tick.Partition) bool { return p.Holds(s.Pods[i].Cgroup) }) {
			continue
		}
		if !cloned {
			s.Pods, cloned = slices.Clone(s.Pods), true
		}
		p := &s.Pods[i]
		used += Amount(p.UsageMilliCPU)
		needNoCPU(p)
	}
	if used > 0 && s.CPU != nil && s.CPU.UsageMilliCPU != nil {
		node := *s.CPU
		node.UsageMilliCPU = new(math.Max(0, *node.UsageMilliCPU-used))
		s.CPU = &node
	}
}

// needNoCPU makes a pod need no CPU. A pod of class dedicated then asks for none.
func needNoCPU(p *tick.Pod) {
	none := func(r *tick.Resources) *tick.Resources {
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
	p.UsageMilliCPU, p.Load1, p.Load5, p.Requests = new(0.0), new(0.0), new(0.0), none(p.Requests)
	p.Containers = slices.Clone(p.Containers)
	for i := range p.Containers {
		c := &p.Containers[i]
		c.UsageMilliCPU, c.Load1, c.Load5, c.Requests = new(0.0), new(0.0), new(0.0), none(c.Requests)
	}
}

// cut returns a topology without some of its CPUs.
func cut(t *tick.Topology, without cpus.Set) *tick.Topology {
	if without.IsEmpty() {
		return t
	}
	one := func(list string) string {
		set, err := cpus.Parse(list)
		if err != nil {
			return list // the policy reports the invalid list
		}
		return set.Difference(without).String()
	}
	many := func(lists []string) (out []string) {
		for _, list := range lists {
			if left := one(list); left != "" {
				out = append(out, left)
			}
		}
		return out
	}
	out := &tick.Topology{
		CPUs: one(t.CPUs), Cores: many(t.Cores), Sockets: many(t.Sockets), L3: many(t.L3), NUMANodes: slices.Clone(t.NUMANodes),
	}
	for i := range out.NUMANodes {
		out.NUMANodes[i].CPUs = one(out.NUMANodes[i].CPUs)
	}
	return out
}

// lessCPU subtracts CPU from a node's resources, and bounds the result by the CPUs that are left.
func lessCPU(r *tick.Resources, taken, left float64) *tick.Resources {
	if r == nil || r.MilliCPU == nil {
		return r
	}
	out := *r
	out.MilliCPU = new(math.Max(0, math.Min(*r.MilliCPU-taken, left)))
	return &out
}

// leaveAlone drops the CPU lists of cgroups in other partitions.
func leaveAlone(cgroups []tick.Cgroup, foreign []tick.Partition) []tick.Cgroup {
	inside := func(c *tick.Cgroup) bool {
		return (c.CPUSetCPUs != "" || c.CPUSetMems != "") && slices.ContainsFunc(foreign, func(p tick.Partition) bool {
			return p.Holds(c.Cgroup)
		})
	}
	cloned := false
	for i := range cgroups {
		if !inside(&cgroups[i]) {
			continue
		}
		if !cloned { // the policy may keep a reference to the advice
			cgroups, cloned = slices.Clone(cgroups), true
		}
		cgroups[i].CPUSetCPUs, cgroups[i].CPUSetMems = "", ""
	}
	return cgroups
}
