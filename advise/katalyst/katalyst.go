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
	"polder/advise/cold"
	"polder/advise/disk"
	"polder/advise/guard"
	"polder/advise/limits"
	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// Policy describes the package in the list of policies.
var Policy = policy.Policy{
	Name: "katalyst",
	Doc: `the guide's formula and pools
Shared pods keep max(usage, load1, load5) of each container plus a reserve, in whole physical cores; the rest is
reclaimed and never less than a floor. On machines with fewer than 8 CPUs the reclaimed pods are limited by quota.`,
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
	// Started has for each shared pod, by identity, when its ramp-up ends: in milliseconds since 1970, 0 if it has ended.
	Started  map[string]int64 `json:"started,omitempty"`
	Fallback []tick.Cgroup    `json:"fallback,omitempty"`
	// Given are the CPUs that kubelet gave to pods exclusively, as last known.
	Given string `json:"given,omitempty"`
	// Decided reports whether there was a decision without guessed parts: hold-downs start with it.
	Decided bool `json:"decided,omitempty"`
	// Guessed is when the first decision for the node was made.
	Guessed time.Time `json:"guessed,omitzero"`
	// Class is the scheduling class of the reclaimed pods.
	Class *class.State `json:"class,omitempty"`
	// Guard has the steps that the guard took from the reclaimed pods while services waited.
	Guard *guard.State `json:"guard,omitempty"`
	// Limits has the reclaimed pods' own limits, the cap of their memory, and the protection of the services' memory.
	Limits *limits.State `json:"limits,omitempty"`
	Cold   *cold.State   `json:"cold,omitempty"`
	// Disk has their share of the disks, and their limits there.
	Disk *disk.State `json:"disk,omitempty"`

	shape   *shape   // derived from the topology; rebuilt when that changes
	dynamic *dynamic // derived from the tick's configuration
}

// LastUsed returns when the shared pool last needed its size.
func (n *node) LastUsed() time.Time { return n.LastNeed }

// Reboot keeps the dedicated pods' CPUs, and the pools' hold-downs.
func (n *node) Reboot() {
	n.Bound, n.Started, n.Fallback, n.Pools, n.Quota, n.Tier, n.Class = nil, nil, nil, false, false, "", nil
	n.Disk, n.Guard, n.Limits, n.Cold = n.Disk.Reboot(), n.Guard.Reboot(), n.Limits.Reboot(), n.Cold.Reboot()
}

// divided is the last division of the CPUs, from which the next one starts.
type divided struct {
	// Share is the common shared pool (a CPU list), and ShareMilliCPU its size in quota mode.
	Share         string `json:"share,omitempty"`
	ShareMilliCPU int64  `json:"shareMilliCPU,omitempty"`
	hold
	// Named are the shared pools that pods ask for.
	Named map[string]*ownPool `json:"named,omitempty"`
	// Dedicated are the CPUs of each dedicated pod, by namespace/name; Bound are the pods whose memory nodes were set, by
	// identity.
	Dedicated map[string]string `json:"dedicated,omitempty"`
	Bound     map[string]bool   `json:"bound,omitempty"`
	// Pools and Quota report which of the two was ever in force, so that the other one undoes it, and Tier which cgroup of kubelet's was ever
	// confined.
	Pools bool   `json:"pools,omitempty"`
	Quota bool   `json:"quota,omitempty"`
	Tier  string `json:"tier,omitempty"`

	owned cpus.Set // ids of the NUMA nodes that a pod uses alone
}

// inputs are what a decision is based on, beside the pods and the last decision. No stage changes them.
type inputs struct {
	now      time.Time
	sample   *tick.Sample
	shape    *shape
	settings Settings // no value exceeds the machine's
	resolved          // the settings that the tick's configuration may set, too
	milliCPU int64
	bytes    float64 // the machine's memory, 0 if unknown
	small    bool    // too small for pools
	reasons  []string
}

// Decide implements [policy.Decider]. Each stage passes its result on: the machine; each pod's class; the use outside of the pods; the
// division of the CPUs; the cgroups within each part; the offer.
func (d *Decider) Decide(t *tick.Tick) *tick.Advice {
	n := d.Node(t.Node)
	n.clock(t.Time)
	a := &tick.Advice{Policy: Policy.Name, Fallback: n.Fallback}
	in, why := n.observe(t, d.Settings)
	if why != "" {
		a.Reasons = []string{why + ": no decision"}
		return a
	}
	members, faults := d.classify(in)
	n.Started = rampUp(members, n.Started, t.Time)
	sys := systemUse(in, members)

	if !n.Decided {
		n.divided = n.withoutSizes()
	}
	div := divide(in, members, sys.milliCPU, n.divided)
	n.divided = div.divided
	n.decided(t.Time, div.need.unknown > 0, in.settings.Hold)
	a.Reclaimed, a.Pools, a.Cgroups, a.Fallback = div.part.Reclaimed, div.part.Pools, div.part.Cgroups, div.part.Fallback
	a.Reasons = slices.Concat(in.reasons, faults, div.part.Reasons)

	m := class.Machine{MilliCPU: in.milliCPU, FloorMilliCPU: in.floorMilliCPU, CgroupVersion: in.sample.CgroupVersion}
	n.Class = n.Class.Advise(t, a, in.settings.BatchClass, m)
	n.Disk = n.Disk.Advise(t, a, in.settings.Disk, disk.Strategy{}, false)
	n.Guard = n.Guard.Advise(t, a, in.settings.Guard, false, m)
	a.Reasons = slices.Concat(a.Reasons, div.need.reasons(in.settings), sys.reasons)
	policy.AwakenTiers(in.sample, a)

	bytes, why := reclaimedMemory(in, policy.Bounded(div.need.memoryBytes+sys.memoryBytes))
	a.Reclaimed.MemoryBytes, a.Reasons = bytes, appendText(a.Reasons, why)
	n.Limits = n.Limits.Advise(t, a, d.Settings.Limits, limits.Defaults{Own: true})
	n.Cold = n.Cold.Advise(t, a, d.Settings.Cold)
	offer, because := publish(in, *a.Reclaimed, div.perNUMA, div.owned)
	a.Reclaimed, a.Reasons = &offer, slices.Concat(a.Reasons, because, in.resolved.reasons)
	n.Fallback = a.Fallback
	return a
}

// observe returns the inputs of a decision; why names the missing one.
func (n *node) observe(t *tick.Tick, settings Settings) (in inputs, why string) {
	s := t.Sample
	if why = undecidable(s, n.Share != "" || n.ShareMilliCPU > 0); why != "" {
		return in, why
	}
	given, unread := policy.ExclusiveCPUs(s, n.Given)
	n.Given = given
	sh, err := n.shape.renew(s.Topology, settings.ReservedCPUs, given)
	if err != nil {
		return in, err.Error()
	}
	n.shape, n.dynamic = sh, n.dynamic.renew(s.Config)
	in = inputs{
		now: t.Time, sample: s, shape: sh, milliCPU: milliCPU(s, sh), bytes: machineBytes(s),
		small: sh.online.Size() < settings.PoolMinCPUs || len(sh.Cores) < 2,
	}
	if unread != "" {
		in.reasons = []string{unread}
	}
	in.settings = settings.within(in.milliCPU, int64(in.bytes))
	in.resolved = in.settings.resolve(n.dynamic, in.small, in.milliCPU, int64(in.bytes))
	return in, ""
}

// division is how the CPUs are divided between services and reclaimed pods.
type division struct {
	divided             // from which the next division starts
	need    estimate    // of the services
	perNUMA []uint64    // the offered CPUs of each NUMA node
	part    tick.Advice // reclaimed CPU, pools, cgroups, fallback and reasons
}

func (d *division) because(format string, args ...any) {
	d.part.Reasons = append(d.part.Reasons, fmt.Sprintf(format, args...))
}

// divide divides the CPUs into pools or, on a small machine, limits the reclaimed pods by quota.
func divide(in inputs, members []member, systemMilliCPU float64, before divided) division {
	switch {
	case in.shape.avail.IsEmpty():
		d := division{divided: before, need: need(in, members, make([]group, 1))}
		d.owned = cpus.Set{}
		d.part.Reclaimed = &tick.Reclaimed{MilliCPU: new(int64(0))}
		d.because("kubelet gave away all CPUs that are not reserved (%s): there are no pools", in.shape.Exclusive)
		return d
	case in.small:
		return byQuota(in, members, systemMilliCPU, before)
	}
	return byPools(in, members, systemMilliCPU, before)
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
	d.Share, d.ShareMilliCPU, d.hold, d.Named = "", 0, hold{}, nil
	return d
}

// decided records a decision. A decision with guessed needs counts as the first real one after the hold-down, because some containers are
// never read.
func (n *node) decided(now time.Time, guessed bool, hold time.Duration) {
	if n.Guessed.IsZero() || n.Guessed.After(now) {
		n.Guessed = now
	}
	n.Decided = n.Decided || !guessed || now.Sub(n.Guessed) >= hold
}

// undecidable returns which input is missing for a decision. hasPools reports whether there was a decision before.
func undecidable(s *tick.Sample, hasPools bool) string {
	switch {
	case s == nil:
		return "no sample"
	case s.Topology == nil:
		return "no topology in the sample"
	case s.IntervalSeconds == nil && firstReading(s.Pods):
		// Without rates the containers' requests would count, up to 4 cores each, and the pool could not shrink for --hold.
		return "first reading, there are no rates yet"
	case hasPools && policy.PodsUnknown(s):
		return "the cluster's pods are not known yet"
	}
	return ""
}

// firstReading reports whether there are shared pods and no container of theirs has a use.
func firstReading(pods []tick.Pod) bool {
	shared := false
	var containers []workload
	for i := range pods {
		if pods[i].QoS != tick.QoSShared {
			continue
		}
		containers = workloads(&pods[i], containers[:0])
		for _, w := range containers {
			if w.usage != nil || w.load1 != nil {
				return false
			}
			shared = true
		}
	}
	return shared
}

// milliCPU returns the machine's CPU, or the Node object's allocatable if that is less.
func milliCPU(s *tick.Sample, sh *shape) int64 {
	all := int64(sh.online.Size()) * 1000
	if s.Allocatable != nil && s.Allocatable.MilliCPU != nil && *s.Allocatable.MilliCPU >= 0 {
		return min(all, int64(policy.Bounded(*s.Allocatable.MilliCPU)))
	}
	return all
}

// machineBytes returns the machine's memory: the Node object's capacity, else the kernel's total; 0 if both are unknown.
func machineBytes(s *tick.Sample) float64 {
	switch {
	case s.Capacity != nil && s.Capacity.MemoryBytes != nil:
		return max(0, policy.Bounded(*s.Capacity.MemoryBytes))
	case s.Memory != nil && s.Memory.TotalBytes != nil:
		return max(0, policy.Bounded(*s.Memory.TotalBytes))
	}
	return 0
}
