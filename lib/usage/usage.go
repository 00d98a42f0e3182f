// Package usage defines a node's capacity and the part of it that services leave, once for all that counts them. It is pure.
package usage

import (
	"polder/lib/cpus"
	"polder/lib/tick"
)

// MaxMilliCPU is the largest amount of CPU that is a measurement, a billion cores. Beside a larger one, nothing else in a sum is visible.
const MaxMilliCPU = 1e12

// Capacity returns a node's CPU time in milli-CPU: all of its online CPUs, or, without a topology, the capacity that the cluster has, or
// else the allocatable part of that. It is nil if none of them is known.
func Capacity(s *tick.Sample) *float64 {
	if s == nil {
		return nil
	}
	if s.Topology != nil {
		if set, err := cpus.Parse(s.Topology.CPUs); err == nil && set.Size() > 0 {
			return new(float64(set.Size()) * 1000)
		}
	}
	for _, r := range []*tick.Resources{s.Capacity, s.Allocatable} {
		if r != nil && r.MilliCPU != nil && *r.MilliCPU > 0 {
			return new(*r.MilliCPU)
		}
	}
	return nil
}

// Taken returns the CPU time that nothing else can have, in one unit: what the node uses, and what the hypervisor took from CPUs that had
// something to run. It is nil if the use is unknown; an unknown steal time counts as none, because recordings without one exist.
func Taken(use, steal *float64) *float64 {
	if use == nil || steal == nil {
		return use
	}
	return new(*use + max(0, *steal))
}

// Free returns the part of a capacity that batch used or nothing used, from what is [Taken] and what the batch pods use, all in one unit.
// The two are read one after the other, so that the pods' use may slightly exceed the node's.
func Free(capacity, taken, batch float64) float64 {
	return max(batch, capacity-max(0, taken-batch))
}
