package memory

import (
	"encoding/json"
	"errors"
	"fmt"

	"polder/advise/policy"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Annotation is a pod's own memory QoS, as JSON.
const Annotation = "koordinator.sh/memoryQOS"

// Policies of a pod's annotation.
const (
	policyDefault = "default" // the class's settings
	policyNone    = "none"    // nothing, whatever else is annotated
	policyAuto    = "auto"    // Koordinator's recommended settings of the class, though the node's be disabled
)

// annotation is what a pod's annotation says.
type annotation struct {
	Policy string `json:"policy"`
	sloconfig.MemoryQOS
}

// maxAnnotation is the most that is read of one.
const maxAnnotation = 64 << 10

// parse reads an annotation. Fields out of range are left out and the error names them; with nil nothing of it holds.
func parse(text string) (*annotation, error) {
	if len(text) > maxAnnotation {
		return nil, fmt.Errorf("it has %d bytes", len(text))
	}
	var a *annotation
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, fmt.Errorf("want a JSON object of whole numbers and a policy: %w", err)
	}
	if a == nil { // null
		return new(annotation), nil
	}
	var errs []error
	switch a.Policy {
	case "", policyDefault, policyNone, policyAuto:
	default:
		errs = append(errs, fmt.Errorf("policy %s is none of default, none and auto", policy.Quote(a.Policy)))
		a.Policy = policyDefault
	}
	for _, f := range []struct {
		name        string
		v           **int64
		least, most int64
	}{
		{"minLimitPercent", &a.MinLimitPercent, 0, 100},
		{"lowLimitPercent", &a.LowLimitPercent, 0, 100},
		{"throttlingPercent", &a.ThrottlingPercent, 0, 100},
		{"wmarkRatio", &a.WmarkRatio, 0, 100},
		{"wmarkScalePermill", &a.WmarkScalePermill, 1, 1000},
		{"wmarkMinAdj", &a.WmarkMinAdj, -25, 50},
		{"priorityEnable", &a.PriorityEnable, 0, 1},
		{"priority", &a.Priority, 0, 12},
		{"oomKillGroup", &a.OOMKillGroup, 0, 1},
	} {
		if v := *f.v; v != nil && (*v < f.least || *v > f.most) {
			errs = append(errs, fmt.Errorf("%s %d is not within %d to %d", f.name, *v, f.least, f.most))
			*f.v = nil
		}
	}
	return a, errors.Join(errs...)
}

// settings are those in force for a pod: its class's where that is enabled, or the template's, under its own. Nil where it
// has none: all is the kernel's own.
func (n *node) settings(p *tick.Pod) *sloconfig.MemoryQOS {
	var base *sloconfig.MemoryQOS
	if class := classOf(p, &n.strategies.QOS); on(class) {
		base = class.Memory
	}
	text, annotated := p.Annotations[Annotation]
	if !annotated {
		return base
	}
	own, err := parse(text)
	if err != nil {
		what := "a part of it does not hold"
		if own == nil {
			what = "it does not hold"
		}
		n.wrong = append(n.wrong, fmt.Sprintf("annotation %s of pod %s: %s: %s", Annotation, policy.Quote(p.Namespace+"/"+p.Name), what, policy.OneLine(err)))
	}
	if own == nil {
		return base
	}
	class := base
	switch own.Policy {
	case policyNone:
		if qos.Koordinator(p) == qos.BE {
			return base
		}
		return nil
	case policyAuto:
		if n.template == nil {
			defaults := sloconfig.Defaults()
			n.template = &defaults
		}
		base = classOf(p, &n.template.QOS).Memory
	}
	if base == nil {
		base = &sloconfig.MemoryQOS{}
	}
	merged := *base
	for into, from := range map[**int64]*int64{
		&merged.MinLimitPercent: own.MinLimitPercent, &merged.LowLimitPercent: own.LowLimitPercent, &merged.ThrottlingPercent: own.ThrottlingPercent,
		&merged.WmarkRatio: own.WmarkRatio, &merged.WmarkScalePermill: own.WmarkScalePermill, &merged.WmarkMinAdj: own.WmarkMinAdj,
		&merged.PriorityEnable: own.PriorityEnable, &merged.Priority: own.Priority, &merged.OOMKillGroup: own.OOMKillGroup,
	} {
		if from != nil {
			*into = from
		}
	}
	if qos.Koordinator(p) == qos.BE {
		confine(&merged, class)
	}
	return &merged
}

// confine keeps a batch pod within its class's settings, nil where that has none: memory that it keeps for itself is memory that
// services do not get back, and its tenant may not lift what it is held to.
func confine(own, class *sloconfig.MemoryQOS) {
	if class == nil {
		class = &sloconfig.MemoryQOS{}
	}
	for into, most := range map[**int64]*int64{
		&own.MinLimitPercent: class.MinLimitPercent, &own.LowLimitPercent: class.LowLimitPercent, &own.Priority: class.Priority,
	} {
		if *into != nil && (most == nil || **into > *most) {
			*into = most
		}
	}
	if most := class.ThrottlingPercent; percent(most) > 0 && (percent(own.ThrottlingPercent) == 0 || *own.ThrottlingPercent > *most) {
		own.ThrottlingPercent = most
	}
}

// classOf is the class whose settings the pod has: its label's, else the one that its Kubernetes class stands for. LSE has LSR's.
func classOf(p *tick.Pod, of *sloconfig.ResourceQOS) *sloconfig.ClassQOS {
	switch qos.KoordinatorOrDefault(p) {
	case qos.LSE, qos.LSR:
		return of.LSR
	case qos.BE:
		return of.BE
	case qos.System:
		return of.System
	}
	return of.LS
}
