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

	"polder/advise/policy"
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

// maxNodes bounds what is remembered where a stream carries ever new node names.
const maxNodes = 20_000

// Decider decides for any number of nodes, each with a state of its own.
type Decider struct {
	settings Settings
	nodes    map[string]*node
}

// New returns a Decider.
func New(s Settings) *Decider { return &Decider{settings: s, nodes: map[string]*node{}} }

// Configure replaces the settings, from the next tick on; what is remembered stays.
func (d *Decider) Configure(s Settings) { d.settings = s }

// State returns a pointer to what is remembered, by node.
func (d *Decider) State() any { return &d.nodes }

// node is what is remembered of one node, in the form of the state file.
type node struct {
	// Share is the shared pool (a CPU list) and ShareMilliCPU the same in quota mode.
	Share         string `json:"share,omitempty"`
	ShareMilliCPU int64  `json:"shareMilliCPU,omitempty"`
	// LastNeed is when the present size was needed last, LastChange when it changed last.
	LastNeed   time.Time `json:"lastNeed"`
	LastChange time.Time `json:"lastChange"`
	// Dedicated are the CPUs of each dedicated pod, by namespace/name.
	Dedicated map[string]string `json:"dedicated,omitempty"`
	Fallback  []tick.Cgroup     `json:"fallback,omitempty"`
	// Pools and Quota say which of the two was ever in force, so that the other undoes it.
	Pools bool `json:"pools,omitempty"`
	Quota bool `json:"quota,omitempty"`

	shape *shape // derived from the topology, made anew when that changes
}

// Decide implements [policy.Decider].
func (d *Decider) Decide(t *tick.Tick) *tick.Advice {
	n := d.nodes[t.Node]
	if n == nil {
		d.forget()
		n = &node{}
		d.nodes[t.Node] = n
	}
	n.clock(t.Time)
	a := &tick.Advice{Policy: Policy.Name, Fallback: n.Fallback}
	s := t.Sample
	if why := undecidable(s); why != "" {
		a.Reasons = []string{why + ": no decision"}
		return a
	}
	if err := n.see(s.Topology, d.settings.ReservedCPUs); err != nil {
		a.Reasons = []string{fmt.Sprintf("topology: %s: no decision", err)}
		return a
	}

	small := n.shape.online.Size() < d.settings.PoolMinCPUs || len(n.shape.Cores) < 2
	machineBytes := machineBytes(s)
	r := d.settings.resolve(small, n.milliCPU(s), int64(machineBytes))
	a.Reclaimed = &tick.Reclaimed{}
	var e estimate
	if small {
		e = need(s.Pods, nil, d.settings)
		n.quota(a, t, e, r, d.settings)
	} else {
		dedicated := n.dedicate(a, s.Pods, r)
		e = need(s.Pods, dedicated, d.settings)
		n.pools(a, t, dedicated, e, r, d.settings)
	}
	a.Reasons = append(a.Reasons, e.reasons(d.settings)...)
	n.memory(a, s, machineBytes, r, e)
	n.Fallback = a.Fallback
	return a
}

// undecidable says what is missing for a decision.
func undecidable(s *tick.Sample) string {
	switch {
	case s == nil:
		return "no sample"
	case s.Topology == nil:
		return "no topology in the sample"
	case s.IntervalSeconds == nil && firstReading(s.Pods):
		// The containers' requests would stand in, up to 4 cores each, and be held for --hold.
		return "first reading, there are no rates yet"
	}
	return ""
}

// firstReading reports whether there are shared pods and none of their containers has a use.
func firstReading(pods []tick.Pod) bool {
	shared := false
	for i := range pods {
		if pods[i].QoS != tick.QoSShared {
			continue
		}
		for _, w := range workloads(&pods[i]) {
			if w.usage != nil || w.load1 != nil {
				return false
			}
			shared = true
		}
	}
	return shared
}

// clock keeps the hold-down sound where the node's clock is set back: what lies ahead counts as now.
func (n *node) clock(now time.Time) {
	if n.LastNeed.After(now) {
		n.LastNeed = now
	}
	if n.LastChange.After(now) {
		n.LastChange = now
	}
}

// forget makes room for one more node: it drops one whose size changed longest ago.
func (d *Decider) forget() {
	if len(d.nodes) < maxNodes {
		return
	}
	var oldest string
	for name, n := range d.nodes {
		if oldest == "" || n.LastNeed.Before(d.nodes[oldest].LastNeed) {
			oldest = name
		}
	}
	delete(d.nodes, oldest)
}

// milliCPU is the machine's CPU, or the node object's allocatable where that is less.
func (n *node) milliCPU(s *tick.Sample) int64 {
	all := int64(n.shape.online.Size()) * 1000
	if s.Allocatable != nil && s.Allocatable.MilliCPU != nil && *s.Allocatable.MilliCPU >= 0 {
		return min(all, int64(bounded(*s.Allocatable.MilliCPU)))
	}
	return all
}

// machineBytes is the machine's memory: the node object's capacity, else the kernel's total; 0 where neither is known.
func machineBytes(s *tick.Sample) float64 {
	switch {
	case s.Capacity != nil && s.Capacity.MemoryBytes != nil:
		return max(0, bounded(*s.Capacity.MemoryBytes))
	case s.Memory != nil && s.Memory.TotalBytes != nil:
		return max(0, bounded(*s.Memory.TotalBytes))
	}
	return 0
}

func (n *node) memory(a *tick.Advice, s *tick.Sample, totalBytes float64, r resolved, e estimate) {
	if totalBytes <= 0 {
		a.Reasons = append(a.Reasons, "memory: the machine's total is not known: no memory is offered")
		return
	}
	bytes := reclaimedMemory(totalBytes, r.reserveMemoryBytes, e)
	a.Reclaimed.MemoryBytes = &bytes
	if bytes == 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf("memory: %d bytes are no more than the reserve of %d and the shared containers' %.0f: none is offered", int64(totalBytes), r.reserveMemoryBytes, e.memoryBytes))
	}
	n.splitMemory(a, s, bytes)
}

// splitMemory divides the reclaimed memory over the NUMA nodes in proportion to what is free there.
func (n *node) splitMemory(a *tick.Advice, s *tick.Sample, bytes int64) {
	free, sum := map[int]float64{}, 0.0
	for _, numa := range s.NUMANodes {
		if numa.Memory != nil && numa.Memory.FreeBytes != nil && *numa.Memory.FreeBytes > 0 {
			free[numa.ID] = bounded(*numa.Memory.FreeBytes)
			sum += free[numa.ID]
		}
	}
	if sum <= 0 {
		return
	}
	for i := range a.Reclaimed.NUMANodes {
		numa := &a.Reclaimed.NUMANodes[i]
		numa.MemoryBytes = tick.Ptr(int64(float64(bytes) * (free[numa.ID] / sum)))
	}
}
