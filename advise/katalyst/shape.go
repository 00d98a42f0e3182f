package katalyst

import (
	"fmt"
	"slices"

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
