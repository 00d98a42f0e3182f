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

// Koordinator reports whether a rule is one of Koordinator's, which the node's strategy enables, and whose events use
// Koordinator's wording.
func Koordinator(name string) bool {
	return slices.ContainsFunc(All, func(r *Rule) bool { return r.Name == name && r.Strategy != nil })
}

// These are the cooldowns of Koordinator's rules. The rules of one resource share a cooldown.
const (
	restMemory     = "koordinator memory"
	restCPU        = "koordinator cpu"
	cooldownMemory = 4 * time.Second
	cooldownCPU    = 20 * time.Second
	// observeCPU is how long a node must be observed before a pod is evicted because of CPU.
	observeCPU = 20 * time.Second
)

// belowThreshold is how far use must fall below its threshold if no lower one is set, in percent.
const belowThreshold = 2

// maxWindow bounds the averaging window.
const maxWindow = 24 * time.Hour

// offError is why a rule is off that nobody has enabled: this is not reported as an error.
type offError string

func (e offError) Error() string { return string(e) }

const errNoStrategies offError = "the tick has no strategies of Koordinator"

// Off returns why a rule of Koordinator's is off, and whether that is an error in the strategy; empty if it is on.
func (r *Rule) Off(s *sloconfig.Strategies) (why string, fault bool) {
	if s == nil {
		return string(errNoStrategies), false
	}
	err := r.Strategy(&s.Threshold)
	if err == nil {
		return "", false
	}
	var off offError
	return err.Error(), !errors.As(err, &off)
}

// off returns the measure of a rule that is off: with an error if it was enabled but cannot run.
func (r *Rule) off(s *sloconfig.Strategies) (Measure, bool) {
	why, fault := r.Off(s)
	var m Measure
	if fault {
		m.Errors = []string{r.Name + ": resource-threshold-config: " + why + ": the rule is off"}
	}
	return m, why != ""
}

func missingInput(name, why string) string { return name + ": " + why + ": not measured" }

// enabled returns an error if the strategy as a whole is disabled.
func enabled(th *sloconfig.Threshold) error {
	if th.Enable == nil || !*th.Enable {
		return offError("enable is not true")
	}
	return nil
}

// bounds are percentages: above the upper one pods are evicted until the lower one is reached.
type bounds struct{ upper, lower float64 }

// usageBounds returns those of a node's use: the lower one is optional.
func usageBounds(upperKey string, upper *int64, lowerKey string, lower *int64) (bounds, error) {
	switch {
	case upper == nil && lower != nil:
		return bounds{}, fmt.Errorf("%s is set, and %s is not", lowerKey, upperKey)
	case upper == nil:
		return bounds{}, offError(upperKey + " is not set")
	case *upper < 1 || *upper > 100: // 0 would always require every pod
		return bounds{}, fmt.Errorf("%s: %d: want 1 to 100", upperKey, *upper)
	case lower == nil:
		return bounds{float64(*upper), float64(*upper - belowThreshold)}, nil
	}
	return below(upperKey, *upper, lowerKey, *lower)
}

// requestBounds returns those of requests, over 100 if requests may exceed the capacity.
func requestBounds(upperKey string, upper *int64, lowerKey string, lower *int64) (bounds, error) {
	switch {
	case upper == nil && lower == nil:
		return bounds{}, offError(upperKey + " is not set")
	case upper == nil:
		return bounds{}, fmt.Errorf("%s is set, and %s is not", lowerKey, upperKey)
	case lower == nil:
		return bounds{}, fmt.Errorf("%s is set, and %s is not", upperKey, lowerKey)
	case *upper > evictconfig.MaxRatio:
		return bounds{}, fmt.Errorf("%s: %d: want at most %d", upperKey, *upper, int64(evictconfig.MaxRatio))
	}
	return below(upperKey, *upper, lowerKey, *lower)
}

func below(upperKey string, upper int64, lowerKey string, lower int64) (bounds, error) {
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

// priorityAtMost is the highest priority that may be evicted; a rule about use needs one, or is off.
func priorityAtMost(key string, v *int64) error {
	switch {
	case v == nil:
		return offError(key + " is not set")
	case *v < 0:
		return fmt.Errorf("%s: %d: want a priority of 0 or more", key, *v)
	}
	return nil
}

// batchPriority bounds the priorities that are evicted because of requests: koord-prod never is.
func batchPriority(th *sloconfig.Threshold, thresholdKey string) error {
	const most, key = 7999, "allocatableEvictPriorityThreshold"
	switch v := th.AllocatableEvictPriorityThreshold; {
	case v == nil:
		return fmt.Errorf("%s is set, and %s is not", thresholdKey, key)
	case *v < 0 || *v > most:
		return fmt.Errorf("%s: %d: want 0 to %d", key, *v, most)
	}
	return nil
}

// active reports whether a pod's requests count: it has not ended and does not terminate.
func activePod(p *tick.Pod) bool { return !p.Ended() && !p.Terminating }

// mayGo reports whether a pod permits eviction by one of the rules that a pod must name.
func mayGo(p *tick.Pod, rule string, atMost int64) bool {
	return activePod(p) && p.Labels[qos.EvictionEnabled] == "true" && qos.PriorityNumber(p) <= atMost && qos.MayEvict(p, rule)
}

// batchRanks ranks BE pods: the lower spec.priority first, then the greater measure, and at the end pods with unknown measure,
// by name in reverse order. If one of them has no priority, no priority counts.
func batchRanks(candidates []Candidate, measure func(*tick.Pod) (float64, bool)) {
	every := !slices.ContainsFunc(candidates, func(c Candidate) bool { return c.Pod.Priority == nil })
	var unknown []*Candidate
	for i := range candidates {
		c := &candidates[i]
		v, ok := measure(c.Pod)
		c.Rank = []float64{0, v, 0}
		if every {
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

// annotatedRank ranks the pods of the other rules: the lower eviction priority first, then the lower priority, the lower priority
// within the class, and the greater measure.
func annotatedRank(p *tick.Pod, measure float64) []float64 {
	within := 0.0
	switch {
	case p.KoordinatorPriority != nil:
		within = float64(*p.KoordinatorPriority)
	case p.Priority != nil:
		within = float64(*p.Priority)
	}
	return []float64{-float64(qos.EvictionPriorityOf(p)), -float64(qos.PriorityNumber(p)), -within, measure}
}

// These are Koordinator's texts.
const (
	reasonSatisfaction = "EvictPodByBECPUSatisfaction"
	reasonMemory       = "EvictPodByNodeMemoryUsage"
	reasonEvicted      = "evicted"
)

// triggered returns the message about a pod that one of the newer rules evicts.
func triggered(rule string, p *tick.Pod) string {
	return fmt.Sprintf("trigger by koordlet feature %s, kill pod: %s", rule, p.Name)
}

// finding creates a finding of a Koordinator rule.
func (r *Rule) finding(scope string, value, threshold float64) Finding {
	f := Finding{PressureFinding: tick.PressureFinding{Rule: r.Name, Scope: scope, Value: value, Threshold: threshold, Hard: true}}
	f.UntilCovered = true
	f.SharedCooldown, f.Cooldown = restCPU, cooldownCPU
	if strings.Contains(r.Name, "Memory") {
		f.SharedCooldown, f.Cooldown = restMemory, cooldownMemory
	}
	return f
}

// watched is for how long a node has been observed without a break.
type watched struct{ level }

// look records a tick, and returns why no pod is evicted yet.
func (w *watched) look(t *tick.Tick) (waits string) {
	w.observe(t, true)
	if left := observeCPU - w.lasted(t.Time); left > 0 {
		return fmt.Sprintf("watched for less than %s", observeCPU)
	}
	return ""
}
