package batch

import (
	"fmt"
	"strings"

	"polder/advise/koordinator/annotation"
	"polder/lib/cpus"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// maxZones bounds the NUMA nodes; the kernel's own bound is 1024, and machines have about 8.
const maxZones = 64

// zone is a NUMA node with CPUs and memory.
type zone struct {
	id       int
	capacity amounts
}

// zonesOf returns the machine's NUMA nodes, if all needed values of them are known; it omits nodes without CPUs.
func zonesOf(t *tick.Topology) []zone {
	if t == nil || len(t.NUMANodes) > maxZones {
		return nil
	}
	var zones []zone
	seen := map[int]bool{}
	for i := range t.NUMANodes {
		n := &t.NUMANodes[i]
		list, err := cpus.Parse(n.CPUs)
		bytes, isKnown := wholeNumber(n.MemoryBytes)
		if err != nil || n.ID < 0 || seen[n.ID] {
			return nil
		}
		seen[n.ID] = true
		if list.IsEmpty() {
			continue
		}
		if !isKnown {
			return nil
		}
		zones = append(zones, zone{n.ID, amounts{int64(list.Size()) * 1000, bytes}})
	}
	return zones
}

// numa returns the offer by NUMA node: the node's formulas with each zone's capacity, equal parts of the use that belongs to no zone, and
// the part of each pod that runs in the zone.
func (n *node) numa(a *tick.Advice, pods []pod, system amounts, c *sloconfig.Colocation) []tick.ReclaimedNUMA {
	zones := n.zones
	if len(zones) == 0 {
		return nil
	}
	sums := make([][resources]podSum, len(zones))
	for i := range pods {
		if p := &pods[i]; p.isHighPriority {
			indices := zonesOfPod(p, zones)
			for _, z := range indices {
				for r := range resources {
					sums[z][r].count(p, r, len(indices))
				}
			}
		}
	}
	offers := make([]tick.ReclaimedNUMA, len(zones))
	for z := range zones {
		offers[z].ID = zones[z].id
	}
	for r := range resources {
		if !n.known[r] {
			continue
		}
		var text strings.Builder
		fmt.Fprintf(&text, "%s by NUMA node (%s, %s %d):", resourceNames[r].batch, policyOf(r, c), resourceNames[r].margin, reclaimPercent(r, c))
		for z := range zones {
			offer := n.zoneOffer(r, &zones[z], &sums[z][r], system[r], c, func(format string, args ...any) {
				if z < maxShown {
					fmt.Fprintf(&text, format, args...)
				}
			})
			if r == cpu {
				offers[z].MilliCPU = &offer
			} else {
				offers[z].MemoryBytes = &offer
			}
		}
		if len(zones) > maxShown {
			fmt.Fprintf(&text, " and %d more", len(zones)-maxShown)
		}
		if len(zones) > 1 { // with one zone it would repeat the node's reason
			a.Reasons = append(a.Reasons, strings.TrimSuffix(text.String(), ";"))
		}
	}
	return offers
}

// zoneOffer returns one zone's offer of a resource; it calls addTerm with its terms.
func (n *node) zoneOffer(r resource, z *zone, pods *podSum, system int64, c *sloconfig.Colocation,
	addTerm func(format string, args ...any),
) int64 {
	w := resourceNames[r]
	amount := func(v int64) string { return fmt.Sprintf("%d%s", v, w.unit) }
	system = equalPart(system, len(n.zones))
	reserved := equalPart(max(n.reservedByKubelet[r], n.reservedByAnnotation[r]), len(n.zones))
	t := calculate(r, z.capacity[r], system, reserved, pods, c)
	offer := t.result()
	systemText := "system"
	if t.policy == sloconfig.CalculateRequest || reserved >= system {
		systemText = "reserved"
	}
	addTerm(" %d: capacity %s - margin %s - %s %s - high-priority pods %s = %s",
		z.id, amount(t.capacity), amount(t.margin), systemText, amount(t.system), amount(t.pods), amount(offer))
	if limit, isSet := limitPercent(r, c); isSet {
		if limited := scale(z.capacity[r], limit, 100); limited < offer {
			offer = limited
			addTerm(", at most %s (%s %d)", amount(offer), w.limit, limit)
		}
	}
	if offer < 0 {
		offer = 0
		addTerm(", negative: %s", amount(offer))
	}
	offer = min(offer, maxAmount)
	if r == cpu && n.ratio > 100 {
		offer = min(scaleUp(offer, n.ratio, 100), maxAmount)
		addTerm(", x %d.%02d (%s) = %s", n.ratio/100, n.ratio%100, annotation.Ratio, amount(offer))
	}
	addTerm(";")
	return offer
}

// maxShown is the number of NUMA nodes whose terms a reason lists.
const maxShown = 8

// zonesOfPod returns the indices of the zones that a pod runs on: those that the scheduler assigned, else all.
func zonesOfPod(p *pod, zones []zone) []int {
	var indices []int
	type status struct {
		Nodes []struct {
			Node int `json:"node"`
		} `json:"numaNodeResources"`
	}
	if strings.Contains(p.Annotations[annotation.Status], "numaNodeResources") {
		if read, _ := annotation.Read[status](p.Annotations, annotation.Status); read != nil {
			for z := range zones {
				for i := range read.Nodes {
					if read.Nodes[i].Node == zones[z].id {
						indices = append(indices, z)
						break
					}
				}
			}
		}
	}
	if indices == nil {
		for z := range zones {
			indices = append(indices, z)
		}
	}
	return indices
}
