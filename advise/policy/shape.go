package policy

import (
	"errors"
	"fmt"
	"strings"

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

// ExclusiveCPUs are the CPUs that kubelet gave to pods exclusively, as last known, in the format of the state file.
type ExclusiveCPUs struct {
	// CPUs is the list, and IsKnown reports whether kubelet's state was ever read: only then an empty list means that there are none.
	CPUs    string `json:"given,omitempty"`
	IsKnown bool   `json:"givenKnown,omitempty"`
}

// Observe updates the list from a sample. If kubelet's state could not be read the last list stays, and the reason reports that; if it was
// never read either, the CPUs are unknown, and Observe returns an error.
func (e *ExclusiveCPUs) Observe(s *tick.Sample) (reason string, err error) {
	switch {
	case s.Kubelet != nil:
		if e.IsKnown = true; e.CPUs != s.Kubelet.ExclusiveCPUs {
			e.CPUs = strings.Clone(s.Kubelet.ExclusiveCPUs)
		}
	case !s.IsUnread("kubelet"): // there is no kubelet
		*e = ExclusiveCPUs{}
	case e.CPUs != "": // known, also by a state file without IsKnown
		reason = "kubelet's state could not be read: CPUs " + Quote(e.CPUs) + " still count as exclusive"
	case e.IsKnown:
		reason = "kubelet's state could not be read: it still counts as without exclusive CPUs"
	default:
		err = errors.New("kubelet's state could not be read yet: the CPUs that it assigned exclusively are unknown")
	}
	return reason, err
}
