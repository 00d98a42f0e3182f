package katalyst

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"polder/advise/policy"
	"polder/lib/tick"
)

// byPools divides the machine's whole cores between the dedicated, the shared and the reclaimed pods.
func byPools(in inputs, members []member, systemMilliCPU float64, before divided) division {
	d := division{divided: before}
	var given map[string]named
	given, d.part.Reasons = dedicate(in, members, &d.divided)
	avail := in.shape.rest(given)
	groups := gather(in, members, before)
	d.need = need(in, members, groups)
	groups[0].system = systemMilliCPU

	shared, reasons := size(in, groups, avail, max(avail.Size()-in.floorCPUs(), 1), before)
	d.part.Reasons = append(d.part.Reasons, reasons...)
	l := in.shape.layout(avail, shared, in.floorCPUs())
	if l.reclaim.IsEmpty() {
		d.because("no CPU is left for the reclaimed pool: the shared pods have all of %s, and the reclaimed ones run there too", avail.list)
		l = &layout{spare: l.spare, everywhere: avail.list, perNUMA: l.perNUMA}
	}
	d.perNUMA, d.Pools = l.perNUMA, true
	d.Share, d.ShareMilliCPU, d.hold, d.Named = groups[0].cpus.list, 0, groups[0].hold, namedPools(groups)
	d.part.Pools = pools(in, groups, l, d.Dedicated)
	if !in.shape.Exclusive.IsEmpty() {
		d.because("CPUs %s are in no pool: kubelet gave them to containers of their own", in.shape.Exclusive)
	}
	milliCPU, why := offered(in, l.reclaim.Set)
	d.part.Reclaimed, d.part.Reasons = &tick.Reclaimed{MilliCPU: &milliCPU}, appendText(d.part.Reasons, why)
	d.part.Cgroups, d.part.Fallback = confine(members, groups, avail, l, d.Quota)
	d.Tier = policy.ConfineTier(&d.part, in.sample, d.Tier,
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
func namedPools(groups []group) (pools map[string]*ownPool) {
	for i := range groups {
		g := &groups[i]
		if i == 0 || !g.hasPool() {
			continue
		}
		if pools == nil {
			pools = make(map[string]*ownPool, len(groups))
		}
		pools[g.name] = &ownPool{CPUs: g.cpus.list, hold: g.hold}
	}
	return pools
}

// size gives each shared pool its CPUs, within a limit for all, and returns their union.
func size(in inputs, groups []group, avail named, limit int, before divided) (all named, reasons []string) {
	for i := range groups {
		g := &groups[i]
		if i == 0 {
			g.present = in.shape.left(avail, before.Share)
		} else if p := before.Named[g.name]; p != nil {
			g.present = in.shape.left(avail, p.CPUs)
		}
	}
	if len(groups) > 1 {
		return sizes(in, groups, avail, limit)
	}
	reason := groups[0].sizeAlone(in, avail, limit)
	return groups[0].cpus, []string{reason}
}

// sizeAlone sizes the only shared pool: immediately when it grows, after the hold-down and in steps when it shrinks.
func (g *group) sizeAlone(in inputs, avail named, limit int) (reason string) {
	raw := float64(in.reserveMilliCPU) + g.milliCPU + g.system
	want := int(min(ceilCPUs(raw), float64(limit)))
	if in.off {
		want = limit
	}
	share := in.shape.resize(avail, g.present, want, limit)
	wanted, present := share.Size(), g.present.Size()

	bound := ""
	switch left := g.hold.remaining(in.now, in.settings.Hold); {
	case in.off:
		bound = fmt.Sprintf("; nothing is reclaimed, so it has all but the floor of %d CPUs (%s)", in.floorCPUs(), in.floorFrom)
	case ceilCPUs(raw) > float64(limit):
		bound = fmt.Sprintf("; the reclaimed pool keeps its floor of %d CPUs (%s)", in.floorCPUs(), in.floorFrom)
	case wanted >= present:
	case left > 0:
		bound = heldFor(present, left, in.settings)
		share = in.shape.resize(avail, g.present, present, limit)
	default:
		if stepped := in.shape.resize(avail, g.present, max(want, present-in.step()), limit); stepped.Size() > wanted {
			bound = in.stepping(wanted)
			share = stepped
		}
	}
	g.cpus = share
	g.hold.remember(in.now, present, share.Size(), wanted)
	return fmt.Sprintf("share: reserve %dm (%s) + %s = %.0fm -> %d CPUs in whole cores%s",
		in.reserveMilliCPU, in.reserveFrom, needText(g.milliCPU, g.containers, g.system), raw, share.Size(), bound)
}

// step returns the most CPUs by which a pool shrinks at once.
func (in inputs) step() int {
	return max(int(in.settings.ShrinkStepMilliCPU/1000), in.shape.LargestCore(), 1)
}

func (in inputs) stepping(wanted int) string {
	return fmt.Sprintf("; %d CPUs would do, it shrinks by %d a step (shrink-step: %s)", wanted, in.step(), in.settings.source("shrink-step"))
}

func heldFor(size int, left time.Duration, s Settings) string {
	return fmt.Sprintf("; held at %d CPUs for %.0fs more (hold %s: %s)", size, math.Ceil(left.Seconds()), s.Hold, s.source("hold"))
}

// ceilCPUs rounds milli-CPU up to whole CPUs. An excess of less than a thousandth of a milli-CPU is rounding noise of a load average, not
// need.
func ceilCPUs(milliCPU float64) float64 { return math.Ceil((milliCPU - 0.001) / 1000) }

// hold is when a pool's current size was last needed, and when it last changed.
type hold struct {
	LastNeed   time.Time `json:"lastNeed"`
	LastChange time.Time `json:"lastChange"`
}

// remaining returns for how long the pool must not shrink yet.
func (h *hold) remaining(now time.Time, hold time.Duration) time.Duration {
	last := h.LastNeed
	if h.LastChange.After(last) {
		last = h.LastChange
	}
	return hold - now.Sub(last)
}

// clock corrects the hold-down after the node's clock was set back: future times count as now.
func (h *hold) clock(now time.Time) {
	if h.LastNeed.After(now) {
		h.LastNeed = now
	}
	if h.LastChange.After(now) {
		h.LastChange = now
	}
}

// remember records when the current size was last needed, and when it changed.
func (h *hold) remember(now time.Time, before, after, wanted int) {
	if wanted >= before {
		h.LastNeed = now
	}
	if after != before {
		h.LastChange = now
	}
}
