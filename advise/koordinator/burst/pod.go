package burst

import (
	"errors"
	"fmt"
	"math"

	"polder/advise/koordinator/annotation"
	"polder/advise/policy"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// dropInvalid removes a pod's invalid settings, and names them.
func dropInvalid(b *sloconfig.CPUBurst) error {
	var policyErr error
	if b.Policy != nil {
		switch *b.Policy {
		case "": // not set, as in Koordinator
			b.Policy = nil
		case sloconfig.BurstNone, sloconfig.BurstCPU, sloconfig.BurstCFSQuota, sloconfig.BurstAutomatic:
		default:
			policyErr = fmt.Errorf("policy %s: want none, cpuBurstOnly, cfsQuotaBurstOnly or auto", policy.Quote(*b.Policy))
			b.Policy = nil
		}
	}
	return errors.Join(policyErr, annotation.DropInvalid([]sloconfig.Number{
		{Name: "cpuBurstPercent", Value: &b.CPUBurstPercent, Minimum: 1, Maximum: 10_000},
		{Name: "cfsQuotaBurstPercent", Value: &b.CFSQuotaBurstPercent, Minimum: 0, Maximum: math.MaxInt32}, // below 100: the limit itself
		{Name: "cfsQuotaBurstPeriodSeconds", Value: &b.CFSQuotaBurstPeriodSeconds, Minimum: -1, Maximum: math.MaxInt32},
	}))
}

// config returns the configuration in force for a pod: its own settings override the node's.
func (r *round) config(p *tick.Pod) config {
	if !isActive(p) || !isBurstable(p) {
		return config{}
	}
	merged := r.strategies.Burst
	own, err := annotation.Settings(p, annotation.CPUBurst, dropInvalid)
	if err != nil {
		r.invalid = append(r.invalid, err.Error())
	}
	if own != nil {
		merged = override(merged, own)
	}
	return r.configOf(&merged)
}

// override returns the node's settings, overridden by the pod's own. A pod may not decide how loaded the node may be, nor how far it may
// exceed its limit: the administrator's settings are the maximum.
func override(node sloconfig.CPUBurst, own *sloconfig.CPUBurst) sloconfig.CPUBurst {
	if own.Policy != nil {
		node.Policy = own.Policy
	}
	for into, from := range map[**int64]struct {
		own     *int64
		maximum int64
	}{
		&node.CPUBurstPercent:      {own.CPUBurstPercent, valueOf(node.CPUBurstPercent, defaultBurstPercent)},
		&node.CFSQuotaBurstPercent: {own.CFSQuotaBurstPercent, valueOf(node.CFSQuotaBurstPercent, defaultQuotaPercent)},
	} {
		if from.own != nil {
			*into = new(min(*from.own, from.maximum))
		}
	}
	if seconds := own.CFSQuotaBurstPeriodSeconds; seconds != nil {
		if maximum := valueOf(node.CFSQuotaBurstPeriodSeconds, -1); maximum < 0 || *seconds >= 0 && *seconds < maximum {
			node.CFSQuotaBurstPeriodSeconds = seconds
		}
	}
	return node
}
