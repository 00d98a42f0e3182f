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
	if s.IO != nil {
		p.stall("io", s.IO.Pressure)
	}
	distinct(s.BatchMemory, func(x tick.CgroupMemory) string { return x.Cgroup }, p.events)
	distinct(s.Disks, func(x tick.Disk) string { return x.Name }, p.disk)
	distinct(s.NUMANodes, func(x tick.NUMASample) int { return x.ID }, func(x tick.NUMASample) {
		p.put(numaCPUUsage, inCores(x.UsageMilliCPU), strconv.Itoa(x.ID))
		if x.Memory != nil {
			p.put(numaMemoryTotal, x.Memory.TotalBytes, strconv.Itoa(x.ID))
			p.put(numaMemoryFree, x.Memory.FreeBytes, strconv.Itoa(x.ID))
		}
	})
	distinct(s.Links, func(x tick.Link) string { return x.Name }, func(x tick.Link) {
		p.put(linkReceived, x.ReceivedBytesPerSecond, x.Name)
		p.put(linkSent, x.SentBytesPerSecond, x.Name)
	})
	if s.Fleet == nil { // otherwise the node's own collect reports them
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

// These are the directions of disks' input and output.
const (
	directionRead  = "read"
	directionWrite = "write"
)

func (p *page) disk(x tick.Disk) {
	p.put(diskUse, scaled(x.UsePercent, 0.01), x.Name)
	p.put(diskQueue, x.Queue, x.Name)
	p.put(diskBytes, x.ReadBytesPerSecond, x.Name, directionRead)
	p.put(diskBytes, x.WriteBytesPerSecond, x.Name, directionWrite)
	p.put(diskOperations, x.ReadsPerSecond, x.Name, directionRead)
	p.put(diskOperations, x.WritesPerSecond, x.Name, directionWrite)
	p.put(diskLatency, scaled(x.ReadLatencyMicroseconds, 1e-6), x.Name, directionRead)
	p.put(diskLatency, scaled(x.WriteLatencyMicroseconds, 1e-6), x.Name, directionWrite)
}

// events returns those of a cgroup above batch pods.
func (p *page) events(x tick.CgroupMemory) {
	if e := x.Events; e != nil {
		p.number(memoryEvents, e.High, x.Cgroup, "high")
		p.number(memoryEvents, e.Max, x.Cgroup, "max")
		p.number(memoryEvents, e.OOM, x.Cgroup, "oom")
		p.number(memoryEvents, e.OOMKill, x.Cgroup, "oomKill")
	}
}

// scaled converts a value to the base unit.
func scaled(v *float64, factor float64) *float64 {
	if v == nil {
		return nil
	}
	return new(*v * factor)
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

// sum adds up values of the pods of a class.
type sum struct {
	pods                                            float64
	usage, load, memory, requested, requestedMemory *float64
	read, written                                   *float64 // on disks, per second
	refaults                                        *float64
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
		p.put(podsRefaults, x.refaults, class)
		p.put(podsDiskBytes, x.read, class, directionRead)
		p.put(podsDiskBytes, x.written, class, directionWrite)
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
		x.refaults = plus(x.refaults, pod.Memory.RefaultBytesPerSecond)
	}
	if pod.IO != nil {
		x.read, x.written = plus(x.read, pod.IO.ReadBytesPerSecond), plus(x.written, pod.IO.WriteBytesPerSecond)
	}
	if pod.Requests != nil {
		x.requested = plus(x.requested, pod.Requests.ReclaimedMilliCPU)
		x.requestedMemory = plus(x.requestedMemory, pod.Requests.ReclaimedMemoryBytes)
	}
}
