package katalyst

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/phrase"
	"polder/lib/tick"
)

// group is a shared pool that is being sized: the common one, which comes first, or one that pods ask for by name.
type group struct {
	name       string
	reserve    int64 // its part of the reserve
	milliCPU   float64
	system     float64 // only for the first one: what the machine uses outside of the confined pods
	containers int
	vacant     bool // it has no pods any more, and keeps its size until the hold-down ends
	small      bool // its pods' needs count in the first one, and do not justify a core of its own
	merged     bool // it has no CPUs of its own and uses those of the first one
	hold       hold
	present    named
	want, size int
	bound      string
	cpus       named
}

// hasPool reports whether it has CPUs of its own.
func (g *group) hasPool() bool { return !g.cpus.IsEmpty() && !g.merged }

// ownPool is the state of a named shared pool.
type ownPool struct {
	CPUs string `json:"cpus"`
	hold
}

// gather builds the shared pools: the common one and those that pods name; any pod may name one.
func gather(in inputs, members []member, before divided) []group {
	groups := []group{{name: tick.PoolShare, hold: before.hold, reserve: in.reserveMilliCPU}}
	byName := map[string]int(nil)
	for i := range members {
		if m := &members[i]; m.pool() != "" {
			if byName == nil {
				byName = map[string]int{}
			}
			byName[m.pool()] = 0
		}
	}
	if byName == nil && len(before.Named) == 0 {
		return groups
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		byName[name] = len(groups)
		groups = append(groups, group{name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(before.Named)) {
		known := before.Named[name]
		if known == nil { // null in a state file
			continue
		}
		h := known.hold
		h.clock(in.now)
		if i, here := byName[name]; here {
			groups[i].hold = h
		} else if h.remaining(in.now, in.settings.Hold) > 0 && refusedPool(name) == "" {
			groups = append(groups, group{name: name, hold: h, vacant: true})
		}
	}
	for i := range members {
		if m := &members[i]; m.pool() != "" {
			m.group = byName[m.pool()]
		}
	}
	return groups
}

// pool returns the shared pool that the pod asks for; "" is the common one.
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

// wanted returns the desired size of a pool, in milli-CPU.
func (g *group) wanted() float64 { return float64(g.reserve) + g.milliCPU + g.system }

// needText formats a need for a reason.
func needText(milliCPU float64, containers int, system float64) string {
	text := fmt.Sprintf("need %.0fm of %s", milliCPU, phrase.Count(containers, "container"))
	if system >= 0.5 {
		text += fmt.Sprintf(" + system %.0fm", system)
	}
	return text
}

// aCore is the least need for which a named pool gets CPUs of its own: a name is free of charge, whole cores are not.
const aCore = 1000

// demands returns how many units each pool wants, by its need and its part of the reserve, and its need of CPUs alone. Pools that need less
// than a core are merged with the first; if there are too few units, so are pools whose proportion is less than a unit. The reserve is
// divided in equal parts over the other pools.
func demands(groups []group, reserve int64, units, unit int) (wants []int, needs []float64, sum int) {
	fold := func(g *group) {
		g.small = true
		groups[0].milliCPU = policy.Bounded(groups[0].milliCPU + g.milliCPU)
		groups[0].containers += g.containers
	}
	for i := range groups {
		if g := &groups[i]; i > 0 && !g.vacant && g.milliCPU < aCore {
			fold(g)
		}
	}
	wants, needs = make([]int, len(groups)), make([]float64, len(groups))
	for folded := true; folded; {
		own := int64(0)
		for i := range groups {
			if g := &groups[i]; !g.vacant && !g.small {
				own++
			}
		}
		folded, sum = false, 0
		all := 0.0
		for i := range groups {
			g := &groups[i]
			wants[i], needs[i], g.reserve = 0, 0, 0
			if g.vacant || g.small {
				continue
			}
			g.reserve = reserve / own
			if i == 0 {
				g.reserve += reserve % own
			}
			wants[i] = int(max(1, min(math.Ceil(ceilCPUs(g.wanted())/float64(unit)), float64(units))))
			needs[i] = min((g.milliCPU+g.system)/1000, float64(units*unit)) // no pool can use more
			if i == 0 {
				needs[i] = max(needs[i], 0.001) // it gets a unit even without a need
			}
			sum += wants[i]
			all += needs[i]
		}
		if sum <= units {
			break
		}
		least := 0
		for i := range groups {
			if i > 0 && wants[i] > 0 && (least == 0 || needs[i] < needs[least]) {
				least = i
			}
		}
		if least > 0 && needs[least]*float64(units) < all {
			fold(&groups[least])
			folded = true
		}
	}
	return wants, needs, sum
}

// sizes sizes several shared pools, each like [group.sizeAlone], in units of the largest core, and returns their union. If they need more
// than the limit, each gets its proportion; CPUs that only a hold-down keeps are given to pools in need first.
func sizes(in inputs, groups []group, avail named, limit int) (all named, reasons []string) {
	unit := in.shape.LargestCore()
	units := max(limit/unit, 1)
	wants, needs, sum := demands(groups, in.reserveMilliCPU, units, unit)
	for i := range groups {
		groups[i].want, groups[i].bound = wants[i]*unit, ""
	}
	var sizes []int
	switch {
	case sum > units:
		sizes = divideUnits(needs, units, unit)
		for i := range groups {
			groups[i].bound = fmt.Sprintf("; %d CPUs would do, the shared pools divide %d: the reclaimed pool keeps its floor of %d CPUs (%s)", groups[i].want, units*unit, in.floorCPUs(), in.floorFrom)
		}
	case in.off:
		weights := make([]float64, len(wants))
		for i := range wants {
			weights[i] = float64(wants[i])
		}
		sizes = apportion(weights, units)
		for i := range groups {
			groups[i].bound = fmt.Sprintf("; nothing is reclaimed, so the shared pools have all but the floor of %d CPUs (%s)", in.floorCPUs(), in.floorFrom)
		}
	default:
		sizes = holdBack(in, groups, wants, units-sum, unit)
	}
	for i := range groups {
		groups[i].size = sizes[i] * unit
	}
	all = settle(in.shape, avail, groups)
	var small []string
	for i := range groups {
		switch g := &groups[i]; {
		case !g.vacant && !g.small:
			reasons = append(reasons, fmt.Sprintf("%s: reserve %dm of %dm (%s) + %s = %.0fm -> %d CPUs in whole cores%s", g.name,
				g.reserve, in.reserveMilliCPU, in.reserveFrom, needText(g.milliCPU, g.containers, g.system), g.wanted(), g.cpus.Size(), g.bound))
		case g.merged:
			small = append(small, g.name)
		case g.small:
			reasons = append(reasons, fmt.Sprintf("%s: it needs %.0fm, less than a core%s", g.name, g.milliCPU, g.bound))
		case g.cpus.Size() > 0:
			reasons = append(reasons, fmt.Sprintf("%s: it has no pods any more%s", g.name, g.bound))
		}
		g := &groups[i]
		g.hold.remember(in.now, g.present.Size(), g.cpus.Size(), g.want)
	}
	if len(small) > 0 {
		reasons = append(reasons, fmt.Sprintf("pools %s are one with share: each needs less than a core, or its proportion of %s is less than one",
			clipped(small), phrase.Count(units, "whole core")))
	}
	return all, reasons
}

// holdBack lets pools that need less keep their size for the hold-down, and then shrink in steps, while CPUs are spare.
func holdBack(in inputs, groups []group, wants []int, spare, unit int) []int {
	sizes := slices.Clone(wants)
	for i := range groups {
		g := &groups[i]
		has := (g.present.Size() + unit - 1) / unit
		if has <= wants[i] || spare == 0 {
			continue
		}
		keep := has
		if left := g.hold.remaining(in.now, in.settings.Hold); left > 0 {
			g.bound = heldFor(has*unit, left, in.settings)
		} else if keep = max(wants[i], has-max(in.step()/unit, 1)); keep > wants[i] {
			g.bound = in.stepping(g.want)
		}
		extra := min(keep-wants[i], spare)
		if extra < keep-wants[i] {
			g.bound = "; what it kept is needed by others"
		}
		sizes[i] += extra
		spare -= extra
	}
	return sizes
}

// settle gives the groups CPUs of their sizes, and returns all of them. A group for which there is no core is merged.
func settle(s *shape, avail named, groups []group) named {
	key := []byte(avail.list)
	for i := range groups {
		key = append(append(key, '|'), groups[i].present.list...)
		key = strconv.AppendInt(append(key, ':'), int64(groups[i].size), 10)
	}
	placed := memo(&s.places, string(key), func() []named { return s.place(avail.Set, groups) })
	for i := range groups {
		g := &groups[i]
		if g.cpus = placed[i]; g.size > 0 && g.cpus.IsEmpty() {
			g.cpus, g.merged, g.bound = placed[0], true, "; there is no core left, it is one with share"
		} else if g.small && g.cpus.IsEmpty() {
			g.cpus, g.merged = placed[0], true
		}
	}
	return placed[len(groups)]
}

// place moves as few CPUs as possible: each group first releases its excess, then takes free ones. The last element of the result is the
// union.
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

// apportion divides a total in proportion to weights, so that none gets less than its proportion in whole numbers; the rest is assigned one
// by one to the group with the least for its weight (D'Hondt's method). A group with a weight gets at least one.
func apportion(weights []float64, total int) []int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	sizes, given := make([]int, len(weights)), 0
	for i, w := range weights {
		if sum > 0 {
			sizes[i] = int(w * float64(total) / sum)
		}
		if w > 0 || i == 0 && sum == 0 {
			sizes[i] = max(sizes[i], 1)
		}
		given += sizes[i]
	}
	sizes = addTo(sizes, weights, total)
	for ; given > total; given-- {
		most := 0
		for i := range sizes {
			if sizes[i] > sizes[most] {
				most = i
			}
		}
		if sizes[most] <= 1 {
			break
		}
		sizes[most]--
	}
	return sizes
}

// divideUnits divides units by needs of CPUs: each need in whole units if there are enough, so that only the reserve is cut; else each gets
// its proportion.
func divideUnits(needs []float64, units, unit int) []int {
	if least, enough := wholeUnits(needs, units, unit); enough {
		return addTo(least, needs, units)
	}
	return apportion(needs, units)
}

// addTo assigns the rest of a total, one by one, to the group with the least for its weight.
func addTo(sizes []int, weights []float64, total int) []int {
	given := 0
	for _, size := range sizes {
		given += size
	}
	for ; given < total; given++ {
		least := 0
		for i, w := range weights {
			if w*float64(sizes[least]+1) > weights[least]*float64(sizes[i]+1) {
				least = i
			}
		}
		sizes[least]++
	}
	return sizes
}

// wholeUnits returns the needs, of CPUs, in whole units, and whether there are enough units.
func wholeUnits(needs []float64, units, unit int) (sizes []int, enough bool) {
	sum := 0
	sizes = make([]int, len(needs))
	for i, need := range needs {
		sizes[i] = int(math.Ceil(need/float64(unit) - 1e-6))
		if need > 0 {
			sizes[i] = max(sizes[i], 1)
		}
		sum += sizes[i]
	}
	return sizes, sum <= units
}
