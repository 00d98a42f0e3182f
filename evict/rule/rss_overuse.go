package rule

import (
	"fmt"
	"time"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// rssOveruse evicts pods that use more memory than they requested.
var rssOveruse = &Rule{
	Name: "rss-overuse-eviction-plugin",
	Doc: `pods hold more resident memory than they requested
Off unless rss-overuse-enabled. The value is the number of shared and reclaimed pods whose resident memory (memory.rssBytes) is over
rss-overuse-threshold times their memory request, for reclaimed pods that of reclaimed memory; a pod's annotation
katalyst.kubewharf.io/memory_enhancement can have an rss_overuse_threshold of its own. A pod with a container that
requests no memory is not looked at. A pod that has been over for rss-overuse-tolerance is evicted when no other pod has to be, one at a
time: the one that is over its threshold by the largest factor first.`,
	Scopes: []string{ScopeRSS},
	Rows:   (*evictconfig.Settings).RSSRows,
	New:    func() Window { return &rssWindow{} },
}

// ScopeRSS is the pods' resident memory.
const ScopeRSS = "memory.rss"

type rssWindow struct {
	// Over are the pods that use too much, by UID.
	Over map[string]*level `json:"over,omitempty"`
}

func (w *rssWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	before := w.Over
	w.Over = nil // drop pods that have ended
	if !s.RSSOveruseEnabled {
		return m
	}
	f := Finding{PressureFinding: tick.PressureFinding{Rule: rssOveruse.Name, Scope: ScopeRSS}}
	f.GracePeriodSeconds = grace(s.RSSOveruseGracePeriod)
	var began time.Time
	var unknown []string
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		request, ok := memoryRequest(p)
		if !ok || p.Ended() || p.Missing == tick.MissingCgroup {
			continue
		}
		rss, ok := podMemory(p, rssBytes)
		if !ok {
			unknown = append(unknown, p.Name)
			continue
		}
		times := s.RSSOveruseThreshold
		switch own, err := rate(p, annotationMemory, "rss_overuse_threshold"); {
		case err != nil:
			m.Errors = append(m.Errors, fmt.Sprintf("%s: pod %s: annotation %s: %v: the pod is left alone", ScopeRSS, p.Name, annotationMemory, err))
			continue
		case own != nil:
			times = *own
		}
		l, threshold := podOver(&w.Over, before, p.UID, t, rss, times*request, s.RSSOveruseHysteresis)
		if l == nil || l.lasted(t.Time) < s.RSSOveruseTolerance {
			continue
		}
		if began.IsZero() || l.Start.Before(began) {
			began = l.Start
		}
		f.Candidates = append(f.Candidates, Candidate{Pod: p, Rank: []float64{min(rss/threshold, maxAmount)}, Releases: 1, Message: fmt.Sprintf(
			"pod %s holds %s of resident memory, over the threshold of %s (%.2f x its request of %s)",
			p.Name, mebibytes(rss), mebibytes(threshold), threshold/request, mebibytes(request))})
	}
	if len(unknown) > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: no resident memory of %d of the pods, they are left alone: %s", ScopeRSS, len(unknown), some(unknown)))
	}
	if n := len(f.Candidates); n > 0 {
		f.Message = fmt.Sprintf("%d of the pods hold more resident memory than they may", n)
	}
	f.Value, f.Met, f.Since = float64(len(f.Candidates)), len(f.Candidates) > 0, since(began)
	m.Findings = append(m.Findings, f)
	return m
}

// memoryRequest returns the memory that a shared or reclaimed pod requests, in bytes; false if it is of another class, or one
// of its containers requests none.
func memoryRequest(p *tick.Pod) (float64, bool) {
	of := func(r *tick.Resources) *float64 { return r.MemoryBytes }
	switch p.QoS {
	case tick.QoSReclaimed:
		of = reclaimedMemoryBytes
	case tick.QoSShared:
	default:
		return 0, false
	}
	sum := 0.0
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Requests == nil {
			return 0, false
		}
		v, ok := amount(of(c.Requests))
		if !ok || v < 1 {
			return 0, false
		}
		sum += v
	}
	return sum, sum > 0
}
