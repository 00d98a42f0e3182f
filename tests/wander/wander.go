// Package wander makes ticks of nodes whose load varies by itself, for tests of its effects.
package wander

import (
	"math/rand/v2"
	"time"

	"polder/lib/tick"
)

// Node is a node of the guide with one service.
type Node struct {
	name       string
	random     *rand.Rand
	cores, rss float64
}

// New returns a node whose walk depends on the seed.
func New(name string, seed uint64) *Node {
	return &Node{name: name, random: rand.New(rand.NewPCG(1, seed))}
}

// Next is the load a second later: a walk between 1 and 30 cores that is drawn to 10, with a jump once in ten minutes.
func (n *Node) Next() float64 {
	n.cores += (10-n.cores)/300 + n.random.NormFloat64()/4
	if n.random.IntN(600) == 0 {
		n.cores += n.random.NormFloat64() * 8
	}
	n.cores = min(max(n.cores, 1), 30)
	return n.cores
}

// Tick is the node's with that load; its memory has moved, too.
func (n *Node) Tick(at time.Time, cores float64) *tick.Tick {
	n.cores = cores
	n.rss = min(max(n.rss+n.random.NormFloat64()*32*(1<<20), 2<<30), 90<<30)
	f := tick.Ptr[float64]
	numa := []tick.TopologyNUMA{{ID: 0, CPUs: "0-11,24-35", MemoryBytes: f(100313305088)}, {ID: 1, CPUs: "12-23,36-47", MemoryBytes: f(100313305088)}}
	service := tick.Container{Name: "c", UsageMilliCPU: f(cores * 1000), Load1: f(cores), Load5: f(cores), Memory: &tick.Memory{RSSBytes: f(n.rss)}}
	return &tick.Tick{V: 1, Node: n.name, Time: at.UTC(), Sample: &tick.Sample{
		IntervalSeconds: f(1),
		Topology:        &tick.Topology{CPUs: "0-47", Sockets: []string{"0-11,24-35", "12-23,36-47"}, NUMANodes: numa},
		CPU:             &tick.NodeCPU{UsageMilliCPU: f(cores * 1000), Load1: f(cores), Load5: f(cores)},
		Memory:          &tick.NodeMemory{TotalBytes: f(195924424 * 1024), FreeBytes: f(100 << 30), AvailableBytes: f(150 << 30)},
		Capacity:        &tick.Resources{MilliCPU: f(48000), MemoryBytes: f(195924424 * 1024)},
		Allocatable:     &tick.Resources{MilliCPU: f(48000), MemoryBytes: f(195924424 * 1024)},
		Pods: []tick.Pod{
			{
				UID: "s", Namespace: "default", Name: "service", QoS: tick.QoSShared, UsageMilliCPU: f(cores * 1000), Load1: f(cores), Load5: f(cores),
				Memory: &tick.Memory{RSSBytes: f(n.rss)}, Requests: &tick.Resources{MilliCPU: f(8000)}, Containers: []tick.Container{service},
			},
			{
				UID: "r", Namespace: "default", Name: "batch", QoS: tick.QoSReclaimed, Requests: &tick.Resources{ReclaimedMilliCPU: f(2000), ReclaimedMemoryBytes: f(1 << 30)},
				Containers: []tick.Container{{Name: "c", CPUSetCPUs: "0-10,12-21"}},
			},
		},
	}}
}
