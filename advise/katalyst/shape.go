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
	online named            // all
	avail  named            // without those that are reserved for the system or given away by kubelet
	nodes  map[int]cpus.Set // online CPUs by NUMA node
	mems   cpus.Set         // ids of the NUMA nodes that have memory, as far as known

	// A steady node uses the same sets every second: each is computed once.
	lists   map[string]named
	givens  map[string]int
	spans   map[string]cpus.Set
	rests   map[string]named
	resizes map[resizeKey]named
	layouts map[layoutKey]*layout
	places  map[string][]named
}

// named is a set with its list, because formatting the list takes time.
type named struct {
	cpus.Set
	list string
}

func name(s cpus.Set) named { return named{s, s.String()} }

// memo returns m's value of k, and computes it at the first use. The number of values is bounded.
func memo[K comparable, V any](m *map[K]V, k K, make func() V) V {
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
func (s *shape) parse(list string) named {
	if list == "" {
		return named{}
	}
	return memo(&s.lists, list, func() named {
		set, err := cpus.Parse(list)
		if err != nil {
			return named{}
		}
		return name(set)
	})
}

// nodesOf returns the ids of the NUMA nodes that a set has CPUs of.
func (s *shape) nodesOf(set named) cpus.Set {
	return memo(&s.spans, set.list, func() cpus.Set {
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
	for _, numa := range s.From.NUMANodes {
		if numa.MemoryBytes != nil && *numa.MemoryBytes > 0 && ids.Contains(numa.ID) {
			sum = policy.Bounded(sum + *numa.MemoryBytes)
		}
	}
	return sum
}

// rest returns the CPUs that are not dedicated.
func (s *shape) rest(dedicated map[string]named) named {
	if len(dedicated) == 0 {
		return s.avail
	}
	lists := make([]string, 0, len(dedicated))
	for _, set := range dedicated {
		lists = append(lists, set.list)
	}
	slices.Sort(lists)
	return memo(&s.rests, strings.Join(lists, ";"), func() named {
		avail := s.avail.Set
		for _, set := range dedicated {
			avail = avail.Difference(set.Set)
		}
		return name(avail)
	})
}

type resizeKey struct {
	avail, present string
	n, limit       int
}

// resize is [cpus.Topology.Resize].
func (s *shape) resize(avail, present named, n, limit int) named {
	return memo(&s.resizes, resizeKey{avail.list, present.list, n, limit}, func() named {
		return name(s.Resize(avail.Set, present.Set, n, limit))
	})
}

type layoutKey struct {
	avail, share string
	floorCPUs    int
}

// layout is how the CPUs that are not dedicated are divided.
type layout struct {
	reclaim named
	floor   named // of the reclaim pool, so that the fallback only removes CPUs
	spare   named // all CPUs except the floor
	perNUMA []uint64
	// everywhere is where the reclaimed pods run if they have no pool.
	everywhere string
}

func (s *shape) layout(avail, share named, floorCPUs int) *layout {
	return memo(&s.layouts, layoutKey{avail.list, share.list, floorCPUs}, func() *layout {
		l := &layout{reclaim: name(avail.Difference(share.Set)), perNUMA: make([]uint64, len(s.NUMA))}
		l.floor = name(s.First(l.reclaim.Set, floorCPUs))
		l.spare = name(avail.Difference(l.floor.Set))
		for _, c := range s.Cores {
			l.perNUMA[slices.Index(s.NUMA, c.NUMA)] += uint64(c.CPUs.Intersection(l.reclaim.Set).Size())
		}
		return l
	})
}

// left returns a previous pool without CPUs that are no longer available.
func (s *shape) left(avail named, list string) named {
	return memo(&s.resizes, resizeKey{avail.list, list, -1, -1}, func() named {
		return name(s.parse(list).Intersection(avail.Set))
	})
}

// renew returns the shape of a topology: s if nothing has changed. It accepts that kubelet gave all CPUs away.
func (s *shape) renew(t *tick.Topology, reserved, given string) (*shape, error) {
	if s != nil && s.IsOf(t, reserved, given) {
		return s, nil
	}
	machine, err := policy.NewShape(t, reserved, given)
	if err != nil {
		return nil, err
	}
	s = &shape{Shape: machine, online: name(machine.Online), avail: name(machine.Avail), nodes: map[int]cpus.Set{}}
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
