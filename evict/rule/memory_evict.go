package rule

import (
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// memoryEvict is Koordinator's eviction, by the node's memory, of any pods that permit it.
var memoryEvict = &Rule{
	Name: "MemoryEvict",
	Doc: `the node's memory is used beyond Koordinator's threshold: pods that allow it are evicted
As BEMemoryEvict, with the same thresholds, and the pods that are evicted for that count. It is on where evictEnabledPriorityThreshold is
set as well. Pods of that priority or a lower one are evicted that have the label koordinator.sh/eviction-enabled with the value true; the
priority is spec.priority, or the number of the pod's priority class. The lowest koordinator.sh/eviction-priority
is first (an annotation; none is 0), then the lowest priority, the lowest koordinator.sh/priority, and the largest use. Then none for 4
seconds.`,
	Scopes:     []string{ScopeMemoryUsed},
	Thresholds: []string{"enable", "memoryEvictThresholdPercent", "memoryEvictLowerPercent", "evictEnabledPriorityThreshold"},
	Strategy: func(th *sloconfig.Threshold) error {
		_, err := memoryEvictBounds(th)
		return err
	},
	New: func() Window { return &memoryEvictWindow{} },
}

func memoryEvictBounds(th *sloconfig.Threshold) (bounds, error) {
	b, err := memoryBounds(th)
	if err != nil {
		return b, err
	}
	return b, priorityAtMost("evictEnabledPriorityThreshold", th.EvictEnabledPriorityThreshold)
}

type memoryEvictWindow struct {
	Over level `json:"over"`
}

func (w *memoryEvictWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := memoryEvict.off(s.Strategies)
	if off {
		*w = memoryEvictWindow{}
		return m
	}
	b, _ := memoryEvictBounds(&s.Strategies.Threshold)
	f, ok := memoryUsed(memoryEvict, b, t, &w.Over, &m)
	if !ok {
		return m
	}
	if f.Met {
		f.allowed(t, *s.Strategies.Threshold.EvictEnabledPriorityThreshold, anonymous)
	}
	m.Findings = append(m.Findings, f)
	return m
}

// allowed returns the pods that permit eviction, up to a priority, and whose use is known.
func (f *Finding) allowed(t *tick.Tick, atMost int64, measure func(*tick.Pod) (float64, bool)) {
	f.Reason = reasonEvicted
	f.candidates(t, func(p *tick.Pod) bool { return mayGo(p, f.Rule, atMost) }, measure, 0)
	for i := range f.Candidates {
		c := &f.Candidates[i]
		c.Rank, c.Message = annotatedRank(c.Pod, c.Releases), triggered(f.Rule, c.Pod)
	}
}
