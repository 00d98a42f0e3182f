package katalyst

import (
	"fmt"
	"sort"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// dedicate gives each dedicated pod (by namespace/name) whole cores for its CPU request, near one NUMA node. A pod keeps what it has; the
// reclaimed side gives before the shared one does, and one core of the shared pool and the floor stay.
func (n *node) dedicate(a *tick.Advice, pods []tick.Pod, r resolved) map[string]cpus.Set {
	share, floor := n.presentShare(n.shape.rest(nil)), r.floorCPUs()
	asked := map[string]int{}
	for i := range pods {
		p := &pods[i]
		if p.QoS != tick.QoSDedicated || finished(p) {
			continue
		}
		if p.Requests == nil || p.Requests.MilliCPU == nil || !(*p.Requests.MilliCPU > 0) {
			a.Reasons = append(a.Reasons, fmt.Sprintf("dedicated pod %s has no CPU request: it stays in the shared pool", key(p)))
			continue
		}
		asked[key(p)] += int(ceilCPUs(bounded(*p.Requests.MilliCPU)))
	}
	keys := make([]string, 0, len(asked))
	for k := range asked {
		keys = append(keys, k)
	}
	sort.Strings(keys)

	avail := n.shape.avail
	given := map[string]cpus.Set{}
	for _, k := range keys { // first who has, so that nobody new takes it
		has, err := cpus.Parse(n.Dedicated[k])
		if err == nil && !has.IsEmpty() && has.IsSubsetOf(avail) && has.Size() >= asked[k] && has.Size() < asked[k]+n.shape.LargestCore() {
			given[k] = has
			avail = avail.Difference(has)
		}
	}
	for _, k := range keys {
		if _, has := given[k]; has {
			continue
		}
		room := avail.Size() - floor - n.shape.LargestCore()
		taken, ok := n.shape.TakeNear(avail, share.Set, asked[k])
		if !ok || taken.Size() > room {
			a.Reasons = append(a.Reasons, fmt.Sprintf("dedicated pod %s asks for %d CPUs and %d can be given: it stays in the shared pool", k, asked[k], max(room, 0)))
			continue
		}
		given[k] = taken
		avail = avail.Difference(taken)
	}

	n.Dedicated = make(map[string]string, len(given))
	for k, set := range given {
		n.Dedicated[k] = set.String()
	}
	return given
}
