package katalyst

import (
	"fmt"
	"time"

	"polder/advise/policy"
	"polder/lib/tick"
)

// member is a pod with its properties in this tick.
type member struct {
	*tick.Pod
	class        string       // shared, dedicated or reclaimed; "" is left alone
	isRampingUp  bool         // it has just started: it runs on all CPUs, and its request counts
	hasExclusive bool         // it has CPUs that kubelet gave it exclusively
	overlaps     bool         // it also runs on the reclaim pool's CPUs; a reclaimed one on the shared pools'
	key          string       // of a dedicated pod
	enhancement  *enhancement // nil if it has none

	// What a dedicated pod gets, see [bind]: CPUs of its own, the memory nodes that it is bound to, and all memory of NUMA nodes that it uses
	// alone.
	ownCPUs    string
	mems       string
	ownedBytes float64

	group int // index of the shared pool that it belongs to; see [buildGroups]
}

// classify returns each pod's class, in the order of the sample, without pods that have ended, and the errors in their annotations.
func (d *Decider) classify(in inputs) (members []member, faults []string) {
	members = make([]member, 0, len(in.sample.Pods))
	for i := range in.sample.Pods {
		p := &in.sample.Pods[i]
		m := member{Pod: p, class: p.QoS}
		switch {
		case p.Ended():
			continue
		case p.QoS == tick.QoSShared:
			m.enhancement = d.enhancementOf(p, cpuEnhancement)
			m.hasExclusive = in.shape.hasExclusiveCPUs(p)
		case p.QoS == tick.QoSDedicated:
			m.key = policy.Key(p)
			m.enhancement = d.enhancementOf(p, memoryEnhancement)
			m.hasExclusive = in.shape.hasExclusiveCPUs(p)
		case p.QoS != tick.QoSReclaimed:
			m.class = ""
		}
		if m.enhancement != nil {
			for _, fault := range m.enhancement.faults {
				faults = append(faults, fmt.Sprintf("pod %s: annotation %s: %s", policy.Key(p), annotationOf(p), fault))
			}
		}
		members = append(members, m)
	}
	return members, faults
}

// annotationOf returns the annotation that applies to the pod's class.
func annotationOf(p *tick.Pod) string {
	if p.QoS == tick.QoSDedicated {
		return memoryEnhancement
	}
	return cpuEnhancement
}

// hasExclusiveCPUs reports whether kubelet gave one of the pod's containers exclusive CPUs: the container's list is part of kubelet's
// exclusive CPUs. If its request is for another number of CPUs, kubelet gave away CPUs that isolate had pinned the container to, and it has
// none.
func (s *shape) hasExclusiveCPUs(p *tick.Pod) bool {
	if s.Exclusive.IsEmpty() {
		return false
	}
	for i := range p.Containers {
		if s.isExclusive(&p.Containers[i]) {
			return true
		}
	}
	return false
}

func (s *shape) isExclusive(c *tick.Container) bool {
	if s.Exclusive.IsEmpty() || c.CPUSetCPUs == "" {
		return false
	}
	count := cached(&s.exclusiveCounts, c.CPUSetCPUs, func() int { return policy.ExclusiveCount(c.CPUSetCPUs, s.Exclusive) })
	return policy.HasExclusiveCPUs(c, count)
}

// rampUpFor is Katalyst's transition period: during it a new shared pod runs on all CPUs that are not reserved or dedicated, because its
// need is still unknown.
const rampUpFor = 30 * time.Second

// rampUp marks the pods that have just started: by their start time, or without one by when they were first seen. Pods that run when a node
// is first seen are not new and join their pool immediately. It returns when each pod's ramp-up ends, starting from the last tick's values.
func rampUp(members []member, ends map[string]int64, now time.Time) map[string]int64 {
	isFirst := ends == nil
	if isFirst {
		ends = make(map[string]int64, len(members))
	}
	nowMillis, latestEnd := now.UnixMilli(), now.Add(rampUpFor).UnixMilli()
	pods := 0
	for i := range members {
		m := &members[i]
		if m.class != tick.QoSShared || m.Missing == tick.MissingCgroup {
			continue
		}
		pods++
		id := policy.Identity(m.Pod)
		end, isKnown := ends[id]
		previous := end
		switch {
		case isKnown:
			end = min(end, latestEnd) // the clock was set back
		case !isFirst:
			end = latestEnd
			if start, err := time.Parse(time.RFC3339Nano, m.StartTime); err == nil && start.Before(now) {
				end = start.Add(rampUpFor).UnixMilli()
			}
		}
		if end <= nowMillis {
			end = 0
		}
		if !isKnown || end != previous {
			ends[id] = end
		}
		m.isRampingUp = end != 0
	}
	if len(ends) == pods {
		return ends
	}
	remaining := make(map[string]int64, pods) // some pods have ended
	for i := range members {
		if m := &members[i]; m.class == tick.QoSShared && m.Missing != tick.MissingCgroup {
			remaining[policy.Identity(m.Pod)] = ends[policy.Identity(m.Pod)]
		}
	}
	return remaining
}
