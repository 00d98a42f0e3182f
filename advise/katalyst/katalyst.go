// Package katalyst is the policy of Katalyst's colocation guide: what the shared pods need, plus a reserve, rounded up
// to whole physical cores, is theirs; the rest is reclaimed.
//
//	shared    = clamp(whole cores(ceil(reserve + Σ max(usage, load1, load5))), one core, all - floor)
//	reclaimed = all - shared
//
// The shared pool grows at once and shrinks slowly. Formula and defaults are those of Katalyst v0.1.0, which the guide
// describes; see docs/advise.md for where this differs.
package katalyst

import (
	"fmt"
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
reclaimed and never less than a floor. On machines with fewer than 8 CPUs the reclaimed pods are held by quota.`,
	StateVersion: 1,
}

// Decider decides for any number of nodes, each with a state of its own.
type Decider struct {
	settings     Settings
	nodes        map[string]*node
	enhancements map[string]*enhancement
}

// New returns a Decider.
func New(s Settings) *Decider { return &Decider{settings: s, nodes: map[string]*node{}} }

// Configure replaces the settings, from the next tick on; what is remembered stays.
func (d *Decider) Configure(s Settings) { d.settings = s }

// State returns a pointer to what is remembered, by node.
func (d *Decider) State() any { return &d.nodes }

// Reboot forgets what was advised of cgroups that another run of the kernel had: those of the same name are others', and have nothing
// to be undone. Dedicated pods keep their CPUs, and pools their hold-downs.
func (d *Decider) Reboot() {
	for _, n := range d.nodes {
		if n != nil {
			n.Bound, n.Started, n.Fallback, n.Pools, n.Quota, n.Tier, n.Class = nil, nil, nil, false, false, "", nil
			n.Disk, n.Guard, n.Limits, n.Cold = n.Disk.Reboot(), n.Guard.Reboot(), n.Limits.Reboot(), n.Cold.Reboot()
		}
	}
}

// node is what is remembered of one node, in the form of the state file.
type node struct {
	// Share is the common shared pool (a CPU list) and ShareMilliCPU the same in quota mode.
	Share         string `json:"share,omitempty"`
	ShareMilliCPU int64  `json:"shareMilliCPU,omitempty"`
	hold
	// Named are the shared pools that pods ask for.
	Named map[string]*ownPool `json:"named,omitempty"`
	// Dedicated are the CPUs of each dedicated pod, by namespace/name; Bound are the pods whose memory nodes were set, by
	// identity.
	Dedicated map[string]string `json:"dedicated,omitempty"`
	Bound     map[string]bool   `json:"bound,omitempty"`
	// Started says of each shared pod, by identity, when its ramp-up ends: in milliseconds since 1970, 0 where it has.
	Started  map[string]int64 `json:"started,omitempty"`
	Fallback []tick.Cgroup    `json:"fallback,omitempty"`
	// Given are the CPUs that kubelet gave away, as far as was last known.
	Given string `json:"given,omitempty"`
	// Pools and Quota say which of the two was ever in force, so that the other undoes it, and Tier which cgroup of kubelet's
	// was ever narrowed.
	Pools bool `json:"pools,omitempty"`
	// Decided says that a decision was made of which no part was guessed: hold-downs begin with it.
	Decided bool `json:"decided,omitempty"`
	// Guessed is when the node was decided on first.
	Guessed time.Time `json:"guessed,omitzero"`
	Quota   bool      `json:"quota,omitempty"`
	Tier    string    `json:"tier,omitempty"`
	// Class is the scheduling class of the reclaimed pods.
	Class *class.State `json:"class,omitempty"`
	// Guard is what was taken from the reclaimed pods while services waited.
	Guard *guard.State `json:"guard,omitempty"`
	// Limits are the reclaimed pods' own limits, the cap of their memory, and the protection of the services'.
	Limits *limits.State `json:"limits,omitempty"`
	Cold   *cold.State   `json:"cold,omitempty"`
	// Disk is their share of the disks, and their limits there.
	Disk *disk.State `json:"disk,omitempty"`

	shape   *shape   // derived from the topology, made anew when that changes
	dynamic *dynamic // and from the tick's configuration
	owned   cpus.Set // ids of the NUMA nodes that a pod has alone

	// Memory that is used again.
	members   []member
	groups    []group
	workloads []workload
	key       []byte
}

// Decide implements [policy.Decider].
func (d *Decider) Decide(t *tick.Tick) *tick.Advice {
	n := d.node(t.Node)
	n.clock(t.Time)
	a := &tick.Advice{Policy: Policy.Name, Fallback: n.Fallback}
	s := t.Sample
	if why := n.undecidable(s); why != "" {
		a.Reasons = []string{why + ": no decision"}
		return a
	}
	if err := n.see(s.Topology, d.settings.ReservedCPUs, n.exclusiveCPUs(a, s)); err != nil {
		a.Reasons = []string{fmt.Sprintf("%s: no decision", err)}
		return a
	}

	small := n.shape.online.Size() < d.settings.PoolMinCPUs || len(n.shape.Cores) < 2
	machineBytes := machineBytes(s)
	settings := d.settings.within(n.milliCPU(s), int64(machineBytes))
	r := settings.resolve(n.configure(s.Config), small, n.milliCPU(s), int64(machineBytes))
	a.Reclaimed = &tick.Reclaimed{}
	members := d.enroll(n, a, t)
	n.owned = cpus.Set{}
	n.forgetGuess()
	sys := n.system(members, s)
	e, weights := n.divide(a, t, members, small, sys.milliCPU, r, settings)
	n.restrain(a, t, r, settings)
	a.Reasons = append(append(a.Reasons, e.reasons(settings)...), sys.reasons...)
	n.decided(t.Time, e.unknown > 0, settings.Hold)
	e.memoryBytes = policy.Bounded(e.memoryBytes + sys.memoryBytes)
	policy.AwakenTiers(s, a)
	n.memory(a, machineBytes, r, e)
	n.Limits = n.Limits.Advise(t, a, d.settings.Limits, limits.Defaults{Own: true})
	n.Cold = n.Cold.Advise(t, a, d.settings.Cold)
	n.publish(a, s, r, machineBytes, weights)
	a.Reasons = append(a.Reasons, r.reasons...)
	n.Fallback = a.Fallback
	return a
}

// node is what is remembered of a node.
func (d *Decider) node(name string) *node {
	if d.nodes == nil { // a state file's null
		d.nodes = map[string]*node{}
	}
	n := d.nodes[name]
	if n == nil {
		policy.MakeRoom(d.nodes, func(n *node) time.Time { return n.LastNeed })
		n = &node{}
		d.nodes[name] = n
	}
	return n
}

// divide divides the CPUs into pools or, on a small machine, holds the reclaimed pods by quota. It returns what the services need, and how
// much of the offered CPU is of each NUMA node.
func (n *node) divide(a *tick.Advice, t *tick.Tick, members []member, small bool, systemMilliCPU float64, r resolved, s Settings) (estimate, []uint64) {
	switch {
	case n.shape.avail.IsEmpty():
		a.Reclaimed.MilliCPU, a.Fallback = new(int64(0)), nil
		a.Reasons = append(a.Reasons, fmt.Sprintf("kubelet gave away all CPUs that are not reserved (%s): there are no pools", n.shape.exclusive))
		return n.need(members, make([]group, 1), s), nil
	case small:
		n.bind(a, members, nil, nil)
		e := n.need(members, make([]group, 1), s)
		e.system = systemMilliCPU
		n.quota(a, t, members, e, r, s)
		policy.WidenTier(a, n.Tier, n.shape.online.list)
		return e, n.shape.perNUMA()
	}
	dedicated := n.dedicate(a, members, r, s)
	avail := n.shape.rest(dedicated)
	limit := max(avail.Size()-r.floorCPUs(), 1)
	groups := n.gather(members, t.Time, r, s)
	e := n.need(members, groups, s)
	groups[0].system = systemMilliCPU
	l := n.pools(a, t, groups, avail, limit, r, s)
	n.offer(a, t.Sample, l)
	n.confine(a, members, groups, avail, l)
	n.Tier = policy.HoldTier(a, t.Sample, n.Tier, policy.BatchLists{Batch: l.reclaim.list, Floor: l.floor.list, All: n.shape.online.list})
	return e, l.perNUMA
}

// restrain puts the reclaimed pods into their scheduling class, and takes from them while services wait.
func (n *node) restrain(a *tick.Advice, t *tick.Tick, r resolved, s Settings) {
	m := class.Machine{MilliCPU: n.milliCPU(t.Sample), FloorMilliCPU: r.floorMilliCPU, CgroupVersion: t.Sample.CgroupVersion}
	n.Class = n.Class.Advise(t, a, s.BatchClass, m)
	n.Disk = n.Disk.Advise(t, a, s.Disk, disk.Strategy{}, false)
	n.Guard = n.Guard.Advise(t, a, s.Guard, false, m)
}

// forgetGuess forgets sizes that were only guessed: they hold nothing down.
func (n *node) forgetGuess() {
	if !n.Decided {
		n.Share, n.ShareMilliCPU, n.hold, n.Named = "", 0, hold{}, nil
	}
}

// decided notes a decision. One in which the need of some containers was guessed is the first real one after the hold: some are
// never read.
func (n *node) decided(now time.Time, guessed bool, hold time.Duration) {
	if n.Guessed.IsZero() || n.Guessed.After(now) {
		n.Guessed = now
	}
	n.Decided = n.Decided || !guessed || now.Sub(n.Guessed) >= hold
}

// exclusiveCPUs is what kubelet gave away; where its state could not be read, what it was last.
func (n *node) exclusiveCPUs(a *tick.Advice, s *tick.Sample) string {
	switch {
	case s.Kubelet != nil:
		n.Given = s.Kubelet.ExclusiveCPUs
	case !policy.Unread(s, "kubelet"):
		n.Given = "" // there is no kubelet
	case n.Given != "":
		a.Reasons = append(a.Reasons, "kubelet's state could not be read: CPUs "+quote(n.Given)+" are taken for given away, as they were")
	}
	return n.Given
}

// undecidable says what is missing for a decision.
func (n *node) undecidable(s *tick.Sample) string {
	switch {
	case s == nil:
		return "no sample"
	case s.Topology == nil:
		return "no topology in the sample"
	case s.IntervalSeconds == nil && n.firstReading(s.Pods):
		// The containers' requests would stand in, up to 4 cores each, and be held for --hold.
		return "first reading, there are no rates yet"
	case (n.Share != "" || n.ShareMilliCPU > 0) && policy.PodsUnknown(s):
		return "the cluster's pods are not known yet"
	}
	return ""
}

// firstReading reports whether there are shared pods and none of their containers has a use.
func (n *node) firstReading(pods []tick.Pod) bool {
	shared := false
	for i := range pods {
		if pods[i].QoS != tick.QoSShared {
			continue
		}
		n.workloads = workloads(&pods[i], n.workloads[:0])
		for _, w := range n.workloads {
			if w.usage != nil || w.load1 != nil {
				return false
			}
			shared = true
		}
	}
	return shared
}

// milliCPU is the machine's CPU, or the node object's allocatable where that is less.
func (n *node) milliCPU(s *tick.Sample) int64 {
	all := int64(n.shape.online.Size()) * 1000
	if s.Allocatable != nil && s.Allocatable.MilliCPU != nil && *s.Allocatable.MilliCPU >= 0 {
		return min(all, int64(policy.Bounded(*s.Allocatable.MilliCPU)))
	}
	return all
}

// machineBytes is the machine's memory: the node object's capacity, else the kernel's total; 0 where neither is known.
func machineBytes(s *tick.Sample) float64 {
	switch {
	case s.Capacity != nil && s.Capacity.MemoryBytes != nil:
		return max(0, policy.Bounded(*s.Capacity.MemoryBytes))
	case s.Memory != nil && s.Memory.TotalBytes != nil:
		return max(0, policy.Bounded(*s.Memory.TotalBytes))
	}
	return 0
}
