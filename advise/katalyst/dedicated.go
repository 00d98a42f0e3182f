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
func dedicate(in inputs, members []member, d *divided) (given map[string]named, reasons []string) {
	claims, reasons := claimsOf(members)
	avail := in.shape.avail.Set
	given = make(map[string]named, len(claims))
	serving := 0
	if len(claims) > 0 {
		serving = servingCPUs(in, members) + in.floorCPUs()
	}
	for _, c := range claims { // pods that keep their CPUs first, so that no new pod takes those
		has, ok := c.keeps(in.shape, d.Dedicated[c.key], avail)
		if ok = ok && avail.Size()-has.Size() >= in.shape.LargestCore(); ok && !(c.exclusive && avail.Size()-has.Size() < serving) {
			given[c.key] = has
			avail = avail.Difference(has.Set)
		}
	}
	var shared cpus.Set
	for i := range claims {
		c := &claims[i]
		if _, has := given[c.key]; has {
			continue
		}
		if shared.IsEmpty() {
			shared = d.shared(in.shape)
		}
		had := d.Dedicated[c.key]
		room := avail.Size() - in.floorCPUs() - in.shape.LargestCore()
		taken, what, ok := c.take(in.shape, had, avail, shared, room, serving)
		switch {
		case !ok || taken.Size() > room:
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s asks for %d CPUs%s and %d can be given: it stays in the shared pool", c.key, c.cpus, what, max(room, 0)))
			continue
		case taken.Size() > c.cpus && avail.Size()-taken.Size() < serving:
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s asks for %d CPUs, which are %d in whole cores, and services need all but %d: it stays in the shared pool",
				c.key, c.cpus, taken.Size(), max(avail.Size()-serving, 0)))
			continue
		case what == instead:
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s has %d CPUs%s: services need all but %d", c.key, taken.Size(), what, max(avail.Size()-serving, 0)))
		}
		if had != "" && had != taken.String() {
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s moves from CPUs %s to %s: it cannot keep them, or asks for others", c.key, quote(had), taken))
		}
		given[c.key] = name(taken)
		avail = avail.Difference(taken)
	}
	d.Dedicated = make(map[string]string, len(given))
	for k, set := range given {
		d.Dedicated[k] = set.list
	}
	var more []string
	d.Bound, d.owned, more = bind(in, members, claims, given, *d)
	return given, append(reasons, more...)
}

// shared returns all CPUs that the shared pools had.
func (d *divided) shared(s *shape) cpus.Set {
	shared := s.parse(d.Share).Set
	for _, p := range d.Named {
		shared = shared.Union(s.parse(p.CPUs).Set)
	}
	return shared
}

// instead describes the CPUs of a pod whose requested NUMA nodes services need.
const instead = " and no NUMA nodes of its own"

// take takes CPUs for a claim that cannot keep its CPUs, or had none, and returns what it lacks.
func (c *claim) take(s *shape, before string, avail, shared cpus.Set, room, serving int) (taken cpus.Set, what string, ok bool) {
	if c.exclusive {
		what = " in NUMA nodes of its own"
		left := serving
		had := s.parse(before)
		if !had.IsEmpty() { // it lost them before: it gets them again only after the shared pool has been smaller for its hold-down
			left = max(serving, shared.Size())
		}
		if taken, ok = s.wholeNodes(avail, c.cpus); !ok || taken.Size() > room || avail.Size()-taken.Size() >= left {
			return taken, what, ok
		}
		c.exclusive, what = false, instead
		if plain := *c; !had.IsEmpty() {
			if has, keeps := plain.keeps(s, before, avail); keeps {
				return has.Set, what, true
			}
		}
	}
	taken, ok = s.TakeNear(avail, shared, c.cpus)
	return taken, what, ok
}

// servingCPUs returns the CPUs that the shared pods need, with the reserve.
func servingCPUs(in inputs, members []member) int {
	var sum estimate
	var containers []workload
	for i := range members {
		m := &members[i]
		if m.class != tick.QoSShared {
			continue
		}
		containers = workloads(m.Pod, containers[:0])
		for j, w := range containers {
			w.promised, w.ending = m.ramping, m.Terminating
			if !m.kubelet || !in.shape.gaveTo(&m.Containers[j]) {
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
		case m.class != tick.QoSDedicated || m.kubelet:
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
		if m.wishes != nil {
			c.binding, c.exclusive = c.binding || m.wishes.binding, c.exclusive || m.wishes.exclusive
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

// keeps returns a pod's previous CPUs, if it may keep them.
func (c *claim) keeps(s *shape, had string, avail cpus.Set) (named, bool) {
	has := s.parse(had)
	switch {
	case has.IsEmpty() || !has.IsSubsetOf(avail) || has.Size() < c.cpus:
		return named{}, false
	case c.exclusive:
		return has, s.isWhole(has, c.cpus)
	}
	return has, has.Size() < c.cpus+s.LargestCore()
}

// bind marks each dedicated pod with its CPUs, and with its memory nodes if it asks for them. It returns which pods are or were bound to
// memory nodes, and the NUMA nodes that a pod uses alone.
func bind(in inputs, members []member, claims []claim, given map[string]named, d divided) (
	nowBound map[string]bool, owned cpus.Set, reasons []string,
) {
	bound := map[string]string{}
	whole := map[string]float64{}
	for _, c := range claims {
		set, has := given[c.key]
		if !has || !c.binding {
			continue
		}
		ids := in.shape.nodesOf(set)
		if !c.exclusive && ids.Size() > 1 {
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s is bound to NUMA nodes %s: no single one has %d CPUs free", c.key, ids, c.cpus))
		}
		if c.exclusive {
			owned = owned.Union(ids)
			whole[c.key] = in.shape.bytesOf(ids)
		}
		mems := ids.Intersection(in.shape.mems)
		if mems.IsEmpty() {
			reasons = append(reasons, fmt.Sprintf("dedicated pod %s is not bound to memory: NUMA nodes %s have none", c.key, ids))
			continue
		}
		bound[c.key] = mems.String()
	}
	for i := range members {
		m := &members[i]
		if m.class == tick.QoSDedicated && !m.kubelet {
			m.own, m.mems, m.whole = d.Dedicated[m.key], bound[m.key], whole[m.key]
		}
		if len(bound) == 0 && len(d.Bound) == 0 {
			continue
		}
		if id := policy.Identity(m.Pod); m.mems == "" && d.Bound[id] {
			m.mems = in.shape.mems.String() // undoes an earlier binding
		}
		if m.mems != "" {
			if nowBound == nil {
				nowBound = map[string]bool{}
			}
			nowBound[policy.Identity(m.Pod)] = true
		}
	}
	return nowBound, owned, reasons
}

// wholeNodes takes NUMA nodes of which no other pod has a CPU: the smallest one with at least want CPUs, else the largest ones first. CPUs
// that are reserved for the system stay reserved.
func (s *shape) wholeNodes(avail cpus.Set, want int) (cpus.Set, bool) {
	var free []cpus.Set
	for _, id := range s.NUMA {
		if node := s.nodes[id].Difference(s.Reserved); !node.IsEmpty() && node.IsSubsetOf(avail) {
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

// isWhole reports whether the set consists of whole NUMA nodes, and of no more than want CPUs need.
func (s *shape) isWhole(set named, want int) bool {
	whole, least := cpus.Set{}, set.Size()
	for _, id := range s.nodesOf(set).List() {
		node := s.nodes[id].Difference(s.Reserved)
		whole, least = whole.Union(node), min(least, node.Size())
	}
	return whole.Equals(set.Set) && set.Size()-least < want
}
