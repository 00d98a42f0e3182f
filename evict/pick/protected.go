package pick

import (
	"polder/evict/rule"
	"polder/lib/tick"
)

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
	case rule.IsCritical(p):
		return "a critical pod"
	}
	if a := rule.OptedOut(p, optOut); a != "" {
		return "annotated " + a
	}
	return ""
}
