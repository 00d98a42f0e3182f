package source

import (
	"errors"
	"io/fs"

	"polder/collect/host"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// Topology is the machine's topology. It is read again when the list of online CPUs changes, at each rescan, and after a
// reading of which a part failed.
var Topology = Source{
	Name: "topology",
	Doc:  "cores, sockets, L3 caches and NUMA nodes, from /sys/devices/system",
	New:  func(e *Env) Reader { return &topologyReader{host: e.Host} },
}

type topologyReader struct {
	host      *host.Host
	online    string
	isPartial bool // a part of the last reading failed
	shape     *host.Topology
	tick      *tick.Topology
}

func (t *topologyReader) Read(r *Round) error {
	online, err := t.host.OnlineCPUs()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if t.shape == nil || t.isPartial || online != t.online || r.Rescan {
		var shape host.Topology
		if shape, err = t.host.Topology(); shape.CPUs.IsEmpty() {
			return err
		}
		t.online, t.isPartial, t.shape, t.tick = online, err != nil, &shape, asTick(&shape)
	} else {
		err = nil
	}
	r.Topology, r.Sample.Topology = t.shape, t.tick
	return err
}

func asTick(h *host.Topology) *tick.Topology {
	t := &tick.Topology{CPUs: h.CPUs.String(), Cores: lists(h.Cores), Sockets: lists(h.Sockets), L3: lists(h.L3)}
	for _, n := range h.NUMANodes {
		node := tick.TopologyNUMA{ID: n.ID, CPUs: n.CPUs.String()}
		if n.MemoryBytes != nil {
			node.MemoryBytes = new(float64(*n.MemoryBytes))
		}
		t.NUMANodes = append(t.NUMANodes, node)
	}
	return t
}

func lists(sets []cpus.Set) []string {
	var out []string
	for _, s := range sets {
		out = append(out, s.String())
	}
	return out
}
