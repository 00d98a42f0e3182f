// Package harvest is Polder's own policy: it offers batch what the services will not need, predicted from their past use.
//
//	offer = CPUs that batch may have - level - margin for growth - requests of new pods
//
// The level is the services' use, by its largest values; the growth is the increase from that level in the spans of time that were observed
// on this machine, chosen by cost: room costs its own size, and a span that outgrows it costs Price machines. The offer rises after a delay
// and falls in steps while there is room, so that promised resources stay. Batch leaves as many whole cores as it takes for a buffer of
// CPUs to be idle for the services' bursts; the services run on all CPUs, and batch is in a scheduling class below them, so that no burst
// waits for a tick.
//
// Sources of the ideas:
//   - Resource Central (Cortez and others, SOSP 2017): past use of machines predicts their future use; largest values over minutes.
//   - N-sigma and its like at Borg (Bashir and others, EuroSys 2021, "Take it to the limit"): predict the peak of a machine's sum, not
//     of each task; the sum is steadier.
//   - Autopilot (Rzadca and others, EuroSys 2020): histograms of use that age with a half-life, and a choice by cost, in which too
//     little, too much, and each change have their costs.
//   - PerfIso (Iorgulescu and others, USENIX ATC 2018): a buffer of CPUs that are idle as the machine shows it; batch gets the rest.
//   - Heracles (Lo and others, ISCA 2015): take from batch immediately, return slowly; keep whole cores, not hyperthreads.
package harvest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"polder/advise/class"
	"polder/advise/disk"
	"polder/advise/layers"
	"polder/advise/policy"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// Policy describes the package in the list of policies.
var Policy = policy.Policy{
	Name: "harvest",
	Doc: `what services will not need, predicted from their use
What services will use within the hour is predicted from their largest use and from how it grew before on this machine; the
rest is offered, with few changes. Batch leaves whole cores, so that a buffer of CPUs is idle for bursts.`,
	StateVersion: 2001,
}

// staleAfter is how long an offer stays while the services' use is unknown.
const staleAfter = 15 * time.Minute

// Decider decides for any number of nodes, and keeps a separate state for each.
type Decider struct {
	policy.Base[Settings, node, *node]
}

// New returns a Decider.
func New(s Settings) *Decider { return &Decider{Base: policy.NewBase[Settings, node](s)} }

// node is the state of one node, in the format of the state file.
type node struct {
	SeenAt time.Time `json:"seen,omitzero"`
	// KnownAt is when the services' use was last known; zero if it never was.
	KnownAt time.Time `json:"known,omitzero"`
	// Reclaimed is the last offer as it was advised: it is repeated while the services' use is unknown, up to [staleAfter].
	Reclaimed *tick.Reclaimed `json:"reclaimed,omitempty"`
	// Reservation is what the Node object reserves, as last known; nil if it never was.
	Reservation *policy.Reservation `json:"reservation,omitempty"`
	// CPU and Memory predict the services' need; Offered and OfferedMemory are the current offers.
	CPU           forecast  `json:"cpu"`
	Memory        forecast  `json:"memory"`
	Offered       offer     `json:"offered"`
	OfferedMemory offer     `json:"offeredMemory"`
	Pods          pods      `json:"pods"`
	Placement     placement `json:"place"`
	policy.ExclusiveCPUs
	layers.State
	Fallback []tick.Cgroup `json:"fallback,omitempty"`

	shape     *shape // derived from the topology; rebuilt when that changes
	outside   policy.OutsideUse
	isGuarded bool // the guard had steps in force in the last tick
}

// LastUsed returns when the node was last seen.
func (n *node) LastUsed() time.Time { return n.SeenAt }

// Reboot keeps the history of the services' use.
func (n *node) Reboot() {
	n.Placement.IsConfined, n.Placement.WithoutBatch, n.Placement.Tier, n.Placement.Lists = false, "", "", nil
	n.State.Reboot()
	n.Fallback = nil
}

// Decide implements [policy.Decider].
func (d *Decider) Decide(t *tick.Tick) *tick.Advice {
	n := d.Node(t.Node)
	n.observeTime(t.Time)
	a := &tick.Advice{Policy: Policy.Name}
	s := t.Sample
	if why := n.missingInput(a, s, d.Settings); why != "" {
		return n.withoutDecision(a, t, why)
	}
	why := n.observeReservation(s)
	need := n.observeDemand(t, d.Settings)
	if math.IsNaN(need.milliCPU) {
		return n.withoutDecision(a, t, "the services' use is unknown (a first reading has no rates)")
	}
	if n.Reservation == nil {
		n.keepLastOffer(a, t.Time, why, "no new offer")
	} else {
		if why != "" {
			a.Reasons = append(a.Reasons, why)
		}
		n.KnownAt = t.Time
		n.offerCPU(a, t, need, d.Settings)
		n.offerMemory(a, t, need, d.Settings)
	}
	n.placeBatch(a, t, need, d.Settings)
	if a.Reclaimed != nil {
		n.Reclaimed = a.Reclaimed.Clone()
	}
	policy.ClearIdleTiers(s, a)
	milliCPU := int64(n.shape.Online.Size()) * 1000
	m := class.Machine{MilliCPU: milliCPU, FloorMilliCPU: milliCPU / 10, CgroupVersion: s.CgroupVersion}
	n.State.Advise(t, a, d.Settings.Shared, m, disk.Strategy{})
	n.isGuarded = len(a.GuardSteps) > 0
	a.Cgroups, a.Fallback = uniqueByPath(a.Cgroups), uniqueByPath(a.Fallback)
	n.Fallback = a.Fallback
	return a
}

// missingInput returns which input is missing for a decision.
func (n *node) missingInput(a *tick.Advice, s *tick.Sample, settings Settings) string {
	switch {
	case s == nil:
		return "no sample"
	case s.Fleet != nil || s.Agent != nil: // collect fleet does not know the node's use: the node's own pipe decides
		return "the sample is from collect fleet"
	case s.Topology == nil:
		return "no topology in the sample"
	case !n.KnownAt.IsZero() && policy.PodsUnknown(s):
		return "the cluster's pods are still unknown"
	}
	unreadText, err := n.ExclusiveCPUs.Observe(s)
	if err != nil {
		return err.Error()
	}
	if unreadText != "" {
		a.Reasons = append(a.Reasons, unreadText)
	}
	if err := n.updateShape(s.Topology, settings.ReservedCPUs, n.ExclusiveCPUs.CPUs); err != nil {
		return policy.OneLine(err)
	}
	return ""
}

// observeTime records when the node was seen. After a pause of [staleAfter] the time that the last offer stays starts over: a first reading
// has no rates, and the offer that is published would disappear until the second one. The last offer is too old to be repeated.
func (n *node) observeTime(now time.Time) {
	if !n.KnownAt.IsZero() && now.Sub(n.SeenAt) >= staleAfter {
		n.KnownAt, n.Reclaimed = now, nil
	}
	if n.KnownAt.After(now) { // the clock was set back
		n.KnownAt = now
	}
	n.SeenAt = now
}

// withoutDecision returns the advice if there is no decision.
func (n *node) withoutDecision(a *tick.Advice, t *tick.Tick, why string) *tick.Advice {
	a.Fallback = n.Fallback
	n.keepLastOffer(a, t.Time, why, "no decision")
	policy.ClearIdleTiers(t.Sample, a)
	return a
}

// keepLastOffer repeats the last offer for [staleAfter] if there is no new one, then it withdraws it. The reason has the cause and its
// consequence.
func (n *node) keepLastOffer(a *tick.Advice, now time.Time, why, consequence string) {
	reason := why + ": " + consequence
	switch age := now.Sub(n.KnownAt); {
	case n.KnownAt.IsZero():
	case age >= staleAfter:
		a.Withdrawn = fmt.Sprintf("there has been no new offer for %s: %s", age.Round(time.Second), why)
		n.Offered, n.OfferedMemory, n.Reclaimed = offer{}, offer{}, nil
	case n.Reclaimed != nil && n.Reclaimed.MilliCPU != nil && *n.Reclaimed.MilliCPU >= 0: // a state file may contain any value
		a.Reclaimed = n.Reclaimed.Clone()
		reason += fmt.Sprintf(", the last offer stays until %s", n.KnownAt.Add(staleAfter).UTC().Format(time.RFC3339))
	}
	a.Reasons = append(a.Reasons, reason)
}

// offerCPU sets the offered CPU and adds its reasons.
func (n *node) offerCPU(a *tick.Advice, t *tick.Tick, need demand, s Settings) {
	total := float64(n.shape.Avail.Size()) * 1000
	a.Reclaimed = &tick.Reclaimed{MilliCPU: new(int64(0))}
	if total == 0 {
		a.Reasons = append(a.Reasons, reason.Offer+"all CPUs are reserved or assigned exclusively by kubelet: none is offered")
		return
	}
	part := min(need.milliCPU/total, 1)
	n.Offered.convert(n.CPU.setCapacity(total))
	n.CPU.observe(t.Time, part)
	format := func(part float64) string { return fmt.Sprintf("%.0fm", part*total) }
	l := n.CPU.level(t.Time)
	margin, spans := n.CPU.margin(l, s)
	possible := max(1-l.part-margin-need.newMilliCPU/total, 0)
	boundText := n.Offered.follow(t.Time, possible, max(part, n.CPU.Use), s)
	*a.Reclaimed.MilliCPU = int64(n.Offered.Part*total + 1e-6)
	a.Reasons = append(a.Reasons, fmt.Sprintf(reason.Offer+"%.0fm - services' %s - margin for growth %s%s - %s -> %dm%s",
		total, l.text(format), format(margin), basisText(l, spans), newPodsText(need, format(need.newMilliCPU/total)),
		*a.Reclaimed.MilliCPU, boundText))
	text := fmt.Sprintf("services use %.0fm now", need.inUse)
	if reserved := need.milliCPU - need.inUse; reserved >= 0.5 {
		text += fmt.Sprintf(", and %.0fm more are reserved for the system", reserved)
	}
	if peaks := n.Pods.reasons(); peaks != "" {
		text += "; " + peaks
	}
	a.Reasons = append(a.Reasons, text)
}

// basisText returns a text with what a margin is derived from.
func basisText(l level, spans float64) string {
	if l.isWarmingUp {
		return " (the history is shorter than 10 minutes)"
	}
	return fmt.Sprintf(" (%.0f spans of 5 minutes, %s variability)", spans, [...]string{"low", "medium", "high"}[l.class])
}

func newPodsText(need demand, requests string) string {
	if need.newPods == 0 {
		return "new pods 0"
	}
	return fmt.Sprintf("requests of %s beyond use %s", phrase.Count(need.newPods, "new pod"), requests)
}

// offerMemory sets the offered memory and adds its reason.
func (n *node) offerMemory(a *tick.Advice, t *tick.Tick, need demand, s Settings) {
	total := policy.MachineBytes(t.Sample)
	if total == 0 || math.IsNaN(need.bytes) {
		a.Reasons = append(a.Reasons, "memory: the machine's total or the services' use is unknown: none is offered")
		return
	}
	part := min(max(need.bytes, policy.Amount(&n.Reservation.MemoryBytes))/total, 1)
	n.OfferedMemory.convert(n.Memory.setCapacity(total))
	n.Memory.observe(t.Time, part)
	size := func(part float64) string { return fmt.Sprintf("%.1f GiB", part*total/(1<<30)) }
	l := n.Memory.level(t.Time)
	margin, spans := n.Memory.margin(l, s)
	possible := max(1-l.part-margin-need.newBytes/total, 0)
	boundText := n.OfferedMemory.follow(t.Time, possible, max(part, n.Memory.Use), s)
	bytes := int64(n.OfferedMemory.Part * total)
	a.Reclaimed.MemoryBytes = &bytes
	a.Reasons = append(a.Reasons, fmt.Sprintf("memory: %s - services' %s without reclaimable cache - margin for growth %s%s - %s -> %s%s",
		size(1), l.text(size), size(margin), basisText(l, spans), newPodsText(need, size(need.newBytes/total)),
		size(n.OfferedMemory.Part), boundText))
}

// placeBatch decides on which CPUs batch runs.
func (n *node) placeBatch(a *tick.Advice, t *tick.Tick, need demand, s Settings) {
	sh := n.shape
	n.Placement.observe(t.Time, t.Sample.Interval(), need.inUse, float64(sh.Avail.Size())*1000)
	weights := sh.allNUMA
	if sh.Online.Size() < s.MinCPUs || len(sh.Cores) < 2 || sh.Avail.Size() <= sh.LargestCore() {
		n.Placement.WithoutBatch, n.Placement.NeededAt = "", time.Time{}
		why := fmt.Sprintf("%d CPUs are too few for a buffer of idle CPUs (minimum %d)", sh.Online.Size(), s.MinCPUs)
		if sh.Online.Size() >= s.MinCPUs {
			why = fmt.Sprintf("batch may use %d of %d CPUs, no more than a core: no buffer of idle CPUs", sh.Avail.Size(), sh.Online.Size())
		}
		a.Reasons = append(a.Reasons, why+": batch runs on all that it may use, with a lower scheduling class or weight than services")
		n.Placement.IsConfined = n.Placement.IsConfined || sh.Avail.Size() < sh.Online.Size()
		if n.Placement.IsConfined && !sh.Avail.IsEmpty() { // some CPUs are not for batch, or the machine had more CPUs before
			pinBatch(a, t.Sample.Pods, sh.availList, sh.availList)
			policy.WidenTier(a, n.Placement.Tier, sh.Online.String())
		}
	} else {
		n.Placement.observeNUMA(t, sh)
		d := n.Placement.divide(a, t.Time, sh, idleCPUs{need.idleMilliCPU(sh.Avail.Size()), n.isGuarded}, s)
		n.Placement.IsConfined = true
		weights = d.perNUMA
		a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolShare, CPUs: sh.availList}, tick.Pool{Name: tick.PoolReclaim, CPUs: d.batch})
		if !sh.Reserved.IsEmpty() {
			a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolReserve, CPUs: sh.Reserved.String()})
		}
		pinBatch(a, t.Sample.Pods, d.batch, d.floor)
		lists := policy.BatchLists{Batch: d.batch, Floor: d.floor, All: sh.Online.String()}
		n.Placement.Tier = policy.ConfineTier(a, t.Sample, n.Placement.Tier, lists)
	}
	n.Placement.Lists.UndoLists(t.Time, t.Sample, a, sh.Shape)
	if a.Reclaimed == nil {
		return
	}
	a.Reclaimed.NUMANodes = nil
	if slices.Max(weights) > 0 {
		for i, part := range policy.Split(*a.Reclaimed.MilliCPU, weights) {
			a.Reclaimed.NUMANodes = append(a.Reclaimed.NUMANodes, tick.ReclaimedNUMA{ID: sh.NUMA[i], MilliCPU: &part})
		}
	}
}

// uniqueByPath sorts by path, so that parents come before their children, and keeps one entry per cgroup.
func uniqueByPath(list []tick.Cgroup) []tick.Cgroup {
	slices.SortStableFunc(list, func(x, y tick.Cgroup) int { return strings.Compare(x.Cgroup, y.Cgroup) })
	return slices.CompactFunc(list, func(x, y tick.Cgroup) bool { return x.Cgroup == y.Cgroup })
}
