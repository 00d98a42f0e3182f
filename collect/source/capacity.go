package source

import "polder/lib/tick"

// Capacity is the machine's capacity. Without a cluster all of it is allocatable. In a cluster the node object says what is allocatable;
// until it is read that is unknown.
var Capacity = Source{
	Name: "capacity",
	Doc:  "the online CPUs and the memory",
	New:  func(*Env) Reader { return &capacityReader{} },
}

type capacityReader struct {
	milliCPU, memory float64
	resources        tick.Resources
}

func (c *capacityReader) Read(r *Round) error {
	c.resources = tick.Resources{}
	if r.Topology != nil {
		c.resources.MilliCPU = known(&c.milliCPU, float64(r.Topology.CPUs.Size())*1000, true)
	}
	if m := r.Sample.Memory; m != nil && m.TotalBytes != nil {
		c.resources.MemoryBytes = known(&c.memory, *m.TotalBytes, true)
	}
	if c.resources != (tick.Resources{}) {
		r.Sample.Capacity, r.Sample.Allocatable = &c.resources, &c.resources
	}
	return nil
}
