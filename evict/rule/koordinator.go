package rule

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"polder/lib/evictconfig"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// IsKoordinator reports whether a rule is one of Koordinator's, which the node's strategy enables, and whose events use
// Koordinator's wording.
func IsKoordinator(name string) bool {
	return slices.ContainsFunc(All, func(r *Rule) bool { return r.Name == name && r.Strategy != nil })
}

// These are the cooldowns of Koordinator's rules. The rules of one resource share a cooldown.
const (
	sharedCooldownMemory = "koordinator memory"
	sharedCooldownCPU    = "koordinator cpu"
	cooldownMemory       = 4 * time.Second
	cooldownCPU          = 20 * time.Second
	// minObservation is how long a node must be observed before a pod is evicted because of CPU.
	minObservation = 20 * time.Second
)

// defaultGap is how far use must fall below its threshold if no lower one is set, in percent.
const defaultGap = 2

// maxAveragingTime bounds the averaging window.
const maxAveragingTime = 24 * time.Hour

// disabledError is why a rule is off that nobody has enabled: this is not reported as an error.
type disabledError string

func (e disabledError) Error() string { return string(e) }

const errNoStrategies disabledError = "the tick has no strategies of Koordinator"

// WhyOff returns why a rule of Koordinator's is off, and whether that is an error in the strategy; empty if it is on.
func (r *Rule) WhyOff(s *sloconfig.Strategies) (why string, isError bool) {
	if s == nil {
		return string(errNoStrategies), false
	}
	err := r.Strategy(&s.Threshold)
	if err == nil {
		return "", false
	}
	var disabled disabledError
	return err.Error(), !errors.As(err, &disabled)
}

// measureIfOff returns the measure of a rule that is off: with an error if it was enabled but cannot run.
func (r *Rule) measureIfOff(s *sloconfig.Strategies) (Measure, bool) {
	why, isError := r.WhyOff(s)
	var m Measure
	if isError {
		m.Errors = []string{r.Name + ": resource-threshold-config: " + why + ": the rule is off"}
	}
	return m, why != ""
}

// checkEnabled returns an error if the strategy as a whole is disabled.
func checkEnabled(th *sloconfig.Threshold) error {
	if th.Enable == nil || !*th.Enable {
		return disabledError("enable is not true")
	}
	return nil
}

// bounds are percentages: above the upper one pods are evicted until the lower one is reached.
type bounds struct{ upper, lower float64 }

// usageBounds returns the bounds of a node's use: the lower one is optional.
func usageBounds(upperKey string, upper *int64, lowerKey string, lower *int64) (bounds, error) {
	switch {
	case upper == nil && lower != nil:
		return bounds{}, fmt.Errorf("%s is set, and %s is not", lowerKey, upperKey)
	case upper == nil:
		return bounds{}, disabledError(upperKey + " is not set")
	case *upper < 1 || *upper > 100: // 0 would always require every pod
		return bounds{}, fmt.Errorf("%s: %d: want 1 to 100", upperKey, *upper)
	case lower == nil:
		return bounds{float64(*upper), float64(*upper - defaultGap)}, nil
	}
	return checkedBounds(upperKey, *upper, lowerKey, *lower)
}

// requestBounds returns the bounds of requests, over 100 if requests may exceed the capacity.
func requestBounds(upperKey string, upper *int64, lowerKey string, lower *int64) (bounds, error) {
	switch {
	case upper == nil && lower == nil:
		return bounds{}, disabledError(upperKey + " is not set")
	case upper == nil:
		return bounds{}, fmt.Errorf("%s is set, and %s is not", lowerKey, upperKey)
	case lower == nil:
		return bounds{}, fmt.Errorf("%s is set, and %s is not", upperKey, lowerKey)
	case *upper > evictconfig.MaxRatio:
		return bounds{}, fmt.Errorf("%s: %d: want at most %d", upperKey, *upper, int64(evictconfig.MaxRatio))
	}
	return checkedBounds(upperKey, *upper, lowerKey, *lower)
}

func checkedBounds(upperKey string, upper int64, lowerKey string, lower int64) (bounds, error) {
	if lower < 0 || lower >= upper {
		return bounds{}, fmt.Errorf("%s: %d: want 0 or more, and less than %s, which is %d", lowerKey, lower, upperKey, upper)
	}
	return bounds{float64(upper), float64(lower)}, nil
}

// need returns how much of a whole must be released so that its use falls to the lower bound.
func (b bounds) need(percent, whole float64) float64 {
	return math.Floor(whole * (percent - b.lower) / 100)
}

// wholePercent returns a part as a percentage of a whole, rounded down as in Koordinator: 70.9 is 70.
func wholePercent(part, whole float64) float64 { return min(math.Floor(part*100/whole), maxAmount) }

// checkPriority checks the highest priority that may be evicted; a rule about use needs one, or is off.
func checkPriority(key string, v *int64) error {
	switch {
	case v == nil:
		return disabledError(key + " is not set")
	case *v < 0:
		return fmt.Errorf("%s: %d: want a priority of 0 or more", key, *v)
	}
	return nil
}

// checkBatchPriority checks the bound of the priorities that are evicted because of requests: koord-prod never is.
func checkBatchPriority(th *sloconfig.Threshold, thresholdKey string) error {
	const highest, key = 7999, "allocatableEvictPriorityThreshold"
	switch v := th.AllocatableEvictPriorityThreshold; {
	case v == nil:
		return fmt.Errorf("%s is set, and %s is not", thresholdKey, key)
	case *v < 0 || *v > highest:
		return fmt.Errorf("%s: %d: want 0 to %d", key, *v, highest)
	}
	return nil
}

// isActive reports whether a pod's requests count: it has not ended and does not terminate.
func isActive(p *tick.Pod) bool { return !p.Ended() && !IsTerminating(p) }

// permitsEviction reports whether a pod permits eviction by one of the rules that a pod must name.
func permitsEviction(p *tick.Pod, rule string, maxPriority int64) bool {
	return isActive(p) && p.Labels[qos.EvictionEnabled] == "true" && qos.PriorityNumber(p) <= maxPriority && qos.MayEvict(p, rule)
}

// rankBEPods ranks BE pods: the lower spec.priority first, then the greater measure, and at the end pods with unknown measure,
// by name in reverse order. If one of them has no priority, no priority counts.
func rankBEPods(candidates []Candidate, measure func(*tick.Pod) (float64, bool)) {
	allHavePriority := !slices.ContainsFunc(candidates, func(c Candidate) bool { return c.Pod.Priority == nil })
	var unknown []*Candidate
	for i := range candidates {
		c := &candidates[i]
		v, ok := measure(c.Pod)
		c.Rank = []float64{0, v, 0}
		if allHavePriority {
			c.Rank[0] = -priority(c.Pod)
		}
		if !ok {
			c.Rank[1] = -1
			unknown = append(unknown, c)
		}
	}
	slices.SortStableFunc(unknown, func(a, b *Candidate) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	for i, c := range unknown {
		c.Rank[2] = float64(i)
	}
}

// evictionRank ranks the pods of the other rules: the lower eviction priority first, then the lower priority, the lower priority
// within the class, and the greater measure.
func evictionRank(p *tick.Pod, measure float64) []float64 {
	classPriority := 0.0
	switch {
	case p.KoordinatorPriority != nil:
		classPriority = float64(*p.KoordinatorPriority)
	case p.Priority != nil:
		classPriority = float64(*p.Priority)
	}
	return []float64{-float64(qos.EvictionPriorityOf(p)), -float64(qos.PriorityNumber(p)), -classPriority, measure}
}

// These are Koordinator's texts.
const (
	reasonSatisfaction = "EvictPodByBECPUSatisfaction"
	reasonMemory       = "EvictPodByNodeMemoryUsage"
	reasonEvicted      = "evicted"
)

// triggerMessage returns the message about a pod that one of the newer rules evicts.
func triggerMessage(rule string, p *tick.Pod) string {
	return fmt.Sprintf("trigger by koordlet feature %s, kill pod: %s", rule, p.Name)
}

// newFinding creates a finding of a Koordinator rule.
func (r *Rule) newFinding(scope string, value, threshold float64) Finding {
	f := Finding{PressureFinding: tick.PressureFinding{Rule: r.Name, Scope: scope, Value: value, Threshold: threshold, Hard: true}}
	f.UntilCovered = true
	f.SharedCooldown, f.Cooldown = sharedCooldownCPU, cooldownCPU
	if strings.Contains(r.Name, "Memory") {
		f.SharedCooldown, f.Cooldown = sharedCooldownMemory, cooldownMemory
	}
	return f
}

// observation is for how long a node has been observed without a break.
type observation struct{ condition }

// observeNode records a tick, and returns why no pod is evicted yet.
func (w *observation) observeNode(t *tick.Tick) (whyWait string) {
	w.observe(t, true)
	if remaining := minObservation - w.metFor(t.Time); remaining > 0 {
		return fmt.Sprintf("observed for less than %s", minObservation)
	}
	return ""
}
