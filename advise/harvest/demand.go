package harvest

import (
	"math"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

// demand is what a sample contains about the services: all pods and processes that are not batch. Unknown values are NaN, never 0.
type demand struct {
	milliCPU, bytes float64
	// inUse is milliCPU without the unused part of what is reserved for the system.
	inUse float64
	// machineMilliCPU is what the whole machine uses, batch included, except on exclusive CPUs, and what the hypervisor takes from it: a CPU
	// from which it takes time is not idle.
	machineMilliCPU float64
	// newMilliCPU and newBytes are the requests of new pods, as far as the pods do not use them yet.
	newMilliCPU, newBytes float64
	newPods               int
}

// sums are the totals of a sample's pods, and whether all pods' values are known.
type sums struct {
	services, exclusive, batch, batchRSS, workingSets float64
	isUseKnown, isBatchKnown, areSetsKnown            bool
	// measuredUses and measuredSets are how many services' pods have a value: the sum of none is unknown, because what runs outside of pods
	// are services too.
	measuredUses, measuredSets int
}

func (n *node) observeDemand(t *tick.Tick, s Settings) demand {
	d := demand{}
	totals := sums{isUseKnown: true, isBatchKnown: true, areSetsKnown: true}
	pods := n.Pods.begin(t.Time)
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if p.Ended() {
			continue
		}
		use, workingSet := useOf(p), workingSetOf(p)
		own := n.shape.exclusiveOf(p)
		totals.add(p, use, workingSet, own.use)
		if p.QoS == tick.QoSReclaimed || !pods.addPod(p, use, workingSet, s) {
			continue
		}
		d.newPods++
		if p.Requests != nil {
			// No other pod can use exclusive CPUs.
			request, used := policy.Amount(p.Requests.MilliCPU)-own.request, policy.Amount(use)-own.use
			d.newMilliCPU = policy.Bounded(d.newMilliCPU + max(request-max(used, 0), 0))
			d.newBytes = policy.Bounded(d.newBytes + max(policy.Amount(p.Requests.MemoryBytes)-policy.Amount(workingSet), 0))
		}
	}
	pods.end()
	d.cpu(t, totals, n.systemReservedMilliCPU(), &n.outside)
	d.memory(t.Sample, totals)
	return d
}

// add adds a pod with its CPU use, the part of that on exclusive CPUs, and its working set.
func (s *sums) add(p *tick.Pod, use, workingSet *float64, exclusive float64) {
	switch {
	case p.QoS == tick.QoSReclaimed:
		s.isBatchKnown = s.isBatchKnown && (use != nil || p.IsIdle())
		s.batch = policy.Bounded(s.batch + policy.Amount(use))
		s.batchRSS = policy.Bounded(s.batchRSS + policy.RSSBytes(p))
		return
	case use == nil && p.IsIdle(): // no container has started
	case use == nil || *use < 0:
		s.isUseKnown = false
	default:
		s.measuredUses++
		exclusive = min(exclusive, *use)
		s.exclusive = policy.Bounded(s.exclusive + exclusive)
		s.services = policy.Bounded(s.services + *use - exclusive)
	}
	if workingSet == nil || *workingSet < 0 {
		s.areSetsKnown = s.areSetsKnown && p.Missing == tick.MissingCgroup
	} else {
		s.measuredSets++
		s.workingSets = policy.Bounded(s.workingSets + *workingSet)
	}
}

// cpu sets the services' CPU from the machine's use, or else from the pods' use; reserved is the CPU reserved for the system.
func (d *demand) cpu(t *tick.Tick, totals sums, reserved float64, outside *policy.OutsideUse) {
	sample := t.Sample
	var machine *float64
	if cpu := sample.CPU; cpu != nil && cpu.UsageMilliCPU != nil && *cpu.UsageMilliCPU >= 0 {
		machine = cpu.UsageMilliCPU
	}
	d.machineMilliCPU = math.NaN()
	if machine != nil {
		stolen := policy.Amount(sample.CPU.StealMilliCPU)
		d.machineMilliCPU = max(policy.Bounded(*machine)-totals.exclusive, 0) + stolen
	}
	switch {
	case machine != nil && totals.isUseKnown:
		system := max(policy.Bounded(*machine)-totals.batch-totals.exclusive-totals.services, 0)
		system = outside.Observe(t.Time, system, totals.isBatchKnown)
		d.inUse, d.milliCPU = totals.services+system, totals.services+max(system, reserved)
	case machine != nil: // it includes the pods' use
		d.inUse = max(policy.Bounded(*machine)-totals.batch-totals.exclusive, totals.services)
		d.milliCPU = max(d.inUse, totals.services+reserved)
	case totals.isUseKnown && totals.measuredUses > 0:
		d.inUse, d.milliCPU = totals.services, totals.services+reserved
	default:
		d.milliCPU = math.NaN()
	}
}

// idleMilliCPU is how much of the CPUs that batch may use was idle at least: what runs on reserved CPUs counts as if it ran on these.
// NaN is unknown.
func (d *demand) idleMilliCPU(cpus int) float64 { return max(float64(cpus)*1000-d.machineMilliCPU, 0) }

// memory sets the services' memory from the machine's available memory, or else from the pods' working sets.
func (d *demand) memory(sample *tick.Sample, totals sums) {
	switch m := sample.Memory; {
	case m != nil && m.TotalBytes != nil && m.AvailableBytes != nil: // available includes the page cache that the kernel can drop
		d.bytes = max(policy.Amount(m.TotalBytes)-policy.Amount(m.AvailableBytes)-totals.batchRSS, 0)
	case totals.areSetsKnown && totals.measuredSets > 0:
		d.bytes = totals.workingSets
	default:
		d.bytes = math.NaN()
	}
}

// observeReservation updates what the Node object reserves. If the object could not be read, it returns why.
func (n *node) observeReservation(s *tick.Sample) (why string) {
	n.Reservation, why = policy.ReservationOf(s, float64(n.shape.Online.Size())*1000, policy.MachineBytes(s), n.Reservation)
	return why
}

// systemReservedMilliCPU returns what the Node object reserves for the system, in addition to the reserved CPUs; 0 if that was never known.
func (n *node) systemReservedMilliCPU() float64 {
	if n.Reservation == nil {
		return 0
	}
	return max(policy.Amount(&n.Reservation.MilliCPU)-float64(n.shape.Reserved.Size())*1000, 0)
}

// exclusive is a pod's part on CPUs that kubelet gave to some of its containers exclusively, which it takes from no other pod: the CPUs,
// and the use and the request of these containers in milli-CPU.
type exclusive struct {
	cpus         cpus.Set
	use, request float64
}

// exclusiveOf returns a pod's part on exclusive CPUs. If all its containers have such CPUs that is the whole pod; otherwise containers
// whose use is unknown count as not exclusive, so that what they use is the services' need.
func (sh *shape) exclusiveOf(p *tick.Pod) exclusive {
	if sh.Exclusive.IsEmpty() {
		return exclusive{}
	}
	whole, part, isWhole := exclusive{}, exclusive{}, true
	for i := range p.Containers {
		c := &p.Containers[i]
		count := policy.ExclusiveCount(c.CPUSetCPUs, sh.Exclusive)
		if c.CPUSetCPUs == "" || !policy.HasExclusiveCPUs(c, count) {
			isWhole = false
			continue
		}
		list, _ := cpus.Parse(c.CPUSetCPUs)
		whole.cpus = whole.cpus.Union(list)
		if c.UsageMilliCPU != nil && *c.UsageMilliCPU >= 0 {
			part.cpus = part.cpus.Union(list)
			part.use = policy.Bounded(part.use + *c.UsageMilliCPU)
			part.request += float64(count) * 1000
		}
	}
	if !isWhole || whole.cpus.IsEmpty() {
		return part
	}
	whole.use = policy.Amount(useOf(p))
	if p.Requests != nil {
		whole.request = policy.Amount(p.Requests.MilliCPU)
	}
	return whole
}

// useOf returns a pod's CPU use; nil if that of one of its containers is unknown.
func useOf(p *tick.Pod) *float64 {
	if p.UsageMilliCPU != nil || len(p.Containers) == 0 {
		return p.UsageMilliCPU
	}
	sum := 0.0
	for i := range p.Containers {
		use := p.Containers[i].UsageMilliCPU
		if use == nil || *use < 0 {
			return nil
		}
		sum = policy.Bounded(sum + *use)
	}
	return &sum
}

// workingSetOf returns a pod's working set; nil if unknown.
func workingSetOf(p *tick.Pod) *float64 {
	if p.Memory != nil || len(p.Containers) == 0 {
		if p.Memory == nil {
			return nil
		}
		return p.Memory.WorkingSetBytes
	}
	sum := 0.0
	for i := range p.Containers {
		memory := p.Containers[i].Memory
		if memory == nil || memory.WorkingSetBytes == nil || *memory.WorkingSetBytes < 0 {
			return nil
		}
		sum = policy.Bounded(sum + *memory.WorkingSetBytes)
	}
	return &sum
}
