// Package object decides what a node's objects in the cluster should hold, as plain maps. It is pure: the figures come from
// ticks, the time and what the cluster holds already from the caller.
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

// Amounts are CPU and memory that reclaimed pods may have, or have. A nil is not known.
type Amounts struct{ MilliCPU, MemoryBytes *int64 }

func (a Amounts) empty() bool { return a.MilliCPU == nil && a.MemoryBytes == nil }

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

// Figures are what a node has to report.
type Figures struct {
	Reclaimed Amounts
	// Mid is what Koordinator's mid pods may have. Dialect is whose names a Node's resources bear; Left are those that
	// a report may have offered something under before, and that shall go.
	Mid       Amounts
	Dialect   Dialect
	Left      []Dialect
	Zones     []Zone     // by id
	Consumers []Consumer // by name
	// Taints are those that should be there now; nil means that it is not known.
	Taints []tick.Taint
	// Requested is what the reclaimed pods request that stay; nil where the tick does not tell.
	Requested *Amounts

	// Gone is why nothing is offered any more, which is not silence.
	Gone string
	// Held means that the offer is kept down because of a taint, Stated that an offer of nothing is meant, and no silence;
	// TaintsAlone that the object is about taints alone. Note is for people.
	Held, Stated, TaintsAlone bool
	Note                      string
}

// Silent reports whether there is nothing to keep in the object.
func (f Figures) Silent() bool { return f.Empty() && !f.Stated }

// Empty reports whether there is nothing to offer, which is not the same as an offer of nothing.
func (f Figures) Empty() bool { return f.Reclaimed.empty() && f.Mid.empty() }

// The most that is taken of one tick: an object of the cluster may have 1.5 MB, and nobody knows who wrote the line.
const (
	maxZones     = 64
	maxConsumers = 1000
	maxTaints    = 50
)

// Read takes a tick's figures. Amounts under zero are zero: an advice that could go lower offers nothing.
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
	// Of a dry run of evict, nothing is to be seen in the cluster.
	if e := t.Eviction; e != nil && e.Refused == "" {
		f.Taints = []tick.Taint{}
		if !e.DryRun {
			f.Taints = append(f.Taints, e.Taints[:min(len(e.Taints), maxTaints)]...)
		}
	}
	return f
}

// largest is what a float64 holds to the unit, and more than any machine has.
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

// whole is a number of bytes or milli-CPU; nil where it is none.
func whole(v *float64) *int64 {
	if v == nil || !(*v >= 0 && *v <= largest) {
		return nil
	}
	return new(int64(math.Round(*v)))
}

// consumers are the reclaimed pods that the cluster knows, and that are not over.
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

// isConsumer reports whether a pod is a reclaimed one that the cluster knows, and that is not over.
func isConsumer(p *tick.Pod) bool {
	return p.QoS == tick.QoSReclaimed && p.Namespace != "" && p.Missing != tick.MissingCluster && p.Requests != nil && !p.Ended()
}

// runsOn are the NUMA nodes that a pod's containers may run on: all that have CPUs where that is not known.
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

// Memory is what a node's ticks had last, and when. Each part lives on its own: a tick without one does not make the one
// before it wrong, but a part that nobody has confirmed for long no longer counts.
type Memory struct {
	last                               Figures
	cpuAt, memoryAt, zonesAt, taintsAt time.Time
	midCPUAt, midMemoryAt, goneAt      time.Time
}

// Take notes the figures of a tick that came at the time.
func (m *Memory) Take(f Figures, at time.Time) {
	if f.Speaks() {
		m.turn(f, at)
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
	m.last.Requested = f.Requested // what pods requested a while ago is no bound for those of now
}

// turn forgets what was offered where another policy advises now, or the policy has it that nothing is offered any more.
func (m *Memory) turn(f Figures, at time.Time) {
	if f.Gone != "" || f.Dialect != m.last.Dialect {
		m.last.Reclaimed, m.last.Mid = Amounts{}, Amounts{}
	}
	m.last.Dialect, m.last.Gone, m.goneAt = f.Dialect, f.Gone, at
}

// Now is what holds at the time: what was in a tick within the last limit. Taints that nobody has confirmed for so long are none,
// those that nobody ever spoke of are not known.
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
	if f.Gone != "" && fresh(m.goneAt) {
		f.Stated, f.Note = true, fmt.Sprintf("nothing is offered: %.*s", longestReason, f.Gone)
	}
	if !fresh(m.zonesAt) || f.Empty() {
		f.Zones, f.Consumers = nil, nil
	}
	if !fresh(m.taintsAt) && f.Taints != nil {
		f.Taints = []tick.Taint{}
	}
	return f
}
