package source

import (
	"fmt"

	"polder/collect/host"
	"polder/lib/tick"
)

// NUMA is each NUMA node's use. A node without CPUs has no CPU use.
var NUMA = Source{
	Name: "numa",
	Doc:  "CPU use from /proc/stat by node, memory from /sys/devices/system/node/node*/meminfo",
	New:  func(e *Env) Reader { return &numaReader{host: e.Host} },
}

type numaReader struct {
	host  *host.Host
	of    *host.Topology // what nodes was made from
	nodes []numaNode
	out   []tick.NUMASample
}

type numaNode struct {
	id                 int
	cpus               []int
	memory             tick.NUMAMemory
	usage, total, free float64
}

func (n *numaReader) Read(r *Round) error {
	if r.Topology == nil {
		return nil // the topology source reports why
	}
	if n.of != r.Topology {
		n.of = r.Topology
		n.nodes = make([]numaNode, len(r.Topology.NUMANodes))
		n.out = make([]tick.NUMASample, len(n.nodes))
		for i, t := range r.Topology.NUMANodes {
			n.nodes[i].id, n.nodes[i].cpus = t.ID, t.CPUs.List()
		}
	}
	var failed error
	others := 0 // further nodes that failed
	for i := range n.nodes {
		node := &n.nodes[i]
		n.out[i] = tick.NUMASample{ID: node.id, UsageMilliCPU: node.readUsage(r)}
		m, err := n.host.NodeMemory(node.id)
		if err != nil && failed == nil {
			failed = err
		} else if err != nil {
			others++
		}
		if err != nil {
			continue
		}
		node.memory = tick.NUMAMemory{TotalBytes: counted(&node.total, m.TotalBytes), FreeBytes: counted(&node.free, m.FreeBytes)}
		n.out[i].Memory = &node.memory
	}
	r.Sample.NUMANodes = n.out
	if others > 0 {
		failed = fmt.Errorf("%w (and %d more NUMA nodes)", failed, others)
	}
	return failed
}

func (n *numaNode) readUsage(r *Round) *float64 {
	if r.busySeconds == 0 {
		return nil
	}
	var total int64
	var seen bool
	for _, id := range n.cpus {
		if id < len(r.busy) && r.busy[id] >= 0 {
			total += r.busy[id]
			seen = true
		}
	}
	return known(&n.usage, milliCPU(total, r.busySeconds), seen)
}
