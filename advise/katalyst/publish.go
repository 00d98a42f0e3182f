package katalyst

import (
	"fmt"
	"math"
	"slices"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/customconfig"
	"polder/lib/reason"
	"polder/lib/tick"
)

// offeredMilliCPU returns the reclaimed CPU: the pool's, and at most what the Node object's allocatable leaves beside the other pods.
func offeredMilliCPU(in inputs, pool cpus.Set) (milliCPU int64, reason string) {
	milliCPU = int64(pool.Size()) * 1000
	taken := int64(in.shape.online.Size()-in.shape.Reserved.Size())*1000 - milliCPU
	if allowed := max(in.milliCPU-taken, 0); allowed < milliCPU {
		return allowed, fmt.Sprintf("reclaimed CPU is %dm, not the pool's %dm: the node's allocatable is %dm", allowed, milliCPU, in.milliCPU)
	}
	return milliCPU, ""
}

// reclaimedMemory returns the reclaimed memory: the total less the reserve and the other pods' memory, and at most what the Node object's
// allocatable leaves beside that. It is nil if the total is unknown.
func reclaimedMemory(in inputs, need float64, sys system) (bytes *int64, reason string) {
	if in.memoryBytes <= 0 {
		return nil, "memory: the machine's total is unknown: no memory is offered"
	}
	used, remaining := policy.Bounded(need+sys.memoryBytes), int64(0)
	if !math.IsNaN(in.memoryBytes) {
		remaining = int64(max(0, policy.Bounded(in.memoryBytes)-float64(in.reserveMemoryBytes)-used))
	}
	if remaining == 0 {
		reason = fmt.Sprintf("memory: %d bytes are no more than the reserve of %d (%s) and the shared containers' %.0f: none is offered",
			int64(in.memoryBytes), in.reserveMemoryBytes, in.reserveMemoryFrom, used)
	}
	allocatable := max(policy.Bounded(in.memoryBytes)-in.reservedBytes, 0)
	if allowed := int64(max(allocatable-policy.Bounded(need+sys.allocatableBytes), 0)); allowed < remaining {
		const text = "reclaimed memory is %d bytes, not %d: the node's allocatable is %.0f bytes"
		return &allowed, fmt.Sprintf(text, allowed, remaining, allocatable)
	}
	return &remaining, reason
}

// publish adjusts the offer to what the tick's configuration demands of the reported values, and divides it over the NUMA nodes: CPU by
// weights, which are the pool's CPUs there, memory as [splitMemory] does.
func publish(in inputs, c tick.Reclaimed, weights []uint64, owned cpus.Set) (_ tick.Reclaimed, reasons []string) {
	milliCPU := *c.MilliCPU
	if in.isOff {
		reasons = append(reasons, fmt.Sprintf("nothing is reclaimed (%s): the reclaimed pods run at their floor", in.source(customconfig.FieldEnable)))
		zero(&milliCPU, c.MemoryBytes)
	} else {
		minimum := in.minimum.MilliCPU
		if milliCPU == 0 {
			minimum = nil // no pod could use it
		}
		reasons = append(reasons, adjust(in, "CPU", "m", &milliCPU, in.withheld.MilliCPU, minimum, in.milliCPU)...)
		reasons = append(reasons, adjust(in, "memory", " bytes", c.MemoryBytes, in.withheld.Bytes, in.minimum.Bytes, int64(in.memoryBytes))...)
	}
	c.MilliCPU = &milliCPU
	if slices.Max(append(weights, 0)) == 0 {
		weights = in.shape.perNUMA()
	}
	if len(weights) == 0 {
		return c, reasons
	}
	c.NUMANodes = make([]tick.ReclaimedNUMA, len(in.shape.NUMA), len(in.shape.NUMA)+1)
	for i, part := range policy.Split(milliCPU, weights) {
		c.NUMANodes[i] = tick.ReclaimedNUMA{ID: in.shape.NUMA[i], MilliCPU: &part}
	}
	nodes, why := splitMemory(in, c, owned)
	c.NUMANodes = nodes
	reasons = append(appendText(reasons, why), dropNegligible(in, &c)...)
	return c, reasons
}

func zero(amounts ...*int64) {
	for _, amount := range amounts {
		if amount != nil {
			*amount = 0
		}
	}
}

// adjust subtracts the withheld amount from an offer, and raises it to the minimum that is to be reported, up to the total.
func adjust(in inputs, resource, unit string, offer, withheld, minimum *int64, all int64) (reasons []string) {
	if offer == nil {
		return nil
	}
	if withheld != nil && *withheld > 0 {
		reasons = append(reasons, fmt.Sprintf("reclaimed %s: %d%s are withheld (%s)", resource, *withheld, unit, in.source(customconfig.FieldWithhold)))
		*offer = max(*offer-*withheld, 0)
	}
	if minimum != nil && *offer < min(*minimum, all) {
		reasons = append(reasons, fmt.Sprintf("reclaimed %s: %d%s are raised to %d%s (%s)", resource, *offer, unit, min(*minimum, all), unit, in.source(customconfig.FieldMinimum)))
		*offer = min(*minimum, all)
	}
	return reasons
}

// dropNegligible offers nothing if the amount is negligible: of a NUMA node, and of the machine.
func dropNegligible(in inputs, c *tick.Reclaimed) (reasons []string) {
	if in.negligible.MilliCPU == nil && in.negligible.Bytes == nil {
		return nil
	}
	isNegligible := func(milliCPU, bytes *int64) bool {
		return in.negligible.MilliCPU != nil && milliCPU != nil && *milliCPU <= *in.negligible.MilliCPU ||
			in.negligible.Bytes != nil && bytes != nil && *bytes <= *in.negligible.Bytes
	}
	for i := range c.NUMANodes {
		part := &c.NUMANodes[i]
		if !isNegligible(part.MilliCPU, part.MemoryBytes) || *part.MilliCPU == 0 && (part.MemoryBytes == nil || *part.MemoryBytes == 0) {
			continue
		}
		reasons = append(reasons, fmt.Sprintf("NUMA node %d: "+reason.Negligible+" (%s)", part.ID, in.source(customconfig.FieldIgnoreBelow)))
		*c.MilliCPU -= *part.MilliCPU
		if part.MemoryBytes != nil {
			*c.MemoryBytes -= *part.MemoryBytes
		}
		zero(part.MilliCPU, part.MemoryBytes)
	}
	if isNegligible(c.MilliCPU, c.MemoryBytes) && (*c.MilliCPU > 0 || c.MemoryBytes != nil && *c.MemoryBytes > 0) {
		reasons = append(reasons, fmt.Sprintf(reason.Negligible+" (%s)", in.source(customconfig.FieldIgnoreBelow)))
		zero(c.MilliCPU, c.MemoryBytes)
		for i := range c.NUMANodes {
			zero(c.NUMANodes[i].MilliCPU, c.NUMANodes[i].MemoryBytes)
		}
	}
	return reasons
}

// splitMemory divides the reclaimed memory over the NUMA nodes in proportion to what reclaimed pods may use there, including nodes without
// CPUs: the free memory, and what they use already, so that a pod that uses what was offered does not lower the offer on its node. No part
// is more than the node's memory: the page cache may fill one node and not the other. Nodes that a dedicated pod uses alone get none. If a
// node's free memory is unknown nothing is divided.
func splitMemory(in inputs, c tick.Reclaimed, owned cpus.Set) (nodes []tick.ReclaimedNUMA, reason string) {
	nodes = c.NUMANodes
	if c.MemoryBytes == nil || len(in.sample.NUMANodes) == 0 {
		return nodes, ""
	}
	usable := make(map[int]float64, len(in.sample.NUMANodes))
	total := make(map[int]float64, len(in.sample.NUMANodes))
	for _, numa := range in.sample.NUMANodes {
		if numa.Memory == nil || numa.Memory.FreeBytes == nil {
			continue
		}
		if owned.Contains(numa.ID) {
			usable[numa.ID], total[numa.ID] = 0, 0
			continue
		}
		usable[numa.ID] = policy.Amount(numa.Memory.FreeBytes)
		if numa.Memory.TotalBytes != nil {
			total[numa.ID] = policy.Amount(numa.Memory.TotalBytes)
		}
	}
	addReclaimedUse(in.sample, owned, usable)
	for _, node := range in.shape.Source.NUMANodes { // nodes without CPUs
		if bytes, isKnown := usable[node.ID]; isKnown && bytes >= 1 && !slices.Contains(in.shape.NUMA, node.ID) {
			nodes = append(nodes, tick.ReclaimedNUMA{ID: node.ID, MilliCPU: new(int64(0))})
		}
	}
	weights, limits := make([]uint64, len(nodes)), make([]int64, 0, len(nodes))
	for i := range nodes {
		bytes, isKnown := usable[nodes[i].ID]
		if !isKnown {
			return nodes, fmt.Sprintf("memory is not divided over the NUMA nodes: the free memory of node %d is unknown", nodes[i].ID)
		}
		if limit, isKnown := total[nodes[i].ID]; isKnown {
			bytes = min(bytes, limit)
			limits = append(limits, int64(limit))
		}
		weights[i] = uint64(bytes)
	}
	if slices.Max(append(weights, 0)) == 0 {
		return nodes, ""
	}
	parts := policy.Split(*c.MemoryBytes, weights)
	if len(limits) == len(parts) {
		moveExcess(parts, limits)
	}
	for i := range parts {
		nodes[i].MemoryBytes = &parts[i]
	}
	return nodes, ""
}

// addReclaimedUse adds the memory that reclaimed pods use on each NUMA node of bytes, as far as it is known.
func addReclaimedUse(s *tick.Sample, owned cpus.Set, bytes map[int]float64) {
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.QoS != tick.QoSReclaimed || p.Ended() {
			continue
		}
		for j := range p.Containers {
			for _, numa := range p.Containers[j].NUMAMemory {
				if previous, isKnown := bytes[numa.ID]; isKnown && !owned.Contains(numa.ID) {
					bytes[numa.ID] = policy.Bounded(previous + policy.Amount(&numa.Bytes))
				}
			}
		}
	}
}

// moveExcess reduces each part to its limit, and adds the excess to the others in proportion to what these lack of theirs. If all limits
// together are too small, the parts stay.
func moveExcess(parts, limits []int64) {
	excess, room := int64(0), uint64(0)
	rooms := make([]uint64, len(parts))
	for i, part := range parts {
		if part > limits[i] {
			excess += part - limits[i]
		} else {
			rooms[i] = uint64(limits[i] - part)
			room += rooms[i]
		}
	}
	if excess == 0 || room < uint64(excess) {
		return
	}
	for i, extra := range policy.Split(excess, rooms) {
		parts[i] = min(parts[i], limits[i]) + extra
	}
}

// perNUMA returns the number of CPUs of each NUMA node.
func (s *shape) perNUMA() []uint64 {
	list := make([]uint64, len(s.NUMA))
	for i, id := range s.NUMA {
		list[i] = uint64(s.nodes[id].Size())
	}
	return list
}
