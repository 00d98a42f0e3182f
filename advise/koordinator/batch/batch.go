// Package batch calculates what Koordinator offers of a node to batch and mid pods: the capacity less a safety margin, less the system's
// use or reservation, and less the use of the pods of higher priority. Formulas, defaults and units are those of Koordinator's
// slo-controller (pkg/slo-controller/noderesource); CPU is in milli-CPU, memory in bytes, all arithmetic in whole numbers.
//
// docs/policy-koordinator.md lists the differences, where Koordinator omits something.
package batch

import (
	"fmt"
	"strings"
	"time"

	"polder/advise/koordinator/annotation"
	"polder/advise/policy"
	"polder/lib/reason"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// resource is a resource that is offered: both are calculated in the same way, with settings of their own.
type resource int

const (
	cpu resource = iota
	memory
	resources
)

// resourceNames are the reasons' names of a resource's figures.
var resourceNames = [resources]struct{ native, batch, mid, unit, margin, limit, midLimit, midStatic string }{
	{
		"cpu", reason.BatchCPU, reason.Mid + "cpu", "m", "cpuReclaimThresholdPercent", "batchCPUThresholdPercent", "midCPUThresholdPercent",
		"midStaticCPUReservedPercent",
	},
	{
		"memory", "batch-memory", reason.Mid + "memory", " B", "memoryReclaimThresholdPercent", "batchMemoryThresholdPercent",
		"midMemoryThresholdPercent", "midStaticMemoryReservedPercent",
	},
}

// amounts has a value of each resource, resourceFlags a yes or no of each.
type (
	amounts       [resources]int64
	resourceFlags [resources]bool
)

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// KnownAt is when the node's use was last known; before that, when the node was first seen.
	KnownAt time.Time `json:"known,omitzero"`
	// SeenAt is when the node was last seen.
	SeenAt time.Time `json:"seen,omitzero"`
	// Reclaimed and Mid are the last offer, which stays while the node's use is unknown, up to degradeTime.
	Reclaimed *tick.Reclaimed `json:"reclaimed,omitempty"`
	Mid       *tick.Reclaimed `json:"mid,omitempty"`

	Uses    uses    `json:"uses,omitzero"`
	History history `json:"history,omitzero"`

	pods []pod // reused memory
}

// Advise sets the advice's Reclaimed and Mid, or Withdrawn. It is pure except for the state.
func (st *State) Advise(t *tick.Tick, s *sloconfig.Strategies, a *tick.Advice) {
	c := &s.Colocation
	degrade := time.Duration(sloconfig.Within(c.DegradeTimeMinutes, 15, 1, 1e6)) * time.Minute
	if st.KnownAt.IsZero() || st.KnownAt.After(t.Time) { // the clock was set back
		st.KnownAt = t.Time
	}
	if st.Reclaimed != nil && t.Time.Sub(st.SeenAt) > degrade {
		// There were no ticks for longer than degradeTime, and the first reading has no rates: the published offer stays for another degradeTime,
		// because it would otherwise disappear until the second reading. The last offer is too stale to be repeated.
		st.KnownAt, st.Reclaimed, st.Mid = t.Time, nil, nil
	}
	st.SeenAt = t.Time
	var n *node
	why := "no sample"
	if t.Sample != nil {
		if n, why = readNode(t.Sample, a); why == "" {
			why = st.observe(t, c)
		}
		if why == "" && policy.PodsUnknown(t.Sample) { // so are their requests, which would count as none
			why = "the cluster's pods are still unknown"
		}
	}
	switch {
	case s.ColocationDisabled:
		st.withdraw(a, fmt.Sprintf("colocation is disabled for the cluster (%s: enable)", s.From))
	case !sloconfig.IsTrue(c.Enable):
		st.withdraw(a, fmt.Sprintf("colocation is disabled for this node (%s: enable)", s.From))
	case why != "":
		st.keepLastOffer(a, t.Time, why, degrade)
	default:
		st.KnownAt = t.Time
		st.offer(a, t, n, c)
	}
}

// withdraw withdraws the offer.
func (st *State) withdraw(a *tick.Advice, why string) {
	st.Reclaimed, st.Mid = nil, nil
	a.Withdrawn = why
	a.Reasons = append(a.Reasons, reason.NotOffered+why)
}

// keepLastOffer keeps the last offer while the node's use is unknown, until degrade has passed.
func (st *State) keepLastOffer(a *tick.Advice, now time.Time, why string, degrade time.Duration) {
	until := st.KnownAt.Add(degrade)
	switch {
	case now.After(until):
		st.withdraw(a, fmt.Sprintf("degraded: %s, since %s (degradeTimeMinutes %d)", why, st.KnownAt.UTC().Format(time.RFC3339),
			degrade/time.Minute))
	case st.Reclaimed == nil:
		a.Reasons = append(a.Reasons, why+": no advice on batch resources")
	default:
		a.Reclaimed, a.Mid = st.Reclaimed.Clone(), st.Mid.Clone()
		a.Reasons = append(a.Reasons, fmt.Sprintf("%s: the last offer stays until %s (degradeTimeMinutes %d)", why,
			until.UTC().Format(time.RFC3339), degrade/time.Minute))
	}
}

// offer calculates the current offer.
func (st *State) offer(a *tick.Advice, t *tick.Tick, n *node, c *sloconfig.Colocation) {
	sums := sum(st.pods)
	var used, system amounts
	for r := range resources { // observe has just added these values
		used[r], _ = st.Uses.Node[r].average()
		system[r], _ = st.Uses.System[r].average()
	}
	reclaimed := &tick.Reclaimed{}
	for r := range resources {
		into := &reclaimed.MilliCPU
		if r == memory {
			into = &reclaimed.MemoryBytes
		}
		if !n.known[r] {
			a.Reasons = append(a.Reasons, fmt.Sprintf("%s: the node's capacity or allocatable %s is unknown: no advice on it", resourceNames[r].batch, resourceNames[r].native))
			continue
		}
		*into = new(n.batchResource(a, r, system[r], &sums[r], c))
	}
	reclaimed.NUMANodes = n.numa(a, st.pods, system, c)
	mid := st.mid(a, t.Time, n, used, system, sums, c)
	st.Reclaimed, st.Mid = reclaimed, mid
	a.Reclaimed, a.Mid = reclaimed.Clone(), mid.Clone()
}

// terms are the terms of a formula: the capacity, and what is subtracted from it, with the policy.
type terms struct {
	capacity, margin, system, pods int64
	policy                         string
}

func (t terms) result() int64 {
	return subtract(subtract(subtract(t.capacity, t.margin), t.system), t.pods)
}

// calculate calculates the formula of one resource under its policy. For the system it takes the larger of its use and its reservation.
func calculate(r resource, capacity, system, reserved int64, s *podSum, c *sloconfig.Colocation) terms {
	t := terms{
		capacity: capacity, margin: scale(capacity, 100-reclaimPercent(r, c), 100), system: max(system, reserved),
		policy: policyOf(r, c),
	}
	switch t.policy {
	case sloconfig.CalculateRequest:
		t.system, t.pods = reserved, s.requests
	case sloconfig.CalculateMaxUsageRequest:
		t.pods = s.larger
	default:
		t.pods = s.uses
	}
	return t
}

func policyOf(r resource, c *sloconfig.Colocation) string {
	configured := c.CPUCalculatePolicy
	if r == memory {
		configured = c.MemoryCalculatePolicy
	}
	switch {
	case configured == nil:
	case *configured == sloconfig.CalculateMaxUsageRequest, r == memory && *configured == sloconfig.CalculateRequest:
		return *configured
	}
	return sloconfig.CalculateUsage // also for CPU with "request", like Koordinator
}

func reclaimPercent(r resource, c *sloconfig.Colocation) int64 {
	if r == cpu {
		return sloconfig.Within(c.CPUReclaimThresholdPercent, 60, 0, maxPercent)
	}
	return sloconfig.Within(c.MemoryReclaimThresholdPercent, 65, 0, maxPercent)
}

// batchResource returns the node's batch resource. The reason lists every term, so that a person can check the sum.
func (n *node) batchResource(a *tick.Advice, r resource, system int64, s *podSum, c *sloconfig.Colocation) int64 {
	w := resourceNames[r]
	amount := func(v int64) string { return fmt.Sprintf("%d%s", v, w.unit) }
	reserved := max(n.reservedByKubelet[r], n.reservedByAnnotation[r])
	t := calculate(r, n.capacity[r], system, reserved, s, c)
	offer := t.result()

	systemText := "system " + amount(system)
	if reserved >= system || t.policy == sloconfig.CalculateRequest {
		systemText = fmt.Sprintf("reserved %s (kubelet %s, annotation %s; system %s)", amount(reserved), amount(n.reservedByKubelet[r]), amount(n.reservedByAnnotation[r]), amount(system))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%s): capacity %s - margin %s (%s %d) - %s - high-priority pods %s%s = %s",
		w.batch, t.policy, amount(t.capacity), amount(t.margin), w.margin, reclaimPercent(r, c), systemText, amount(t.pods),
		s.text(t.policy, amount), amount(offer))
	if limit, isSet := limitPercent(r, c); isSet {
		if limited := scale(n.capacity[r], limit, 100); limited < offer {
			offer = limited
			fmt.Fprintf(&text, "; at most %s (%s %d)", amount(offer), w.limit, limit)
		}
	}
	if offer < 0 {
		offer = 0
		fmt.Fprintf(&text, "; negative: %s", amount(0))
	}
	offer = min(offer, maxAmount)
	if r == cpu && n.ratio > 100 {
		offer = min(scaleUp(offer, n.ratio, 100), maxAmount)
		fmt.Fprintf(&text, "; x %d.%02d (%s) = %s", n.ratio/100, n.ratio%100, annotation.Ratio, amount(offer))
	}
	if assigned := n.thirdParties[r]; assigned > 0 {
		offer = max(offer-assigned, 0)
		fmt.Fprintf(&text, "; - third parties %s (%s) = %s", amount(assigned), annotation.ThirdParties, amount(offer))
	}
	a.Reasons = append(a.Reasons, text.String())
	return offer
}

// limitPercent returns the limit of the offer, in percent of the capacity.
func limitPercent(r resource, c *sloconfig.Colocation) (int64, bool) {
	configured := c.BatchCPUThresholdPercent
	if r == memory {
		configured = c.BatchMemoryThresholdPercent
	}
	if configured == nil || *configured < 0 {
		return 0, false
	}
	return min(*configured, maxPercent), true
}
