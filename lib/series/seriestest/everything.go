// Package seriestest contains ticks for tests of metrics.
package seriestest

import (
	"time"

	"polder/lib/tick"
)

// Everything returns a tick of which each metric has a sample, except those of a fleet controller.
func Everything() *tick.Tick {
	f := tick.Ptr[float64]
	n := tick.Ptr[int64]
	psi := &tick.Pressure{Some: &tick.PressureLine{Avg10: 1}, Full: &tick.PressureLine{Avg10: 1}}
	return &tick.Tick{
		V: tick.Version, Node: "n", Time: time.Unix(1795262400, 0).UTC(),
		Sample: &tick.Sample{
			IntervalSeconds: f(1), Topology: &tick.Topology{CPUs: "0-3"},
			CPU: &tick.NodeCPU{UsageMilliCPU: f(1500), StealMilliCPU: f(100), Load1: f(2), Load5: f(1), Pressure: psi},
			Memory: &tick.NodeMemory{
				TotalBytes: f(8e9), FreeBytes: f(1e9), AvailableBytes: f(4e9), LowWatermarkBytes: f(1e7), KswapdStealPerSecond: f(3), Pressure: psi,
			},
			IO: &tick.NodeIO{Pressure: psi},
			Disks: []tick.Disk{{
				Name: "vda", Device: "254:0", UsePercent: f(50), Queue: f(2), ReadBytesPerSecond: f(1e6), WriteBytesPerSecond: f(2e6),
				ReadsPerSecond: f(10), WritesPerSecond: f(20), ReadLatencyMicroseconds: f(100), WriteLatencyMicroseconds: f(200),
			}},
			NUMANodes: []tick.NUMASample{{ID: 0, UsageMilliCPU: f(1500), Memory: &tick.NUMAMemory{TotalBytes: f(8e9), FreeBytes: f(1e9)}}},
			Pods: []tick.Pod{{
				UID: "u", Name: "p", QoS: tick.QoSReclaimed, UsageMilliCPU: f(500), Load1: f(1), Memory: &tick.Memory{WorkingSetBytes: f(1e9), RefaultBytesPerSecond: f(1e4)},
				IO:       &tick.IO{ReadBytesPerSecond: f(1e6), WriteBytesPerSecond: f(2e6), ReadsPerSecond: f(3), WritesPerSecond: f(4)},
				Requests: &tick.Resources{ReclaimedMilliCPU: f(1000), ReclaimedMemoryBytes: f(2e9)},
			}, {UID: "s", Name: "s", QoS: tick.QoSShared, CPUWaitPermille: f(20)}},
			BatchMemory: []tick.CgroupMemory{{Cgroup: "/batch", Events: &tick.MemoryEvents{High: 5, Max: 1}}},

			Links:  []tick.Link{{Name: "eth0", DefaultRoute: true, ReceivedBytesPerSecond: f(1e6), SentBytesPerSecond: f(2e6)}},
			Errors: []tick.SourceError{{Source: "psi", Error: "not there"}},
		},
		Advice: &tick.Advice{
			Reclaimed: &tick.Reclaimed{
				MilliCPU: n(2000), MemoryBytes: n(1e9),
				NUMANodes: []tick.ReclaimedNUMA{{ID: 0, MilliCPU: n(2000), MemoryBytes: n(1e9)}},
			},
			Pools:   []tick.Pool{{Name: tick.PoolShare, CPUs: "0-1"}, {Name: tick.PoolReclaim, CPUs: "2-3"}},
			Reasons: []string{"the floor"}, Shadow: &tick.Shadow{Policy: "koordinator", Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(1000)), MemoryBytes: new(int64(1 << 30))}}, BatchStarved: new(true),
			GuardSteps: []string{"CPUs"},
		},
		Isolation: &tick.Isolation{Applied: 1, Unchanged: 2, Reclaims: []tick.Reclaim{{Cgroup: "/batch/a", Bytes: 1 << 20, ReclaimedBytes: 1 << 20, State: tick.ReclaimDone}}, Writes: []tick.Write{{Cgroup: "/p", Key: "cpusetCPUs", Old: "0-3", New: "2-3"}}},
		Eviction: &tick.Eviction{
			Pressures: []tick.PressureFinding{{Rule: "r", Scope: "memory", Value: 2, Threshold: 1, Met: true, Hard: true}},
			Taints:    []tick.Taint{{Key: "k", Effect: "NoSchedule"}},
			Evictions: []tick.PodEviction{{UID: "u", Name: "p", Rule: "r", Scope: "memory", State: tick.StateRequested}},
			Fleet:     &tick.FleetEviction{},
		},
		Network: &tick.NetworkIsolation{Classes: []tick.NetworkCount{{Link: "eth0", Class: "batch", SentBytes: 1e6, SentPackets: 1000, DroppedPackets: 3, BacklogBytes: 3000}}},
		Report:  &tick.Report{Targets: []tick.Target{{Target: "cnr", State: tick.TargetWritten}}},
	}
}

// Fleet returns the sample of a fleet controller, which has the metrics that Everything lacks.
func Fleet() *tick.Tick {
	t := Everything()
	return &tick.Tick{V: t.V, Node: t.Node, Time: t.Time, Sample: &tick.Sample{
		Agent: &tick.Agent{State: tick.AgentReady}, Fleet: &tick.Fleet{Nodes: 1, Ready: 1}, Pods: t.Sample.Pods,
	}}
}
