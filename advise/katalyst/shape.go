package katalyst

import (
	"fmt"
	"slices"
	"strings"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// shape is a node's topology in the form that the pools need.
type shape struct {
	*policy.Shape
	online cpuSet           // all
	avail  cpuSet           // without those that are reserved for the system or given away by kubelet
	nodes  map[int]cpus.Set // online CPUs by NUMA node
	mems   cpus.Set         // ids of the NUMA nodes that have memory, as far as known

	// A steady node uses the same sets every second: each is computed once.
	parsed          map[string]cpuSet
	exclusiveCounts map[string]int
	nodesOfSet      map[string]cpus.Set
	remainders      map[string]cpuSet
	unions          map[[2]string]cpuSet
	resizes         map[resizeKey]cpuSet
	layouts         map[layoutKey]*layout
	placements      map[string][]cpuSet
}

// cpuSet is a set with its list, because formatting the list takes time.
type cpuSet struct {
	cpus.Set
	list string
}

func newCPUSet(s cpus.Set) cpuSet { return cpuSet{s, s.String()} }

// cached returns m's value of k, and computes it at the first use. The number of values is bounded.
func cached[K comparable, V any](m *map[K]V, k K, make func() V) V {
	v, ok := (*m)[k]
	if !ok {
		if *m == nil || len(*m) >= 256 {
			*m = map[K]V{}
		}
		v = make()
		(*m)[k] = v
	}
	return v
}

// parse reads a list of our own, or a state file's: an invalid list counts as empty.
func (s *shape) parse(list string) cpuSet {
	if list == "" {
		return cpuSet{}
	}
	return cached(&s.parsed, list, func() cpuSet {
		set, err := cpus.Parse(list)
		if err != nil {
			return cpuSet{}
		}
		return newCPUSet(set)
	})
}

// nodesOf returns the ids of the NUMA nodes that a set has CPUs of.
func (s *shape) nodesOf(set cpuSet) cpus.Set {
	return cached(&s.nodesOfSet, set.list, func() cpus.Set {
		var ids []int
		for id, node := range s.nodes {
			if !node.Intersection(set.Set).IsEmpty() {
				ids = append(ids, id)
			}
		}
		return cpus.New(ids...)
	})
}

// bytesOf returns the memory of NUMA nodes, as far as it is known.
func (s *shape) bytesOf(ids cpus.Set) float64 {
	sum := 0.0
	for _, numa := range s.Source.NUMANodes {
		if numa.MemoryBytes != nil && *numa.MemoryBytes > 0 && ids.Contains(numa.ID) {
			sum = policy.Bounded(sum + *numa.MemoryBytes)
		}
	}
	return sum
}

// withoutDedicated returns the CPUs that are not dedicated.
func (s *shape) withoutDedicated(dedicated map[string]cpuSet) cpuSet {
	if len(dedicated) == 0 {
		return s.avail
	}
	lists := make([]string, 0, len(dedicated))
	for _, set := range dedicated {
		lists = append(lists, set.list)
	}
	slices.Sort(lists)
	return cached(&s.remainders, strings.Join(lists, ";"), func() cpuSet {
		avail := s.avail.Set
		for _, set := range dedicated {
			avail = avail.Difference(set.Set)
		}
		return newCPUSet(avail)
	})
}

// union returns the CPUs of both sets.
func (s *shape) union(a, b cpuSet) cpuSet {
	return cached(&s.unions, [2]string{a.list, b.list}, func() cpuSet { return newCPUSet(a.Union(b.Set)) })
}

type resizeKey struct {
	avail, current string
	n, limit       int
}

// resize is [cpus.Topology.Resize].
func (s *shape) resize(avail, current cpuSet, n, limit int) cpuSet {
	return cached(&s.resizes, resizeKey{avail.list, current.list, n, limit}, func() cpuSet {
		return newCPUSet(s.Resize(avail.Set, current.Set, n, limit))
	})
}

type layoutKey struct {
	avail, share string
	floorCPUs    int
}

// layout is how the CPUs that are not dedicated are divided.
type layout struct {
	reclaim     cpuSet
	floor       cpuSet // of the reclaim pool, so that the fallback only removes CPUs
	exceptFloor cpuSet // all CPUs except the floor
	perNUMA     []uint64
	// withoutPool is where the reclaimed pods run if they have no pool.
	withoutPool string
}

func (s *shape) layout(avail, share cpuSet, floorCPUs int) *layout {
	return cached(&s.layouts, layoutKey{avail.list, share.list, floorCPUs}, func() *layout {
		l := &layout{reclaim: newCPUSet(avail.Difference(share.Set)), perNUMA: make([]uint64, len(s.NUMA))}
		l.floor = newCPUSet(s.FirstCores(l.reclaim.Set, floorCPUs))
		l.exceptFloor = newCPUSet(avail.Difference(l.floor.Set))
		for _, c := range s.Cores {
			l.perNUMA[slices.Index(s.NUMA, c.NUMA)] += uint64(c.CPUs.Intersection(l.reclaim.Set).Size())
		}
		return l
	})
}

// stillAvailable returns a previous pool without CPUs that are no longer available.
func (s *shape) stillAvailable(avail cpuSet, list string) cpuSet {
	return cached(&s.resizes, resizeKey{avail.list, list, -1, -1}, func() cpuSet {
		return newCPUSet(s.parse(list).Intersection(avail.Set))
	})
}

// refreshed returns the shape of a topology: s if nothing has changed. It accepts that kubelet gave all CPUs away.
func (s *shape) refreshed(t *tick.Topology, reserved, exclusive string) (*shape, error) {
	if s != nil && s.IsOf(t, reserved, exclusive) {
		return s, nil
	}
	machine, err := policy.NewShape(t, reserved, exclusive)
	if err != nil {
		return nil, err
	}
	s = &shape{Shape: machine, online: newCPUSet(machine.Online), avail: newCPUSet(machine.Avail), nodes: map[int]cpus.Set{}}
	if s.avail.IsEmpty() && s.Exclusive.IsEmpty() {
		return nil, fmt.Errorf("topology: all online CPUs (%s) are reserved", s.online.list)
	}
	var memory []int
	for _, node := range t.NUMANodes {
		if node.MemoryBytes == nil || *node.MemoryBytes > 0 {
			memory = append(memory, node.ID)
		}
	}
	s.mems = cpus.New(memory...)
	ids := map[int][]int{}
	for _, c := range s.Cores {
		ids[c.NUMA] = append(ids[c.NUMA], c.CPUs.UnsortedList()...)
	}
	for id, list := range ids {
		s.nodes[id] = cpus.New(list...)
	}
	return s, nil
}
