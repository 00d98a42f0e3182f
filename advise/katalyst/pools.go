package katalyst

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// pools divides the machine's whole cores between the shared, the reclaimed and the dedicated pods.
func (n *node) pools(a *tick.Advice, t *tick.Tick, groups []group, avail named, limit int, r resolved, s Settings) *layout {
	var l *layout
	if len(groups) == 1 {
		g := &groups[0]
		g.cpus = n.size(a, t.Time, avail, g, limit, r, s)
		l = n.shape.layout(avail, g.cpus, r.floorCPUs())
	} else {
		l = n.shape.layout(avail, n.sizes(a, t.Time, avail, groups, limit, r, s), r.floorCPUs())
	}
	if l.reclaim.IsEmpty() {
		a.Reasons = append(a.Reasons, fmt.Sprintf("no CPU is left for the reclaimed pool: the shared pods have all of %s, and the reclaimed ones run there too", avail.list))
		l = &layout{spare: l.spare, everywhere: avail.list, perNUMA: l.perNUMA}
	}
	n.Share, n.ShareMilliCPU, n.Named = groups[0].cpus.list, 0, nil

	if !n.shape.system.IsEmpty() {
		a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolReserve, CPUs: n.shape.system.String()})
	}
	for i := range groups {
		g := &groups[i]
		if g.cpus.IsEmpty() || g.merged {
			continue
		}
		a.Pools = append(a.Pools, tick.Pool{Name: g.name, CPUs: g.cpus.list})
		if i > 0 {
			if n.Named == nil {
				n.Named = make(map[string]*ownPool, len(groups))
			}
			n.Named[g.name] = &ownPool{CPUs: g.cpus.list, hold: *g.hold}
		}
	}
	if !l.reclaim.IsEmpty() {
		a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolReclaim, CPUs: l.reclaim.list})
	}
	for _, k := range slices.Sorted(maps.Keys(n.Dedicated)) {
		a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolDedicatedPrefix + k, CPUs: n.Dedicated[k]})
	}
	if !n.shape.exclusive.IsEmpty() {
		a.Reasons = append(a.Reasons, fmt.Sprintf("CPUs %s are in no pool: kubelet gave them to containers of their own", n.shape.exclusive))
	}
	n.Pools = true
	return l
}

// present is a pool as it was, without CPUs that have gone since.
func (n *node) present(avail named, list string) named {
	return memo(&n.shape.resizes, resizeKey{avail.list, list, -1, -1}, func() named {
		return name(n.shape.parse(list).Intersection(avail.Set))
	})
}

// presentShared is all that the shared pools had.
func (n *node) presentShared() cpus.Set {
	shared := n.shape.parse(n.Share).Set
	for _, p := range n.Named {
		shared = shared.Union(n.shape.parse(p.CPUs).Set)
	}
	return shared
}

// size decides the shared pool: at once when it grows, after the hold and in steps when it shrinks.
func (n *node) size(a *tick.Advice, now time.Time, avail named, g *group, limit int, r resolved, s Settings) named {
	present := n.present(avail, n.Share)
	raw := float64(r.reserveMilliCPU) + g.milliCPU + g.system
	want := int(min(ceilCPUs(raw), float64(limit)))
	if r.off {
		want = limit
	}
	share := n.shape.resize(avail, present, want, limit)
	wanted := share.Size()

	bound := ""
	switch held := n.held(now, s.Hold); {
	case r.off:
		bound = fmt.Sprintf("; nothing is reclaimed, so it has all but the floor of %d CPUs (%s)", r.floorCPUs(), r.floorFrom)
	case ceilCPUs(raw) > float64(limit):
		bound = fmt.Sprintf("; the reclaimed pool keeps its floor of %d CPUs (%s)", r.floorCPUs(), r.floorFrom)
	case wanted >= present.Size():
	case held > 0:
		bound = heldFor(present.Size(), held, s)
		share = n.shape.resize(avail, present, present.Size(), limit)
	default:
		if stepped := n.shape.resize(avail, present, max(want, present.Size()-n.step(s)), limit); stepped.Size() > wanted {
			bound = n.stepping(wanted, s)
			share = stepped
		}
	}
	a.Reasons = append(a.Reasons, fmt.Sprintf("share: reserve %dm (%s) + %s = %.0fm -> %d CPUs in whole cores%s",
		r.reserveMilliCPU, r.reserveFrom, needText(g.milliCPU, g.containers, g.system), raw, share.Size(), bound))
	n.remember(now, present.Size(), share.Size(), wanted)
	return share
}

// step is the most CPUs by which a pool shrinks at once.
func (n *node) step(s Settings) int {
	return max(int(s.ShrinkStepMilliCPU/1000), n.shape.LargestCore(), 1)
}

func (n *node) stepping(wanted int, s Settings) string {
	return fmt.Sprintf("; %d CPUs would do, it shrinks by %d a step (shrink-step: %s)", wanted, n.step(s), s.source("shrink-step"))
}

func heldFor(size int, held time.Duration, s Settings) string {
	return fmt.Sprintf("; held at %d CPUs for %.0fs more (hold %s: %s)", size, math.Ceil(held.Seconds()), s.Hold, s.source("hold"))
}

// ceilCPUs is milli-CPU in whole CPUs, rounded up. What is less than a thousandth of a milli-CPU over is rounding noise
// of a load average, not need.
func ceilCPUs(milliCPU float64) float64 { return math.Ceil((milliCPU - 0.001) / 1000) }

// hold is when a pool's present size was needed last, and when it changed last.
type hold struct {
	LastNeed   time.Time `json:"lastNeed"`
	LastChange time.Time `json:"lastChange"`
}

// held is for how long the pool must not shrink yet.
func (h *hold) held(now time.Time, hold time.Duration) time.Duration {
	last := h.LastNeed
	if h.LastChange.After(last) {
		last = h.LastChange
	}
	return hold - now.Sub(last)
}

// clock keeps the hold-down sound where the node's clock is set back: what lies ahead counts as now.
func (h *hold) clock(now time.Time) {
	if h.LastNeed.After(now) {
		h.LastNeed = now
	}
	if h.LastChange.After(now) {
		h.LastChange = now
	}
}

// remember notes when the present size was needed last, and when it changed.
func (h *hold) remember(now time.Time, before, after, wanted int) {
	if wanted >= before {
		h.LastNeed = now
	}
	if after != before {
		h.LastChange = now
	}
}
