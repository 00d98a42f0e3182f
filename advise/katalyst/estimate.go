package katalyst

import (
	"fmt"

	"polder/advise/policy"
	"polder/lib/phrase"
	"polder/lib/tick"
)

// estimate is what the shared containers need, and how this was determined.
type estimate struct {
	milliCPU    float64
	memoryBytes float64
	containers  int
	byRequest   int // use or load was unknown or zero: the CPU request counted too
	unknown     int // nothing was read, and there is no request
	rssMissing  int // the memory request was used instead
	rssUnknown  int
	system      float64 // milli-CPU used outside of all confined pods
}

// workload is a container, or a pod without listed containers, with its effective requests.
type workload struct {
	usage, load1, load5, rss *float64
	milliCPU, memoryBytes    *float64 // requests
	hasNoThreads             bool     // it has no threads
	countsRequest            bool     // the CPU request counts whatever the use: the pod has just started, or is dedicated
	countsMemoryRequest      bool     // the memory request counts too: the pod is dedicated
	isTerminating            bool     // only the use counts
}

// sumNeeds sums the needs of the shared pods and of those dedicated pods that have no CPUs of their own; CPU also by shared pool.
//
// CPU: for each container the largest of use, load1 and load5; if any of them is unknown or not positive, the CPU request counts too; if
// none of them was read and there is no request, UnknownMilliCPU. Memory: rss, else the request, else UnknownMemoryBytes. (Katalyst v0.1.0:
// sysadvisor/plugin/qosaware/resource, policy canonical; it uses 0 for unknown values.)
//
// The request of a pod that has just started always counts, and so does a dedicated pod's, because it was promised; a dedicated pod's
// memory counts also if it has CPUs of its own, and so does all memory of NUMA nodes that it uses alone. A terminating pod counts with its
// use. A container with CPUs from kubelet needs none of a pool.
func sumNeeds(in inputs, members []member, groups []group) estimate {
	var sum estimate
	var containers []workload
	for i := range members {
		m := &members[i]
		if m.class != tick.QoSShared && m.class != tick.QoSDedicated {
			continue
		}
		previousBytes := sum.memoryBytes
		containers = workloads(m.Pod, containers[:0])
		for j, w := range containers {
			w.countsMemoryRequest = m.class == tick.QoSDedicated
			w.countsRequest = w.countsMemoryRequest || m.isRampingUp
			w.isTerminating = m.Terminating
			g := &groups[m.group]
			if m.ownCPUs == "" && !(m.hasExclusive && in.shape.isExclusive(&m.Containers[j])) {
				unknown := sum.unknown
				if milliCPU, counts := sum.addCPU(w, in.settings); counts {
					if sum.unknown > unknown { // no named pool gets CPUs for an unknown need
						g = &groups[0]
					}
					g.milliCPU = policy.Bounded(g.milliCPU + milliCPU)
					g.containers++
				}
			}
			sum.addMemory(w, in.settings)
		}
		sum.memoryBytes = max(sum.memoryBytes, policy.Bounded(previousBytes+m.ownedBytes))
	}
	return sum
}

// addCPU returns what a container needs; false if it is terminating and needs nothing.
func (e *estimate) addCPU(w workload, s Settings) (milliCPU float64, isNeeded bool) {
	isMissing, isRead := false, w.hasNoThreads
	for _, m := range [...]struct {
		value  *float64
		factor float64
	}{{w.usage, 1}, {w.load1, 1000}, {w.load5, 1000}} {
		isRead = isRead || m.value != nil && *m.value >= 0
		if m.value == nil || !(*m.value > 0) {
			isMissing = true
			continue
		}
		milliCPU = max(milliCPU, *m.value*m.factor)
	}
	switch {
	case w.isTerminating && milliCPU <= 0:
		return 0, false
	case w.isTerminating:
	case (isMissing || w.countsRequest) && w.milliCPU != nil && *w.milliCPU > milliCPU:
		milliCPU = *w.milliCPU
		e.byRequest++
	case milliCPU <= 0 && !isRead:
		milliCPU = float64(s.UnknownMilliCPU)
		e.unknown++
	}
	e.containers++
	e.milliCPU = policy.Bounded(e.milliCPU + milliCPU)
	return milliCPU, true
}

func (e *estimate) addMemory(w workload, s Settings) {
	if w.countsMemoryRequest && !w.isTerminating && w.rss != nil && w.memoryBytes != nil && *w.memoryBytes > *w.rss {
		w.rss = w.memoryBytes
	}
	switch {
	case w.rss != nil && *w.rss > 0:
		e.memoryBytes = policy.Bounded(e.memoryBytes + *w.rss)
	case w.isTerminating:
	case w.memoryBytes != nil && *w.memoryBytes > 0:
		e.memoryBytes = policy.Bounded(e.memoryBytes + *w.memoryBytes)
		e.rssMissing++
	case w.rss != nil && *w.rss >= 0: // it was read, and is zero
	default:
		e.memoryBytes = policy.Bounded(e.memoryBytes + float64(s.UnknownMemoryBytes))
		e.rssUnknown++
	}
}

// workloads appends a pod's containers. A container without a request of its own gets an equal part of the rest of the pod's request.
func workloads(p *tick.Pod, ws []workload) []workload {
	if len(p.Containers) == 0 {
		w := workload{usage: p.UsageMilliCPU, load1: p.Load1, load5: p.Load5, hasNoThreads: p.Threads != nil && *p.Threads == 0}
		if p.Memory != nil {
			w.rss = p.Memory.RSSBytes
		}
		if p.Requests != nil {
			w.milliCPU, w.memoryBytes = p.Requests.MilliCPU, p.Requests.MemoryBytes
		}
		return append(ws, w)
	}
	cpuPart := requestPart(p, func(r *tick.Resources) *float64 { return r.MilliCPU })
	memoryPart := requestPart(p, func(r *tick.Resources) *float64 { return r.MemoryBytes })
	for i := range p.Containers {
		c := &p.Containers[i]
		w := workload{
			usage: c.UsageMilliCPU, load1: c.Load1, load5: c.Load5, milliCPU: cpuPart, memoryBytes: memoryPart,
			hasNoThreads: c.Threads != nil && *c.Threads == 0,
		}
		if c.Memory != nil {
			w.rss = c.Memory.RSSBytes
		}
		if c.Requests != nil {
			if c.Requests.MilliCPU != nil {
				w.milliCPU = c.Requests.MilliCPU
			}
			if c.Requests.MemoryBytes != nil {
				w.memoryBytes = c.Requests.MemoryBytes
			}
		}
		ws = append(ws, w)
	}
	return ws
}

// requestPart returns the share of a pod's request for each container without a request of its own.
func requestPart(p *tick.Pod, amount func(*tick.Resources) *float64) *float64 {
	if p.Requests == nil || amount(p.Requests) == nil {
		return nil
	}
	rest, count := *amount(p.Requests), 0
	for i := range p.Containers {
		if r := p.Containers[i].Requests; r != nil && amount(r) != nil {
			rest -= *amount(r)
		} else {
			count++
		}
	}
	if count == 0 || rest <= 0 {
		return nil
	}
	rest /= float64(count)
	return &rest
}

func (e estimate) reasons(s Settings) []string {
	var r []string
	if e.byRequest > 0 {
		r = append(r, fmt.Sprintf("%s counted by CPU request: use or load is missing or zero, or the pod is new or dedicated", phrase.Count(e.byRequest, "shared container")))
	}
	if e.unknown > 0 {
		r = append(r, fmt.Sprintf("%s counted as %dm each (%s): no use, load or CPU request is known", phrase.Count(e.unknown, "shared container"), s.UnknownMilliCPU, s.source("unknown-cpu")))
	}
	if e.rssMissing > 0 {
		r = append(r, fmt.Sprintf("%s counted by memory request: rss is missing or zero", phrase.Count(e.rssMissing, "shared container")))
	}
	if e.rssUnknown > 0 {
		r = append(r, fmt.Sprintf("%s counted as %d bytes each (%s): no rss or memory request is known", phrase.Count(e.rssUnknown, "shared container"), s.UnknownMemoryBytes, s.source("unknown-memory")))
	}
	return r
}
