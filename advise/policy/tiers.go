package policy

import (
	"fmt"

	"polder/lib/qos"
	"polder/lib/tick"
)

// ClearIdleTiers removes cpu.idle from those of kubelet's cgroups above the pods' that have it, and gives them kubelet's weight. The kernel
// accepts no weight for an idle cgroup, so that kubelet fails when it starts; an older version of isolate, or another program, left them
// idle. The idle class is for pods' cgroups. Policies call it in ticks without a decision, too, because their cause may last until kubelet
// starts.
func ClearIdleTiers(s *tick.Sample, a *tick.Advice) {
	if s == nil {
		return
	}
	for i := range s.Tiers {
		t := &s.Tiers[i]
		if !t.CPUIdle || !IsCgroup(t.Cgroup) {
			continue
		}
		milliCPU := tierRequest(s, t)
		if milliCPU < 0 {
			continue
		}
		desired := entryOf(&a.Cgroups, t.Cgroup)
		desired.CPUIdle, desired.CPUWeight = new(false), new(WeightOf(SharesOf(milliCPU), s.CgroupVersion))
		a.Reasons = append(a.Reasons, fmt.Sprintf("%s is idle (cpu.idle), which keeps kubelet from starting again: "+
			"it is set to 0, and the weight to kubelet's", Quote(t.Cgroup)))
	}
}

// defaultTierRequest stands for an unknown request of a tier, in milli-CPU: its weight is the kernel's default on version 1, until kubelet
// writes its own. A request of 0 would give the tier of services the weight of the BestEffort pods.
const defaultTierRequest = 1000

// tierRequest returns the CPU request in milli-CPU from which kubelet calculates a tier's weight; negative if the name is not a tier's.
func tierRequest(s *tick.Sample, t *tick.Tier) (milliCPU float64) {
	switch t.Name {
	case tick.TierBestEffort:
		return 0
	case tick.TierBurstable:
		return burstableRequest(s, t.Cgroup)
	case tick.TierPods:
		for _, resources := range []*tick.Resources{s.Allocatable, s.Capacity} {
			if resources != nil && resources.MilliCPU != nil && *resources.MilliCPU > 0 {
				return *resources.MilliCPU
			}
		}
		return defaultTierRequest
	}
	return -1
}

// burstableRequest returns the request of all pods in the tier of the Burstable pods. If it is unknown, because a pod in the tier is
// unknown to the cluster or there is no cluster, the known part is only its lower bound.
func burstableRequest(s *tick.Sample, tier string) (milliCPU float64) {
	isAnyUnknown := PodsUnknown(s)
	for i := range s.Pods {
		p := &s.Pods[i]
		isKnown := p.Requests != nil && p.Requests.MilliCPU != nil
		switch isInTier := tick.IsBelow(p.Cgroup, tier); {
		case p.Ended(), p.KubernetesQOS == "" && !isInTier, p.KubernetesQOS != "" && p.KubernetesQOS != qos.Burstable: // not in the tier
		case isKnown:
			milliCPU += max(*p.Requests.MilliCPU, 0)
		case p.KubernetesQOS == "":
			isAnyUnknown = true
		}
	}
	if isAnyUnknown {
		return max(milliCPU, defaultTierRequest)
	}
	return milliCPU
}

// entryOf returns the entry of a cgroup in a list, and adds it if there is none: isolate accepts one per cgroup.
func entryOf(list *[]tick.Cgroup, cgroup string) *tick.Cgroup {
	for i := range *list {
		if (*list)[i].Cgroup == cgroup {
			return &(*list)[i]
		}
	}
	*list = append(*list, tick.Cgroup{Cgroup: cgroup})
	return &(*list)[len(*list)-1]
}
