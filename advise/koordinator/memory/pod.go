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

// dropInvalid removes a pod's invalid settings, and names them.
func dropInvalid(s *podSettings) error {
	var policyErr error
	switch s.Policy {
	case "", policyDefault, policyNone, policyAuto:
	default:
		policyErr = fmt.Errorf("policy %s: want default, none or auto", policy.Quote(s.Policy))
		s.Policy = policyDefault
	}
	return errors.Join(policyErr, annotation.DropInvalid(s.Numbers()))
}

// settings returns the settings in force for a pod: its own ones override its class's, if enabled, or the template's. Nil if it has
// none: all values are the kernel's defaults.
func (n *round) settings(p *tick.Pod) *sloconfig.MemoryQOS {
	var base *sloconfig.MemoryQOS
	if class := classOf(p, &n.strategies.QOS); isEnabled(class) {
		base = class.Memory
	}
	own, err := annotation.Settings(p, annotation.MemoryQOS, dropInvalid)
	if err != nil {
		n.invalid = append(n.invalid, err.Error())
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
		capByClass(&merged, class)
	}
	return &merged
}

// capByClass limits a batch pod to its class's settings, nil if there are none: memory that it protects is not available to services, and
// its tenant must not raise its limits.
func capByClass(own, class *sloconfig.MemoryQOS) {
	if class == nil {
		class = &sloconfig.MemoryQOS{}
	}
	for into, maximum := range map[**int64]*int64{
		&own.MinLimitPercent: class.MinLimitPercent, &own.LowLimitPercent: class.LowLimitPercent, &own.Priority: class.Priority,
	} {
		if *into != nil && (maximum == nil || **into > *maximum) {
			*into = maximum
		}
	}
	if maximum := class.ThrottlingPercent; percent(maximum) > 0 && (percent(own.ThrottlingPercent) == 0 || *own.ThrottlingPercent > *maximum) {
		own.ThrottlingPercent = maximum
	}
	// With a lower one it still allocates where others must reclaim.
	if own.WmarkMinAdj != nil && *own.WmarkMinAdj < sloconfig.Within(class.WmarkMinAdj, 0, -25, 50) {
		own.WmarkMinAdj = class.WmarkMinAdj
	}
}

// classOf returns the class whose settings apply to the pod: its label's, else that of its Kubernetes class. LSE uses LSR's.
func classOf(p *tick.Pod, strategies *sloconfig.ResourceQOS) *sloconfig.ClassQOS {
	switch qos.KoordinatorOrDefault(p) {
	case qos.LSE, qos.LSR:
		return strategies.LSR
	case qos.BE:
		return strategies.BE
	case qos.System:
		return strategies.System
	}
	return strategies.LS
}
