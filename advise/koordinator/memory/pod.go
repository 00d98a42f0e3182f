package memory

import (
	"errors"
	"fmt"

	"polder/advise/koordinator/annotation"
	"polder/advise/policy"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Policies of a pod's annotation.
const (
	policyDefault = "default" // the class's settings
	policyNone    = "none"    // no memory QoS, whatever else is annotated
	policyAuto    = "auto"    // Koordinator's recommended settings of the class, even if the node's are disabled
)

// podSettings are what a pod's annotation contains.
type podSettings struct {
	Policy string `json:"policy"`
	sloconfig.MemoryQOS
}

// check removes a pod's invalid settings, and names them.
func check(s *podSettings) error {
	var wrong error
	switch s.Policy {
	case "", policyDefault, policyNone, policyAuto:
	default:
		wrong = fmt.Errorf("policy %s is none of default, none and auto", policy.Quote(s.Policy))
		s.Policy = policyDefault
	}
	return errors.Join(wrong, annotation.Sound(s.Numbers()))
}

// settings returns those in force for a pod: its own ones override its class's, if enabled, or the template's. Nil if it has none: all
// values are the kernel's defaults.
func (n *node) settings(p *tick.Pod) *sloconfig.MemoryQOS {
	var base *sloconfig.MemoryQOS
	if class := classOf(p, &n.strategies.QOS); on(class) {
		base = class.Memory
	}
	own, err := annotation.Settings(p, annotation.MemoryQOS, check)
	if err != nil {
		n.wrong = append(n.wrong, err.Error())
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
	numbers := merged.Numbers()
	for i, n := range own.Numbers() {
		if *n.Value != nil {
			*numbers[i].Value = *n.Value
		}
	}
	if qos.Koordinator(p) == qos.BE {
		confine(&merged, class)
	}
	return &merged
}

// confine limits a batch pod to its class's settings, nil if there are none: memory that it protects is not available to services, and its
// tenant must not raise its limits.
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

// classOf returns the class whose settings apply to the pod: its label's, else that of its Kubernetes class. LSE uses LSR's.
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
