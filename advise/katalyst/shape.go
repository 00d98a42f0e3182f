package katalyst

import (
	"fmt"
	"slices"
	"strings"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// shape is a node's topology in the form that the pools need.
type shape struct {
	*cpus.Topology
	from     tick.Topology // what it was made from
	reserved string
	online   cpus.Set // all
	system   cpus.Set // reserved for the system
	avail    cpus.Set // online without the reserved ones

	// A steady node asks for the same sets every second: each is worked out once.
	rests   map[string]named
	resizes map[resizeKey]named
	layouts map[layoutKey]*layout
}

// named is a set with its list, which takes time to write.
type named struct {
	cpus.Set
	list string
}

func name(s cpus.Set) named { return named{s, s.String()} }

// memo returns m's value of k, made at the first time. The number of values is bounded.
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

// rest is what dedicated pods leave.
func (s *shape) rest(dedicated map[string]cpus.Set) named {
	lists := make([]string, 0, len(dedicated))
	for _, set := range dedicated {
		lists = append(lists, set.String())
	}
	slices.Sort(lists)
	return memo(&s.rests, strings.Join(lists, ";"), func() named {
		avail := s.avail
		for _, set := range dedicated {
			avail = avail.Difference(set)
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
	floor   named // of the reclaim pool, so that the fallback only ever takes
	spare   named // what is not floor
	perNUMA []int64
}

func (s *shape) layout(avail, share named, floorCPUs int) *layout {
	return memo(&s.layouts, layoutKey{avail.list, share.list, floorCPUs}, func() *layout {
		l := &layout{reclaim: name(avail.Difference(share.Set)), perNUMA: make([]int64, len(s.NUMA))}
		l.floor = name(s.First(l.reclaim.Set, floorCPUs))
		l.spare = name(avail.Difference(l.floor.Set))
		for _, c := range s.Cores {
			l.perNUMA[slices.Index(s.NUMA, c.NUMA)] += int64(c.CPUs.Intersection(l.reclaim.Set).Size())
		}
		return l
	})
}

// see makes the shape, unless it is known already.
func (n *node) see(t *tick.Topology, reserved string) error {
	if n.shape != nil && n.shape.reserved == reserved && same(&n.shape.from, t) {
		return nil
	}
	numa := make(map[int]string, len(t.NUMANodes))
	for _, node := range t.NUMANodes {
		numa[node.ID] = node.CPUs
	}
	topology, err := cpus.NewTopology(cpus.Shape{Online: t.CPUs, Cores: t.Cores, L3: t.L3, NUMA: numa})
	if err != nil {
		return err
	}
	system, err := cpus.Parse(reserved)
	if err != nil {
		return fmt.Errorf("reserved CPUs: %w", err)
	}
	system = system.Intersection(topology.Online)
	avail := topology.Online.Difference(system)
	if avail.IsEmpty() {
		return fmt.Errorf("all online CPUs (%s) are reserved", topology.Online)
	}
	n.shape = &shape{Topology: topology, from: *t, reserved: reserved, online: topology.Online, system: system, avail: avail}
	return nil
}

func same(a, b *tick.Topology) bool {
	return a.CPUs == b.CPUs && slices.Equal(a.Cores, b.Cores) && slices.Equal(a.L3, b.L3) &&
		slices.EqualFunc(a.NUMANodes, b.NUMANodes, func(x, y tick.TopologyNUMA) bool { return x.ID == y.ID && x.CPUs == y.CPUs })
}
