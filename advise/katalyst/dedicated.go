package katalyst

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// claim is the request of a dedicated pod (by namespace/name) for CPUs.
type claim struct {
	key                string
	cpus               int
	binding, exclusive bool
}

// dedicate gives each dedicated pod whole cores for its CPU request, close to one NUMA node, or all cores of as few nodes as it needs. A
// pod keeps its CPUs; new ones come from the reclaimed pool before the shared one, of which one core and the floor stay. CPUs beyond the
// request, which is all that a scheduler has counted, are not taken from services. dedicate replaces the dedicated pods' part of the last
// division d, and marks the members.
func dedicate(in inputs, members []member, d *divided) (assigned map[string]cpuSet, reasons []string) {
	claims, reasons := claimsOf(members)
	avail := in.shape.avail.Set
	assigned = make(map[string]cpuSet, len(claims))
	serviceCPUs := 0
	if len(claims) > 0 {
		serviceCPUs = neededCPUs(in, members) + in.floorCPUs()
	}
	for _, c := range claims { // pods that keep their CPUs first, so that no new pod takes those
		kept, ok := c.keptCPUs(in.shape, d.Dedicated[c.key], avail)
		if ok = ok && avail.Size()-kept.Size() >= in.shape.LargestCore(); ok && !(c.exclusive && avail.Size()-kept.Size() < serviceCPUs) {
			assigned[c.key] = kept
			avail = avail.Difference(kept.Set)
		}
	}
	var shared cpus.Set
	for i := range claims {
		c := &claims[i]
		if _, kept := assigned[c.key]; kept {
			continue
		}
		if shared.IsEmpty() {
			shared = d.sharedCPUs(in.shape)
		}
		previous := d.Dedicated[c.key]
		room := avail.Size() - in.floorCPUs() - in.shape.LargestCore()
		taken, lack, ok := c.takeCPUs(in.shape, previous, avail, shared, room, serviceCPUs)
		switch {
		case !ok || taken.Size() > room:
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s requests %d CPUs%s, %d are available: it stays in the shared pool", c.key, c.cpus, lack, max(room, 0)))
			continue
		case taken.Size() > c.cpus && avail.Size()-taken.Size() < serviceCPUs:
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s requests %d CPUs (%d in whole cores), and services need all but %d: it stays in the shared pool",
				c.key, c.cpus, taken.Size(), max(avail.Size()-serviceCPUs, 0)))
			continue
		case lack == withoutOwnNodes:
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s has %d CPUs%s: services need all but %d", c.key, taken.Size(), lack, max(avail.Size()-serviceCPUs, 0)))
		}
		if previous != "" && previous != taken.String() {
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s moves from CPUs %s to %s: it cannot keep them, or requests others", c.key,
				policy.Quote(previous), taken))
		}
		assigned[c.key] = newCPUSet(taken)
		avail = avail.Difference(taken)
	}
	d.Dedicated = make(map[string]string, len(assigned))
	for k, set := range assigned {
		d.Dedicated[k] = set.list
	}
	var bindReasons []string
	d.Bound, d.ownedNodes, bindReasons = bind(in, members, claims, assigned, *d)
	return assigned, append(reasons, bindReasons...)
}

// sharedCPUs returns all CPUs that the shared pools had.
func (d *divided) sharedCPUs(s *shape) cpus.Set {
	shared := s.parse(d.Share).Set
	for _, p := range d.Named {
		shared = shared.Union(s.parse(p.CPUs).Set)
	}
	return shared
}

// withoutOwnNodes describes the CPUs of a pod whose requested NUMA nodes services need.
const withoutOwnNodes = " and no NUMA nodes of its own"

// takeCPUs takes CPUs for a claim that cannot keep its CPUs, or had none, and returns what it lacks.
func (c *claim) takeCPUs(s *shape, previous string, avail, shared cpus.Set, room, serviceCPUs int) (taken cpus.Set, lack string, ok bool) {
	if c.exclusive {
		lack = " in NUMA nodes of its own"
		minimum := serviceCPUs
		previousCPUs := s.parse(previous)
		if !previousCPUs.IsEmpty() { // it lost them before: it gets them again only after the shared pool has been smaller for its hold-down
			minimum = max(serviceCPUs, shared.Size())
		}
		if taken, ok = s.wholeNodes(avail, c.cpus); !ok || taken.Size() > room || avail.Size()-taken.Size() >= minimum {
			return taken, lack, ok
		}
		c.exclusive, lack = false, withoutOwnNodes
		if relaxed := *c; !previousCPUs.IsEmpty() {
			if kept, isKept := relaxed.keptCPUs(s, previous, avail); isKept {
				return kept.Set, lack, true
			}
		}
	}
	taken, ok = s.TakeNear(avail, shared, c.cpus)
	return taken, lack, ok
}

// neededCPUs returns the CPUs that the shared pods need, with the reserve.
func neededCPUs(in inputs, members []member) int {
	var sum estimate
	var containers []workload
	for i := range members {
		m := &members[i]
		if m.class != tick.QoSShared {
			continue
		}
		containers = workloads(m.Pod, containers[:0])
		for j, w := range containers {
			w.countsRequest, w.isTerminating = m.isRampingUp, m.Terminating
			if !m.hasExclusive || !in.shape.isExclusive(&m.Containers[j]) {
				sum.addCPU(w, in.settings)
			}
		}
	}
	return int(ceilCPUs(min(float64(in.reserveMilliCPU)+sum.milliCPU, float64(in.shape.online.Size())*1000)))
}

// claimsOf returns the claims of the dedicated pods, except those that have CPUs from kubelet or no request. Claims of whole NUMA nodes
// come first, while such nodes are free.
func claimsOf(members []member) (claims []claim, reasons []string) {
	byKey := map[string]claim{}
	for i := range members {
		m := &members[i]
		switch {
		case m.class != tick.QoSDedicated || m.hasExclusive:
			continue
		case m.Requests == nil || m.Requests.MilliCPU == nil || !(*m.Requests.MilliCPU > 0):
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s has no CPU request: it stays in the shared pool", m.key))
			continue
		case *m.Requests.MilliCPU < 1000: // a label is free of charge: CPUs that were not requested are not taken from others
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s requests %.0fm, less than a CPU: it stays in the shared pool", m.key, *m.Requests.MilliCPU))
			continue
		}
		c := byKey[m.key]
		c.key = m.key
		c.cpus += int(ceilCPUs(policy.Bounded(*m.Requests.MilliCPU)))
		if m.enhancement != nil {
			c.binding, c.exclusive = c.binding || m.enhancement.binding, c.exclusive || m.enhancement.exclusive
		}
		byKey[m.key] = c
	}
	claims = slices.SortedFunc(maps.Values(byKey), func(a, b claim) int {
		if a.exclusive != b.exclusive {
			if a.exclusive {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.key, b.key)
	})
	return claims, reasons
}

// keptCPUs returns a pod's previous CPUs, if it may keep them.
func (c *claim) keptCPUs(s *shape, previous string, avail cpus.Set) (cpuSet, bool) {
	kept := s.parse(previous)
	switch {
	case kept.IsEmpty() || !kept.IsSubsetOf(avail) || kept.Size() < c.cpus:
		return cpuSet{}, false
	case c.exclusive:
		return kept, s.isWhole(kept, c.cpus)
	}
	return kept, kept.Size() < c.cpus+s.LargestCore()
}

// bind marks each dedicated pod with its CPUs, and with its memory nodes if it asks for them. It returns which pods are or were bound to
// memory nodes, and the NUMA nodes that a pod uses alone.
func bind(in inputs, members []member, claims []claim, assigned map[string]cpuSet, d divided) (
	bound map[string]bool, owned cpus.Set, reasons []string,
) {
	memsOf := map[string]string{}
	ownedBytes := map[string]float64{}
	for _, c := range claims {
		set, isAssigned := assigned[c.key]
		if !isAssigned || !c.binding {
			continue
		}
		ids := in.shape.nodesOf(set)
		if !c.exclusive && ids.Size() > 1 {
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s is bound to NUMA nodes %s: no single one has %d CPUs free", c.key, ids, c.cpus))
		}
		if c.exclusive {
			owned = owned.Union(ids)
			ownedBytes[c.key] = in.shape.bytesOf(ids)
		}
		mems := ids.Intersection(in.shape.mems)
		if mems.IsEmpty() {
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s is not bound to memory: NUMA nodes %s have none", c.key, ids))
			continue
		}
		memsOf[c.key] = mems.String()
	}
	for i := range members {
		m := &members[i]
		if m.class == tick.QoSDedicated && !m.hasExclusive {
			m.ownCPUs, m.mems, m.ownedBytes = d.Dedicated[m.key], memsOf[m.key], ownedBytes[m.key]
		}
		if len(memsOf) == 0 && len(d.Bound) == 0 {
			continue
		}
		if id := policy.Identity(m.Pod); m.mems == "" && d.Bound[id] {
			m.mems = in.shape.mems.String() // undoes an earlier binding
		}
		if m.mems != "" {
			if bound == nil {
				bound = map[string]bool{}
			}
			bound[policy.Identity(m.Pod)] = true
		}
	}
	return bound, owned, reasons
}

// wholeNodes takes NUMA nodes of which no other pod has a CPU: the smallest one with at least count CPUs, else the largest ones first. CPUs
// that are reserved for the system stay reserved.
func (s *shape) wholeNodes(avail cpus.Set, count int) (cpus.Set, bool) {
	var free []cpus.Set
	for _, id := range s.NUMA {
		if node := s.nodes[id].Difference(s.Reserved); !node.IsEmpty() && node.IsSubsetOf(avail) {
			free = append(free, node)
		}
	}
	slices.SortStableFunc(free, func(a, b cpus.Set) int { return cmp.Compare(a.Size(), b.Size()) })
	for _, node := range free {
		if node.Size() >= count {
			return node, true
		}
	}
	var taken cpus.Set
	for _, node := range slices.Backward(free) {
		if taken = taken.Union(node); taken.Size() >= count {
			return taken, true
		}
	}
	return cpus.Set{}, false
}

// isWhole reports whether the set consists of whole NUMA nodes, and of no more than count CPUs need.
func (s *shape) isWhole(set cpuSet, count int) bool {
	union, smallest := cpus.Set{}, set.Size()
	for _, id := range s.nodesOf(set).List() {
		node := s.nodes[id].Difference(s.Reserved)
		union, smallest = union.Union(node), min(smallest, node.Size())
	}
	return union.Equals(set.Set) && set.Size()-smallest < count
}
