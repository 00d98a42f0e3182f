// Package batch calculates what Koordinator offers of a node to batch and mid pods: the capacity less a safety margin, less the system's
// use or reservation, and less the use of the pods of higher priority. Formulas, defaults and units are those of Koordinator's
// slo-controller (pkg/slo-controller/noderesource); CPU is in milli-CPU, memory in bytes, all arithmetic in whole numbers.
//
// docs/policy-koordinator.md lists the differences, where Koordinator omits something.
package batch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/advise/koordinator/annotation"
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

// words are the reasons' names of a resource's figures.
var words = [resources]struct{ native, batch, mid, unit, margin, limit, midLimit, midStatic string }{
	{
		"cpu", "batch-cpu", "mid-cpu", "m", "cpuReclaimThresholdPercent", "batchCPUThresholdPercent", "midCPUThresholdPercent",
		"midStaticCPUReservedPercent",
	},
	{"memory", "batch-memory", "mid-memory", " B", "memoryReclaimThresholdPercent", "batchMemoryThresholdPercent", "midMemoryThresholdPercent", "midStaticMemoryReservedPercent"},
}

// amounts has a value of each resource, has whether it is known.
type (
	amounts [resources]int64
	has     [resources]bool
)

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// Known is when the node's use was last known; before that, when the node was first seen.
	Known time.Time `json:"known,omitzero"`
	// Seen is when the node was last seen.
	Seen time.Time `json:"seen,omitzero"`
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
	if st.Known.IsZero() || st.Known.After(t.Time) { // the clock was set back
		st.Known = t.Time
	}
	if st.Reclaimed != nil && t.Time.Sub(st.Seen) > degrade {
		// There were no ticks for longer than degradeTime, and the first reading has no rates: the published offer stays for another degradeTime,
		// because it would otherwise disappear until the second reading. The last offer is too stale to be repeated.
		st.Known, st.Reclaimed, st.Mid = t.Time, nil, nil
	}
	st.Seen = t.Time
	var n *node
	why := "no sample"
	if t.Sample != nil {
		if n, why = see(t.Sample, a); why == "" {
			why = st.observe(t, c)
		}
	}
	switch {
	case s.ColocationDisabled:
		st.withdraw(a, fmt.Sprintf("colocation is disabled for the cluster (%s: enable)", s.From))
	case !sloconfig.IsTrue(c.Enable):
		st.withdraw(a, fmt.Sprintf("colocation is disabled for this node (%s: enable)", s.From))
	case why != "":
		st.wait(a, t.Time, why, degrade)
	default:
		st.Known = t.Time
		st.offer(a, t, n, c)
	}
}

// withdraw withdraws the offer.
func (st *State) withdraw(a *tick.Advice, why string) {
	st.Reclaimed, st.Mid = nil, nil
	a.Withdrawn = why
	a.Reasons = append(a.Reasons, "nothing is offered: "+why)
}

// wait keeps the last offer while the node's use is unknown, until degrade has passed.
func (st *State) wait(a *tick.Advice, now time.Time, why string, degrade time.Duration) {
	until := st.Known.Add(degrade)
	switch {
	case now.After(until):
		st.withdraw(a, fmt.Sprintf("degraded: %s, and so it has been since %s (degradeTimeMinutes %d)", why, clock(st.Known), degrade/time.Minute))
	case st.Reclaimed == nil:
		a.Reasons = append(a.Reasons, why+": no advice on batch resources")
	default:
		a.Reclaimed, a.Mid = copied(st.Reclaimed), copied(st.Mid)
		a.Reasons = append(a.Reasons, fmt.Sprintf("%s: the last offer stays, until %s (degradeTimeMinutes %d)", why, clock(until), degrade/time.Minute))
	}
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// copied returns a copy, because the caller may change the advice.
func copied(r *tick.Reclaimed) *tick.Reclaimed {
	if r == nil {
		return nil
	}
	other := *r
	other.NUMANodes = slices.Clone(r.NUMANodes)
	return &other
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
			a.Reasons = append(a.Reasons, fmt.Sprintf("%s: the node's capacity or allocatable %s is not known: no advice on it", words[r].batch, words[r].native))
			continue
		}
		*into = new(n.batch(a, r, system[r], &sums[r], c))
	}
	reclaimed.NUMANodes = n.numa(a, st.pods, system, c)
	mid := st.mid(a, t.Time, n, used, system, sums, c)
	st.Reclaimed, st.Mid = reclaimed, mid
	a.Reclaimed, a.Mid = copied(reclaimed), copied(mid)
}

// terms are the terms of a formula: the capacity, and what is subtracted from it, with the policy.
type terms struct {
	capacity, margin, held, pods int64
	policy                       string
}

func (t terms) left() int64 { return less(less(less(t.capacity, t.margin), t.held), t.pods) }

// reckon calculates the formula of one resource under its policy. For the system it takes the larger of its use and its reservation.
func reckon(r resource, capacity, system, reserved int64, s *podSum, c *sloconfig.Colocation) terms {
	t := terms{
		capacity: capacity, margin: scaled(capacity, 100-reclaimPercent(r, c), 100), held: max(system, reserved),
		policy: policyOf(r, c),
	}
	switch t.policy {
	case sloconfig.CalculateRequest:
		t.held, t.pods = reserved, s.requests
	case sloconfig.CalculateMaxUsageRequest:
		t.pods = s.larger
	default:
		t.pods = s.uses
	}
	return t
}

func policyOf(r resource, c *sloconfig.Colocation) string {
	set := c.CPUCalculatePolicy
	if r == memory {
		set = c.MemoryCalculatePolicy
	}
	switch {
	case set == nil:
	case *set == sloconfig.CalculateMaxUsageRequest, r == memory && *set == sloconfig.CalculateRequest:
		return *set
	}
	return sloconfig.CalculateUsage // also for CPU with "request", like Koordinator
}

func reclaimPercent(r resource, c *sloconfig.Colocation) int64 {
	if r == cpu {
		return sloconfig.Within(c.CPUReclaimThresholdPercent, 60, 0, maxPercent)
	}
	return sloconfig.Within(c.MemoryReclaimThresholdPercent, 65, 0, maxPercent)
}

// batch returns the node's batch resource. The reason lists every term, so that a person can check the sum.
func (n *node) batch(a *tick.Advice, r resource, system int64, s *podSum, c *sloconfig.Colocation) int64 {
	w := words[r]
	amount := func(v int64) string { return fmt.Sprintf("%d%s", v, w.unit) }
	reserved := max(n.kubelet[r], n.annotated[r])
	t := reckon(r, n.capacity[r], system, reserved, s, c)
	left := t.left()

	held := "system " + amount(system)
	if reserved >= system || t.policy == sloconfig.CalculateRequest {
		held = fmt.Sprintf("reserved %s (kubelet %s, annotation %s; system %s)", amount(reserved), amount(n.kubelet[r]), amount(n.annotated[r]), amount(system))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%s): capacity %s - margin %s (%s %d) - %s - high-priority pods %s%s = %s",
		w.batch, t.policy, amount(t.capacity), amount(t.margin), w.margin, reclaimPercent(r, c), held, amount(t.pods),
		s.parts(t.policy, amount), amount(left))
	if limit, set := cap100(r, c); set {
		if limited := scaled(n.capacity[r], limit, 100); limited < left {
			left = limited
			fmt.Fprintf(&text, "; at most %s (%s %d)", amount(left), w.limit, limit)
		}
	}
	if left < 0 {
		left = 0
		fmt.Fprintf(&text, "; less than nothing: %s", amount(0))
	}
	left = min(left, most)
	if r == cpu && n.ratio > 100 {
		left = min(scaledUp(left, n.ratio, 100), most)
		fmt.Fprintf(&text, "; x %d.%02d (%s) = %s", n.ratio/100, n.ratio%100, annotation.Ratio, amount(left))
	}
	if third := n.thirdParties[r]; third > 0 {
		left = max(left-third, 0)
		fmt.Fprintf(&text, "; - third parties %s (%s) = %s", amount(third), annotation.ThirdParties, amount(left))
	}
	a.Reasons = append(a.Reasons, text.String())
	return left
}

// cap100 returns the limit of the offer, in percent of the capacity.
func cap100(r resource, c *sloconfig.Colocation) (int64, bool) {
	set := c.BatchCPUThresholdPercent
	if r == memory {
		set = c.BatchMemoryThresholdPercent
	}
	if set == nil || *set < 0 {
		return 0, false
	}
	return min(*set, maxPercent), true
}
