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
	isStatic := c.MidReclaimMode != nil && *c.MidReclaimMode == sloconfig.MidReclaimStatic
	prod := st.History.reclaimable(now, st.pods, n.capacity)
	percent := func(v *int64, defaultValue int64) int64 { return sloconfig.Within(v, defaultValue, 0, maxPercent) }
	threshold := [resources]int64{percent(c.MidCPUThresholdPercent, 100), percent(c.MidMemoryThresholdPercent, 100)}
	staticPercent := [resources]int64{percent(c.MidStaticCPUReservedPercent, 0), percent(c.MidStaticMemoryReservedPercent, 0)}
	unallocatedPercent := percent(c.MidUnallocatedPercent, 0)

	mid := &tick.Reclaimed{}
	for r := range resources {
		if !n.known[r] {
			continue
		}
		w, capacity := resourceNames[r], n.capacity[r]
		amount := func(v int64) string { return fmt.Sprintf("%d%s", v, w.unit) }
		var offer int64
		var text string
		if isStatic {
			offer = scale(capacity, staticPercent[r], 100)
			text = fmt.Sprintf("%s (static): capacity %s x %d %% (%s) = %s", w.mid, amount(capacity), staticPercent[r], w.midStatic, amount(offer))
		} else {
			unused := max(subtract(capacity, used[r]), 0)
			reserved := max(system[r], n.reservedByKubelet[r], n.reservedByAnnotation[r])
			unallocated := max(subtract(subtract(capacity, reserved), sums[r].requests), 0)
			offer = add(min(prod.reclaimable[r], unused), scale(unallocated, unallocatedPercent, 100))
			text = fmt.Sprintf("%s: the smaller of %s and unused %s (capacity %s - used %s), + %d %% (midUnallocatedPercent) of unallocated %s (capacity %s - the largest of system %s, kubelet %s and annotation %s - requests of high-priority pods %s) = %s",
				w.mid, prod.text(r, capacity, amount), amount(unused), amount(capacity), amount(used[r]), unallocatedPercent, amount(unallocated),
				amount(capacity), amount(system[r]), amount(n.reservedByKubelet[r]), amount(n.reservedByAnnotation[r]),
				amount(sums[r].requests), amount(offer))
		}
		if limit := scale(capacity, threshold[r], 100); limit < offer {
			offer = limit
			text += fmt.Sprintf("; at most %s (%s %d)", amount(limit), w.midLimit, threshold[r])
		}
		offer = min(offer, maxAmount)
		a.Reasons = append(a.Reasons, text)
		if r == cpu {
			mid.MilliCPU = &offer
		} else {
			mid.MemoryBytes = &offer
		}
	}
	return mid
}
