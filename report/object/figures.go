// Package object decides the desired content of a node's objects in the cluster, as plain maps. It is pure: the figures come from
// ticks, the time and the observed objects from the caller.
package object

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// Amounts are CPU and memory that are offered to reclaimed pods, or requested by them. A nil is unknown.
type Amounts struct{ MilliCPU, MemoryBytes *int64 }

func (a Amounts) empty() bool { return a.MilliCPU == nil && a.MemoryBytes == nil }

// Offer is what a node offers, or what its pods request, as reclaimed and as Koordinator's mid resources.
type Offer struct{ Reclaimed, Mid Amounts }

// Zone is a NUMA node.
type Zone struct {
	ID int
	// Socket is the number of the socket that has all of its CPUs, -1 where none does.
	Socket    int
	CPUs      int
	Bytes     *int64 // its memory
	Reclaimed Amounts
}

// Consumer is a reclaimed pod.
type Consumer struct {
	Name     string // namespace/name/uid
	Requests Amounts
	// Zones are the NUMA nodes that it may run on.
	Zones []int
}

// Figures are what a node reports.
type Figures struct {
	Reclaimed Amounts
	// Mid is the offer to Koordinator's mid pods. Dialect is that of the names of a Node's resources; Left are those under
	// which a report may have offered something before, and which shall be removed.
	Mid       Amounts
	Dialect   Dialect
	Left      []Dialect
	Zones     []Zone     // by id
	Consumers []Consumer // by name
	// Taints are the desired taints; nil means that they are unknown.
	Taints []tick.Taint
	// Requested is the sum of the requests of the reclaimed pods that stay; nil where it is unknown.
	Requested *Offer

	// WithdrawnReason is why the offer was withdrawn, which is not the same as a missing offer.
	WithdrawnReason string
	// ReducedByTaint means that a taint reduces the offer, IsIntended that an offer of nothing is intended, and not missing;
	// OnlyTaints that the object has only taints. Note is for people.
	ReducedByTaint, IsIntended, OnlyTaints bool
	Note                                   string
}

// NeedsNoContent reports whether the object needs no content.
func (f Figures) NeedsNoContent() bool { return f.Empty() && !f.IsIntended }

// Empty reports whether there is nothing to offer, which is not the same as an offer of nothing.
func (f Figures) Empty() bool { return f.Reclaimed.empty() && f.Mid.empty() }

// Bounds of the figures of one tick: an object of the cluster may have 1.5 MB, and any line may be hostile.
const (
	maxZones     = 64
	maxConsumers = 1000
	maxTaints    = 50
)

// Read reads a tick's figures. Negative amounts count as zero.
func Read(t *tick.Tick) Figures {
	var f Figures
	if t.Advice != nil {
		f.takeOffer(t.Advice)
	}
	if t.Sample != nil && t.Sample.Topology != nil {
		f.Zones = zones(t.Sample.Topology, t.Advice)
		f.Consumers = consumers(t.Sample)
	}
	f.Requested = requested(t)
	// A dry run of evict must not show in the cluster.
	if e := t.Eviction; e != nil && e.Refused == "" {
		f.Taints = []tick.Taint{}
		if !e.DryRun {
			f.Taints = append(f.Taints, e.Taints[:min(len(e.Taints), maxTaints)]...)
		}
	}
	return f
}

// largest is the largest whole number of a float64, and more than any machine has.
const largest = 1 << 53

func floor(v *int64) *int64 {
	if v == nil {
		return nil
	}
	return new(min(max(*v, 0), largest))
}

func zones(t *tick.Topology, advice *tick.Advice) []Zone {
	reclaimed := map[int]Amounts{}
	if advice != nil && advice.Reclaimed != nil {
		for _, n := range advice.Reclaimed.NUMANodes {
			reclaimed[n.ID] = Amounts{floor(n.MilliCPU), floor(n.MemoryBytes)}
		}
	}
	var list []Zone
	for _, n := range t.NUMANodes[:min(len(t.NUMANodes), maxZones)] {
		set, err := cpus.Parse(n.CPUs)
		if err != nil || slices.ContainsFunc(list, func(z Zone) bool { return z.ID == n.ID }) {
			continue
		}
		z := Zone{ID: n.ID, Socket: -1, CPUs: set.Size(), Bytes: whole(n.MemoryBytes), Reclaimed: reclaimed[n.ID]}
		for i, socket := range t.Sockets {
			if s, err := cpus.Parse(socket); err == nil && set.Size() > 0 && set.IsSubsetOf(s) {
				z.Socket = i
				break
			}
		}
		list = append(list, z)
	}
	slices.SortFunc(list, func(a, b Zone) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// whole is a number of bytes or milli-CPU; nil where it is invalid.
func whole(v *float64) *int64 {
	if v == nil || !(*v >= 0 && *v <= largest) {
		return nil
	}
	return new(int64(math.Round(*v)))
}

// consumers are the cluster's reclaimed pods that have not ended.
func consumers(s *tick.Sample) []Consumer {
	nodes := map[int]cpus.Set{}
	for _, n := range s.Topology.NUMANodes[:min(len(s.Topology.NUMANodes), maxZones)] {
		if set, err := cpus.Parse(n.CPUs); err == nil {
			nodes[n.ID] = set
		}
	}
	var list []Consumer
	for i := range s.Pods {
		p := &s.Pods[i]
		if !isConsumer(p) {
			continue
		}
		c := Consumer{
			Name:     p.Namespace + "/" + p.Name + "/" + p.UID,
			Requests: Amounts{whole(p.Requests.ReclaimedMilliCPU), whole(p.Requests.ReclaimedMemoryBytes)}, Zones: runsOn(p, nodes),
		}
		if !c.Requests.empty() {
			if list = append(list, c); len(list) == 4*maxConsumers {
				break
			}
		}
	}
	slices.SortFunc(list, func(a, b Consumer) int { return cmp.Compare(a.Name, b.Name) })
	list = slices.CompactFunc(list, func(a, b Consumer) bool { return a.Name == b.Name })
	return list[:min(len(list), maxConsumers)]
}

// isConsumer reports whether a pod is a reclaimed one of the cluster that has not ended.
func isConsumer(p *tick.Pod) bool {
	return p.QoS == tick.QoSReclaimed && p.Namespace != "" && p.Missing != tick.MissingCluster && p.Requests != nil && !p.Ended()
}

// runsOn are the NUMA nodes on which a pod's containers may run: all with CPUs where that is unknown.
func runsOn(p *tick.Pod, nodes map[int]cpus.Set) []int {
	used := cpus.New()
	for _, c := range p.Containers {
		if set, err := cpus.Parse(c.CPUSetCPUs); err == nil {
			used = used.Union(set)
		}
	}
	var ids []int
	for id, set := range nodes {
		if set.Size() > 0 && (used.Size() == 0 || set.Intersection(used).Size() > 0) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Memory has the last figures of a node's ticks, and their times. Each part is separate: a tick without one does not invalidate the
// last one, but a part that no tick has confirmed for long no longer counts.
type Memory struct {
	last                               Figures
	cpuAt, memoryAt, zonesAt, taintsAt time.Time
	midCPUAt, midMemoryAt, withdrawnAt time.Time
}

// Take notes the figures of a tick that came at the time.
func (m *Memory) Take(f Figures, at time.Time) {
	if f.HasOffer() {
		m.dropOfferOnChange(f, at)
	}
	if f.Reclaimed.MilliCPU != nil {
		m.last.Reclaimed.MilliCPU, m.cpuAt = f.Reclaimed.MilliCPU, at
	}
	if f.Reclaimed.MemoryBytes != nil {
		m.last.Reclaimed.MemoryBytes, m.memoryAt = f.Reclaimed.MemoryBytes, at
	}
	if f.Mid.MilliCPU != nil {
		m.last.Mid.MilliCPU, m.midCPUAt = f.Mid.MilliCPU, at
	}
	if f.Mid.MemoryBytes != nil {
		m.last.Mid.MemoryBytes, m.midMemoryAt = f.Mid.MemoryBytes, at
	}
	if f.Zones != nil && !f.Empty() {
		m.last.Zones, m.last.Consumers, m.zonesAt = f.Zones, f.Consumers, at
	}
	if f.Taints != nil {
		m.last.Taints, m.taintsAt = f.Taints, at
	}
	m.last.Requested = f.Requested // earlier requests do not bound those of the present pods
}

// dropOfferOnChange forgets the offer when another policy advises, or when the policy has withdrawn it.
func (m *Memory) dropOfferOnChange(f Figures, at time.Time) {
	if f.WithdrawnReason != "" || f.Dialect != m.last.Dialect {
		m.last.Reclaimed, m.last.Mid = Amounts{}, Amounts{}
	}
	m.last.Dialect, m.last.WithdrawnReason, m.withdrawnAt = f.Dialect, f.WithdrawnReason, at
}

// Now has the figures that are valid at the time: those of a tick within the last limit. Taints that no tick has confirmed for so
// long are none, those that were never in a tick are unknown.
func (m *Memory) Now(at time.Time, limit time.Duration) Figures {
	f := m.last
	fresh := func(t time.Time) bool { return !t.IsZero() && at.Sub(t) < limit }
	if !fresh(m.cpuAt) {
		f.Reclaimed.MilliCPU = nil
	}
	if !fresh(m.memoryAt) {
		f.Reclaimed.MemoryBytes = nil
	}
	if !fresh(m.midCPUAt) {
		f.Mid.MilliCPU = nil
	}
	if !fresh(m.midMemoryAt) {
		f.Mid.MemoryBytes = nil
	}
	if f.WithdrawnReason != "" && fresh(m.withdrawnAt) {
		f.IsIntended, f.Note = true, fmt.Sprintf("nothing is offered: %.*s", longestReason, f.WithdrawnReason)
	}
	if !fresh(m.zonesAt) || f.Empty() {
		f.Zones, f.Consumers = nil, nil
	}
	if !fresh(m.taintsAt) && f.Taints != nil {
		f.Taints = []tick.Taint{}
	}
	return f
}
