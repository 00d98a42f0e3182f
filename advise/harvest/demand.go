package harvest

import (
	"math"
	"slices"

	"polder/advise/policy"
	"polder/lib/tick"
)

// demand is what a sample says of the services: all that is not batch. What is not known is NaN, never 0.
type demand struct {
	milliCPU, bytes float64
	// used is milliCPU without what is kept for the system and not used.
	used float64
	// newMilliCPU and newBytes are what new pods have asked for and do not use yet.
	newMilliCPU, newBytes float64
	newPods               int
}

func (n *node) demand(t *tick.Tick, s Settings) demand {
	d := demand{}
	services, given, batch, batchRSS, sets := 0.0, 0.0, 0.0, 0.0, 0.0
	known, setsKnown := true, true
	now := t.Time
	present := n.Pods.begin(now)
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if policy.Finished(p) {
			continue
		}
		use, set := useOf(p), workingSetOf(p)
		switch {
		case p.QoS == tick.QoSReclaimed:
			batch = policy.Bounded(batch + policy.Amount(use))
			batchRSS = policy.Bounded(batchRSS + rssOf(p))
			continue
		case p.Missing == tick.MissingCgroup: // it has not started
		case use == nil || *use < 0:
			known = false
		case n.hasGiven(p):
			given = policy.Bounded(given + *use)
		default:
			services = policy.Bounded(services + *use)
		}
		if set == nil || *set < 0 {
			setsKnown = setsKnown && p.Missing == tick.MissingCgroup
		} else {
			sets = policy.Bounded(sets + *set)
		}
		if !present.see(p, use, set, s) {
			continue
		}
		d.newPods++
		if p.Requests != nil {
			if !n.hasGiven(p) { // its CPUs are nobody else's anyway
				d.newMilliCPU = policy.Bounded(d.newMilliCPU + max(policy.Amount(p.Requests.MilliCPU)-policy.Amount(use), 0))
			}
			d.newBytes = policy.Bounded(d.newBytes + max(policy.Amount(p.Requests.MemoryBytes)-policy.Amount(set), 0))
		}
	}
	present.end()

	kept := n.keptMilliCPU(t.Sample)
	machine := (*float64)(nil)
	if cpu := t.Sample.CPU; cpu != nil && cpu.UsageMilliCPU != nil && *cpu.UsageMilliCPU >= 0 {
		machine = cpu.UsageMilliCPU
	}
	switch {
	case machine != nil && known:
		system := max(policy.Bounded(*machine)-batch-given-services, 0)
		d.used, d.milliCPU = services+system, services+max(system, kept)
	case machine != nil: // what the pods use is in it
		d.used = max(policy.Bounded(*machine)-batch-given, services)
		d.milliCPU = max(d.used, kept)
	case known && len(t.Sample.Pods) > 0:
		d.used, d.milliCPU = services, services+kept
	default:
		d.milliCPU = math.NaN()
	}
	switch m := t.Sample.Memory; {
	case m != nil && m.TotalBytes != nil && m.AvailableBytes != nil: // the page cache that can be dropped is available
		d.bytes = max(policy.Amount(m.TotalBytes)-policy.Amount(m.AvailableBytes)-batchRSS, 0)
	case setsKnown && len(t.Sample.Pods) > 0:
		d.bytes = sets
	default:
		d.bytes = math.NaN()
	}
	return d
}

// keptMilliCPU is what the node's object keeps for the system, beside the reserved CPUs.
func (n *node) keptMilliCPU(s *tick.Sample) float64 {
	if s.Allocatable == nil || s.Allocatable.MilliCPU == nil || *s.Allocatable.MilliCPU < 0 {
		return 0
	}
	return max(float64(n.shape.Online.Size()-n.shape.reservedOnline.Size())*1000-policy.Bounded(*s.Allocatable.MilliCPU), 0)
}

// hasGiven reports whether a pod runs on CPUs that kubelet gave it alone: what it uses is not taken from the others.
func (n *node) hasGiven(p *tick.Pod) bool {
	if n.shape.exclusive.IsEmpty() {
		return false
	}
	return slices.ContainsFunc(p.Containers, func(c tick.Container) bool {
		return c.CPUSetCPUs != "" && policy.IsGiven(&c, policy.Given(c.CPUSetCPUs, n.shape.exclusive))
	})
}

// useOf is a pod's CPU use; nil where that of one of its containers is not known.
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

// workingSetOf is a pod's working set; nil where it is not known.
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

// rssOf is what a pod holds that cannot be dropped, as far as it is known.
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
