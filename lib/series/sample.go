package series

import (
	"maps"
	"slices"
	"strconv"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// agentStates are those of a node's agent.
var agentStates = []string{tick.AgentReady, tick.AgentNotReady, tick.AgentNotFound}

func (p *page) sample(s *tick.Sample) {
	if s.Topology != nil {
		if set, err := cpus.Parse(s.Topology.CPUs); err == nil {
			p.number(nodeCPUs, float64(set.Size()))
		}
	}
	if c := s.CPU; c != nil {
		p.put(nodeCPUUsage, inCores(c.UsageMilliCPU))
		p.put(nodeLoad1, c.Load1)
		p.put(nodeLoad5, c.Load5)
		p.stall("cpu", c.Pressure)
	}
	if m := s.Memory; m != nil {
		p.put(nodeMemoryTotal, m.TotalBytes)
		p.put(nodeMemoryAvail, m.AvailableBytes)
		p.put(nodeMemoryFree, m.FreeBytes)
		p.put(nodeMemoryLow, m.LowWatermarkBytes)
		p.put(nodeKswapdSteal, m.KswapdStealPerSecond)
		p.stall("memory", m.Pressure)
	}
	distinct(s.NUMANodes, func(x tick.NUMASample) int { return x.ID }, func(x tick.NUMASample) {
		p.put(numaCPUUsage, inCores(x.UsageMilliCPU), strconv.Itoa(x.ID))
		if x.Memory != nil {
			p.put(numaMemoryTotal, x.Memory.TotalBytes, strconv.Itoa(x.ID))
			p.put(numaMemoryFree, x.Memory.FreeBytes, strconv.Itoa(x.ID))
		}
	})
	if s.Fleet == nil { // else the node's own collect tells them
		p.pods(s.Pods)
	}
	if a := s.Agent; a != nil && a.State != "" {
		for _, state := range agentStates {
			p.truth(agentState, state == a.State, state)
		}
	}
	if f := s.Fleet; f != nil {
		p.number(fleetNodes, float64(f.Ready), "ready")
		p.number(fleetNodes, float64(f.NotReady), "notReady")
		p.number(fleetNodes, float64(f.Unknown), "unknown")
	}
}

func (p *page) stall(resource string, psi *tick.Pressure) {
	if psi == nil {
		return
	}
	if psi.Some != nil {
		p.number(nodeStall, psi.Some.Avg10/100, resource, "some")
	}
	if psi.Full != nil {
		p.number(nodeStall, psi.Full.Avg10/100, resource, "full")
	}
}

// sum is over the pods of a class.
type sum struct {
	pods                                            float64
	usage, load, memory, requested, requestedMemory *float64
}

func (p *page) pods(list []tick.Pod) {
	sums := map[string]*sum{}
	for i := range list {
		pod := &list[i]
		x := sums[pod.QoS]
		if x == nil {
			x = new(sum)
			sums[pod.QoS] = x
		}
		x.add(pod)
	}
	for _, class := range slices.Sorted(maps.Keys(sums)) {
		x := sums[class]
		p.put(pods, &x.pods, class)
		p.put(podsCPUUsage, inCores(x.usage), class)
		p.put(podsLoad1, x.load, class)
		p.put(podsMemory, x.memory, class)
	}
	if x := sums[tick.QoSReclaimed]; x != nil {
		p.put(requestedCPU, inCores(x.requested))
		p.put(requestedMemory, x.requestedMemory)
	}
}

func (x *sum) add(pod *tick.Pod) {
	x.pods++
	x.usage = plus(x.usage, pod.UsageMilliCPU)
	x.load = plus(x.load, pod.Load1)
	if pod.Memory != nil {
		x.memory = plus(x.memory, pod.Memory.WorkingSetBytes)
	}
	if pod.Requests != nil {
		x.requested = plus(x.requested, pod.Requests.ReclaimedMilliCPU)
		x.requestedMemory = plus(x.requestedMemory, pod.Requests.ReclaimedMemoryBytes)
	}
}
