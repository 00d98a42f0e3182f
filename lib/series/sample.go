package series

import (
	"maps"
	"slices"
	"strconv"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// agentStates are the states of a node's agent.
var agentStates = []string{tick.AgentReady, tick.AgentNotReady, tick.AgentNotFound}

func (p *page) sample(s *tick.Sample) {
	if s.Topology != nil {
		if set, err := cpus.Parse(s.Topology.CPUs); err == nil {
			p.addNumber(nodeCPUs, float64(set.Size()))
		}
	}
	if c := s.CPU; c != nil {
		p.add(nodeCPUUsage, inCores(c.UsageMilliCPU))
		p.add(nodeCPUSteal, inCores(c.StealMilliCPU))
		p.add(nodeLoad1, c.Load1)
		p.add(nodeLoad5, c.Load5)
		p.addPressure("cpu", c.Pressure)
	}
	if m := s.Memory; m != nil {
		p.add(nodeMemoryTotal, m.TotalBytes)
		p.add(nodeMemoryAvail, m.AvailableBytes)
		p.add(nodeMemoryFree, m.FreeBytes)
		p.add(nodeMemoryLow, m.LowWatermarkBytes)
		p.add(nodeKswapdSteal, m.KswapdStealPerSecond)
		p.addPressure("memory", m.Pressure)
	}
	if s.IO != nil {
		p.addPressure("io", s.IO.Pressure)
	}
	distinct(s.BatchMemory, func(x tick.CgroupMemory) string { return x.Cgroup }, p.events)
	distinct(s.Disks, func(x tick.Disk) string { return x.Name }, p.disk)
	distinct(s.NUMANodes, func(x tick.NUMASample) int { return x.ID }, func(x tick.NUMASample) {
		p.add(numaCPUUsage, inCores(x.UsageMilliCPU), strconv.Itoa(x.ID))
		if x.Memory != nil {
			p.add(numaMemoryTotal, x.Memory.TotalBytes, strconv.Itoa(x.ID))
			p.add(numaMemoryFree, x.Memory.FreeBytes, strconv.Itoa(x.ID))
		}
	})
	distinct(s.Links, func(x tick.Link) string { return x.Name }, func(x tick.Link) {
		p.add(linkReceived, x.ReceivedBytesPerSecond, x.Name)
		p.add(linkSent, x.SentBytesPerSecond, x.Name)
	})
	if s.Fleet == nil { // otherwise the node's own collect reports them
		p.pods(s.Pods)
	}
	if a := s.Agent; a != nil && a.State != "" {
		for _, state := range agentStates {
			p.addBool(agentState, state == a.State, state)
		}
	}
	if f := s.Fleet; f != nil {
		p.addNumber(fleetNodes, float64(f.Ready), "ready")
		p.addNumber(fleetNodes, float64(f.NotReady), "notReady")
		p.addNumber(fleetNodes, float64(f.Unknown), "unknown")
	}
}

// These are the directions of disks' input and output.
const (
	directionRead  = "read"
	directionWrite = "write"
)

func (p *page) disk(x tick.Disk) {
	p.add(diskUse, scaled(x.UsePercent, 0.01), x.Name)
	p.add(diskQueue, x.Queue, x.Name)
	p.add(diskBytes, x.ReadBytesPerSecond, x.Name, directionRead)
	p.add(diskBytes, x.WriteBytesPerSecond, x.Name, directionWrite)
	p.add(diskOperations, x.ReadsPerSecond, x.Name, directionRead)
	p.add(diskOperations, x.WritesPerSecond, x.Name, directionWrite)
	p.add(diskLatency, scaled(x.ReadLatencyMicroseconds, 1e-6), x.Name, directionRead)
	p.add(diskLatency, scaled(x.WriteLatencyMicroseconds, 1e-6), x.Name, directionWrite)
}

// events adds the memory events of a cgroup above batch pods.
func (p *page) events(x tick.CgroupMemory) {
	if e := x.Events; e != nil {
		p.addNumber(memoryEvents, e.High, x.Cgroup, "high")
		p.addNumber(memoryEvents, e.Max, x.Cgroup, "max")
		p.addNumber(memoryEvents, e.OOM, x.Cgroup, "oom")
		p.addNumber(memoryEvents, e.OOMKill, x.Cgroup, "oomKill")
	}
}

// scaled converts a value to the base unit.
func scaled(v *float64, factor float64) *float64 {
	if v == nil {
		return nil
	}
	return new(*v * factor)
}

func (p *page) addPressure(resource string, psi *tick.Pressure) {
	if psi == nil {
		return
	}
	if psi.Some != nil {
		p.addNumber(nodePressure, psi.Some.Avg10/100, resource, "some")
	}
	if psi.Full != nil {
		p.addNumber(nodePressure, psi.Full.Avg10/100, resource, "full")
	}
}

// podSum adds up values of the pods of a class.
type podSum struct {
	pods                                            float64
	usage, load, memory, requested, requestedMemory *float64
	read, written                                   *float64 // on disks, per second
	refaults                                        *float64
}

func (p *page) pods(list []tick.Pod) {
	sums := map[string]*podSum{}
	for i := range list {
		pod := &list[i]
		x := sums[pod.QoS]
		if x == nil {
			x = new(podSum)
			sums[pod.QoS] = x
		}
		x.add(pod)
	}
	for _, class := range slices.Sorted(maps.Keys(sums)) {
		x := sums[class]
		p.add(pods, &x.pods, class)
		p.add(podsCPUUsage, inCores(x.usage), class)
		p.add(podsLoad1, x.load, class)
		p.add(podsMemory, x.memory, class)
		p.add(podsRefaults, x.refaults, class)
		p.add(podsDiskBytes, x.read, class, directionRead)
		p.add(podsDiskBytes, x.written, class, directionWrite)
	}
	if x := sums[tick.QoSReclaimed]; x != nil {
		p.add(requestedCPU, inCores(x.requested))
		p.add(requestedMemory, x.requestedMemory)
	}
}

func (x *podSum) add(pod *tick.Pod) {
	x.pods++
	x.usage = addPointer(x.usage, pod.UsageMilliCPU)
	x.load = addPointer(x.load, pod.Load1)
	if pod.Memory != nil {
		x.memory = addPointer(x.memory, pod.Memory.WorkingSetBytes)
		x.refaults = addPointer(x.refaults, pod.Memory.RefaultBytesPerSecond)
	}
	if pod.IO != nil {
		x.read, x.written = addPointer(x.read, pod.IO.ReadBytesPerSecond), addPointer(x.written, pod.IO.WriteBytesPerSecond)
	}
	if pod.Requests != nil && !pod.Ended() { // a pod that has ended needs nothing any more
		x.requested = addPointer(x.requested, pod.Requests.ReclaimedMilliCPU)
		x.requestedMemory = addPointer(x.requestedMemory, pod.Requests.ReclaimedMemoryBytes)
	}
}
