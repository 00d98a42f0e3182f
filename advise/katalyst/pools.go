package katalyst

import (
	"maps"
	"math"
	"slices"
	"time"

	"polder/advise/policy"
	"polder/lib/reason"
	"polder/lib/tick"
)

// divideByPools divides the machine's whole cores between the dedicated, the shared and the reclaimed pods.
func divideByPools(in inputs, members []member, systemMilliCPU float64, previous divided) division {
	d := division{divided: previous}
	var assigned map[string]cpuSet
	assigned, d.advice.Reasons = dedicate(in, members, &d.divided)
	available := in.shape.withoutDedicated(assigned)
	groups := buildGroups(in, members, previous)
	d.need = sumNeeds(in, members, groups)
	groups[0].system = systemMilliCPU

	shared, reasons := sizePools(in, groups, available, max(available.Size()-in.floorCPUs(), 1), previous)
	d.advice.Reasons = append(d.advice.Reasons, reasons...)
	l := in.shape.layout(available, shared, in.floorCPUs())
	if l.reclaim.IsEmpty() {
		d.addReason(reason.NoReclaimedCPU+": the shared pods have all of %s, and the reclaimed ones run there too", available.list)
		l = &layout{exceptFloor: l.exceptFloor, withoutPool: available.list, perNUMA: l.perNUMA}
	}
	d.perNUMA, d.HadPools = l.perNUMA, true
	d.Share, d.ShareMilliCPU, d.holdDown, d.Named = groups[0].cpus.list, 0, groups[0].hold, namedPools(groups)
	d.advice.Pools = pools(in, groups, l, d.Dedicated)
	if !in.shape.Exclusive.IsEmpty() {
		d.addReason("CPUs %s are in no pool: kubelet assigned them to containers exclusively", in.shape.Exclusive)
	}
	milliCPU, why := offeredMilliCPU(in, l.reclaim.Set)
	d.advice.Reclaimed, d.advice.Reasons = &tick.Reclaimed{MilliCPU: &milliCPU}, appendText(d.advice.Reasons, why)
	d.recordShortage(in.now, groups)
	d.advice.Reasons = appendText(d.advice.Reasons, markOverlaps(in, members, d.ShortAt))
	d.advice.Cgroups, d.advice.Fallback = confine(in.shape, members, groups, available, l, d.HadQuota)
	d.Tier = policy.ConfineTier(&d.advice, in.sample, d.Tier,
		policy.BatchLists{Batch: l.reclaim.list, Floor: l.floor.list, All: in.shape.online.list})
	return d
}

// pools returns the advice's pools: the reserved CPUs, the shared pools with CPUs of their own, the reclaimed one, and the dedicated pods'.
func pools(in inputs, groups []group, l *layout, dedicated map[string]string) (list []tick.Pool) {
	if !in.shape.Reserved.IsEmpty() {
		list = append(list, tick.Pool{Name: tick.PoolReserve, CPUs: in.shape.Reserved.String()})
	}
	for i := range groups {
		if g := &groups[i]; g.hasPool() {
			list = append(list, tick.Pool{Name: g.name, CPUs: g.cpus.list})
		}
	}
	if !l.reclaim.IsEmpty() {
		list = append(list, tick.Pool{Name: tick.PoolReclaim, CPUs: l.reclaim.list})
	}
	for _, k := range slices.Sorted(maps.Keys(dedicated)) {
		list = append(list, tick.Pool{Name: tick.PoolDedicatedPrefix + k, CPUs: dedicated[k]})
	}
	return list
}

// namedPools returns the state of the pools that pods name.
func namedPools(groups []group) (pools map[string]*poolState) {
	for i := range groups {
		g := &groups[i]
		if i == 0 || !g.hasPool() {
			continue
		}
		if pools == nil {
			pools = make(map[string]*poolState, len(groups))
		}
		pools[g.name] = &poolState{CPUs: g.cpus.list, holdDown: g.hold}
	}
	return pools
}

// sizePools gives each shared pool its CPUs, within a limit for all, and returns their union.
func sizePools(in inputs, groups []group, avail cpuSet, limit int, previous divided) (union cpuSet, reasons []string) {
	for i := range groups {
		g := &groups[i]
		if i == 0 {
			g.current = in.shape.stillAvailable(avail, previous.Share)
		} else if p := previous.Named[g.name]; p != nil {
			g.current = in.shape.stillAvailable(avail, p.CPUs)
		}
	}
	if len(groups) > 1 {
		return sizeSeveral(in, groups, avail, limit)
	}
	text := groups[0].sizeSingle(in, avail, limit)
	return groups[0].cpus, []string{text}
}

// sizeSingle sizes the only shared pool: immediately when it grows, after the hold-down and in steps when it shrinks.
func (g *group) sizeSingle(in inputs, avail cpuSet, limit int) string {
	raw := float64(in.reserveMilliCPU) + g.milliCPU + g.system
	desired := int(min(ceilCPUs(raw), float64(limit)))
	if in.isOff {
		desired = limit
	}
	share := in.shape.resize(avail, g.current, desired, limit)
	desiredSize, currentSize := share.Size(), g.current.Size()
	g.isShort = ceilCPUs(raw) > float64(limit)

	boundText := ""
	switch remaining := g.hold.remaining(in.now, in.settings.Hold); {
	case in.isOff:
		boundText = reason.Off{Floor: reason.CPUs(in.floorCPUs()), FloorFrom: in.floorFrom}.String()
	case g.isShort:
		boundText = reason.Floor{Floor: reason.CPUs(in.floorCPUs()), FloorFrom: in.floorFrom}.String()
	case desiredSize >= currentSize:
	case remaining > 0:
		boundText = in.holdText(reason.CPUs(currentSize), remaining)
		share = in.shape.resize(avail, g.current, currentSize, limit)
	default:
		if stepped := in.shape.resize(avail, g.current, max(desired, currentSize-in.shrinkStep()), limit); stepped.Size() > desiredSize {
			boundText = in.stepText(desiredSize)
			share = stepped
		}
	}
	g.cpus = share
	g.hold.record(in.now, currentSize, share.Size(), desiredSize)
	return reason.Share{
		Pool: tick.PoolShare, ReserveMilliCPU: in.reserveMilliCPU, ReserveFrom: in.reserveFrom, NeedMilliCPU: g.milliCPU,
		Containers: g.containers, SystemMilliCPU: g.system, SumMilliCPU: raw, Size: reason.CPUs(share.Size()), Bound: boundText,
	}.String()
}

// shrinkStep returns the most CPUs by which a pool shrinks at once.
func (in inputs) shrinkStep() int {
	return max(int(in.settings.ShrinkStepMilliCPU/1000), in.shape.LargestCore(), 1)
}

func (in inputs) stepText(desired int) string {
	return reason.Shrink{Need: desired, Step: in.shrinkStep(), StepFrom: in.settings.source("shrink-step")}.String()
}

func (in inputs) holdText(size reason.Amount, remaining time.Duration) string {
	return reason.HoldDown{Size: size, Remaining: remaining, Hold: in.settings.Hold, HoldFrom: in.settings.source("hold")}.String()
}

// ceilCPUs rounds milli-CPU up to whole CPUs. An excess of less than a thousandth of a milli-CPU is rounding noise of a load average, not
// need.
func ceilCPUs(milliCPU float64) float64 { return math.Ceil((milliCPU - 0.001) / 1000) }

// holdDown is when a pool's current size was last needed, and when it last changed.
type holdDown struct {
	LastNeed   time.Time `json:"lastNeed"`
	LastChange time.Time `json:"lastChange"`
}

// remaining returns for how long the pool must not shrink yet.
func (h *holdDown) remaining(now time.Time, hold time.Duration) time.Duration {
	last := h.LastNeed
	if h.LastChange.After(last) {
		last = h.LastChange
	}
	return hold - now.Sub(last)
}

// sanitize corrects the hold-down after the node's clock was set back: future times count as now.
func (h *holdDown) sanitize(now time.Time) {
	if h.LastNeed.After(now) {
		h.LastNeed = now
	}
	if h.LastChange.After(now) {
		h.LastChange = now
	}
}

// record records when the current size was last needed, and when it changed.
func (h *holdDown) record(now time.Time, previous, current, desired int) {
	if desired >= previous {
		h.LastNeed = now
	}
	if current != previous {
		h.LastChange = now
	}
}
