package policy

import (
	"fmt"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// Shape is a node's topology, with the CPUs that batch and services cannot use.
type Shape struct {
	*cpus.Topology
	// Reserved are the system's online CPUs, Exclusive those that kubelet gave to pods exclusively, and Avail all others.
	Reserved, Exclusive, Avail cpus.Set
	// Source is the topology that it was built from, together with the two lists.
	Source              tick.Topology
	reserved, exclusive string
}

// IsOf reports whether there is a shape, built from the same topology and lists.
func (s *Shape) IsOf(t *tick.Topology, reserved, exclusive string) bool {
	return s != nil && s.reserved == reserved && s.exclusive == exclusive && SameTopology(&s.Source, t)
}

// NewShape builds a shape from a sample's topology, the list of the system's CPUs, and that of kubelet's exclusive CPUs.
func NewShape(t *tick.Topology, reserved, exclusive string) (*Shape, error) {
	s := &Shape{Source: *t, reserved: reserved, exclusive: exclusive}
	numa := make(map[int]string, len(t.NUMANodes))
	for _, node := range t.NUMANodes {
		numa[node.ID] = node.CPUs
	}
	var err error
	if s.Topology, err = cpus.NewTopology(cpus.Shape{Online: t.CPUs, Cores: t.Cores, L3: t.L3, Sockets: t.Sockets, NUMA: numa}); err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	if s.Reserved, err = cpus.Parse(reserved); err != nil {
		return nil, fmt.Errorf("reserved CPUs: %w", err)
	}
	if s.Exclusive, err = cpus.Parse(exclusive); err != nil {
		return nil, fmt.Errorf("kubelet's exclusive CPUs: %w", err)
	}
	s.Exclusive = s.Exclusive.Intersection(s.Online)
	s.Reserved = s.Reserved.Intersection(s.Online).Difference(s.Exclusive)
	s.Avail = s.Online.Difference(s.Exclusive).Difference(s.Reserved)
	return s, nil
}

// ExclusiveCPUs returns the CPUs that kubelet gave to pods exclusively; if its state could not be read, the last ones, and why.
func ExclusiveCPUs(s *tick.Sample, last string) (list, why string) {
	switch {
	case s.Kubelet != nil:
		return s.Kubelet.ExclusiveCPUs, ""
	case last == "" || !s.IsUnread("kubelet"): // there is no kubelet
		return "", ""
	}
	return last, "kubelet's state could not be read: CPUs " + Quote(last) + " still count as exclusive"
}
