package rule

import (
	"fmt"

	"polder/lib/qos"
	"polder/lib/reason"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// beMemoryEvict is Koordinator's eviction of batch pods by the node's memory.
var beMemoryEvict = &Rule{
	Name: "BEMemoryEvict",
	Doc: `the node's memory use is over Koordinator's threshold: BE pods are evicted
The node's used memory is its total less its available memory, in whole percent of its capacity (70.9 counts as 70). The condition is met
if it is at or over memoryEvictThresholdPercent. BE pods are evicted, all at one tick, until their use adds up to the capacity's
percentage above memoryEvictLowerPercent (default: the threshold less 2). The lowest spec.priority is first, then the largest use. A pod's
use is its anonymous memory (rssBytes), because the page cache can be reclaimed without its end. The cooldown is 4 seconds. If one of the
pods has no priority, priorities are ignored. Pods with unknown use are last within their priority, one at a time.`,
	Scopes:     []string{ScopeMemoryUsed},
	Thresholds: []string{"enable", "memoryEvictThresholdPercent", "memoryEvictLowerPercent"},
	Strategy: func(th *sloconfig.Threshold) error {
		_, err := memoryBounds(th)
		return err
	},
	New: func() Window { return &beMemoryWindow{} },
}

// ScopeMemoryUsed is the node's memory use in percent of its capacity.
const ScopeMemoryUsed = "memory.used.percent"

func memoryBounds(th *sloconfig.Threshold) (bounds, error) {
	if err := checkEnabled(th); err != nil {
		return bounds{}, err
	}
	return usageBounds("memoryEvictThresholdPercent", th.MemoryEvictThresholdPercent, "memoryEvictLowerPercent", th.MemoryEvictLowerPercent)
}

type beMemoryWindow struct {
	Pressure condition `json:"over"`
}

func (w *beMemoryWindow) Measure(s *Settings, t *tick.Tick) Measure {
	m, off := beMemoryEvict.measureIfOff(s.Strategies)
	if off {
		*w = beMemoryWindow{}
		return m
	}
	b, _ := memoryBounds(&s.Strategies.Threshold)
	f, ok := memoryUsed(beMemoryEvict, b, t, &w.Pressure, &m)
	if !ok {
		return m
	}
	if f.Met {
		f.Reason = reasonMemory
		f.addCandidates(t, func(p *tick.Pod) bool {
			return isActive(p) && qos.Koordinator(p) == qos.BE && qos.MayEvict(p, beMemoryEvict.Name)
		}, anonymousMemory, f.Need)
		message := fmt.Sprintf("killAndEvictBEPods for node(%s), need to release memory: %.0f", t.Node, f.Need)
		for i := range f.Candidates {
			f.Candidates[i].Message = message
		}
		rankBEPods(f.Candidates, anonymousMemory)
	}
	m.Findings = append(m.Findings, f)
	return m
}

// memoryUsed compares the node's use with the bounds.
func memoryUsed(r *Rule, b bounds, t *tick.Tick, l *condition, m *Measure) (Finding, bool) {
	used, capacity, why := nodeMemory(t.Sample)
	if why != "" {
		l.observe(t, false)
		m.Errors = append(m.Errors, reason.NotMeasured(r.Name, why))
		return Finding{}, false
	}
	percent := wholePercent(used, capacity)
	f := r.newFinding(ScopeMemoryUsed, percent, b.upper)
	f.Met = l.observe(t, percent >= b.upper)
	f.Since = formatTime(l.Start)
	if f.Met {
		f.Need = b.need(percent, capacity)
		f.Message = fmt.Sprintf("%.0f%% of the node's memory is used (%s of %s), at or over the "+reason.Threshold+
			"%.0f%%: %s must be released to reach %.0f%%",
			percent, mebibytes(used), mebibytes(capacity), b.upper, mebibytes(f.Need), b.lower)
	}
	return f, true
}

// nodeMemory returns the node's memory use, as in Koordinator's NodeMetric, and its capacity.
func nodeMemory(s *tick.Sample) (used, capacity float64, why string) {
	if s.Memory == nil || s.Capacity == nil {
		return 0, 0, "the sample lacks the node's memory or capacity"
	}
	total, okTotal := amount(s.Memory.TotalBytes)
	available, okAvailable := amount(s.Memory.AvailableBytes)
	capacity, okCapacity := amount(s.Capacity.MemoryBytes)
	switch {
	case !okTotal || !okAvailable || available > total:
		return 0, 0, "the sample lacks the node's total or available memory"
	case !okCapacity || capacity < 1:
		return 0, 0, "the sample lacks the node's memory capacity"
	}
	return total - available, capacity, ""
}

// anonymousMemory returns the memory that a pod's end releases: the page cache can be reclaimed without it.
func anonymousMemory(p *tick.Pod) (float64, bool) { return podMemory(p, rssBytes) }

// addCandidates divides the pods into those that may be evicted and those that may not but count as released when they
// terminate. A pod with unknown measure may be evicted if unknown is over 0, which is what it counts as releasing. Otherwise it counts as
// releasing all that is needed once it ends: another rule may have evicted it for the same need, and two pods must not be evicted for one
// need. That can only make an eviction wait until it has ended. One without a container is always omitted: between two starts of a
// container that fails, a pod uses nothing, so its eviction would release nothing, and its replacement would soon be evicted in the same
// way, instead of the pod that uses the memory.
func (f *Finding) addCandidates(t *tick.Tick, isCandidate func(*tick.Pod) bool, measure func(*tick.Pod) (float64, bool), unknown float64) {
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		if p.Ended() || p.Missing == tick.MissingCgroup {
			continue // uses nothing
		}
		v, ok := measure(p)
		switch accepted := isCandidate(p); {
		case !accepted && ok:
			f.Others = append(f.Others, Candidate{Pod: p, Releases: v})
		case accepted && ok:
			f.Candidates = append(f.Candidates, Candidate{Pod: p, Releases: v})
		case accepted && unknown > 0 && !hasNoContainer(p):
			f.Candidates = append(f.Candidates, Candidate{Pod: p, Releases: unknown})
		case !ok && (unknown == 0 || IsTerminating(p)) && !hasNoContainer(p):
			f.Others = append(f.Others, Candidate{Pod: p, Releases: f.Need})
		}
	}
}
