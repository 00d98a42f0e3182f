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
	class   string       // shared, dedicated or reclaimed; "" is left alone
	ramping bool         // it has just started: it runs on all CPUs, and its request counts
	kubelet bool         // it has CPUs that kubelet gave it exclusively
	key     string       // of a dedicated pod
	wishes  *enhancement // nil if it has none

	// What a dedicated pod gets, see [bind]: CPUs of its own, the memory nodes that it is bound to, and all memory of NUMA nodes that it uses
	// alone.
	own   string
	mems  string
	whole float64

	group int // index of the shared pool that it belongs to; see [gather]
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
			m.wishes = d.enhanced(p, cpuEnhancement)
			m.kubelet = in.shape.gave(p)
		case p.QoS == tick.QoSDedicated:
			m.key = policy.Key(p)
			m.wishes = d.enhanced(p, memoryEnhancement)
			m.kubelet = in.shape.gave(p)
		case p.QoS != tick.QoSReclaimed:
			m.class = ""
		}
		if m.wishes != nil {
			for _, fault := range m.wishes.faults {
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

// gave reports whether kubelet gave one of the pod's containers exclusive CPUs: the container's list is part of the given CPUs. If its
// request is for another number of CPUs, kubelet gave away CPUs that isolate had pinned the container to, and it has none.
func (s *shape) gave(p *tick.Pod) bool {
	if s.Exclusive.IsEmpty() {
		return false
	}
	for i := range p.Containers {
		if s.gaveTo(&p.Containers[i]) {
			return true
		}
	}
	return false
}

func (s *shape) gaveTo(c *tick.Container) bool {
	if s.Exclusive.IsEmpty() || c.CPUSetCPUs == "" {
		return false
	}
	return policy.IsGiven(c, memo(&s.givens, c.CPUSetCPUs, func() int { return policy.Given(c.CPUSetCPUs, s.Exclusive) }))
}

// rampUpFor is Katalyst's transition period: during it a new shared pod runs on all CPUs that are not reserved or dedicated, because its
// need is still unknown.
const rampUpFor = 30 * time.Second

// rampUp marks the pods that have just started: by their start time, or without one by when they were first seen. Pods that run when a node
// is first seen are not new and join their pool immediately. It returns when each pod's ramp-up ends, starting from the last tick's values.
func rampUp(members []member, ends map[string]int64, now time.Time) map[string]int64 {
	first := ends == nil
	if first {
		ends = make(map[string]int64, len(members))
	}
	at, until := now.UnixMilli(), now.Add(rampUpFor).UnixMilli()
	pods := 0
	for i := range members {
		m := &members[i]
		if m.class != tick.QoSShared || m.Missing == tick.MissingCgroup {
			continue
		}
		pods++
		id := policy.Identity(m.Pod)
		end, known := ends[id]
		before := end
		switch {
		case known:
			end = min(end, until) // the clock was set back
		case !first:
			end = until
			if start, err := time.Parse(time.RFC3339Nano, m.StartTime); err == nil && start.Before(now) {
				end = start.Add(rampUpFor).UnixMilli()
			}
		}
		if end <= at {
			end = 0
		}
		if !known || end != before {
			ends[id] = end
		}
		m.ramping = end != 0
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
