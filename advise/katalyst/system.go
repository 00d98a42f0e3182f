package katalyst

import (
	"fmt"

	"polder/advise/policy"
	"polder/lib/reason"
	"polder/lib/tick"
)

// system is what the machine uses outside of the confined pods: other processes, and system pods. Nothing limits this use, so it is
// subtracted from the offer, except the part within the reservation for it. Under kubelet only system pods count: kubelet's reservations
// cover what runs outside of all pods, and the guide's formula has no other term for it.
type system struct {
	milliCPU, memoryBytes float64
	// allocatableBytes is the part of memoryBytes that is not within the Node object's reservation.
	allocatableBytes float64
	reasons          []string
}

func systemUse(in inputs, members []member) (sys system) {
	s := in.sample
	confined, systemPods, rss, systemRSS := 0.0, 0.0, 0.0, 0.0
	podsTier := s.Tier(tick.TierPods)
	hasKubelet := podsTier != nil
	for i := range members {
		m := &members[i]
		if hasKubelet && isOutsideKubelet(m.Pod, podsTier.Cgroup) {
			continue
		}
		if m.class == "" {
			systemPods += policy.Amount(m.UsageMilliCPU)
			systemRSS += policy.RSSBytes(m.Pod)
			continue
		}
		confined += policy.Amount(m.UsageMilliCPU)
		rss += policy.RSSBytes(m.Pod)
	}
	used := systemPods
	if !hasKubelet && s.CPU != nil && s.CPU.UsageMilliCPU != nil {
		used = max(policy.Amount(s.CPU.UsageMilliCPU)-confined, systemPods)
	}
	reserved := 0.0
	if !hasKubelet { // system pods use allocatable CPUs, and nothing is reserved for them
		reserved = float64(max(int64(in.shape.online.Size())*1000-in.milliCPU, int64(in.shape.Reserved.Size())*1000))
	}
	if sys.milliCPU = max(used-reserved, 0); sys.milliCPU >= 0.5 {
		sys.reasons = append(sys.reasons, reason.SystemUse(used)+fmt.Sprintf(
			" (machine %.0fm, confined %.0fm, system pods %.0fm; %.0fm are reserved): not offered",
			policy.Amount(nodeUse(s)), confined, systemPods, reserved))
	}
	if hasKubelet {
		if sys.memoryBytes, sys.allocatableBytes = systemRSS, systemRSS; systemRSS > 0 {
			sys.reasons = append(sys.reasons, fmt.Sprintf("system: %.0f bytes of memory are used by system pods: not offered", systemRSS))
		}
		return sys
	}
	if m := s.Memory; m != nil && m.TotalBytes != nil && m.AvailableBytes != nil {
		if sys.memoryBytes = max(policy.Amount(m.TotalBytes)-policy.Amount(m.AvailableBytes)-rss, 0); sys.memoryBytes > 0 {
			sys.reasons = append(sys.reasons, fmt.Sprintf("system: %.0f bytes of memory are used outside of the confined pods (machine %.0f, confined %.0f): not offered",
				sys.memoryBytes, policy.Amount(m.TotalBytes)-policy.Amount(m.AvailableBytes), rss))
		}
		sys.allocatableBytes = max(sys.memoryBytes-in.reservedBytes, 0)
	}
	return sys
}

// isOutsideKubelet reports whether a system pod is not one of kubelet's, but a cgroup that the classification rules name, such as systemd's
// system.slice, in which kubelet itself runs.
func isOutsideKubelet(p *tick.Pod, podsTier string) bool {
	return p.QoS == tick.QoSSystem && p.QoSSource == tick.QoSFromRule && !tick.IsBelow(p.Cgroup, podsTier)
}

func nodeUse(s *tick.Sample) *float64 {
	if s.CPU == nil {
		return nil
	}
	return s.CPU.UsageMilliCPU
}
