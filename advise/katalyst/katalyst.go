// Package katalyst is the policy of Katalyst's colocation guide: the shared pods get their need plus a reserve, rounded up to whole
// physical cores; the rest is reclaimed.
//
//	shared    = clamp(whole cores(ceil(reserve + Σ max(usage, load1, load5))), one core, all - floor)
//	reclaimed = all - shared
//
// The shared pool grows immediately and shrinks slowly. Formula and defaults are those of Katalyst v0.1.0, which the guide describes;
// docs/advise.md lists the differences.
package katalyst

import (
	"fmt"
	"slices"
	"time"

	"polder/advise/class"
	"polder/advise/disk"
	"polder/advise/layers"
	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// Policy describes the package in the list of policies.
var Policy = policy.Policy{
	Name: "katalyst",
	Doc: `the guide's formula and pools
Shared pods keep max(usage, load1, load5) of each container plus a reserve, in whole physical cores; the rest is
reclaimed and never less than a floor. On machines with fewer than 8 CPUs the reclaimed pods are limited by
their scheduling class; pods without a class are limited by quota.`,
	StateVersion: 1,
}

// Decider decides for any number of nodes, and keeps a separate state for each.
type Decider struct {
	policy.Base[Settings, node, *node]
	enhancements map[string]*enhancement
}

// New returns a Decider.
func New(s Settings) *Decider { return &Decider{Base: policy.NewBase[Settings, node](s)} }

// node is the state of one node, in the format of the state file.
type node struct {
	divided
	// RampUpEnds has for each shared pod, by identity, when its ramp-up ends: in milliseconds since 1970, 0 if it has ended.
	RampUpEnds map[string]int64 `json:"started,omitempty"`
	Fallback   []tick.Cgroup    `json:"fallback,omitempty"`
	policy.ExclusiveCPUs
	// Reservation is what the Node object reserves, as last known; nil if it never was.
	Reservation *policy.Reservation `json:"reservation,omitempty"`
	lastConfig
	// HasDecided reports whether there was a decision without guessed parts: hold-downs start with it.
	HasDecided bool `json:"decided,omitempty"`
	// FirstDecidedAt is when the first decision for the node was made.
	FirstDecidedAt time.Time `json:"guessed,omitzero"`
	layers.State

	shape   *shape   // derived from the topology; rebuilt when that changes
	dynamic *dynamic // derived from the tick's configuration
}

// LastUsed returns when the shared pool last needed its size.
func (n *node) LastUsed() time.Time { return n.LastNeed }

// Reboot keeps the dedicated pods' CPUs, and the pools' hold-downs.
func (n *node) Reboot() {
	n.State.Reboot()
	n.Bound, n.RampUpEnds, n.Fallback, n.Tier = nil, nil, nil, ""
	n.HadPools, n.HadQuota, n.HadBatchList, n.Lists, n.Quotas = false, false, false, nil, nil
}

// divided is the last division of the CPUs, from which the next one starts.
type divided struct {
	// Share is the common shared pool (a CPU list), and ShareMilliCPU its size in quota mode.
	Share         string `json:"share,omitempty"`
	ShareMilliCPU int64  `json:"shareMilliCPU,omitempty"`
	holdDown
	// ShortAt is when the shared pools last needed more than the floor of the reclaimed side leaves; zero means never.
	ShortAt time.Time `json:"shortAt,omitzero"`
	// Named are the shared pools that pods ask for.
	Named map[string]*poolState `json:"named,omitempty"`
	// Dedicated are the CPUs of each dedicated pod, by namespace/name; Bound are the pods whose memory nodes were set, by
	// identity.
	Dedicated map[string]string `json:"dedicated,omitempty"`
	Bound     map[string]bool   `json:"bound,omitempty"`
	// HadPools and HadQuota report which of the two was ever in force, so that the other one undoes it, and Tier which cgroup of kubelet's was
	// ever confined.
	HadPools bool `json:"pools,omitempty"`
	HadQuota bool `json:"quota,omitempty"`
	// HadBatchList reports whether batch ever had a list of CPUs without pools, which must be undone if it may run on all of them.
	HadBatchList bool   `json:"batchList,omitempty"`
	Tier         string `json:"tier,omitempty"`
	// Lists and Quotas have the cgroups with a CPU list and with a quota: a pod of another class now must not keep them.
	Lists  policy.SetCgroups `json:"lists,omitempty"`
	Quotas policy.SetCgroups `json:"quotas,omitempty"`

	ownedNodes cpus.Set // ids of the NUMA nodes that a pod uses alone
}

// inputs are what a decision is based on, beside the pods and the last decision. No stage changes them.
type inputs struct {
	now         time.Time
	sample      *tick.Sample
	shape       *shape
	settings    Settings // no value exceeds the machine's
	resolved             // the settings that the tick's configuration may set, too
	milliCPU    int64    // the machine's CPU, or the Node object's allocatable if that is less
	memoryBytes float64  // the machine's memory, 0 if unknown
	// reservedBytes is the part of it that the Node object reserves: kubelet limits the memory of all pods to the rest.
	reservedBytes float64
	isSmall       bool // too small for pools
	// whyNoOffer is why the offer is unknown, empty if it is known.
	whyNoOffer string
	reasons    []string
}

// Decide implements [policy.Decider]. Each stage passes its result on: the machine; each pod's class; the use outside of the pods; the
// division of the CPUs; the cgroups within each part; the offer.
func (d *Decider) Decide(t *tick.Tick) *tick.Advice {
	n := d.Node(t.Node)
	n.sanitize(t.Time)
	a := &tick.Advice{Policy: Policy.Name, Fallback: n.Fallback}
	in, why := n.observe(t, d.Settings)
	if why != "" {
		a.Reasons = []string{why + ": no decision"}
		policy.ClearIdleTiers(t.Sample, a)
		return a
	}
	members, faults := d.classify(in)
	n.RampUpEnds = rampUp(members, n.RampUpEnds, t.Time)
	sys := systemUse(in, members)

	if !n.HasDecided {
		n.divided = n.withoutSizes()
	}
	div := divide(in, members, sys.milliCPU, n.divided)
	n.divided = div.divided
	n.recordDecision(t.Time, div.need.unknown > 0, in.settings.Hold)
	a.Reclaimed, a.Pools, a.Cgroups, a.Fallback = div.advice.Reclaimed, div.advice.Pools, div.advice.Cgroups, div.advice.Fallback
	a.Reasons = slices.Concat(in.reasons, faults, div.advice.Reasons, div.need.reasons(in.settings), sys.reasons)
	policy.ClearIdleTiers(in.sample, a)

	bytes, why := reclaimedMemory(in, div.need.memoryBytes, sys)
	a.Reclaimed.MemoryBytes, a.Reasons = bytes, appendText(a.Reasons, why)
	if in.whyNoOffer != "" {
		a.Reclaimed, a.Reasons = nil, append(a.Reasons, in.whyNoOffer+": no offer")
	}
	milliCPU := int64(in.shape.online.Size()) * 1000
	m := class.Machine{MilliCPU: milliCPU, FloorMilliCPU: in.floorMilliCPU, CgroupVersion: in.sample.CgroupVersion}
	n.State.Advise(t, a, in.settings.Shared, m, disk.Strategy{})
	if a.Reclaimed != nil {
		offer, offerReasons := publish(in, *a.Reclaimed, div.perNUMA, div.ownedNodes)
		a.Reclaimed, a.Reasons = &offer, append(a.Reasons, offerReasons...)
	}
	a.Reasons = append(a.Reasons, in.resolved.reasons...)
	n.Fallback = a.Fallback
	return a
}

// observe returns the inputs of a decision; why names the missing one.
func (n *node) observe(t *tick.Tick, settings Settings) (in inputs, why string) {
	s := t.Sample
	if why = missingInput(s, n.Share != "" || n.ShareMilliCPU > 0); why != "" {
		return in, why
	}
	unreadText, err := n.ExclusiveCPUs.Observe(s)
	if err != nil {
		return in, err.Error()
	}
	sh, err := n.shape.refreshed(s.Topology, settings.ReservedCPUs, n.ExclusiveCPUs.CPUs)
	if err != nil {
		return in, err.Error()
	}
	n.shape = sh
	configText, isAwaited := n.observeConfig(t)
	if isAwaited {
		return in, configText
	}
	in = inputs{
		now: t.Time, sample: s, shape: sh, milliCPU: int64(sh.online.Size()) * 1000, memoryBytes: policy.MachineBytes(s),
		isSmall: sh.online.Size() < settings.PoolMinCPUs || len(sh.Cores) < 2,
	}
	in.reasons = appendText(appendText(in.reasons, unreadText), configText)
	n.Reservation, unreadText = policy.ReservationOf(s, float64(in.milliCPU), in.memoryBytes, n.Reservation)
	if n.Reservation == nil {
		in.whyNoOffer = unreadText
	} else {
		in.milliCPU = max(int64(float64(in.milliCPU)-policy.Amount(&n.Reservation.MilliCPU)), 0)
		in.reservedBytes = policy.Amount(&n.Reservation.MemoryBytes)
		in.reasons = appendText(in.reasons, unreadText)
	}
	in.settings = settings.clampedTo(in.milliCPU, int64(in.memoryBytes))
	in.resolved = in.settings.resolve(n.dynamic, in.isSmall, in.milliCPU, int64(in.memoryBytes))
	return in, ""
}

// division is how the CPUs are divided between services and reclaimed pods.
type division struct {
	divided             // from which the next division starts
	need    estimate    // of the services
	perNUMA []uint64    // the offered CPUs of each NUMA node
	advice  tick.Advice // reclaimed CPU, pools, cgroups, fallback and reasons
}

func (d *division) addReason(format string, args ...any) {
	d.advice.Reasons = append(d.advice.Reasons, fmt.Sprintf(format, args...))
}

// divide divides the CPUs into pools or, on a small machine, limits the reclaimed pods by their scheduling class or by quota.
func divide(in inputs, members []member, systemMilliCPU float64, previous divided) division {
	if in.shape.avail.IsEmpty() {
		d := division{divided: previous, need: sumNeeds(in, members, make([]group, 1))}
		d.ownedNodes = cpus.Set{}
		d.advice.Reclaimed = &tick.Reclaimed{MilliCPU: new(int64(0))}
		d.addReason("kubelet assigned all CPUs that are not reserved (%s) exclusively: there are no pools", in.shape.Exclusive)
		return d
	}
	divideBy := divideByPools
	if in.isSmall {
		divideBy = divideByQuota
	}
	d := divideBy(in, members, systemMilliCPU, previous)
	d.undoDropped(in, members)
	return d
}

// undoDropped undoes the CPU lists and the quotas of pods that had them in another class.
func (d *division) undoDropped(in inputs, members []member) {
	d.Lists.UndoLists(in.now, in.sample, &d.advice, in.shape.Shape)
	var desired []string
	for i := range members {
		m := &members[i]
		if m.class != tick.QoSReclaimed || !in.isSmall || !in.settings.isLimitedByQuota(m.Pod) {
			continue
		}
		for j := range policy.Cgroups(m.Pod) {
			if cgroup := policy.Cgroup(m.Pod, j); cgroup != "" {
				desired = append(desired, cgroup)
			}
		}
	}
	d.Quotas.UndoQuotas(in.now, in.sample, &d.advice, desired, limitOf)
}

// appendText appends a text unless it is empty.
func appendText(list []string, text string) []string {
	if text == "" {
		return list
	}
	return append(list, text)
}

// withoutSizes returns a division without the pools' sizes. Sizes that were only guessed cause no hold-down.
func (d divided) withoutSizes() divided {
	d.Share, d.ShareMilliCPU, d.holdDown, d.ShortAt, d.Named = "", 0, holdDown{}, time.Time{}, nil
	return d
}

// recordDecision records a decision. A decision with guessed needs counts as the first real one after the hold-down, because some
// containers are never read.
func (n *node) recordDecision(now time.Time, isGuessed bool, hold time.Duration) {
	if n.FirstDecidedAt.IsZero() || n.FirstDecidedAt.After(now) {
		n.FirstDecidedAt = now
	}
	n.HasDecided = n.HasDecided || !isGuessed || now.Sub(n.FirstDecidedAt) >= hold
}

// missingInput returns which input is missing for a decision. hasPools reports whether there was a decision before.
func missingInput(s *tick.Sample, hasPools bool) string {
	switch {
	case s == nil:
		return "no sample"
	case s.Topology == nil:
		return "no topology in the sample"
	case s.IntervalSeconds == nil && isFirstReading(s):
		// Without rates the containers' requests would count, up to 4 cores each, and the pool could not shrink for --hold. What runs
		// outside of the pods would count as nothing.
		return "first reading, there are no rates yet"
	case hasPools && policy.PodsUnknown(s):
		return "the cluster's pods are still unknown"
	}
	return ""
}

// isFirstReading reports whether no container of a shared pod has a use, although there are such pods, or although the machine's use
// counts, because no kubelet reserves CPUs for it, and is unknown.
func isFirstReading(s *tick.Sample) bool {
	hasShared := false
	var containers []workload
	for i := range s.Pods {
		if s.Pods[i].QoS != tick.QoSShared {
			continue
		}
		containers = workloads(&s.Pods[i], containers[:0])
		for _, w := range containers {
			if w.usage != nil || w.load1 != nil {
				return false
			}
			hasShared = true
		}
	}
	return hasShared || s.Tier(tick.TierPods) == nil && nodeUse(s) == nil
}
