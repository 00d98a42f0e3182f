package qos

import (
	"slices"
	"strconv"

	"polder/lib/tick"
)

// These are Koordinator's classes.
const (
	LSE    = "LSE" // exclusive CPUs
	LSR    = "LSR" // reserved CPUs that batch pods may use
	LS     = "LS"
	BE     = "BE"
	System = "SYSTEM"
)

// These are Koordinator's priority classes.
const (
	Prod  = "koord-prod"
	Mid   = "koord-mid"
	Batch = "koord-batch"
	Free  = "koord-free"
)

// These are the names of batch resources: the present ones, and those of Koordinator's first version.
var (
	BatchCPU    = []string{"kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu"}
	BatchMemory = []string{"kubernetes.io/batch-memory", "koordinator.sh/batch-memory"}
)

// KoordinatorPriorityClass is the label with the name of a priority class.
const KoordinatorPriorityClass = "koordinator.sh/priority-class"

// band is a priority class's range of spec.priority, and the default number for a pod without one.
type band struct {
	name             string
	from, to, number int64
}

var bands = []band{
	{Prod, 9000, 9999, 9500},
	{Mid, 7000, 7999, 7500},
	{Batch, 5000, 5999, 5500},
	{Free, 3000, 3999, 3500},
}

// Koordinator returns a pod's Koordinator class from its label: empty if it has none, or an invalid one. If it is not a pod of
// Kubernetes, or has Katalyst's mark or batch requests, it returns the Koordinator class closest to Polder's class.
//
// Suppression, eviction and the batch pods' cgroups use this function; sums of requests and usage, and the priority class of
// a pod that names none, use [KoordinatorOrDefault].
func Koordinator(p *tick.Pod) string {
	if label, labeled := p.Labels[KoordinatorClass]; labeled {
		switch {
		case koordinator[label] == "":
			return ""
		case label == System && p.QoS != tick.QoSSystem: // in a namespace where anybody may set it
			return LS
		}
		return label
	}
	if p.QoSSource == tick.QoSFromKubernetes {
		return ""
	}
	switch p.QoS {
	case tick.QoSDedicated:
		return LSR
	case tick.QoSShared:
		return LS
	case tick.QoSReclaimed:
		return BE
	case tick.QoSSystem:
		return System
	}
	return ""
}

// KoordinatorOrDefault returns the pod's Koordinator class, or the default for its Kubernetes class: LSR for Guaranteed, LS for
// Burstable and BE for BestEffort.
func KoordinatorOrDefault(p *tick.Pod) string {
	if class := Koordinator(p); class != "" {
		return class
	}
	switch KubernetesOf(p) {
	case Guaranteed:
		return LSR
	case BestEffort:
		return BE
	}
	return LS
}

// KubernetesOf returns the pod's quality-of-service class: the one that collect has read, else the one that follows from its
// requests and limits. A pod that the cluster does not know is Burstable: nothing is taken from it.
func KubernetesOf(p *tick.Pod) string {
	switch p.KubernetesQOS {
	case Guaranteed, Burstable, BestEffort:
		return p.KubernetesQOS
	}
	if p.Missing == tick.MissingCluster {
		return Burstable
	}
	for _, r := range []*tick.Resources{p.Requests, p.Limits} {
		if r != nil && (r.MilliCPU != nil && *r.MilliCPU > 0 || r.MemoryBytes != nil && *r.MemoryBytes > 0) {
			return Burstable
		}
	}
	return BestEffort
}

// PriorityClass returns the pod's priority class: its label, where an invalid name means no class, else the one whose band
// contains its priority. It is empty if there is none.
func PriorityClass(p *tick.Pod) string {
	label, labeled := p.Labels[KoordinatorPriorityClass]
	for _, b := range bands {
		switch {
		case labeled && label == b.name:
			return b.name
		case !labeled && p.Priority != nil && *p.Priority >= b.from && *p.Priority <= b.to:
			return b.name
		}
	}
	return ""
}

// PriorityClassOrDefault returns the pod's priority class, or the default for its QoS class: batch for BE, prod for all others.
func PriorityClassOrDefault(p *tick.Pod) string {
	if class := PriorityClass(p); class != "" {
		return class
	}
	if KoordinatorOrDefault(p) == BE {
		return Batch
	}
	return Prod
}

// PriorityNumber returns the pod's spec.priority if that is not 0, else the number of its priority class.
func PriorityNumber(p *tick.Pod) int64 {
	if p.Priority != nil && *p.Priority != 0 {
		return *p.Priority
	}
	return numberOf(PriorityClassOrDefault(p))
}

// numberOf returns the default number of a priority class; 0 for none.
func numberOf(class string) int64 {
	for _, b := range bands {
		if class == b.name {
			return b.number
		}
	}
	return 0
}

// With these labels and annotations a pod declares whether, by which rule, and how early it may be evicted.
const (
	EvictionEnabled  = "koordinator.sh/eviction-enabled"  // a label: "true"
	EvictionPolicy   = "koordinator.sh/eviction-policy"   // an annotation: a JSON list of rules
	EvictionPriority = "koordinator.sh/eviction-priority" // an annotation: a number of 32 bits
)

// MayEvict reports whether the pod's annotation permits the rule to evict it: without the annotation all rules may, and if it
// is not a JSON list of names none may.
func MayEvict(p *tick.Pod, rule string) bool {
	text, annotated := p.Annotations[EvictionPolicy]
	if !annotated {
		return true
	}
	var rules []string
	if tick.Unmarshal([]byte(text), &rules) != nil {
		return false
	}
	return slices.Contains(rules, rule)
}

// EvictionPriorityOf returns the pod's annotated eviction priority; lower is first, and an invalid number counts as 0.
func EvictionPriorityOf(p *tick.Pod) int64 {
	n, err := strconv.ParseInt(p.Annotations[EvictionPriority], 10, 32)
	if err != nil {
		return 0
	}
	return n
}
