package suppress

import (
	"fmt"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

type set = cpus.Set

// shape is a node's topology, and the list that it was made from.
type shape struct {
	*cpus.Topology
	from tick.Topology
}

// renew is the shape of a topology: this one where nothing has changed.
func (s *shape) renew(t *tick.Topology) (*shape, error) {
	if s != nil && policy.SameTopology(&s.from, t) {
		return s, nil
	}
	numa := make(map[int]string, len(t.NUMANodes))
	for _, n := range t.NUMANodes {
		numa[n.ID] = n.CPUs
	}
	topology, err := cpus.NewTopology(cpus.Shape{Online: t.CPUs, Cores: t.Cores, L3: t.L3, Sockets: t.Sockets, NUMA: numa})
	if err != nil {
		return s, fmt.Errorf("topology: %w", err)
	}
	return &shape{Topology: topology, from: *t}, nil
}

// parse reads a list of our own, or a state file's: what is no list is empty.
func parse(list string) set {
	s, _ := cpus.Parse(list)
	return s
}
