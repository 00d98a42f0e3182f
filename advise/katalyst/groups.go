package katalyst

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// group is a shared pool that is being sized: the common one, which comes first, or one that pods ask for by name.
type group struct {
	name          string
	reserve       int64 // its part of the reserve
	milliCPU      float64
	system        float64 // only for the first one: what the machine uses outside of the confined pods
	containers    int
	isVacant      bool // it has no pods any more, and keeps its size until the hold-down ends
	isSmall       bool // its pods' needs count in the first one, and do not justify a core of its own
	isMerged      bool // it has no CPUs of its own and uses those of the first one
	hold          holdDown
	current       cpuSet
	desired, size int
	isShort       bool // it needs more than the floor of the reclaimed side leaves
	boundText     string
	cpus          cpuSet
}

// hasPool reports whether it has CPUs of its own.
func (g *group) hasPool() bool { return !g.cpus.IsEmpty() && !g.isMerged }

// poolState is the state of a named shared pool.
type poolState struct {
	CPUs string `json:"cpus"`
	holdDown
}

// buildGroups builds the shared pools: the common one and those that pods name; any pod may name one.
func buildGroups(in inputs, members []member, previous divided) []group {
	groups := []group{{name: tick.PoolShare, hold: previous.holdDown, reserve: in.reserveMilliCPU}}
	byName := map[string]int(nil)
	for i := range members {
		if m := &members[i]; m.pool() != "" {
			if byName == nil {
				byName = map[string]int{}
			}
			byName[m.pool()] = 0
		}
	}
	if byName == nil && len(previous.Named) == 0 {
		return groups
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		byName[name] = len(groups)
		groups = append(groups, group{name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(previous.Named)) {
		state := previous.Named[name]
		if state == nil { // null in a state file
			continue
		}
		h := state.holdDown
		h.sanitize(in.now)
		if i, found := byName[name]; found {
			groups[i].hold = h
		} else if h.remaining(in.now, in.settings.Hold) > 0 && poolNameError(name) == "" {
			groups = append(groups, group{name: name, hold: h, isVacant: true})
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
	if m.class != tick.QoSShared || m.enhancement == nil || m.hasExclusive {
		return ""
	}
	return m.enhancement.pool
}

// desiredMilliCPU returns the desired size of a pool, in milli-CPU.
func (g *group) desiredMilliCPU() float64 { return float64(g.reserve) + g.milliCPU + g.system }

// minPoolMilliCPU is the least need for which a named pool gets CPUs of its own: a name is free of charge, whole cores are not.
const minPoolMilliCPU = 1000

// desiredUnits returns the desired units of each pool, by its need and its part of the reserve, and its need of CPUs alone. Pools that need
// less than a core are merged with the first; if there are too few units, so are pools whose proportion is less than a unit. The reserve is
// divided in equal parts over the other pools.
func desiredUnits(groups []group, reserve int64, units, unit int) (desired []int, needs []float64, sum int) {
	merge := func(g *group) {
		g.isSmall = true
		groups[0].milliCPU = policy.Bounded(groups[0].milliCPU + g.milliCPU)
		groups[0].containers += g.containers
	}
	for i := range groups {
		if g := &groups[i]; i > 0 && !g.isVacant && g.milliCPU < minPoolMilliCPU {
			merge(g)
		}
	}
	desired, needs = make([]int, len(groups)), make([]float64, len(groups))
	for isMerged := true; isMerged; {
		count := int64(0)
		for i := range groups {
			if g := &groups[i]; !g.isVacant && !g.isSmall {
				count++
			}
		}
		isMerged, sum = false, 0
		totalNeed := 0.0
		for i := range groups {
			g := &groups[i]
			desired[i], needs[i], g.reserve = 0, 0, 0
			if g.isVacant || g.isSmall {
				continue
			}
			g.reserve = reserve / count
			if i == 0 {
				g.reserve += reserve % count
			}
			desired[i] = int(max(1, min(math.Ceil(ceilCPUs(g.desiredMilliCPU())/float64(unit)), float64(units))))
			needs[i] = min((g.milliCPU+g.system)/1000, float64(units*unit)) // no pool can use more
			if i == 0 {
				needs[i] = max(needs[i], 0.001) // it gets a unit even without a need
			}
			sum += desired[i]
			totalNeed += needs[i]
		}
		if sum <= units {
			break
		}
		smallest := 0
		for i := range groups {
			if i > 0 && desired[i] > 0 && (smallest == 0 || needs[i] < needs[smallest]) {
				smallest = i
			}
		}
		if smallest > 0 && needs[smallest]*float64(units) < totalNeed {
			merge(&groups[smallest])
			isMerged = true
		}
	}
	return desired, needs, sum
}

// sizeSeveral sizes several shared pools, each like [group.sizeSingle], in units of the largest core, and returns their union. If they need
// more than the limit, each gets its proportion; CPUs that only a hold-down keeps are given to pools in need first.
func sizeSeveral(in inputs, groups []group, avail cpuSet, limit int) (union cpuSet, reasons []string) {
	unit := in.shape.LargestCore()
	units := max(limit/unit, 1)
	desired, needs, sum := desiredUnits(groups, in.reserveMilliCPU, units, unit)
	for i := range groups {
		groups[i].desired, groups[i].boundText = desired[i]*unit, ""
	}
	var sizes []int
	switch {
	case sum > units:
		sizes = divideUnits(needs, units, unit)
		for i := range groups {
			groups[i].isShort = true
			groups[i].boundText = reason.Floor{
				Floor: reason.CPUs(in.floorCPUs()), FloorFrom: in.floorFrom, Need: groups[i].desired, Divided: units * unit,
			}.String()
		}
	case in.isOff:
		weights := make([]float64, len(desired))
		for i := range desired {
			weights[i] = float64(desired[i])
		}
		sizes = apportion(weights, units)
		for i := range groups {
			groups[i].boundText = reason.Off{Floor: reason.CPUs(in.floorCPUs()), FloorFrom: in.floorFrom, IsSeveral: true}.String()
		}
	default:
		sizes = applyHoldDown(in, groups, desired, units-sum, unit)
	}
	for i := range groups {
		groups[i].size = sizes[i] * unit
	}
	union = assignCPUs(in.shape, avail, groups)
	var merged []string
	for i := range groups {
		switch g := &groups[i]; {
		case !g.isVacant && !g.isSmall:
			reasons = append(reasons, reason.Share{
				Pool: g.name, ReserveMilliCPU: g.reserve, ReserveOfMilliCPU: in.reserveMilliCPU, ReserveFrom: in.reserveFrom,
				NeedMilliCPU: g.milliCPU, Containers: g.containers, SystemMilliCPU: g.system, SumMilliCPU: g.desiredMilliCPU(),
				Size: reason.CPUs(g.cpus.Size()), Bound: g.boundText,
			}.String())
		case g.isMerged:
			merged = append(merged, g.name)
		case g.isSmall:
			reasons = append(reasons, fmt.Sprintf("%s: it needs %.0fm, less than a core%s", g.name, g.milliCPU, reason.After(g.boundText)))
		case g.cpus.Size() > 0:
			reasons = append(reasons, fmt.Sprintf("%s: it has no pods any more%s", g.name, reason.After(g.boundText)))
		}
		g := &groups[i]
		g.hold.record(in.now, g.current.Size(), g.cpus.Size(), g.desired)
	}
	if len(merged) > 0 {
		reasons = append(reasons, fmt.Sprintf("pools %s are merged with share: each needs less than a core, or its proportion of %s is less than one",
			phrase.First(merged, 5), phrase.Count(units, "whole core")))
	}
	return union, reasons
}

// applyHoldDown lets pools that need less keep their size for the hold-down, and then shrink in steps, while CPUs are spare.
func applyHoldDown(in inputs, groups []group, desired []int, spare, unit int) []int {
	sizes := slices.Clone(desired)
	for i := range groups {
		g := &groups[i]
		current := (g.current.Size() + unit - 1) / unit
		if current <= desired[i] || spare == 0 {
			continue
		}
		kept := current
		if remaining := g.hold.remaining(in.now, in.settings.Hold); remaining > 0 {
			g.boundText = in.holdText(reason.CPUs(current*unit), remaining)
		} else if kept = max(desired[i], current-max(in.shrinkStep()/unit, 1)); kept > desired[i] {
			g.boundText = in.stepText(g.desired)
		}
		extra := min(kept-desired[i], spare)
		if extra < kept-desired[i] {
			g.boundText = "other pools need the rest"
		}
		sizes[i] += extra
		spare -= extra
	}
	return sizes
}

// assignCPUs gives the groups CPUs of their sizes, and returns all of them. A group for which there is no core is merged.
func assignCPUs(s *shape, avail cpuSet, groups []group) cpuSet {
	key := []byte(avail.list)
	for i := range groups {
		key = append(append(key, '|'), groups[i].current.list...)
		key = strconv.AppendInt(append(key, ':'), int64(groups[i].size), 10)
	}
	placed := cached(&s.placements, string(key), func() []cpuSet { return s.placeGroups(avail.Set, groups) })
	for i := range groups {
		g := &groups[i]
		if g.cpus = placed[i]; g.size > 0 && g.cpus.IsEmpty() {
			g.cpus, g.isMerged, g.boundText = placed[0], true, "no core is left: it is merged with share"
		} else if g.isSmall && g.cpus.IsEmpty() {
			g.cpus, g.isMerged = placed[0], true
		}
	}
	return placed[len(groups)]
}

// placeGroups moves as few CPUs as possible: each group first releases its excess, then takes free ones. The last element of the result is
// the union.
func (s *shape) placeGroups(avail cpus.Set, groups []group) []cpuSet {
	sets, taken := make([]cpus.Set, len(groups)), cpus.Set{}
	for i := range groups {
		g := &groups[i]
		kept := g.current.Intersection(avail).Difference(taken)
		switch {
		case g.size == 0:
			kept = cpus.Set{}
		case kept.Size() > g.size:
			kept = s.Resize(kept, kept, g.size, g.size)
		}
		sets[i] = kept
		taken = taken.Union(kept)
	}
	placed := make([]cpuSet, len(groups)+1)
	for i := range groups {
		if size := groups[i].size; size > 0 {
			others := taken.Difference(sets[i])
			sets[i] = s.Resize(avail.Difference(others), sets[i], size, size)
			taken = others.Union(sets[i])
		}
		placed[i] = newCPUSet(sets[i])
	}
	placed[len(groups)] = newCPUSet(taken)
	return placed
}

// apportion divides a total in proportion to weights, so that none gets less than its proportion in whole numbers; the rest is assigned one
// by one to the group with the least for its weight (D'Hondt's method). A group with a weight gets at least one.
func apportion(weights []float64, total int) []int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	sizes, assigned := make([]int, len(weights)), 0
	for i, w := range weights {
		if sum > 0 {
			sizes[i] = int(w * float64(total) / sum)
		}
		if w > 0 || i == 0 && sum == 0 {
			sizes[i] = max(sizes[i], 1)
		}
		assigned += sizes[i]
	}
	sizes = addTo(sizes, weights, total)
	for ; assigned > total; assigned-- {
		largest := 0
		for i := range sizes {
			if sizes[i] > sizes[largest] {
				largest = i
			}
		}
		if sizes[largest] <= 1 {
			break
		}
		sizes[largest]--
	}
	return sizes
}

// divideUnits divides units by needs of CPUs: each need in whole units if there are enough, so that only the reserve is cut; else each gets
// its proportion.
func divideUnits(needs []float64, units, unit int) []int {
	if minimum, isEnough := wholeUnits(needs, units, unit); isEnough {
		return addTo(minimum, needs, units)
	}
	return apportion(needs, units)
}

// addTo assigns the rest of a total, one by one, to the group with the least for its weight.
func addTo(sizes []int, weights []float64, total int) []int {
	assigned := 0
	for _, size := range sizes {
		assigned += size
	}
	for ; assigned < total; assigned++ {
		neediest := 0
		for i, w := range weights {
			if w*float64(sizes[neediest]+1) > weights[neediest]*float64(sizes[i]+1) {
				neediest = i
			}
		}
		sizes[neediest]++
	}
	return sizes
}

// wholeUnits returns the needs, of CPUs, in whole units, and whether there are enough units.
func wholeUnits(needs []float64, units, unit int) (sizes []int, isEnough bool) {
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
