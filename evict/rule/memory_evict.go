package rule

import (
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// memoryEvict is Koordinator's eviction, by the node's memory, of any pods that permit it.
var memoryEvict = &Rule{
	Name: "MemoryEvict",
	Doc: `the node's memory use is over Koordinator's threshold: pods that permit it are evicted
As BEMemoryEvict, with the same thresholds; its victims count as released. The rule is on if evictEnabledPriorityThreshold is set, too.
The candidates are the pods with at most that priority and the label koordinator.sh/eviction-enabled=true; the priority is
spec.priority, or the number of the pod's priority class. The lowest koordinator.sh/eviction-priority (an annotation, default 0) is
first, then the lowest priority, the lowest koordinator.sh/priority, and the largest use. The cooldown is 4 seconds.`,
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
	return b, checkPriority("evictEnabledPriorityThreshold", th.EvictEnabledPriorityThreshold)
}

type memoryEvictWindow struct {
	Pressure condition `json:"over"`
}

func (w *memoryEvictWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := memoryEvict.measureIfOff(s.Strategies)
	if off {
		*w = memoryEvictWindow{}
		return m
	}
	b, _ := memoryEvictBounds(&s.Strategies.Threshold)
	f, ok := memoryUsed(memoryEvict, b, t, &w.Pressure, &m)
	if !ok {
		return m
	}
	if f.Met {
		f.addPermitted(t, *s.Strategies.Threshold.EvictEnabledPriorityThreshold, anonymousMemory)
	}
	m.Findings = append(m.Findings, f)
	return m
}

// addPermitted adds the pods that permit eviction, up to a priority, and whose use is known, as candidates.
func (f *Finding) addPermitted(t *tick.Tick, maxPriority int64, measure func(*tick.Pod) (float64, bool)) {
	f.Reason = reasonEvicted
	f.addCandidates(t, func(p *tick.Pod) bool { return permitsEviction(p, f.Rule, maxPriority) }, measure, 0)
	for i := range f.Candidates {
		c := &f.Candidates[i]
		c.Rank, c.Message = evictionRank(c.Pod, c.Releases), triggerMessage(f.Rule, c.Pod)
	}
}
