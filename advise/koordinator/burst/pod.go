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

// check removes a pod's invalid settings, and names them.
func check(b *sloconfig.CPUBurst) error {
	var wrong error
	if b.Policy != nil {
		switch *b.Policy {
		case sloconfig.BurstNone, sloconfig.BurstCPU, sloconfig.BurstCFSQuota, sloconfig.BurstAutomatic:
		default:
			wrong = fmt.Errorf("policy %s is none of none, cpuBurstOnly, cfsQuotaBurstOnly and auto", policy.Quote(*b.Policy))
			b.Policy = nil
		}
	}
	return errors.Join(wrong, annotation.Sound([]sloconfig.Number{
		{Name: "cpuBurstPercent", Value: &b.CPUBurstPercent, Least: 1, Most: 10_000},
		{Name: "cfsQuotaBurstPercent", Value: &b.CFSQuotaBurstPercent, Least: 0, Most: math.MaxInt32}, // below 100: the limit itself
		{Name: "cfsQuotaBurstPeriodSeconds", Value: &b.CFSQuotaBurstPeriodSeconds, Least: -1, Most: math.MaxInt32},
	}))
}

// config returns the configuration in force for a pod: its own settings override the node's.
func (r *round) config(p *tick.Pod) config {
	if !active(p) || !burstable(p) {
		return config{}
	}
	merged := r.strategies.Burst
	own, err := annotation.Settings(p, annotation.CPUBurst, check)
	if err != nil {
		r.wrong = append(r.wrong, err.Error())
	}
	if own != nil {
		merged = over(merged, own)
	}
	return r.of(&merged)
}

// over returns the node's settings, overridden by the pod's own. A pod may not decide how loaded the node may be, nor how far it may exceed
// its limit: the administrator's settings are the maximum.
func over(node sloconfig.CPUBurst, own *sloconfig.CPUBurst) sloconfig.CPUBurst {
	if own.Policy != nil {
		node.Policy = own.Policy
	}
	for into, from := range map[**int64]struct {
		own  *int64
		most int64
	}{
		&node.CPUBurstPercent:      {own.CPUBurstPercent, valueOf(node.CPUBurstPercent, defaultSaved)},
		&node.CFSQuotaBurstPercent: {own.CFSQuotaBurstPercent, valueOf(node.CFSQuotaBurstPercent, defaultPercent)},
	} {
		if from.own != nil {
			*into = new(min(*from.own, from.most))
		}
	}
	if seconds := own.CFSQuotaBurstPeriodSeconds; seconds != nil {
		if most := valueOf(node.CFSQuotaBurstPeriodSeconds, -1); most < 0 || *seconds >= 0 && *seconds < most {
			node.CFSQuotaBurstPeriodSeconds = seconds
		}
	}
	return node
}
