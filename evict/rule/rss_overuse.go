package rule

import (
	"fmt"
	"time"

	"polder/lib/evictconfig"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// rssOveruse evicts pods that use more memory than they requested.
var rssOveruse = &Rule{
	Name: "rss-overuse-eviction-plugin",
	Doc: `pods use more resident memory than they requested
Off unless rss-overuse-enabled. The value is the number of shared and reclaimed pods whose resident memory (memory.rssBytes) is over
rss-overuse-threshold times their memory request (for reclaimed pods: their request of reclaimed memory), which includes containers that are
started again. A pod's annotation katalyst.kubewharf.io/memory_enhancement can set its own rss_overuse_threshold. A pod with a container
that requests no memory is not measured. A pod that is over its threshold for rss-overuse-tolerance is evicted when no hard finding needs
a victim, one pod at a time: the one with the largest value divided by its threshold first.`,
	Scopes: []string{ScopeRSS},
	Rows:   (*evictconfig.Settings).RSSRows,
	New:    func() Window { return &rssWindow{} },
}

// ScopeRSS is the pods' resident memory.
const ScopeRSS = "memory.rss"

type rssWindow struct {
	// Exceeded are the pods that use too much, by UID.
	Exceeded conditions `json:"over,omitempty"`
}

func (w *rssWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	previous := w.Exceeded
	w.Exceeded = nil // drop pods that have ended
	if !s.RSSOveruseEnabled {
		return m
	}
	f := Finding{PressureFinding: tick.PressureFinding{Rule: rssOveruse.Name, Scope: ScopeRSS}}
	f.GracePeriodSeconds = graceSeconds(s.RSSOveruseGracePeriod)
	var start time.Time
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
		factor := s.RSSOveruseThreshold
		switch own, err := rate(p, annotationMemory, "rss_overuse_threshold"); {
		case err != nil: // an error in an annotation exempts no pod
			m.Errors = append(m.Errors, fmt.Sprintf("%s: pod %s: annotation %s: %v: --rss-overuse-threshold applies",
				ScopeRSS, p.Name, annotationMemory, err))
		case own != nil:
			factor = *own
			if len(s.OptOut) == 0 { // a tenant may not exempt its pod
				factor = min(factor, s.RSSOveruseThreshold)
			}
		}
		l, threshold := w.Exceeded.podIsOver(previous, p.UID, t, rss, factor*request, s.RSSOveruseHysteresis)
		if l == nil || l.metFor(t.Time) < s.RSSOveruseTolerance {
			continue
		}
		if start.IsZero() || l.Start.Before(start) {
			start = l.Start
		}
		f.Candidates = append(f.Candidates, Candidate{Pod: p, Rank: []float64{min(rss/threshold, maxAmount)}, Releases: 1, Message: fmt.Sprintf(
			"pod %s uses %s of resident memory, over the "+reason.Threshold+"%s (%.2f x its request of %s)",
			p.Name, mebibytes(rss), mebibytes(threshold), threshold/request, mebibytes(request))})
	}
	if len(unknown) > 0 {
		m.Errors = append(m.Errors, fmt.Sprintf("%s: no resident memory of %d of the pods, they are not evicted: %s", ScopeRSS, len(unknown),
			phrase.First(unknown, shownNames)))
	}
	if n := len(f.Candidates); n > 0 {
		f.Message = fmt.Sprintf("%d pods use more resident memory than their thresholds", n)
	}
	f.Value, f.Met, f.Since = float64(len(f.Candidates)), len(f.Candidates) > 0, formatTime(start)
	m.Findings = append(m.Findings, f)
	return m
}

// memoryRequest returns the memory that a shared or reclaimed pod requests, in bytes; false if it is of another class, or one
// of its containers requests none. The sample has only the containers that run, so that the pod's own request, which includes one that is
// started again, counts if it is larger.
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
	if sum > 0 && p.Requests != nil {
		own, _ := amount(of(p.Requests))
		sum = max(sum, own)
	}
	return sum, sum > 0
}
