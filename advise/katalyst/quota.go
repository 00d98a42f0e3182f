package katalyst

import (
	"fmt"
	"math"

	"polder/lib/tick"
)

// minQuotaMilliCPU is the least quota that the kernel takes: 1 ms of the usual period of 100 ms.
const minQuotaMilliCPU = 10

// quota holds the reclaimed pods to what the shared ones leave, on machines that are too small to be divided into
// whole cores. The numbers are those of the pools, not rounded.
func (n *node) quota(a *tick.Advice, t *tick.Tick, e estimate, r resolved, s Settings) {
	all := n.milliCPU(t.Sample)
	limit := max(all-r.floorMilliCPU, 0)
	raw := float64(r.reserveMilliCPU) + e.milliCPU
	want := int64(math.Ceil(min(raw, float64(limit))))
	present := min(n.ShareMilliCPU, limit) // CPUs may have gone offline since
	share, bound := want, ""
	switch {
	case raw > float64(limit):
		bound = fmt.Sprintf("; the reclaimed pods keep their floor of %dm", r.floorMilliCPU)
	case want >= present:
	case n.held(t.Time, s.Hold) > 0:
		bound = fmt.Sprintf("; held at %dm for %.0fs more", present, math.Ceil(n.held(t.Time, s.Hold).Seconds()))
		share = present
	default:
		share = max(want, present-max(s.ShrinkStepMilliCPU, 1))
	}
	n.remember(t.Time, int(present), int(share), int(want))
	n.Share, n.ShareMilliCPU, n.Dedicated = "", share, nil

	reclaimed := all - share
	a.Reasons = append(a.Reasons,
		fmt.Sprintf("%d CPUs are too few for pools: reclaimed pods are held by quota", n.shape.online.Size()),
		fmt.Sprintf("share: reserve %dm + need %.0fm of %s = %.0fm -> %dm%s", r.reserveMilliCPU, e.milliCPU, count(e.containers, "container"), raw, share, bound))
	a.Reclaimed.MilliCPU = &reclaimed
	a.Reclaimed.NUMANodes = n.splitQuota(reclaimed)
	n.limit(a, t.Sample.Pods, reclaimed, min(r.floorMilliCPU, all))
	n.Quota = true
}

// splitQuota divides the reclaimed CPU over the NUMA nodes in proportion to their CPUs.
func (n *node) splitQuota(milliCPU int64) []tick.ReclaimedNUMA {
	inNode := map[int]int{}
	for _, c := range n.shape.Cores {
		inNode[c.NUMA] += c.CPUs.Size()
	}
	var list []tick.ReclaimedNUMA
	for _, id := range n.shape.NUMA {
		part := milliCPU * int64(inNode[id]) / int64(n.shape.online.Size())
		list = append(list, tick.ReclaimedNUMA{ID: id, MilliCPU: &part})
	}
	return list
}

// limit divides the quota over the reclaimed pods' cgroups in proportion to their reclaimed CPU requests, and equally
// among pods that say none. The parts do not follow use from tick to tick, so that a steady state writes nothing.
func (n *node) limit(a *tick.Advice, pods []tick.Pod, reclaimed, floor int64) {
	a.Fallback = nil
	sum := 0.0
	for i := range pods {
		if p := &pods[i]; p.QoS == tick.QoSReclaimed && !finished(p) && len(cgroups(p)) > 0 {
			sum += weightOf(p)
		}
	}
	for i := range pods {
		p := &pods[i]
		paths := cgroups(p)
		if finished(p) || p.QoS == tick.QoSSystem || p.QoS != tick.QoSReclaimed && !n.Pools {
			continue
		}
		part := weightOf(p) / float64(max(len(paths), 1)) / sum
		for _, cgroup := range paths {
			want := tick.Cgroup{Cgroup: cgroup}
			if n.Pools { // the machine had pools before CPUs went offline
				want.CPUSetCPUs = n.shape.online.String()
			}
			if p.QoS == tick.QoSReclaimed {
				want.CPUMaxMilliCPU = quotaOf(p, reclaimed, part)
				a.Fallback = append(a.Fallback, tick.Cgroup{Cgroup: cgroup, CPUMaxMilliCPU: quotaOf(p, floor, part)})
			}
			a.Cgroups = append(a.Cgroups, want)
		}
	}
}

// quotaOf is a cgroup's part of milliCPU, within the pod's own limit and what the kernel takes.
func quotaOf(p *tick.Pod, milliCPU int64, part float64) *int64 {
	quota := int64(float64(milliCPU) * part)
	if limit := limitOf(p); limit > 0 {
		quota = min(quota, limit)
	}
	quota = max(quota, minQuotaMilliCPU)
	return &quota
}

// weightOf is a reclaimed pod's CPU request; a pod that names none counts as one core.
func weightOf(p *tick.Pod) float64 {
	if p.Requests != nil {
		for _, request := range []*float64{p.Requests.ReclaimedMilliCPU, p.Requests.MilliCPU} {
			if request != nil && *request > 0 {
				return bounded(*request)
			}
		}
	}
	return 1000
}
