// Package rule measures the kinds of pressure that lead to a taint or an eviction. It is pure: a rule's inputs are ticks, its own settings
// and its own window, and it names candidates; package pick chooses the victims and their number.
package rule

import (
	"cmp"
	"strings"
	"time"

	"polder/lib/evictconfig"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Rule is one kind of pressure. Every rule is measured at every tick, even if another one has already found victims,
// so that the windows stay complete.
type Rule struct {
	// Name is the one in Katalyst or Koordinator, so that users find the same events and metrics.
	Name string
	// Doc is the rule's text in the manual: its first line is the title.
	Doc string
	// Scopes are the scopes of its findings.
	Scopes []string
	// Rows are the settings that the rule reads, nil if there are none.
	Rows func(*evictconfig.Settings) []evictconfig.Row
	// Thresholds names the keys of the node's strategy (resource-threshold-config) that it reads, and Strategy returns why a
	// strategy disables the rule; nil for rules that do not depend on the strategy.
	Thresholds []string
	Strategy   func(*sloconfig.Threshold) error
	// New returns an empty window for one node.
	New func() Window
}

// Window is the state of a rule on one node. The state file contains it as JSON.
type Window interface {
	// Measure measures a tick whose Sample is set.
	Measure(s *Settings, t *tick.Tick) Measure
}

// Measure is the result of a rule for one tick.
type Measure struct {
	Findings []Finding
	// Errors names the missing inputs. A missing input is never replaced by a default that leads to an eviction.
	Errors []string
}

// Finding is one measured pressure, with the required taint and evictions while it is met.
type Finding struct {
	tick.PressureFinding

	// Taint is the one that the node should have.
	Taint *tick.Taint
	// Candidates are the pods whose end would reduce the pressure, in no order; set if the finding is Met. Those of a finding
	// that is not Hard wait in a queue, from which one per round is evicted; a finding with only a taint has none.
	Candidates []Candidate
	// Others are pods among which the finding does not choose, but whose end would also reduce the pressure: they count when
	// their eviction is in progress.
	Others []Candidate
	// Tolerance is how long the finding must be met without a break before a pod is evicted.
	Tolerance time.Duration
	// GracePeriodSeconds is the victim's, nil for the pod's own; a candidate's value takes precedence.
	GracePeriodSeconds *int64
	// Cooldown is the minimum time between two evictions of the rule in the scope.
	Cooldown time.Duration
	// SharedCooldown names the cooldown that an eviction begins, if several rules share it.
	SharedCooldown string
	// Need is how much must be released, in the unit of [Candidate.Releases], if that unit differs from the value's or the need
	// does not reach to the threshold; 0 otherwise.
	Need float64
	// UntilCovered means that all pods that are needed are evicted at one tick, unless a limit per rule is set.
	UntilCovered bool
	// Reason is the eviction's, if it differs from Katalyst's wording.
	Reason string
	// WhyWait says briefly why no pod is evicted at this tick although the finding is met; empty otherwise.
	WhyWait string
	// Message is one sentence for users.
	Message string
}

// About returns the scope, and the part of it if there are several.
func (f *Finding) About() string {
	if f.Part == "" {
		return f.Scope
	}
	return f.Scope + " (" + f.Part + ")"
}

// CooldownKey names the cooldown that an eviction begins: that of the rule in the scope, because an eviction in one scope
// says nothing about another's need, or one that several rules share.
func (f *Finding) CooldownKey() string { return cmp.Or(f.SharedCooldown, f.Rule+" "+f.Scope) }

// Candidate is a pod with its rank for one finding.
type Candidate struct {
	Pod *tick.Pod
	// Rank is compared from left to right, and the greater one comes first.
	Rank []float64
	// Releases is how much of the finding's value ends with the pod.
	Releases float64
	// Threshold replaces the finding's for this pod, which is evicted only while the value exceeds it; 0 means the finding's.
	Threshold float64
	// GracePeriodSeconds is the pod's if it differs from the finding's, and Message is about the pod alone.
	GracePeriodSeconds *int64
	Message            string
}

// Compare orders candidates: the first one is evicted first; equal ones by namespace and name, so that the same tick has
// the same victims.
func Compare(a, b Candidate) int {
	for i := range min(len(a.Rank), len(b.Rank)) {
		if c := cmp.Compare(b.Rank[i], a.Rank[i]); c != 0 {
			return c
		}
	}
	return cmp.Or(
		strings.Compare(a.Pod.Namespace, b.Pod.Namespace),
		strings.Compare(a.Pod.Name, b.Pod.Name),
		strings.Compare(a.Pod.UID, b.Pod.UID),
	)
}

func podsOfClass(t *tick.Tick, class string) []*tick.Pod {
	var pods []*tick.Pod
	for i := range t.Sample.Pods {
		if p := &t.Sample.Pods[i]; p.QoS == class && !mayHaveEnded(t, p) {
			pods = append(pods, p)
		}
	}
	return pods
}

// mayHaveEnded reports whether a pod has ended, or may have: while collect's list of pods is stale, a pod without a cgroup may have lost
// it by its end as well as not have one yet. No other pod is evicted for what it requests.
func mayHaveEnded(t *tick.Tick, p *tick.Pod) bool {
	return p.Ended() || p.Missing == tick.MissingCgroup && t.Sample.IsUnread("pods")
}

// formatTime returns the contract's form of a time that may be missing.
func formatTime(instant time.Time) string {
	if instant.IsZero() {
		return ""
	}
	return instant.UTC().Format(time.RFC3339Nano)
}
