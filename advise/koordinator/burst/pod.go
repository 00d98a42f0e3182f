package burst

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"polder/advise/policy"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Annotation is a pod's own CPU burst, as JSON.
const Annotation = "koordinator.sh/cpuBurst"

// maxAnnotation is the most that is read of one.
const maxAnnotation = 64 << 10

// parse reads an annotation. Fields that are no good are left out and the error names them; with nil nothing of it holds.
func parse(text string) (*sloconfig.CPUBurst, error) {
	if len(text) > maxAnnotation {
		return nil, fmt.Errorf("it has %d bytes", len(text))
	}
	var b *sloconfig.CPUBurst
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return nil, fmt.Errorf("want a JSON object of whole numbers and a policy: %w", err)
	}
	if b == nil { // null
		return new(sloconfig.CPUBurst), nil
	}
	var errs []error
	if b.Policy != nil {
		switch *b.Policy {
		case sloconfig.BurstNone, sloconfig.BurstCPU, sloconfig.BurstCFSQuota, sloconfig.BurstAutomatic:
		default:
			errs = append(errs, fmt.Errorf("policy %s is none of none, cpuBurstOnly, cfsQuotaBurstOnly and auto", policy.Quote(*b.Policy)))
			b.Policy = nil
		}
	}
	for _, f := range []struct {
		name        string
		v           **int64
		least, most int64
	}{
		{"cpuBurstPercent", &b.CPUBurstPercent, 1, 10_000},
		{"cfsQuotaBurstPercent", &b.CFSQuotaBurstPercent, 0, math.MaxInt32}, // under 100: the limit itself
		{"cfsQuotaBurstPeriodSeconds", &b.CFSQuotaBurstPeriodSeconds, -1, math.MaxInt32},
	} {
		if v := *f.v; v != nil && (*v < f.least || *v > f.most) {
			errs = append(errs, fmt.Errorf("%s %d is not within %d to %d", f.name, *v, f.least, f.most))
			*f.v = nil
		}
	}
	return b, errors.Join(errs...)
}

// config is what is in force for a pod: the node's settings under its own.
func (r *round) config(p *tick.Pod) config {
	if !active(p) || !burstable(p) {
		return config{}
	}
	merged := r.strategies.Burst
	if text, annotated := p.Annotations[Annotation]; annotated {
		own, err := parse(text)
		if err != nil {
			what := "a part of it does not hold"
			if own == nil {
				what = "it does not hold"
			}
			r.wrong = append(r.wrong, fmt.Sprintf("annotation %s of pod %s: %s: %s", Annotation, policy.Quote(p.Namespace+"/"+p.Name), what, policy.OneLine(err)))
		}
		if own != nil {
			merged = over(merged, own)
		}
	}
	return r.of(&merged)
}

// over is the node's settings where the pod's own are silent. How busy the node may be is not the pod's to say, nor how far over
// its limit it may go: there the administrator's settings are the most.
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
