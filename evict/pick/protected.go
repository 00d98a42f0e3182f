package pick

import (
	"strings"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// criticalPriority is the lowest priority of the classes system-cluster-critical and system-node-critical.
const criticalPriority = 2_000_000_000

// OptOut is the default annotation that protects a pod.
const OptOut = evictconfig.OptOut

// Protected returns why a pod may not be evicted; empty if it may.
func Protected(p *tick.Pod, optOut []string) string {
	switch p.QoS {
	case tick.QoSShared, tick.QoSReclaimed, tick.QoSDedicated:
	case tick.QoSSystem:
		return "a system pod"
	default:
		return "its class is unknown"
	}
	switch {
	case p.UID == "":
		return "it has no UID"
	case p.Ended():
		return "it has ended"
	case p.Terminating:
		return "it is terminating"
	case p.Static: // collect checks the owner: anybody may write kubelet's annotations of static pods
		return "a static pod"
	case p.Missing == tick.MissingCluster:
		return "the cluster has no such pod"
	case p.Priority != nil && *p.Priority >= criticalPriority:
		return "a critical pod"
	}
	for _, a := range optOut {
		key, desired, hasValue := strings.Cut(a, "=")
		if value, ok := p.Annotations[key]; ok && (!hasValue || value == desired) {
			return "annotated " + a
		}
	}
	return ""
}
