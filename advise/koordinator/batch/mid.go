package batch

import (
	"fmt"
	"time"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// mid returns the offer to pods of mid priority: the part of the prod pods' requests that they are predicted not to use, and a part of the
// capacity that no pod requests.
func (st *State) mid(a *tick.Advice, now time.Time, n *node, used, system amounts, sums [resources]podSum,
	c *sloconfig.Colocation,
) *tick.Reclaimed {
	static := c.MidReclaimMode != nil && *c.MidReclaimMode == sloconfig.MidReclaimStatic
	prod := st.History.reclaimable(now, st.pods, n.capacity)
	percent := func(v *int64, otherwise int64) int64 { return sloconfig.Within(v, otherwise, 0, maxPercent) }
	threshold := [resources]int64{percent(c.MidCPUThresholdPercent, 100), percent(c.MidMemoryThresholdPercent, 100)}
	fixed := [resources]int64{percent(c.MidStaticCPUReservedPercent, 0), percent(c.MidStaticMemoryReservedPercent, 0)}
	share := percent(c.MidUnallocatedPercent, 0)

	mid := &tick.Reclaimed{}
	for r := range resources {
		if !n.known[r] {
			continue
		}
		w, capacity := words[r], n.capacity[r]
		amount := func(v int64) string { return fmt.Sprintf("%d%s", v, w.unit) }
		var left int64
		var text string
		if static {
			left = scaled(capacity, fixed[r], 100)
			text = fmt.Sprintf("%s (static): capacity %s x %d %% (%s) = %s", w.mid, amount(capacity), fixed[r], w.midStatic, amount(left))
		} else {
			unused := max(less(capacity, used[r]), 0)
			held := max(system[r], n.kubelet[r], n.annotated[r])
			unallocated := max(less(less(capacity, held), sums[r].requests), 0)
			left = add(min(prod.free[r], unused), scaled(unallocated, share, 100))
			text = fmt.Sprintf("%s: the smaller of %s and unused %s (capacity %s - used %s), + %d %% (midUnallocatedPercent) of unallocated %s (capacity %s - the largest of system %s, kubelet %s and annotation %s - requests of high-priority pods %s) = %s",
				w.mid, prod.sentence(r, capacity, amount), amount(unused), amount(capacity), amount(used[r]), share, amount(unallocated),
				amount(capacity), amount(system[r]), amount(n.kubelet[r]), amount(n.annotated[r]), amount(sums[r].requests), amount(left))
		}
		if limit := scaled(capacity, threshold[r], 100); limit < left {
			left = limit
			text += fmt.Sprintf("; at most %s (%s %d)", amount(limit), w.midLimit, threshold[r])
		}
		left = min(left, most)
		a.Reasons = append(a.Reasons, text)
		if r == cpu {
			mid.MilliCPU = &left
		} else {
			mid.MemoryBytes = &left
		}
	}
	return mid
}
