package rule

import (
	"fmt"
	"math"
	"strings"
	"time"

	"polder/lib/tick"
	"polder/lib/window"
)

// reclaimedPressure is the guide's "Resource Overcommit".
var reclaimedPressure = &Rule{
	Name: "reclaimed-resource-pressure-eviction-plugin",
	Doc: `reclaimed pods request far more than there is to reclaim
Met, at once and hard, where the sum of the active reclaimed pods' requests is over reclaimed-threshold times what the
advice offers. The pod of lowest priority goes first (one without a priority before all), among equals the one with the
largest request.`,
	Scopes: []string{ScopeReclaimedMilliCPU, ScopeReclaimedMemory},
	Keys:   []string{"reclaimed-threshold", "reclaimed-grace-period"},
	New:    func() Window { return &reclaimedWindow{} },
}

// Scopes of the reclaimed resources.
const (
	ScopeReclaimedMilliCPU = "katalyst.kubewharf.io/reclaimed_millicpu"
	ScopeReclaimedMemory   = "katalyst.kubewharf.io/reclaimed_memory"
)

type reclaimedWindow struct {
	MilliCPU window.Since `json:"milliCPU"`
	Memory   window.Since `json:"memory"`
}

func (w *reclaimedWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	offered := new(tick.Reclaimed)
	if t.Advice != nil && t.Advice.Reclaimed != nil {
		offered = t.Advice.Reclaimed
	}
	w.measure(&m, s, t, &w.MilliCPU, resource{ScopeReclaimedMilliCPU, "reclaimed CPU", offered.MilliCPU, milliCPU,
		func(r *tick.Resources) *float64 { return r.ReclaimedMilliCPU }})
	w.measure(&m, s, t, &w.Memory, resource{ScopeReclaimedMemory, "reclaimed memory", offered.MemoryBytes, mebibytes,
		func(r *tick.Resources) *float64 { return r.ReclaimedMemoryBytes }})
	return m
}

// resource is one of the two that are reclaimed.
type resource struct {
	scope   string
	name    string
	offered *int64
	text    func(float64) string
	request func(*tick.Resources) *float64
}

func (w *reclaimedWindow) measure(m *Measure, s *Settings, t *tick.Tick, met *window.Since, r resource) {
	if r.offered == nil {
		met.Observe(t.Time, false)
		m.Errors = append(m.Errors, fmt.Sprintf("%s: the advice has no %s: not measured", r.scope, r.name))
		return
	}
	pods := active(t, tick.QoSReclaimed)
	var sum float64
	var candidates []Candidate
	var without []string
	for _, p := range pods {
		request, ok := podRequest(p, r.request)
		if !ok {
			without = append(without, p.Name)
			continue
		}
		sum += request
		if request > 0 {
			candidates = append(candidates, Candidate{Pod: p, Rank: []float64{-priority(p), request}, Releases: request})
		}
	}
	if len(without) > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: %d of %d reclaimed pods request none and count as 0: %s", r.scope, len(without), len(pods), some(without)))
	}

	threshold := s.ReclaimedThreshold * float64(*r.offered)
	f := Finding{PressureFinding: tick.PressureFinding{
		Rule: reclaimedPressure.Name, Scope: r.scope, Value: sum, Threshold: threshold, Met: sum > threshold, Hard: true,
	}}
	f.Since = since(met.Observe(t.Time, f.Met))
	if f.Met {
		f.Candidates = candidates
		f.GracePeriodSeconds = tick.Ptr(int64(s.ReclaimedGracePeriod / time.Second))
		f.Message = fmt.Sprintf("reclaimed pods request %s of %s, over the threshold of %s (%v x the %s offered)",
			r.text(sum), r.name, r.text(threshold), s.ReclaimedThreshold, r.text(float64(*r.offered)))
	}
	m.Findings = append(m.Findings, f)
}

// podRequest is the pod's request, or where the pod itself has none its containers' sum.
func podRequest(p *tick.Pod, of func(*tick.Resources) *float64) (float64, bool) {
	if p.Requests != nil {
		if v, ok := amount(of(p.Requests)); ok {
			return v, true
		}
	}
	var sum float64
	found := false
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Requests != nil {
			if v, ok := amount(of(c.Requests)); ok {
				sum += v
				found = true
			}
		}
	}
	return sum, found
}

// amount is a number that can be added up. JSON has no NaN; a negative amount is another stage's mistake and counts as
// not known.
func amount(v *float64) (float64, bool) {
	if v == nil || !(*v >= 0) || math.IsInf(*v, 0) {
		return 0, false
	}
	return *v, true
}

// priority ranks a pod without a priority under all others, as Katalyst does.
func priority(p *tick.Pod) float64 {
	if p.Priority == nil {
		return math.Inf(-1)
	}
	return float64(*p.Priority)
}

func milliCPU(v float64) string { return fmt.Sprintf("%.0fm", v) }

func mebibytes(v float64) string { return fmt.Sprintf("%.0fMi", v/(1<<20)) }

// some names the first few.
func some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
