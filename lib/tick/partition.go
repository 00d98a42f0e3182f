package tick

import "polder/lib/kubepods"

// Contains reports whether a cgroup is the partition's root or below it.
func (p *Partition) Contains(cgroup string) bool {
	return IsWithin(cgroup, p.Cgroup)
}

// ContainsAllPods reports whether all pods are below the partition's root, and none is the root, because such a pod has the partition for
// itself. The host's own programs do not count.
func (p *Partition) ContainsAllPods(pods []Pod) bool {
	some := false
	for i := range pods {
		if pods[i].Cgroup == "" || pods[i].isOfHost() {
			continue
		}
		if some = true; pods[i].Cgroup == p.Cgroup || !p.Contains(pods[i].Cgroup) {
			return false
		}
	}
	return some
}

// isOfHost reports whether the pod is a cgroup of the host's own programs: of class system by a rule of the classification, and not one of
// kubelet's. On a host with systemd, /system.slice is one beside kubelet's pods.
func (p *Pod) isOfHost() bool {
	return p.QoS == QoSSystem && p.QoSSource == QoSFromRule && !kubepods.Contains(p.Cgroup)
}

// HasOwnPartition reports whether the pod runs on the CPUs of a partition that does not contain all pods: it uses none of the CPUs that
// the other pods share.
func (s *Sample) HasOwnPartition(pod *Pod) bool {
	for i := range s.Partitions {
		if p := &s.Partitions[i]; pod.Cgroup != "" && p.Contains(pod.Cgroup) && !p.ContainsAllPods(s.Pods) {
			return true
		}
	}
	return false
}
