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
	avail := n.shape.rest(dedicated)
	share := n.size(a, t.Time, avail, e, r, s)
	l := n.shape.layout(avail, share, r.floorCPUs())
	if l.reclaim.IsEmpty() {
		a.Reasons = append(a.Reasons, fmt.Sprintf("no CPU is left for the reclaimed pool: the shared pool holds all of %s", avail.list))
	}
	n.Share, n.ShareMilliCPU = share.list, 0

	if !n.shape.system.IsEmpty() {
		a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolReserve, CPUs: n.shape.system.String()})
	}
	a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolShare, CPUs: n.Share}, tick.Pool{Name: tick.PoolReclaim, CPUs: l.reclaim.list})
	for _, k := range slices.Sorted(maps.Keys(n.Dedicated)) {
		a.Pools = append(a.Pools, tick.Pool{Name: tick.PoolDedicatedPrefix + k, CPUs: n.Dedicated[k]})
	}
	n.offer(a, t.Sample, l)
	n.confine(a, t.Sample.Pods, share, l)
	n.Pools = true
}

// presentShare is the shared pool as it was, without CPUs that have gone since.
func (n *node) presentShare(avail named) named {
	return memo(&n.shape.resizes, resizeKey{avail.list, n.Share, -1, -1}, func() named {
		share, err := cpus.Parse(n.Share) // our own text, or a state file's
		if err != nil {
			return named{}
		}
		return name(share.Intersection(avail.Set))
	})
}

// size decides the shared pool: at once when it grows, after the hold and in steps when it shrinks.
func (n *node) size(a *tick.Advice, now time.Time, avail named, e estimate, r resolved, s Settings) named {
	present := n.presentShare(avail)
	raw := float64(r.reserveMilliCPU) + e.milliCPU
	limit := max(avail.Size()-r.floorCPUs(), 1)
	want := int(min(ceilCPUs(raw), float64(limit)))
	share := n.shape.resize(avail, present, want, limit)
	wanted := share.Size()

	bound := ""
	switch held := n.held(now, s.Hold); {
	case ceilCPUs(raw) > float64(limit):
		bound = fmt.Sprintf("; the reclaimed pool keeps its floor of %d CPUs", r.floorCPUs())
	case wanted >= present.Size():
	case held > 0:
		bound = fmt.Sprintf("; held at %d CPUs for %.0fs more", present.Size(), math.Ceil(held.Seconds()))
		share = n.shape.resize(avail, present, present.Size(), limit)
	default:
		step := max(int(s.ShrinkStepMilliCPU/1000), n.shape.LargestCore(), 1)
		if stepped := n.shape.resize(avail, present, max(want, present.Size()-step), limit); stepped.Size() > wanted {
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
func (n *node) offer(a *tick.Advice, s *tick.Sample, l *layout) {
	milliCPU := int64(l.reclaim.Size()) * 1000
	taken := int64(n.shape.online.Size()-n.shape.system.Size())*1000 - milliCPU
	if allowed := max(n.milliCPU(s)-taken, 0); allowed < milliCPU {
		a.Reasons = append(a.Reasons, fmt.Sprintf("reclaimed CPU is %dm, not the pool's %dm: the node's allocatable is %dm", allowed, milliCPU, n.milliCPU(s)))
		milliCPU = allowed
	}
	a.Reclaimed.MilliCPU = &milliCPU
	for i, id := range n.shape.NUMA {
		part := milliCPU * l.perNUMA[i] / max(int64(l.reclaim.Size()), 1)
		a.Reclaimed.NUMANodes = append(a.Reclaimed.NUMANodes, tick.ReclaimedNUMA{ID: id, MilliCPU: &part})
	}
}

// confine wants each container in its pool, and for the fallback the reclaimed ones at the floor and the shared ones on
// all that this frees.
func (n *node) confine(a *tick.Advice, pods []tick.Pod, share named, l *layout) {
	a.Cgroups = make([]tick.Cgroup, 0, len(pods))
	a.Fallback = make([]tick.Cgroup, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		list, fallback := n.listsOf(p, share, l)
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

// listsOf are the CPUs of a pod, now and in the fallback; empty where it is not confined.
func (n *node) listsOf(p *tick.Pod, share named, l *layout) (now, fallback string) {
	switch p.QoS {
	case tick.QoSShared:
		return share.list, l.spare.list
	case tick.QoSReclaimed:
		return l.reclaim.list, l.floor.list
	case tick.QoSDedicated:
		if own := n.Dedicated[key(p)]; own != "" {
			return own, own
		}
		return share.list, share.list // no CPUs of its own could be had
	}
	return "", ""
}

// cgroups are those of a pod's containers, or its own where it lists none.
func cgroups(p *tick.Pod) []string {
	list := make([]string, 0, max(len(p.Containers), 1))
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
