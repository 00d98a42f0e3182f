package rule

import (
	"fmt"
	"math"

	"polder/lib/qos"
	"polder/lib/reason"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// These are Koordinator's evictions by the pods' requests. They are one rule with the resources of memory and of CPU.
var (
	memoryAllocatableEvict = requestsRule{
		name: "MemoryAllocatableEvict",
		doc: `pods request far more memory than the node offers: pods that permit it are evicted
The rule is on if memoryAllocatableEvictThresholdPercent, memoryAllocatableEvictLowerPercent and allocatableEvictPriorityThreshold (at most
7999) are set. It compares the memory requests of the pods with at most that priority, which have not ended and are not terminating, with
the node's allocatable memory: batch-memory for pods of the class koord-batch, mid-memory for koord-mid, and the node's own memory for all
others. If the requests are over the threshold, the pods with the label koordinator.sh/eviction-enabled=true are evicted until the
lower percentage is reached, in the order of MemoryEvict with the request instead of the use. The cooldown is 4 seconds. If the
resource is missing in the node's allocatable or is 0, as after a withdrawn offer or the start of kubelet, no pod is evicted because of
it.`,
		upperKey: "memoryAllocatableEvictThresholdPercent", lowerKey: "memoryAllocatableEvictLowerPercent",
		percents: func(th *sloconfig.Threshold) (upper, lower *int64) {
			return th.MemoryAllocatableEvictThresholdPercent, th.MemoryAllocatableEvictLowerPercent
		},
		resources: []requestedResource{resourceBatchMemory, resourceMidMemory, resourceMemory},
	}.rule()

	cpuAllocatableEvict = requestsRule{
		name: "CPUAllocatableEvict",
		doc: `pods request far more CPU than the node offers: pods that permit it are evicted
As MemoryAllocatableEvict, with cpuAllocatableEvictThresholdPercent and cpuAllocatableEvictLowerPercent, for batch-cpu, mid-cpu and the
node's own CPU. The cooldown is 20 seconds, also after the node's first tick.`,
		upperKey: "cpuAllocatableEvictThresholdPercent", lowerKey: "cpuAllocatableEvictLowerPercent",
		percents: func(th *sloconfig.Threshold) (upper, lower *int64) {
			return th.CPUAllocatableEvictThresholdPercent, th.CPUAllocatableEvictLowerPercent
		},
		resources: []requestedResource{resourceBatchCPU, resourceMidCPU, resourceCPU},
		observe:   (*observation).observeNode,
	}.rule()
)

// requestsRule is one of them.
type requestsRule struct {
	name, doc          string
	upperKey, lowerKey string // of the strategy
	percents           func(*sloconfig.Threshold) (upper, lower *int64)
	resources          []requestedResource
	observe            func(*observation, *tick.Tick) (whyWait string) // nil for a rule that need not wait
}

func (src requestsRule) rule() *Rule {
	r := &Rule{
		Name: src.name, Doc: src.doc, Thresholds: []string{"enable", src.upperKey, src.lowerKey, "allocatableEvictPriorityThreshold"},
		Strategy: func(th *sloconfig.Threshold) error {
			_, err := src.bounds(th)
			return err
		},
	}
	for _, x := range src.resources {
		r.Scopes = append(r.Scopes, x.name)
	}
	r.New = func() Window { return &requestsWindow{rule: r, source: &src} }
	return r
}

func (src *requestsRule) bounds(th *sloconfig.Threshold) (bounds, error) {
	if err := checkEnabled(th); err != nil {
		return bounds{}, err
	}
	upper, lower := src.percents(th)
	b, err := requestBounds(src.upperKey, upper, src.lowerKey, lower)
	if err != nil {
		return b, err
	}
	return b, checkBatchPriority(th, src.upperKey)
}

type requestsWindow struct {
	Observed  observation `json:"watched,omitzero"`
	Pressures conditions  `json:"over,omitempty"`
	rule      *Rule
	source    *requestsRule
}

func (w *requestsWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := w.rule.measureIfOff(s.Strategies)
	if off {
		*w = requestsWindow{rule: w.rule, source: w.source}
		return m
	}
	b, _ := w.source.bounds(&s.Strategies.Threshold)
	whyWait := ""
	if w.source.observe != nil {
		whyWait = w.source.observe(&w.Observed, t)
	}
	before := w.Pressures
	w.Pressures = nil
	for _, x := range w.source.resources {
		w.measure(&m, x, before, b, *s.Strategies.Threshold.AllocatableEvictPriorityThreshold, t, whyWait)
	}
	return m
}

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

// measure compares the requests of pods up to a priority with what the node offers of a resource.
func (w *requestsWindow) measure(
	m *Measure, x requestedResource, before conditions, b bounds, maxPriority int64, t *tick.Tick, whyWait string,
) {
	f, sum := w.rule.newFinding(x.name, 0, 0), 0.0
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if !isActive(p) || mayHaveEnded(t, p) || qos.PriorityNumber(p) > maxPriority {
			continue
		}
		request, ok := x.requestOf(p)
		if !ok {
			continue
		}
		sum += request
		c := Candidate{Pod: p, Releases: request, Rank: evictionRank(p, request), Message: triggerMessage(f.Rule, p)}
		if permitsEviction(p, f.Rule, maxPriority) {
			f.Candidates = append(f.Candidates, c)
		} else {
			f.Others = append(f.Others, c)
		}
	}
	if sum == 0 {
		return // no pod requests it: its offer does not matter
	}
	offered, why := allocatable(t, x)
	if why != "" {
		m.Errors = append(m.Errors, reason.NotMeasured(f.Rule, why))
		return
	}
	exceeded := w.Pressures.keep(before, x.name)
	f.Value, f.Threshold = sum, b.upper*offered/100
	f.Met = exceeded.observe(t, f.Value > f.Threshold)
	f.Since = formatTime(exceeded.Start)
	if !f.Met {
		f.Candidates, f.Others = nil, nil
	} else {
		f.Need, f.Reason, f.WhyWait = math.Ceil(sum-b.lower*offered/100), reasonEvicted, whyWait
		f.Message = fmt.Sprintf("pods of priority %d or lower request %s of %s, over %.0f%% of the %s that the node offers: "+
			"%s must be released to reach %.0f%%",
			maxPriority, x.text(sum), x.name, b.upper, x.text(offered), x.text(f.Need), b.lower)
	}
	m.Findings = append(m.Findings, f)
}
