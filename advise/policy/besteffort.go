package policy

import (
	"fmt"
	"strings"

	"polder/lib/kubepods"
	"polder/lib/qos"
	"polder/lib/tick"
)

// BatchLists are batch's CPU lists: those that it may use now, those that it keeps at any load of the services, and those that its cgroups
// have if nothing confines them.
type BatchLists struct{ Batch, Floor, All string }

// ConfineTier confines kubelet's cgroup of the BestEffort pods to batch's CPUs, so that a new pod is confined from its start. That is safe
// on version 2, where the containers' lists need not be subsets, and on version 1 if kubelet does not manage CPUs itself; and only while
// all pods in it are reclaimed ones. A tier that was confined is widened again. previous is the last confined cgroup, empty if there is
// none; ConfineTier returns the new one. If lists.Batch is empty there is no pool for batch.
func ConfineTier(a *tick.Advice, s *tick.Sample, previous string, lists BatchLists) string {
	path, why := tierToConfine(s, previous, lists)
	switch {
	case path == "" && previous == "":
		return ""
	case why != "":
		if path != "" {
			a.Reasons = append(a.Reasons, fmt.Sprintf("cgroup %s is not confined to the reclaim pool, only the containers in it are: %s", Quote(path), why))
		}
		WidenTier(a, previous, lists.All)
		return previous
	case path == "":
		path = previous // it has no pod now
	case previous != path:
		WidenTier(a, previous, lists.All)
	}
	a.Cgroups = append(a.Cgroups, tick.Cgroup{Cgroup: path, CPUSetCPUs: lists.Batch})
	a.Fallback = append(a.Fallback, tick.Cgroup{Cgroup: path, CPUSetCPUs: lists.Floor})
	return strings.Clone(path)
}

// tierToConfine returns the tier of the sample's pods, empty if there is none, and why it cannot be confined. If the sample has kubelet's
// tier, pods below another cgroup of that name are elsewhere.
func tierToConfine(s *tick.Sample, previous string, lists BatchLists) (path, why string) {
	var isAmbiguous bool
	var foreignPod *tick.Pod
	kubelets := s.Tier(tick.TierBestEffort)
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Ended() {
			continue
		}
		tier := kubepods.Of(p.Cgroup).BestEffort
		if tier == "" && len(p.Containers) > 0 {
			tier = kubepods.Of(p.Containers[0].Cgroup).BestEffort
		}
		if kubelets != nil && tier != kubelets.Cgroup {
			tier = ""
		}
		switch {
		case tier != "":
			isAmbiguous = isAmbiguous || path != "" && path != tier
			path = tier
		case p.Missing != tick.MissingCgroup || qos.KubernetesOf(p) != qos.BestEffort: // it is, or will be, elsewhere
			continue
		}
		if p.QoS != tick.QoSReclaimed && foreignPod == nil {
			foreignPod = p
		}
	}
	switch {
	case path == "" && previous == "":
	case isAmbiguous:
		why = "there is more than one"
	case foreignPod != nil:
		why = fmt.Sprintf("pod %s in it is not of class reclaimed", Quote(Key(foreignPod)))
	case lists.Batch == "":
		why = "there is no reclaim pool"
	case s.CgroupVersion == 2:
	case s.Kubelet == nil || s.Kubelet.CPUManagerPolicy == "":
		why = "the policy of kubelet's CPU manager is unknown"
	case s.Kubelet.CPUManagerPolicy != "none":
		why = fmt.Sprintf("on cgroup v1 kubelet's CPU manager (policy %s) must be able to give its containers any CPU", Quote(s.Kubelet.CPUManagerPolicy))
	}
	return path, why
}

// WidenTier gives a confined tier all CPUs.
func WidenTier(a *tick.Advice, previous, all string) {
	if previous == "" {
		return
	}
	widened := tick.Cgroup{Cgroup: previous, CPUSetCPUs: all}
	a.Cgroups, a.Fallback = append(a.Cgroups, widened), append(a.Fallback, widened)
}
