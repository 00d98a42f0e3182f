package katalyst

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// claim is what a dedicated pod (by namespace/name) wants.
type claim struct {
	key                string
	cpus               int
	binding, exclusive bool
}

// dedicate gives each dedicated pod whole cores for its CPU request, near one NUMA node, or all of as few nodes as it
// needs. A pod keeps what it has; the reclaimed side gives before the shared one does, and one core of the shared pool and
// the floor stay.
func (n *node) dedicate(a *tick.Advice, members []member, r resolved) map[string]named {
	claims := n.claims(a, members)
	avail := n.shape.avail.Set
	given := make(map[string]named, len(claims))
	for _, c := range claims { // first who has, so that nobody new takes it
		if has, ok := n.keeps(c, avail); ok && avail.Size()-has.Size() >= n.shape.LargestCore() {
			given[c.key] = has
			avail = avail.Difference(has.Set)
		}
	}
	var shared cpus.Set
	for _, c := range claims {
		if _, has := given[c.key]; has {
			continue
		}
		if shared.IsEmpty() {
			shared = n.presentShared()
		}
		room := avail.Size() - r.floorCPUs() - n.shape.LargestCore()
		taken, ok := n.shape.TakeNear(avail, shared, c.cpus)
		what := ""
		if c.exclusive {
			taken, ok = n.shape.wholeNodes(avail, c.cpus)
			what = " in NUMA nodes of its own"
		}
		if !ok || taken.Size() > room {
			a.Reasons = append(a.Reasons, fmt.Sprintf("dedicated pod %s asks for %d CPUs%s and %d can be given: it stays in the shared pool", c.key, c.cpus, what, max(room, 0)))
			continue
		}
		if had := n.Dedicated[c.key]; had != "" {
			a.Reasons = append(a.Reasons, fmt.Sprintf("dedicated pod %s moves from CPUs %s to %s: it cannot keep them, or asks for others", c.key, quote(had), taken))
		}
		given[c.key] = name(taken)
		avail = avail.Difference(taken)
	}
	n.Dedicated = make(map[string]string, len(given))
	for k, set := range given {
		n.Dedicated[k] = set.list
	}
	n.bind(a, members, claims, given)
	return given
}

// claims are those of the dedicated pods: the ones that have CPUs from kubelet and those without a request have none.
// Whole nodes come first, while there are some.
func (n *node) claims(a *tick.Advice, members []member) []claim {
	byKey := map[string]claim{}
	for i := range members {
		m := &members[i]
		switch {
		case m.class != tick.QoSDedicated || m.kubelet:
			continue
		case m.Requests == nil || m.Requests.MilliCPU == nil || !(*m.Requests.MilliCPU > 0):
			a.Reasons = append(a.Reasons, fmt.Sprintf("dedicated pod %s has no CPU request: it stays in the shared pool", m.key))
			continue
		}
		c := byKey[m.key]
		c.key = m.key
		c.cpus += int(ceilCPUs(bounded(*m.Requests.MilliCPU)))
		if m.wishes != nil {
			c.binding, c.exclusive = c.binding || m.wishes.binding, c.exclusive || m.wishes.exclusive
		}
		byKey[m.key] = c
	}
	return slices.SortedFunc(maps.Values(byKey), func(a, b claim) int {
		if a.exclusive != b.exclusive {
			if a.exclusive {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.key, b.key)
	})
}

// keeps returns what a pod has, where it may keep that.
func (n *node) keeps(c claim, avail cpus.Set) (named, bool) {
	has := n.shape.parse(n.Dedicated[c.key])
	switch {
	case has.IsEmpty() || !has.IsSubsetOf(avail) || has.Size() < c.cpus:
		return named{}, false
	case c.exclusive:
		return has, n.shape.isWhole(has, c.cpus)
	}
	return has, has.Size() < c.cpus+n.shape.LargestCore()
}

// bind notes for each dedicated pod its CPUs, and its memory nodes where it asks for them.
func (n *node) bind(a *tick.Advice, members []member, claims []claim, given map[string]named) {
	n.owned = cpus.Set{}
	bound := map[string]string{}
	whole := map[string]float64{}
	for _, c := range claims {
		set, has := given[c.key]
		if !has || !c.binding {
			continue
		}
		ids := n.shape.nodesOf(set)
		if !c.exclusive && ids.Size() > 1 {
			a.Reasons = append(a.Reasons, fmt.Sprintf("dedicated pod %s is bound to NUMA nodes %s: no single one has %d CPUs free", c.key, ids, c.cpus))
		}
		if c.exclusive {
			n.owned = n.owned.Union(ids)
			whole[c.key] = n.shape.bytesOf(ids)
		}
		mems := ids.Intersection(n.shape.mems)
		if mems.IsEmpty() {
			a.Reasons = append(a.Reasons, fmt.Sprintf("dedicated pod %s is not bound to memory: NUMA nodes %s have none", c.key, ids))
			continue
		}
		bound[c.key] = mems.String()
	}
	unbound := n.Bound
	n.Bound = nil
	for i := range members {
		m := &members[i]
		if m.class == tick.QoSDedicated && !m.kubelet {
			m.own, m.mems, m.whole = n.Dedicated[m.key], bound[m.key], whole[m.key]
		}
		if len(bound) == 0 && len(unbound) == 0 {
			continue
		}
		if id := identity(m.Pod); m.mems == "" && unbound[id] {
			m.mems = n.shape.mems.String() // what was bound once is let go
		}
		if m.mems != "" {
			if n.Bound == nil {
				n.Bound = map[string]bool{}
			}
			n.Bound[identity(m.Pod)] = true
		}
	}
}

// wholeNodes takes NUMA nodes of which nobody else has a CPU: the smallest one with at least want CPUs, else the largest
// ones first. CPUs that are reserved for the system stay its own.
func (s *shape) wholeNodes(avail cpus.Set, want int) (cpus.Set, bool) {
	var free []cpus.Set
	for _, id := range s.NUMA {
		if node := s.nodes[id].Difference(s.system); !node.IsEmpty() && node.IsSubsetOf(avail) {
			free = append(free, node)
		}
	}
	slices.SortStableFunc(free, func(a, b cpus.Set) int { return cmp.Compare(a.Size(), b.Size()) })
	for _, node := range free {
		if node.Size() >= want {
			return node, true
		}
	}
	var taken cpus.Set
	for _, node := range slices.Backward(free) {
		if taken = taken.Union(node); taken.Size() >= want {
			return taken, true
		}
	}
	return cpus.Set{}, false
}

// isWhole reports whether the set is whole NUMA nodes, and none too many for want CPUs.
func (s *shape) isWhole(set named, want int) bool {
	whole, least := cpus.Set{}, set.Size()
	for _, id := range s.nodesOf(set).List() {
		node := s.nodes[id].Difference(s.system)
		whole, least = whole.Union(node), min(least, node.Size())
	}
	return whole.Equals(set.Set) && set.Size()-least < want
}
