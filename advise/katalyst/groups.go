package katalyst

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// group is a shared pool in the making: the common one, which comes first, or one that pods ask for by name.
type group struct {
	name       string
	reserve    int64 // its part
	milliCPU   float64
	containers int
	vacant     bool // it has no pods any more, and is held
	merged     bool // it has no CPUs of its own and uses the first one's
	hold       *hold
	present    named
	want, size int
	bound      string
	cpus       named
}

// ownPool is what is remembered of a named shared pool.
type ownPool struct {
	CPUs string `json:"cpus"`
	hold
}

// gather makes the shared pools: the common one and those that pods name. With more pools than cores all are one.
func (n *node) gather(a *tick.Advice, members []member, now time.Time, limit int, r resolved, s Settings) []group {
	groups := append(n.groups[:0], group{name: tick.PoolShare, hold: &n.hold, reserve: r.reserveMilliCPU})
	defer func() { n.groups = groups }()
	byName := map[string]int(nil)
	for i := range members {
		if m := &members[i]; m.pool() != "" {
			if byName == nil {
				byName = map[string]int{}
			}
			byName[m.pool()] = 0
		}
	}
	if byName == nil && len(n.Named) == 0 {
		return groups
	}
	room := limit / n.shape.LargestCore()
	if byName != nil && len(byName) >= room {
		a.Reasons = append(a.Reasons, fmt.Sprintf("pools %s are one with share: there are %s for the shared pods",
			clipped(slices.Sorted(maps.Keys(byName))), count(room, "whole core")))
		return groups
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		byName[name] = len(groups)
		groups = append(groups, group{name: name, hold: &hold{}})
	}
	for i := range groups {
		groups[i].reserve = r.reserveMilliCPU / int64(len(groups))
	}
	groups[0].reserve += r.reserveMilliCPU % int64(len(groups))
	for _, name := range slices.Sorted(maps.Keys(n.Named)) {
		known := n.Named[name]
		if known == nil { // a state file's
			continue
		}
		known.clock(now)
		if i, here := byName[name]; here {
			groups[i].hold = &known.hold
		} else if known.held(now, s.Hold) > 0 && len(groups) < room && refusedPool(name) == "" {
			groups = append(groups, group{name: name, hold: &known.hold, vacant: true})
		}
	}
	for i := range members {
		if m := &members[i]; m.pool() != "" {
			m.group = byName[m.pool()]
		}
	}
	return groups
}

// pool is the shared pool that the pod asks for; "" is the common one.
func (m *member) pool() string {
	if m.class != tick.QoSShared || m.wishes == nil || m.kubelet {
		return ""
	}
	return m.wishes.pool
}

func clipped(names []string) string {
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// sizes decides several shared pools, each as [node.size] would, in units of the largest core, and returns their union.
// What they need beyond the limit they share out in proportion; what is only held gives way to need first.
func (n *node) sizes(a *tick.Advice, now time.Time, avail named, groups []group, limit int, r resolved, s Settings) named {
	unit := n.shape.LargestCore()
	units, wants, sum := limit/unit, make([]int, len(groups)), 0
	for i := range groups {
		g := &groups[i]
		if i == 0 {
			g.present = n.present(avail, n.Share)
		} else if p := n.Named[g.name]; p != nil {
			g.present = n.present(avail, p.CPUs)
		}
		if !g.vacant {
			need := math.Ceil(ceilCPUs(float64(g.reserve)+g.milliCPU) / float64(unit))
			wants[i] = int(max(1, min(need, float64(units))))
		}
		g.want, g.bound = wants[i]*unit, ""
		sum += wants[i]
	}
	sizes := wants
	switch {
	case sum > units:
		sizes = scale(wants, units)
		for i := range groups {
			groups[i].bound = fmt.Sprintf("; %d CPUs would do, the shared pools divide %d: the reclaimed pool keeps its floor of %d CPUs (%s)", groups[i].want, units*unit, r.floorCPUs(), r.floorFrom)
		}
	case r.off:
		sizes = scale(wants, units)
		for i := range groups {
			groups[i].bound = fmt.Sprintf("; nothing is reclaimed, so the shared pools have all but the floor of %d CPUs (%s)", r.floorCPUs(), r.floorFrom)
		}
	default:
		sizes = n.holdBack(now, groups, wants, units-sum, unit, s)
	}
	for i := range groups {
		groups[i].size = sizes[i] * unit
	}
	all := n.settle(avail, groups)
	for i := range groups {
		g := &groups[i]
		if !g.vacant {
			a.Reasons = append(a.Reasons, fmt.Sprintf("%s: reserve %dm of %dm (%s) + need %.0fm of %s = %.0fm -> %d CPUs in whole cores%s", g.name,
				g.reserve, r.reserveMilliCPU, r.reserveFrom, g.milliCPU, count(g.containers, "container"), float64(g.reserve)+g.milliCPU, g.cpus.Size(), g.bound))
		} else if g.cpus.Size() > 0 {
			a.Reasons = append(a.Reasons, fmt.Sprintf("%s: it has no pods any more%s", g.name, g.bound))
		}
		g.hold.remember(now, g.present.Size(), g.cpus.Size(), g.want)
	}
	return all
}

// holdBack lets pools that need less keep what they have for the hold, and then shrink in steps, as far as it is spare.
func (n *node) holdBack(now time.Time, groups []group, wants []int, spare, unit int, s Settings) []int {
	sizes := slices.Clone(wants)
	for i := range groups {
		g := &groups[i]
		has := (g.present.Size() + unit - 1) / unit
		if has <= wants[i] || spare == 0 {
			continue
		}
		keep := has
		if held := g.hold.held(now, s.Hold); held > 0 {
			g.bound = heldFor(has*unit, held, s)
		} else if keep = max(wants[i], has-max(n.step(s)/unit, 1)); keep > wants[i] {
			g.bound = n.stepping(g.want, s)
		}
		extra := min(keep-wants[i], spare)
		if extra < keep-wants[i] {
			g.bound = "; what it held is needed by others"
		}
		sizes[i] += extra
		spare -= extra
	}
	return sizes
}

// settle gives the groups CPUs of their sizes, and returns all of them. A group for which there is no core is merged.
func (n *node) settle(avail named, groups []group) named {
	key := append(n.key[:0], avail.list...)
	for i := range groups {
		key = append(append(key, '|'), groups[i].present.list...)
		key = strconv.AppendInt(append(key, ':'), int64(groups[i].size), 10)
	}
	n.key = key
	placed := memo(&n.shape.places, string(key), func() []named { return n.shape.place(avail.Set, groups) })
	for i := range groups {
		g := &groups[i]
		if g.cpus = placed[i]; g.size > 0 && g.cpus.IsEmpty() {
			g.cpus, g.merged, g.bound = placed[0], true, "; there is no core left, it is one with share"
		}
	}
	return placed[len(groups)]
}

// place moves as few CPUs as it can: each group first gives what it has too many, then takes what is free. The last of
// the result is the union.
func (s *shape) place(avail cpus.Set, groups []group) []named {
	sets, taken := make([]cpus.Set, len(groups)), cpus.Set{}
	for i := range groups {
		g := &groups[i]
		has := g.present.Intersection(avail).Difference(taken)
		switch {
		case g.size == 0:
			has = cpus.Set{}
		case has.Size() > g.size:
			has = s.Resize(has, has, g.size, g.size)
		}
		sets[i] = has
		taken = taken.Union(has)
	}
	placed := make([]named, len(groups)+1)
	for i := range groups {
		if size := groups[i].size; size > 0 {
			others := taken.Difference(sets[i])
			sets[i] = s.Resize(avail.Difference(others), sets[i], size, size)
			taken = others.Union(sets[i])
		}
		placed[i] = name(sets[i])
	}
	placed[len(groups)] = name(taken)
	return placed
}

// scale brings sizes to a total in proportion: each is rounded up, and while that is too many the one loses that has most
// for what it asked, the larger one of two, but never its last (Katalyst: sysadvisor's provision assembler).
func scale(sizes []int, total int) []int {
	sum := 0
	for _, size := range sizes {
		sum += size
	}
	scaled, now := make([]int, len(sizes)), 0
	for i, size := range sizes {
		if size > 0 {
			scaled[i] = (size*total + sum - 1) / sum
		}
		now += scaled[i]
	}
	for ; now > total; now-- {
		most := -1
		for i := range scaled {
			if scaled[i] <= 1 {
				continue
			}
			if most < 0 {
				most = i
				continue
			}
			a, b := scaled[i]*sizes[most], scaled[most]*sizes[i] // as fractions of what was asked
			if a > b || a == b && scaled[i] > scaled[most] {
				most = i
			}
		}
		if most < 0 {
			break
		}
		scaled[most]--
	}
	return scaled
}
