package policy

import (
	"fmt"
	"strings"

	"polder/lib/qos"
	"polder/lib/tick"
)

// AwakenTiers wants those of kubelet's cgroups above the pods' that are idle (cpu.idle) not to be, and gives them the weight that
// kubelet wants. The kernel takes no weight for an idle cgroup, so that kubelet ends with an error when it starts; an older
// version of isolate, or another program, left them so. The idle class is for pods' cgroups.
func AwakenTiers(s *tick.Sample, a *tick.Advice) {
	for i := range s.Tiers {
		t := &s.Tiers[i]
		if !t.CPUIdle || !strings.HasPrefix(t.Cgroup, "/") || len(t.Cgroup) == 1 {
			continue
		}
		milliCPU := tierRequest(s, t.Name)
		if milliCPU < 0 {
			continue
		}
		want := wantOf(a, t.Cgroup)
		want.CPUIdle, want.CPUWeight = new(false), new(WeightOf(SharesOf(milliCPU), s.CgroupVersion))
		a.Reasons = append(a.Reasons, fmt.Sprintf("%.100s is idle (cpu.idle), which keeps kubelet from starting again: "+
			"it is set to 0, and the weight to kubelet's", t.Cgroup))
	}
}

// tierRequest is the CPU request in milli-CPU that kubelet makes a tier's weight of; negative for what is no tier.
func tierRequest(s *tick.Sample, name string) (milliCPU float64) {
	switch name {
	case tick.TierBestEffort:
		return 0
	case tick.TierBurstable:
		for i := range s.Pods {
			p := &s.Pods[i]
			if !p.Ended() && qos.KubernetesOf(p) == qos.Burstable && p.Requests != nil && p.Requests.MilliCPU != nil {
				milliCPU += max(*p.Requests.MilliCPU, 0)
			}
		}
		return milliCPU
	case tick.TierPods:
		for _, of := range []*tick.Resources{s.Allocatable, s.Capacity} {
			if of != nil && of.MilliCPU != nil && *of.MilliCPU > 0 {
				return *of.MilliCPU
			}
		}
		return 1000 // the kernel's own default, until kubelet writes its own
	}
	return -1
}

// wantOf is the entry of a cgroup, which is added where there is none: isolate takes one a cgroup.
func wantOf(a *tick.Advice, cgroup string) *tick.Cgroup {
	for i := range a.Cgroups {
		if a.Cgroups[i].Cgroup == cgroup {
			return &a.Cgroups[i]
		}
	}
	a.Cgroups = append(a.Cgroups, tick.Cgroup{Cgroup: cgroup})
	return &a.Cgroups[len(a.Cgroups)-1]
}
