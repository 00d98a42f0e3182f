package qos

import (
	"slices"
	"strconv"

	"polder/lib/tick"
)

// Koordinator's classes.
const (
	LSE    = "LSE" // exclusive CPUs
	LSR    = "LSR" // reserved CPUs that batch pods may use
	LS     = "LS"
	BE     = "BE"
	System = "SYSTEM"
)

// Koordinator's priority classes.
const (
	Prod  = "koord-prod"
	Mid   = "koord-mid"
	Batch = "koord-batch"
	Free  = "koord-free"
)

// Names of batch resources: today's, and those of Koordinator's first version.
var (
	BatchCPU    = []string{"kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu"}
	BatchMemory = []string{"kubernetes.io/batch-memory", "koordinator.sh/batch-memory"}
)

// KoordinatorPriorityClass is the label with the name of a priority class.
const KoordinatorPriorityClass = "koordinator.sh/priority-class"

// band is a priority class's range of spec.priority, and the number that stands for a pod without one.
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

// Koordinator reads a pod's Koordinator class as its label has it: empty where it has none, or one that is none. For what is no
// pod of Kubernetes, or bears Katalyst's mark or batch requests, it is the class's nearest.
//
// Suppression, eviction and the batch pods' cgroups go by this reading; sums of requests and usage, and the priority class of
// a pod that names none, go by [KoordinatorOrDefault].
func Koordinator(p *tick.Pod) string {
	if label, labeled := p.Labels[KoordinatorClass]; labeled {
		switch {
		case koordinator[label] == "":
			return ""
		case label == System && p.QoS != tick.QoSSystem: // in a namespace where anybody may write it
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

// KoordinatorOrDefault is the pod's Koordinator class, or what its Kubernetes class stands for: Guaranteed is LSR, Burstable LS
// and BestEffort BE.
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

// KubernetesOf is the pod's class in Kubernetes' own sense: what collect has, else what its requests and limits make it. A pod
// that the cluster does not know is Burstable: nothing is taken from it.
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

// PriorityClass is the priority class that the pod names: its label, where a name that is none means no class, else the one in
// whose band its priority is. Empty where it has none.
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

// PriorityClassOrDefault is the pod's priority class, or what its QoS class stands for: batch for BE, prod for all others.
func PriorityClassOrDefault(p *tick.Pod) string {
	if class := PriorityClass(p); class != "" {
		return class
	}
	if KoordinatorOrDefault(p) == BE {
		return Batch
	}
	return Prod
}

// PriorityNumber is the pod's spec.priority where that is not 0, else the number of its priority class.
func PriorityNumber(p *tick.Pod) int64 {
	if p.Priority != nil && *p.Priority != 0 {
		return *p.Priority
	}
	return NumberOf(PriorityClassOrDefault(p))
}

// NumberOf is the number that stands for a priority class; 0 for none.
func NumberOf(class string) int64 {
	for _, b := range bands {
		if class == b.name {
			return b.number
		}
	}
	return 0
}

// Labels and annotations by which a pod declares whether, by which rule, and how early it may be evicted.
const (
	EvictionEnabled  = "koordinator.sh/eviction-enabled"  // a label: "true"
	EvictionPolicy   = "koordinator.sh/eviction-policy"   // an annotation: a JSON list of rules
	EvictionPriority = "koordinator.sh/eviction-priority" // an annotation: a number of 32 bits
)

// MayEvict reports whether the pod's annotation lets the rule evict it: one without the annotation may be evicted by all, one
// whose annotation is no JSON list of names by none.
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

// EvictionPriorityOf is the pod's annotated eviction priority; lower is first, and what is no number is 0.
func EvictionPriorityOf(p *tick.Pod) int64 {
	n, err := strconv.ParseInt(p.Annotations[EvictionPriority], 10, 32)
	if err != nil {
		return 0
	}
	return n
}
