package katalyst

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
)

// pools divides the machine's whole cores between the shared, the reclaimed and the dedicated pods.
func (n *node) pools(a *tick.Advice, t *tick.Tick, dedicated map[string]cpus.Set, e estimate, r resolved, s Settings) {
	avail := n.shape.avail
	for _, set := range dedicated {
		avail = avail.Difference(set)
	}
	share := n.size(a, t.Time, avail, e, r, s)
	reclaim := avail.Difference(share)
	if reclaim.IsEmpty() {
		a.Reasons = append(a.Reasons, fmt.Sprintf("no CPU is left for the reclaimed pool: the shared pool holds all of %s", avail))
	}
	n.Share, n.ShareMilliCPU = share.String(), 0

	if !n.shape.system.IsEmpty() {
		a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolReserve, CPUs: n.shape.system.String()})
	}
	a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolShare, CPUs: n.Share}, tick.Pool{Name: tick.PoolReclaim, CPUs: reclaim.String()})
	for _, k := range slices.Sorted(maps.Keys(n.Dedicated)) {
		a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolDedicatedPrefix + k, CPUs: n.Dedicated[k]})
	}
	n.offer(a, t.Sample, n.shape.online.Size()-n.shape.system.Size()-reclaim.Size(), reclaim)

	floor := n.shape.First(reclaim, r.floorCPUs()) // of the present pool, so that the fallback only ever takes
	n.confine(a, t.Sample.Pods, sides{
		present:  map[string]string{tick.QoSShared: n.Share, tick.QoSReclaimed: reclaim.String()},
		fallback: map[string]string{tick.QoSShared: avail.Difference(floor).String(), tick.QoSReclaimed: floor.String()},
	})
	n.Pools = true
}

// presentShare is the shared pool as it was, without CPUs that have gone since.
func (n *node) presentShare() cpus.Set {
	share, err := cpus.Parse(n.Share) // our own text, or a state file's
	if err != nil {
		return cpus.Set{}
	}
	return share.Intersection(n.shape.avail)
}

// size decides the shared pool: at once when it grows, after the hold and in steps when it shrinks.
func (n *node) size(a *tick.Advice, now time.Time, avail cpus.Set, e estimate, r resolved, s Settings) cpus.Set {
	present := n.presentShare().Intersection(avail)
	raw := float64(r.reserveMilliCPU) + e.milliCPU
	limit := max(avail.Size()-r.floorCPUs(), 1)
	want := int(min(ceilCPUs(raw), float64(limit)))
	share := n.shape.Resize(avail, present, want, limit)
	wanted := share.Size()

	bound := ""
	switch held := n.held(now, s.Hold); {
	case ceilCPUs(raw) > float64(limit):
		bound = fmt.Sprintf("; the reclaimed pool keeps its floor of %d CPUs", r.floorCPUs())
	case wanted >= present.Size():
	case held > 0:
		bound = fmt.Sprintf("; held at %d CPUs for %.0fs more", present.Size(), math.Ceil(held.Seconds()))
		share = n.shape.Resize(avail, present, present.Size(), limit)
	default:
		step := max(int(s.ShrinkStepMilliCPU/1000), n.shape.LargestCore(), 1)
		if stepped := n.shape.Resize(avail, present, max(want, present.Size()-step), limit); stepped.Size() > wanted {
			bound = fmt.Sprintf("; %d CPUs would do, it shrinks by %d a step", wanted, step)
			share = stepped
		}
	}
	a.Reasons = append(a.Reasons, fmt.Sprintf("share: reserve %dm + need %.0fm of %s = %.0fm -> %d CPUs in whole cores%s",
		r.reserveMilliCPU, e.milliCPU, count(e.containers, "container"), raw, share.Size(), bound))
	n.remember(now, present.Size(), share.Size(), wanted)
	return share
}

// ceilCPUs is milli-CPU in whole CPUs, rounded up. What is less than a thousandth of a milli-CPU over is rounding noise
// of a load average, not need.
func ceilCPUs(milliCPU float64) float64 { return math.Ceil((milliCPU - 0.001) / 1000) }

// held is for how long the shared pool must not shrink yet.
func (n *node) held(now time.Time, hold time.Duration) time.Duration {
	last := n.LastNeed
	if n.LastChange.After(last) {
		last = n.LastChange
	}
	return hold - now.Sub(last)
}

// remember notes when the present size was needed last, and when it changed.
func (n *node) remember(now time.Time, before, after, wanted int) {
	if wanted >= before {
		n.LastNeed = now
	}
	if after != before {
		n.LastChange = now
	}
}

// offer sets what is reclaimed: the pool, and not more than the node object allows once the others have theirs.
func (n *node) offer(a *tick.Advice, s *tick.Sample, taken int, reclaim cpus.Set) {
	milliCPU := int64(reclaim.Size()) * 1000
	if allowed := max(n.milliCPU(s)-int64(taken)*1000, 0); allowed < milliCPU {
		a.Reasons = append(a.Reasons, fmt.Sprintf("reclaimed CPU is %dm, not the pool's %dm: the node's allocatable is %dm", allowed, milliCPU, n.milliCPU(s)))
		milliCPU = allowed
	}
	a.Reclaimed.MilliCPU = &milliCPU
	inPool := map[int]int64{}
	for _, c := range n.shape.Cores {
		inPool[c.NUMA] += int64(c.CPUs.Intersection(reclaim).Size())
	}
	for _, id := range n.shape.NUMA {
		part := milliCPU * inPool[id] / max(int64(reclaim.Size()), 1)
		a.Reclaimed.NUMANodes = append(a.Reclaimed.NUMANodes, tick.ReclaimedNUMA{ID: id, MilliCPU: &part})
	}
}

// sides are the CPU lists of each class, now and in the fallback.
type sides struct{ present, fallback map[string]string }

// confine wants each container in its pool, and for the fallback the reclaimed ones at the floor and the shared ones on
// all that this frees.
func (n *node) confine(a *tick.Advice, pods []tick.Pod, s sides) {
	a.Fallback = nil
	for i := range pods {
		p := &pods[i]
		list, fallback := s.present[p.QoS], s.fallback[p.QoS]
		if p.QoS == tick.QoSDedicated {
			if list = n.Dedicated[key(p)]; list == "" { // no CPUs of its own could be had
				list = s.present[tick.QoSShared]
			}
			fallback = list
		}
		if list == "" || finished(p) {
			continue
		}
		for _, cgroup := range cgroups(p) {
			want := tick.Cgroup{Cgroup: cgroup, CPUSetCPUs: list}
			if n.Quota && p.QoS == tick.QoSReclaimed { // CPUs came online: there is room for pools again
				want.CPUMaxMilliCPU = tick.Ptr(limitOf(p))
			}
			a.Cgroups = append(a.Cgroups, want)
			if fallback != "" {
				a.Fallback = append(a.Fallback, tick.Cgroup{Cgroup: cgroup, CPUSetCPUs: fallback})
			}
		}
	}
}

// cgroups are those of a pod's containers, or its own where it lists none.
func cgroups(p *tick.Pod) []string {
	var list []string
	for i := range p.Containers {
		if c := p.Containers[i].Cgroup; c != "" {
			list = append(list, c)
		}
	}
	if len(p.Containers) == 0 && p.Cgroup != "" {
		list = append(list, p.Cgroup)
	}
	return list
}

// limitOf is a pod's own CPU limit, or none.
func limitOf(p *tick.Pod) int64 {
	if p.Limits == nil {
		return tick.Unlimited
	}
	for _, limit := range []*float64{p.Limits.MilliCPU, p.Limits.ReclaimedMilliCPU} {
		if limit != nil && *limit > 0 {
			return int64(math.Ceil(bounded(*limit)))
		}
	}
	return tick.Unlimited
}

func key(p *tick.Pod) string { return p.Namespace + "/" + p.Name }
