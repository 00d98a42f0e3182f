// Package batch is what Koordinator offers of a node to batch and mid pods: the capacity without a safety margin, what the system
// uses or is reserved for it, and what the pods of higher priority use. Formulas, defaults and units are those of Koordinator's
// slo-controller (pkg/slo-controller/noderesource); CPU is in milli-CPU, memory in bytes, all arithmetic in whole numbers.
//
// It differs where Koordinator forgets something: see docs/policy-koordinator.md.
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

// resource is what is reckoned: both the same way, each by strategies of its own.
type resource int

const (
	cpu resource = iota
	memory
	resources
)

// words are what the reasons call a resource's figures.
var words = [resources]struct{ native, batch, mid, unit, margin, limit, midLimit, midStatic string }{
	{
		"cpu", "batch-cpu", "mid-cpu", "m", "cpuReclaimThresholdPercent", "batchCPUThresholdPercent", "midCPUThresholdPercent",
		"midStaticCPUReservedPercent",
	},
	{"memory", "batch-memory", "mid-memory", " B", "memoryReclaimThresholdPercent", "batchMemoryThresholdPercent", "midMemoryThresholdPercent", "midStaticMemoryReservedPercent"},
}

// amounts is one figure of each resource, has whether it is known.
type (
	amounts [resources]int64
	has     [resources]bool
)

// State is what is remembered of one node, in the form of the state file.
type State struct {
	// Known is when the node's use was last known; before that, when the node was seen first.
	Known time.Time `json:"known,omitzero"`
	// Seen is when the node was seen last.
	Seen time.Time `json:"seen,omitzero"`
	// Reclaimed and Mid are the last offer, which stays while the node's use is unknown, but not for long.
	Reclaimed *tick.Reclaimed `json:"reclaimed,omitempty"`
	Mid       *tick.Reclaimed `json:"mid,omitempty"`

	Uses    uses    `json:"uses,omitzero"`
	History history `json:"history,omitzero"`

	pods []pod // memory that is used again
}

// Advise offers what is to be offered: it sets the advice's Reclaimed and Mid, or Withdrawn. It is pure but for the state.
func (st *State) Advise(t *tick.Tick, s *sloconfig.Strategies, a *tick.Advice) {
	c := &s.Colocation
	degrade := time.Duration(sloconfig.Within(c.DegradeTimeMinutes, 15, 1, 1e6)) * time.Minute
	if st.Known.IsZero() || st.Known.After(t.Time) { // the clock was set back
		st.Known = t.Time
	}
	if st.Reclaimed != nil && t.Time.Sub(st.Seen) > degrade {
		// Nobody looked for so long, and the first reading has no rates: what is published has its time once more, for else it would
		// go and come back with the second. The last offer is too old to be repeated.
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

// withdraw takes the offer back.
func (st *State) withdraw(a *tick.Advice, why string) {
	st.Reclaimed, st.Mid = nil, nil
	a.Withdrawn = why
	a.Reasons = append(a.Reasons, "nothing is offered: "+why)
}

// wait lets the last offer stay while the node's use is unknown, until that has been so for too long.
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

// copied is a copy: the advice is the caller's.
func copied(r *tick.Reclaimed) *tick.Reclaimed {
	if r == nil {
		return nil
	}
	other := *r
	other.NUMANodes = slices.Clone(r.NUMANodes)
	return &other
}

// offer reckons what is offered now.
func (st *State) offer(a *tick.Advice, t *tick.Tick, n *node, c *sloconfig.Colocation) {
	sums := sum(st.pods)
	var used, system amounts
	for r := range resources { // known: observe has just noted them
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

// terms are a formula's: what is left of the capacity when they are taken away, and where one of them came from.
type terms struct {
	capacity, margin, held, pods int64
	policy                       string
}

func (t terms) left() int64 { return less(less(less(t.capacity, t.margin), t.held), t.pods) }

// reckon is the formula of one resource under its policy. For the system it takes what that uses, or what is reserved for it
// where that is more.
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
	return sloconfig.CalculateUsage // also for cpu's "request", as Koordinator has it
}

func reclaimPercent(r resource, c *sloconfig.Colocation) int64 {
	if r == cpu {
		return sloconfig.Within(c.CPUReclaimThresholdPercent, 60, 0, maxPercent)
	}
	return sloconfig.Within(c.MemoryReclaimThresholdPercent, 65, 0, maxPercent)
}

// batch is the node's batch resource. The reason has every term, so that a person can redo the sum.
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

// cap100 is the most that is offered, in percent of the capacity.
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
