package harvest

import (
	"math"
	"slices"

	"polder/advise/policy"
	"polder/lib/tick"
)

// demand is what a sample contains about the services: all pods and processes that are not batch. Unknown values are NaN, never 0.
type demand struct {
	milliCPU, bytes float64
	// used is milliCPU without the unused part of what is reserved for the system.
	used float64
	// newMilliCPU and newBytes are the requests of new pods, as far as the pods do not use them yet.
	newMilliCPU, newBytes float64
	newPods               int
}

// sums are the totals of a sample's pods, and whether all pods' values are known.
type sums struct {
	services, given, batch, batchRSS, sets float64
	isKnown, setsKnown                     bool
}

func (n *node) demand(t *tick.Tick, s Settings) demand {
	d := demand{}
	sum := sums{isKnown: true, setsKnown: true}
	present := n.Pods.begin(t.Time)
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if p.Ended() {
			continue
		}
		use, set := useOf(p), workingSetOf(p)
		sum.add(p, use, set, n.hasGiven(p))
		if p.QoS == tick.QoSReclaimed || !present.see(p, use, set, s) {
			continue
		}
		d.newPods++
		if p.Requests != nil {
			if !n.hasGiven(p) { // no other pod can use its CPUs
				d.newMilliCPU = policy.Bounded(d.newMilliCPU + max(policy.Amount(p.Requests.MilliCPU)-policy.Amount(use), 0))
			}
			d.newBytes = policy.Bounded(d.newBytes + max(policy.Amount(p.Requests.MemoryBytes)-policy.Amount(set), 0))
		}
	}
	present.end()
	d.cpu(t.Sample, sum, n.keptMilliCPU(t.Sample))
	d.memory(t.Sample, sum)
	return d
}

// add adds a pod with its CPU use and its working set; hasGiven reports whether it has exclusive CPUs.
func (s *sums) add(p *tick.Pod, use, set *float64, hasGiven bool) {
	switch {
	case p.QoS == tick.QoSReclaimed:
		s.batch = policy.Bounded(s.batch + policy.Amount(use))
		s.batchRSS = policy.Bounded(s.batchRSS + rssOf(p))
		return
	case p.Missing == tick.MissingCgroup: // it has not started
	case use == nil || *use < 0:
		s.isKnown = false
	case hasGiven:
		s.given = policy.Bounded(s.given + *use)
	default:
		s.services = policy.Bounded(s.services + *use)
	}
	if set == nil || *set < 0 {
		s.setsKnown = s.setsKnown && p.Missing == tick.MissingCgroup
	} else {
		s.sets = policy.Bounded(s.sets + *set)
	}
}

// cpu sets the services' CPU from the machine's use, or else from the pods' use; kept is the CPU reserved for the system.
func (d *demand) cpu(sample *tick.Sample, sum sums, kept float64) {
	machine := (*float64)(nil)
	if cpu := sample.CPU; cpu != nil && cpu.UsageMilliCPU != nil && *cpu.UsageMilliCPU >= 0 {
		machine = cpu.UsageMilliCPU
	}
	switch {
	case machine != nil && sum.isKnown:
		system := max(policy.Bounded(*machine)-sum.batch-sum.given-sum.services, 0)
		d.used, d.milliCPU = sum.services+system, sum.services+max(system, kept)
	case machine != nil: // it includes the pods' use
		d.used = max(policy.Bounded(*machine)-sum.batch-sum.given, sum.services)
		d.milliCPU = max(d.used, kept)
	case sum.isKnown && len(sample.Pods) > 0:
		d.used, d.milliCPU = sum.services, sum.services+kept
	default:
		d.milliCPU = math.NaN()
	}
}

// memory sets the services' memory from the machine's available memory, or else from the pods' working sets.
func (d *demand) memory(sample *tick.Sample, sum sums) {
	switch m := sample.Memory; {
	case m != nil && m.TotalBytes != nil && m.AvailableBytes != nil: // available includes the page cache that the kernel can drop
		d.bytes = max(policy.Amount(m.TotalBytes)-policy.Amount(m.AvailableBytes)-sum.batchRSS, 0)
	case sum.setsKnown && len(sample.Pods) > 0:
		d.bytes = sum.sets
	default:
		d.bytes = math.NaN()
	}
}

// keptMilliCPU returns what the Node object reserves for the system, in addition to the reserved CPUs.
func (n *node) keptMilliCPU(s *tick.Sample) float64 {
	if s.Allocatable == nil || s.Allocatable.MilliCPU == nil || *s.Allocatable.MilliCPU < 0 {
		return 0
	}
	return max(float64(n.shape.Online.Size()-n.shape.Reserved.Size())*1000-policy.Bounded(*s.Allocatable.MilliCPU), 0)
}

// hasGiven reports whether a pod runs on CPUs that kubelet gave it exclusively: its use is not taken from the others.
func (n *node) hasGiven(p *tick.Pod) bool {
	if n.shape.Exclusive.IsEmpty() {
		return false
	}
	return slices.ContainsFunc(p.Containers, func(c tick.Container) bool {
		return c.CPUSetCPUs != "" && policy.IsGiven(&c, policy.Given(c.CPUSetCPUs, n.shape.Exclusive))
	})
}

// useOf returns a pod's CPU use; nil if that of one of its containers is unknown.
func useOf(p *tick.Pod) *float64 {
	if p.UsageMilliCPU != nil || len(p.Containers) == 0 {
		return p.UsageMilliCPU
	}
	sum := 0.0
	for i := range p.Containers {
		own := p.Containers[i].UsageMilliCPU
		if own == nil || *own < 0 {
			return nil
		}
		sum = policy.Bounded(sum + *own)
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
		own := p.Containers[i].Memory
		if own == nil || own.WorkingSetBytes == nil || *own.WorkingSetBytes < 0 {
			return nil
		}
		sum = policy.Bounded(sum + *own.WorkingSetBytes)
	}
	return &sum
}

// rssOf returns a pod's memory that the kernel cannot drop, as far as it is known.
func rssOf(p *tick.Pod) (bytes float64) {
	if p.Memory != nil {
		return policy.Amount(p.Memory.RSSBytes)
	}
	for i := range p.Containers {
		if own := p.Containers[i].Memory; own != nil {
			bytes = policy.Bounded(bytes + policy.Amount(own.RSSBytes))
		}
	}
	return bytes
}
