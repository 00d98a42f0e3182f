package katalyst

import (
	"fmt"
	"strings"

	"polder/advise/policy"
	"polder/lib/tick"
)

// system is what the machine uses outside of the confined pods: other processes, and system pods. Nothing limits this use, so it is
// subtracted from the offer, except the part within the reservation for it. Under kubelet only system pods count: kubelet's reservations
// cover what runs outside of all pods, and the guide's formula has no other term for it.
type system struct {
	milliCPU, memoryBytes float64
	reasons               []string
}

func systemUse(in inputs, members []member) (sys system) {
	s := in.sample
	confined, loose, rss, looseRSS := 0.0, 0.0, 0.0, 0.0
	top := tierNamed(s, tick.TierPods)
	kubelet := top != nil
	for i := range members {
		m := &members[i]
		if kubelet && beside(m.Pod, top.Cgroup) {
			continue
		}
		if m.class == "" {
			loose += policy.Amount(m.UsageMilliCPU)
			looseRSS += rssOf(m)
			continue
		}
		confined += policy.Amount(m.UsageMilliCPU)
		rss += rssOf(m)
	}
	used := loose
	if !kubelet && s.CPU != nil && s.CPU.UsageMilliCPU != nil {
		used = max(policy.Amount(s.CPU.UsageMilliCPU)-confined, loose)
	}
	kept := 0.0
	if !kubelet { // system pods use allocatable CPUs, and nothing is reserved for them
		kept = float64(max(int64(in.shape.online.Size())*1000-in.milliCPU, int64(in.shape.Reserved.Size())*1000))
	}
	if sys.milliCPU = max(used-kept, 0); sys.milliCPU >= 0.5 {
		sys.reasons = append(sys.reasons, fmt.Sprintf("system: %.0fm are used beside the confined pods (machine %.0fm, these %.0fm, system pods %.0fm; %.0fm are kept for it): not offered",
			used, policy.Amount(nodeUse(s)), confined, loose, kept))
	}
	if kubelet {
		if sys.memoryBytes = looseRSS; looseRSS > 0 {
			sys.reasons = append(sys.reasons, fmt.Sprintf("system: %.0f bytes of memory are used by system pods: not offered", looseRSS))
		}
		return sys
	}
	if m := s.Memory; m != nil && m.TotalBytes != nil && m.AvailableBytes != nil {
		if sys.memoryBytes = max(policy.Amount(m.TotalBytes)-policy.Amount(m.AvailableBytes)-rss, 0); sys.memoryBytes > 0 {
			sys.reasons = append(sys.reasons, fmt.Sprintf("system: %.0f bytes of memory are used beside the confined pods (machine %.0f, these %.0f): not offered",
				sys.memoryBytes, policy.Amount(m.TotalBytes)-policy.Amount(m.AvailableBytes), rss))
		}
	}
	return sys
}

// beside reports whether a system pod is not one of kubelet's, but a cgroup that the classification rules name, such as systemd's
// system.slice, in which kubelet itself runs.
func beside(p *tick.Pod, kubelets string) bool {
	return p.QoS == tick.QoSSystem && p.QoSSource == tick.QoSFromRule && !strings.HasPrefix(p.Cgroup, kubelets+"/")
}

// rssOf returns a pod's resident memory, from its own value or its containers'.
func rssOf(m *member) (bytes float64) {
	if m.Memory != nil {
		return policy.Amount(m.Memory.RSSBytes)
	}
	for i := range m.Containers {
		if own := m.Containers[i].Memory; own != nil {
			bytes += policy.Amount(own.RSSBytes)
		}
	}
	return bytes
}

func nodeUse(s *tick.Sample) *float64 {
	if s.CPU == nil {
		return nil
	}
	return s.CPU.UsageMilliCPU
}

func tierNamed(s *tick.Sample, name string) *tick.Tier {
	for i := range s.Tiers {
		if t := &s.Tiers[i]; t.Name == name && strings.HasPrefix(t.Cgroup, "/") && len(t.Cgroup) > 1 {
			return t
		}
	}
	return nil
}
