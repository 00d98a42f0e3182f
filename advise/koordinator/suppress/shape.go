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

// see makes the shape, unless it is known already.
func (st *State) see(t *tick.Topology) error {
	if st.shape != nil && policy.SameTopology(&st.shape.from, t) {
		return nil
	}
	numa := make(map[int]string, len(t.NUMANodes))
	for _, n := range t.NUMANodes {
		numa[n.ID] = n.CPUs
	}
	topology, err := cpus.NewTopology(cpus.Shape{Online: t.CPUs, Cores: t.Cores, L3: t.L3, Sockets: t.Sockets, NUMA: numa})
	if err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	st.shape = &shape{Topology: topology, from: *t}
	return nil
}

// parse reads a list of our own, or a state file's: what is no list is empty.
func parse(list string) set {
	s, _ := cpus.Parse(list)
	return s
}
