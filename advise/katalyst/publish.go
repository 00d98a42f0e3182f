package katalyst

import (
	"fmt"
	"math"
	"slices"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/customconfig"
	"polder/lib/tick"
)

// offered returns the reclaimed CPU: the pool's, and at most what the Node object's allocatable leaves beside the other pods.
func offered(in inputs, pool cpus.Set) (milliCPU int64, reason string) {
	milliCPU = int64(pool.Size()) * 1000
	taken := int64(in.shape.online.Size()-in.shape.Reserved.Size())*1000 - milliCPU
	if allowed := max(in.milliCPU-taken, 0); allowed < milliCPU {
		return allowed, fmt.Sprintf("reclaimed CPU is %dm, not the pool's %dm: the node's allocatable is %dm", allowed, milliCPU, in.milliCPU)
	}
	return milliCPU, ""
}

// reclaimedMemory returns the reclaimed memory: the total less the reserve and the other pods' memory. It is nil if the total is unknown.
func reclaimedMemory(in inputs, held float64) (bytes *int64, reason string) {
	if in.bytes <= 0 {
		return nil, "memory: the machine's total is not known: no memory is offered"
	}
	left := int64(0)
	if !math.IsNaN(in.bytes) {
		left = int64(max(0, policy.Bounded(in.bytes)-float64(in.reserveMemoryBytes)-held))
	}
	if left == 0 {
		reason = fmt.Sprintf("memory: %d bytes are no more than the reserve of %d (%s) and the shared containers' %.0f: none is offered",
			int64(in.bytes), in.reserveMemoryBytes, in.reserveMemoryFrom, held)
	}
	return &left, reason
}

// publish adjusts the offer to what the tick's configuration demands of the reported values, and divides it over the NUMA nodes: CPU by
// weights, which are the pool's CPUs there, memory by the free memory there.
func publish(in inputs, c tick.Reclaimed, weights []uint64, owned cpus.Set) (_ tick.Reclaimed, reasons []string) {
	milliCPU := *c.MilliCPU
	if in.off {
		reasons = append(reasons, fmt.Sprintf("nothing is reclaimed (%s): the reclaimed pods run at their floor", in.from(customconfig.FieldEnable)))
		zero(&milliCPU, c.MemoryBytes)
	} else {
		least := in.least.MilliCPU
		if milliCPU == 0 {
			least = nil // no pod could use it
		}
		reasons = append(reasons, adjust(in, "CPU", "m", &milliCPU, in.withheld.MilliCPU, least, in.milliCPU)...)
		reasons = append(reasons, adjust(in, "memory", " bytes", c.MemoryBytes, in.withheld.Bytes, in.least.Bytes, int64(in.bytes))...)
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
	reasons = append(appendText(reasons, why), neglect(in, &c)...)
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
func adjust(in inputs, what, unit string, offer, withheld, least *int64, all int64) (reasons []string) {
	if offer == nil {
		return nil
	}
	if withheld != nil && *withheld > 0 {
		reasons = append(reasons, fmt.Sprintf("reclaimed %s: %d%s are withheld (%s)", what, *withheld, unit, in.from(customconfig.FieldWithhold)))
		*offer = max(*offer-*withheld, 0)
	}
	if least != nil && *offer < min(*least, all) {
		reasons = append(reasons, fmt.Sprintf("reclaimed %s: %d%s are raised to %d%s (%s)", what, *offer, unit, min(*least, all), unit, in.from(customconfig.FieldLeast)))
		*offer = min(*least, all)
	}
	return reasons
}

// neglect offers nothing if the amount is negligible: of a NUMA node, and of the machine.
func neglect(in inputs, c *tick.Reclaimed) (reasons []string) {
	if in.negligible.MilliCPU == nil && in.negligible.Bytes == nil {
		return nil
	}
	few := func(milliCPU, bytes *int64) bool {
		return in.negligible.MilliCPU != nil && milliCPU != nil && *milliCPU <= *in.negligible.MilliCPU ||
			in.negligible.Bytes != nil && bytes != nil && *bytes <= *in.negligible.Bytes
	}
	for i := range c.NUMANodes {
		part := &c.NUMANodes[i]
		if !few(part.MilliCPU, part.MemoryBytes) || *part.MilliCPU == 0 && (part.MemoryBytes == nil || *part.MemoryBytes == 0) {
			continue
		}
		reasons = append(reasons, fmt.Sprintf("NUMA node %d: what is reclaimed there is negligible and not offered (%s)", part.ID, in.from(customconfig.FieldNegligible)))
		*c.MilliCPU -= *part.MilliCPU
		if part.MemoryBytes != nil {
			*c.MemoryBytes -= *part.MemoryBytes
		}
		zero(part.MilliCPU, part.MemoryBytes)
	}
	if few(c.MilliCPU, c.MemoryBytes) && (*c.MilliCPU > 0 || c.MemoryBytes != nil && *c.MemoryBytes > 0) {
		reasons = append(reasons, fmt.Sprintf("what is reclaimed is negligible and not offered (%s)", in.from(customconfig.FieldNegligible)))
		zero(c.MilliCPU, c.MemoryBytes)
		for i := range c.NUMANodes {
			zero(c.NUMANodes[i].MilliCPU, c.NUMANodes[i].MemoryBytes)
		}
	}
	return reasons
}

// splitMemory divides the reclaimed memory over the NUMA nodes in proportion to their free memory, including nodes without CPUs. Nodes that
// a dedicated pod uses alone get none. If a node's free memory is unknown nothing is divided.
func splitMemory(in inputs, c tick.Reclaimed, owned cpus.Set) (nodes []tick.ReclaimedNUMA, reason string) {
	nodes = c.NUMANodes
	if c.MemoryBytes == nil || len(in.sample.NUMANodes) == 0 {
		return nodes, ""
	}
	free := make(map[int]uint64, len(in.sample.NUMANodes))
	for _, numa := range in.sample.NUMANodes {
		if numa.Memory == nil || numa.Memory.FreeBytes == nil {
			continue
		}
		free[numa.ID] = uint64(max(policy.Bounded(*numa.Memory.FreeBytes), 0))
		if owned.Contains(numa.ID) {
			free[numa.ID] = 0
		}
	}
	sum := uint64(0)
	for _, node := range in.shape.From.NUMANodes { // nodes without CPUs
		if bytes, known := free[node.ID]; known && bytes > 0 && !slices.Contains(in.shape.NUMA, node.ID) {
			nodes = append(nodes, tick.ReclaimedNUMA{ID: node.ID, MilliCPU: new(int64(0))})
		}
	}
	weights := make([]uint64, len(nodes))
	for i := range nodes {
		bytes, known := free[nodes[i].ID]
		if !known {
			return nodes, fmt.Sprintf("memory is not divided over the NUMA nodes: what is free on node %d is not known", nodes[i].ID)
		}
		weights[i] = bytes
		sum += bytes
	}
	if sum == 0 {
		return nodes, ""
	}
	for i, part := range policy.Split(*c.MemoryBytes, weights) {
		nodes[i].MemoryBytes = &part
	}
	return nodes, ""
}

// perNUMA returns the number of CPUs of each NUMA node.
func (s *shape) perNUMA() []uint64 {
	list := make([]uint64, len(s.NUMA))
	for i, id := range s.NUMA {
		list[i] = uint64(s.nodes[id].Size())
	}
	return list
}
