package rule

import (
	"fmt"
	"math"

	"polder/lib/qos"
	"polder/lib/tick"
)

// requestedResource is a resource that pods of some priority classes request.
type requestedResource struct {
	name  string
	class string // of the pods; empty for all except batch and mid
	text  func(float64) string
	of    func(*tick.Resources) *float64
}

// These are the resources by their names in Kubernetes.
var (
	resourceBatchCPU    = requestedResource{"kubernetes.io/batch-cpu", qos.Batch, milliCPU, reclaimedMilliCPU}
	resourceMidCPU      = requestedResource{"kubernetes.io/mid-cpu", qos.Mid, milliCPU, func(r *tick.Resources) *float64 { return r.MidMilliCPU }}
	resourceCPU         = requestedResource{"cpu", "", milliCPU, func(r *tick.Resources) *float64 { return r.MilliCPU }}
	resourceBatchMemory = requestedResource{"kubernetes.io/batch-memory", qos.Batch, mebibytes, reclaimedMemoryBytes}
	resourceMidMemory   = requestedResource{"kubernetes.io/mid-memory", qos.Mid, mebibytes, func(r *tick.Resources) *float64 { return r.MidMemoryBytes }}
	resourceMemory      = requestedResource{"memory", "", mebibytes, func(r *tick.Resources) *float64 { return r.MemoryBytes }}
)

// requestOf returns what a pod requests of it; false if its class requests another resource.
func (r requestedResource) requestOf(p *tick.Pod) (float64, bool) {
	class := qos.PriorityClassOrDefault(p)
	if class != qos.Batch && class != qos.Mid {
		class = ""
	}
	if class != r.class {
		return 0, false
	}
	v, ok := podRequest(p, r.of)
	return v, ok && v > 0
}

// allocatable returns what the node offers of a resource, or why that is unknown. A 0 is not used: a withdrawn offer, or a
// kubelet that has just started, causes it, and every pod would be evicted.
func allocatable(t *tick.Tick, r requestedResource) (float64, string) {
	if r.class != "" && t.Advice != nil && t.Advice.Withdrawn != "" {
		return 0, fmt.Sprintf("the offer of %s is withdrawn", r.name)
	}
	if t.Sample.Allocatable != nil {
		switch v, ok := amount(r.of(t.Sample.Allocatable)); {
		case ok && v > 0:
			return v, ""
		case ok:
			return 0, fmt.Sprintf("the node's allocatable %s is 0, which counts as withdrawn", r.name)
		}
	}
	return 0, fmt.Sprintf("the node has no allocatable %s", r.name)
}

// measure compares the requests of pods up to a priority with what the node offers.
func (l *conditions) measure(
	m *Measure, r *Rule, b bounds, maxPriority int64, t *tick.Tick, whyWait string, resources []requestedResource,
) {
	previous := *l
	*l = nil
	for _, x := range resources {
		f, sum := r.newFinding(x.name, 0, 0), 0.0
		for i := range t.Sample.Pods {
			p := &t.Sample.Pods[i]
			if !isActive(p) || qos.PriorityNumber(p) > maxPriority {
				continue
			}
			request, ok := x.requestOf(p)
			if !ok {
				continue
			}
			sum += request
			c := Candidate{Pod: p, Releases: request, Rank: evictionRank(p, request), Message: triggerMessage(r.Name, p)}
			if permitsEviction(p, r.Name, maxPriority) {
				f.Candidates = append(f.Candidates, c)
			} else {
				f.Others = append(f.Others, c)
			}
		}
		if sum == 0 {
			continue // no pod requests it: its offer does not matter
		}
		offered, why := allocatable(t, x)
		if why != "" {
			m.Errors = append(m.Errors, missingInput(r.Name, why))
			continue
		}
		exceeded := l.keep(previous, x.name)
		f.Value, f.Threshold = sum, b.upper*offered/100
		f.Met = exceeded.observe(t, f.Value > f.Threshold)
		f.Since = formatTime(exceeded.Start)
		if !f.Met {
			f.Candidates, f.Others = nil, nil
		} else {
			f.Need, f.Reason, f.WhyWait = math.Ceil(sum-b.lower*offered/100), reasonEvicted, whyWait
			f.Message = fmt.Sprintf("pods of priority %d or lower request %s of %s, over %.0f%% of the %s that the node offers: %s must be released to reach %.0f%%",
				maxPriority, x.text(sum), x.name, b.upper, x.text(offered), x.text(f.Need), b.lower)
		}
		m.Findings = append(m.Findings, f)
	}
}
