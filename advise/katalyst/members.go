package katalyst

import (
	"fmt"
	"time"

	"polder/advise/policy"
	"polder/lib/tick"
)

// member is a pod with what holds for it in this tick.
type member struct {
	*tick.Pod
	class   string // shared, dedicated or reclaimed; "" is left alone
	group   int    // the shared pool that it belongs to, an index
	ramping bool   // it has just started: it runs everywhere, and its request counts
	kubelet bool   // it has CPUs that kubelet gave it alone
	key     string // of a dedicated pod
	own     string // CPUs of a dedicated pod
	mems    string // and memory nodes, where it is bound to them
	whole   float64
	wishes  *enhancement // nil where it has none
}

// enroll sorts the pods.
func (d *Decider) enroll(n *node, a *tick.Advice, t *tick.Tick) []member {
	members := n.members[:0]
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		m := member{Pod: p, class: p.QoS}
		switch {
		case policy.Finished(p):
			continue
		case p.QoS == tick.QoSShared:
			m.wishes = d.enhanced(p, cpuEnhancement)
			m.kubelet = n.shape.gave(p)
		case p.QoS == tick.QoSDedicated:
			m.key = policy.Key(p)
			m.wishes = d.enhanced(p, memoryEnhancement)
			m.kubelet = n.shape.gave(p)
		case p.QoS != tick.QoSReclaimed:
			m.class = ""
		}
		if m.wishes != nil {
			for _, fault := range m.wishes.faults {
				a.Reasons = append(a.Reasons, fmt.Sprintf("pod %s: annotation %s: %s", policy.Key(p), annotationOf(p), fault))
			}
		}
		members = append(members, m)
	}
	n.rampUp(members, t.Time)
	n.members = members
	return members
}

// annotationOf is the one that counts for the pod's class.
func annotationOf(p *tick.Pod) string {
	if p.QoS == tick.QoSDedicated {
		return memoryEnhancement
	}
	return cpuEnhancement
}

// gave reports whether kubelet gave one of the pod's containers CPUs for itself. Where a container's list lies within the
// given CPUs it has them, unless its request says another number: then kubelet has given away what we had told it to use.
func (s *shape) gave(p *tick.Pod) bool {
	if s.exclusive.IsEmpty() {
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
	if s.exclusive.IsEmpty() || c.CPUSetCPUs == "" {
		return false
	}
	return policy.IsGiven(c, memo(&s.givens, c.CPUSetCPUs, func() int { return policy.Given(c.CPUSetCPUs, s.exclusive) }))
}

// rampUpFor is Katalyst's transition period: for so long a new shared pod runs on all CPUs that are not reserved or
// dedicated, for at its start it is not known what it needs.
const rampUpFor = 30 * time.Second

// rampUp says which pods have just started: by their start time, or where they have none by when they were seen first.
// What runs when a node is seen first was there before, and joins its pool at once.
func (n *node) rampUp(members []member, now time.Time) {
	first := n.Started == nil
	if first {
		n.Started = make(map[string]int64, len(members))
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
		end, known := n.Started[id]
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
			n.Started[id] = end
		}
		m.ramping = end != 0
	}
	if len(n.Started) == pods {
		return
	}
	present := make(map[string]int64, pods) // some have gone
	for i := range members {
		if m := &members[i]; m.class == tick.QoSShared && m.Missing != tick.MissingCgroup {
			present[policy.Identity(m.Pod)] = n.Started[policy.Identity(m.Pod)]
		}
	}
	n.Started = present
}
