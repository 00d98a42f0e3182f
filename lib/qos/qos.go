// Package qos maps the dialects' labels and annotations to a pod's class.
package qos

import (
	"fmt"
	"strconv"
	"strings"

	"polder/lib/clip"
	"polder/lib/tick"
)

// These labels and annotations of the dialects declare a pod's class.
const (
	KatalystLevel       = "katalyst.kubewharf.io/qos_level" // an annotation
	KoordinatorClass    = "koordinator.sh/qosClass"         // a label
	KoordinatorPriority = "koordinator.sh/priority"         // a label: the priority within a class
)

// These are Kubernetes' own quality-of-service classes.
const (
	Guaranteed = "Guaranteed"
	Burstable  = "Burstable"
	BestEffort = "BestEffort"
)

var katalyst = map[string]string{
	"dedicated_cores": tick.QoSDedicated,
	"shared_cores":    tick.QoSShared,
	"reclaimed_cores": tick.QoSReclaimed,
	"system_cores":    tick.QoSSystem,
}

var koordinator = map[string]string{
	"LSE":    tick.QoSDedicated,
	"LSR":    tick.QoSDedicated,
	"LS":     tick.QoSShared,
	"BE":     tick.QoSReclaimed,
	"SYSTEM": tick.QoSSystem,
}

// Pod contains what determines a pod's class.
type Pod struct {
	Labels, Annotations map[string]string
	// Kubernetes is its quality-of-service class in Kubernetes.
	Kubernetes string
	// Batch means that it requests Koordinator's batch resources; Reclaimed means that it requests Katalyst's reclaimed ones.
	Batch, Reclaimed bool
	// System means that the administrator permits system pods in its namespace.
	System bool
}

// Class returns a pod's class: the first of
//
//  1. Katalyst's annotation,
//  2. Koordinator's label,
//  3. a request for Koordinator's batch resources: reclaimed,
//  4. a request for Katalyst's reclaimed resources, which need the annotation: shared,
//  5. the Kubernetes class: shared for Guaranteed and Burstable; for BestEffort the value of bestEffort, because the dialects
//     differ (Katalyst: shared, Koordinator: reclaimed).
//
// A value that the dialect does not define makes the pod shared, whatever its other marks: a typing error never makes a
// pod reclaimed. The system class has the same result in a namespace where anybody may set it, because system pods are
// neither confined nor evicted. problems names errors and doubtful values.
func (p *Pod) Class(bestEffort string) (class, source string, problems []string) {
	class, source, problems = p.labeledClass(bestEffort)
	if class == tick.QoSSystem && !p.System {
		what := "label " + KoordinatorClass + " is SYSTEM"
		if source == tick.QoSFromKatalyst {
			what = "annotation " + KatalystLevel + " is system_cores"
		}
		return tick.QoSShared, source, append(problems, what+" in a namespace that is not the system's: treated as shared")
	}
	return class, source, problems
}

// labeledClass returns the class by the pod's marks, in any namespace.
func (p *Pod) labeledClass(bestEffort string) (class, source string, problems []string) {
	level, leveled := p.Annotations[KatalystLevel]
	label, labeled := p.Labels[KoordinatorClass]
	fromLevel, fromLabel := katalyst[level], koordinator[label]
	if leveled && fromLevel == "" {
		problems = append(problems, fmt.Sprintf("annotation %s is %q: want dedicated_cores, shared_cores, reclaimed_cores or system_cores; treated as shared_cores", KatalystLevel, clip.Text(level, 40)))
	}
	if labeled && fromLabel == "" {
		problem := fmt.Sprintf("label %s is %q: want LSE, LSR, LS, BE or SYSTEM", KoordinatorClass, clip.Text(label, 40))
		if !leveled {
			problem += "; treated as LS"
		}
		problems = append(problems, problem)
	}
	switch {
	case leveled && fromLevel == "":
		return tick.QoSShared, tick.QoSFromKatalyst, problems
	case leveled:
		if fromLabel != "" && fromLabel != fromLevel {
			problems = append(problems, fmt.Sprintf("annotation %s is %s and label %s is %s: the annotation applies", KatalystLevel, level, KoordinatorClass, label))
		}
		return fromLevel, tick.QoSFromKatalyst, problems
	case labeled && fromLabel == "":
		return tick.QoSShared, tick.QoSFromKoordinator, problems
	case labeled:
		return fromLabel, tick.QoSFromKoordinator, problems
	case p.Batch:
		return tick.QoSReclaimed, tick.QoSFromKoordinator, problems
	}
	if p.Reclaimed {
		problems = append(problems, fmt.Sprintf("requests reclaimed resources without annotation %s: treated as shared_cores", KatalystLevel))
		return tick.QoSShared, tick.QoSFromKubernetes, problems
	}
	if p.Kubernetes == BestEffort && bestEffort != "" {
		return bestEffort, tick.QoSFromKubernetes, problems
	}
	return tick.QoSShared, tick.QoSFromKubernetes, problems
}

// Priority returns Koordinator's priority within a class, nil if the pod has none.
func (p *Pod) Priority() (*int64, error) {
	text, ok := p.Labels[KoordinatorPriority]
	if !ok {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("label %s is %q: want a whole number of 32 bits", KoordinatorPriority, clip.Text(text, 40))
	}
	return &n, nil
}

// Dialect reports whether the key of a label or an annotation belongs to one of the dialects.
func Dialect(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	for _, own := range []string{"katalyst.kubewharf.io", "koordinator.sh"} {
		if rest, ok := strings.CutSuffix(domain, own); ok && (rest == "" || strings.HasSuffix(rest, ".")) {
			return true
		}
	}
	return false
}
