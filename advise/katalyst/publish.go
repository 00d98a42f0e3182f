package katalyst

import (
	"fmt"
	"slices"

	"polder/advise/policy"
	"polder/lib/tick"
)

// offer sets what is reclaimed: the pool, and not more than the node object allows once the others have theirs.
func (n *node) offer(a *tick.Advice, s *tick.Sample, l *layout) {
	milliCPU := int64(l.reclaim.Size()) * 1000
	taken := int64(n.shape.online.Size()-n.shape.system.Size())*1000 - milliCPU
	if allowed := max(n.milliCPU(s)-taken, 0); allowed < milliCPU {
		a.Reasons = append(a.Reasons, fmt.Sprintf("reclaimed CPU is %dm, not the pool's %dm: the node's allocatable is %dm", allowed, milliCPU, n.milliCPU(s)))
		milliCPU = allowed
	}
	a.Reclaimed.MilliCPU = &milliCPU
}

// memory sets what memory is reclaimed.
func (n *node) memory(a *tick.Advice, totalBytes float64, r resolved, e estimate) {
	if totalBytes <= 0 {
		a.Reasons = append(a.Reasons, "memory: the machine's total is not known: no memory is offered")
		return
	}
	bytes := reclaimedMemory(totalBytes, r.reserveMemoryBytes, e)
	a.Reclaimed.MemoryBytes = &bytes
	if bytes == 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf("memory: %d bytes are no more than the reserve of %d (%s) and the shared containers' %.0f: none is offered",
			int64(totalBytes), r.reserveMemoryBytes, r.reserveMemoryFrom, e.memoryBytes))
	}
}

// publish brings what is offered to what the tick's configuration wants of the reported values, and divides it over the
// NUMA nodes: CPU by weights, which are the pool's CPUs there, memory by what is free there.
func (n *node) publish(a *tick.Advice, s *tick.Sample, r resolved, machineBytes float64, weights []uint64) {
	c := a.Reclaimed
	if r.off {
		a.Reasons = append(a.Reasons, fmt.Sprintf("nothing is reclaimed (%s): the reclaimed pods run at their floor", r.from(fieldEnable)))
		zero(c.MilliCPU, c.MemoryBytes)
	} else {
		least := r.least.milliCPU
		if *c.MilliCPU == 0 {
			least = nil // nobody could have it
		}
		n.adjust(a, "CPU", "m", c.MilliCPU, r.withheld.milliCPU, least, n.milliCPU(s), r)
		n.adjust(a, "memory", " bytes", c.MemoryBytes, r.withheld.bytes, r.least.bytes, int64(machineBytes), r)
	}
	if slices.Max(append(weights, 0)) == 0 {
		weights = n.shape.perNUMA()
	}
	if len(weights) == 0 {
		return
	}
	c.NUMANodes = make([]tick.ReclaimedNUMA, len(n.shape.NUMA), len(n.shape.NUMA)+1)
	for i, part := range policy.Split(*c.MilliCPU, weights) {
		c.NUMANodes[i] = tick.ReclaimedNUMA{ID: n.shape.NUMA[i], MilliCPU: &part}
	}
	n.splitMemory(a, s)
	n.neglect(a, r)
}

func zero(amounts ...*int64) {
	for _, amount := range amounts {
		if amount != nil {
			*amount = 0
		}
	}
}

// adjust takes from an offer what is withheld, and raises it to the least that is to be reported, up to what there is.
func (n *node) adjust(a *tick.Advice, what, unit string, offer, withheld, least *int64, all int64, r resolved) {
	if offer == nil {
		return
	}
	if withheld != nil && *withheld > 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf("reclaimed %s: %d%s are withheld (%s)", what, *withheld, unit, r.from(fieldWithhold)))
		*offer = max(*offer-*withheld, 0)
	}
	if least != nil && *offer < min(*least, all) {
		a.Reasons = append(a.Reasons, fmt.Sprintf("reclaimed %s: %d%s are raised to %d%s (%s)", what, *offer, unit, min(*least, all), unit, r.from(fieldLeast)))
		*offer = min(*least, all)
	}
}

// neglect offers nothing where it would not be worth it: of a NUMA node, and of the machine.
func (n *node) neglect(a *tick.Advice, r resolved) {
	if r.negligible.milliCPU == nil && r.negligible.bytes == nil {
		return
	}
	c := a.Reclaimed
	few := func(milliCPU, bytes *int64) bool {
		return r.negligible.milliCPU != nil && milliCPU != nil && *milliCPU <= *r.negligible.milliCPU ||
			r.negligible.bytes != nil && bytes != nil && *bytes <= *r.negligible.bytes
	}
	for i := range c.NUMANodes {
		part := &c.NUMANodes[i]
		if !few(part.MilliCPU, part.MemoryBytes) || *part.MilliCPU == 0 && (part.MemoryBytes == nil || *part.MemoryBytes == 0) {
			continue
		}
		a.Reasons = append(a.Reasons, fmt.Sprintf("NUMA node %d: what is reclaimed there is negligible and not offered (%s)", part.ID, r.from(fieldNegligible)))
		*c.MilliCPU -= *part.MilliCPU
		if part.MemoryBytes != nil {
			*c.MemoryBytes -= *part.MemoryBytes
		}
		zero(part.MilliCPU, part.MemoryBytes)
	}
	if few(c.MilliCPU, c.MemoryBytes) && (*c.MilliCPU > 0 || c.MemoryBytes != nil && *c.MemoryBytes > 0) {
		a.Reasons = append(a.Reasons, fmt.Sprintf("what is reclaimed is negligible and not offered (%s)", r.from(fieldNegligible)))
		zero(c.MilliCPU, c.MemoryBytes)
		for i := range c.NUMANodes {
			zero(c.NUMANodes[i].MilliCPU, c.NUMANodes[i].MemoryBytes)
		}
	}
}

// splitMemory divides the reclaimed memory over the NUMA nodes in proportion to what is free there, also over nodes of
// memory alone. Nodes that a dedicated pod has alone get none. Where a node's free memory is not known nothing is divided.
func (n *node) splitMemory(a *tick.Advice, s *tick.Sample) {
	c := a.Reclaimed
	if c.MemoryBytes == nil || len(s.NUMANodes) == 0 {
		return
	}
	free := make(map[int]uint64, len(s.NUMANodes))
	for _, numa := range s.NUMANodes {
		if numa.Memory == nil || numa.Memory.FreeBytes == nil {
			continue
		}
		free[numa.ID] = uint64(max(policy.Bounded(*numa.Memory.FreeBytes), 0))
		if n.owned.Contains(numa.ID) {
			free[numa.ID] = 0
		}
	}
	sum := uint64(0)
	for _, node := range n.shape.from.NUMANodes { // nodes of memory alone
		if bytes, known := free[node.ID]; known && bytes > 0 && !slices.Contains(n.shape.NUMA, node.ID) {
			c.NUMANodes = append(c.NUMANodes, tick.ReclaimedNUMA{ID: node.ID, MilliCPU: new(int64(0))})
		}
	}
	weights := make([]uint64, len(c.NUMANodes))
	for i := range c.NUMANodes {
		bytes, known := free[c.NUMANodes[i].ID]
		if !known {
			a.Reasons = append(a.Reasons, fmt.Sprintf("memory is not divided over the NUMA nodes: what is free on node %d is not known", c.NUMANodes[i].ID))
			return
		}
		weights[i] = bytes
		sum += bytes
	}
	if sum == 0 {
		return
	}
	for i, part := range policy.Split(*c.MemoryBytes, weights) {
		c.NUMANodes[i].MemoryBytes = &part
	}
}

// perNUMA is the number of each NUMA node's CPUs.
func (s *shape) perNUMA() []uint64 {
	list := make([]uint64, len(s.NUMA))
	for i, id := range s.NUMA {
		list[i] = uint64(s.nodes[id].Size())
	}
	return list
}
