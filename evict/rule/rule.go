// Package rule measures the kinds of pressure that end in a taint or an eviction. It is pure: a rule sees ticks, its
// own settings and its own window, and it names candidates; who is evicted, and how many, is for package pick.
package rule

import (
	"cmp"
	"strings"
	"time"

	"polder/lib/evictconfig"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Rule is one kind of pressure. Every rule is measured at every tick, also when another one has fired already, so that
// the windows stay true.
type Rule struct {
	// Name is the dialects' own, so that events, metrics and habits carry over.
	Name string
	// Doc is the manual: its first line is the title.
	Doc string
	// Scopes are what the findings are about.
	Scopes []string
	// Rows are the settings that the rule reads, nil where there are none.
	Rows func(*evictconfig.Settings) []evictconfig.Row
	// Thresholds name the keys of the node's strategy (resource-threshold-config) that it reads, and Strategy returns why the rule
	// is off with one; nil for rules that are no concern of the strategy.
	Thresholds []string
	Strategy   func(*sloconfig.Threshold) error
	// New returns the empty window of one node.
	New func() Window
}

// Window is what a rule remembers of one node. It is encoded as JSON into the state file.
type Window interface {
	// Measure looks at a tick whose Sample is set.
	Measure(s *Settings, t *tick.Tick) Measure
}

// Measure is what a rule finds in one tick.
type Measure struct {
	Findings []Finding
	// Errors names the inputs that were missing. A missing input is never a default that acts.
	Errors []string
}

// Finding is one measured pressure, with what it calls for while it is met.
type Finding struct {
	tick.PressureFinding

	// Taint is what the node should have.
	Taint *tick.Taint
	// Candidates are the pods whose end would relieve the pressure, in no order; set where it is Met. Those of a finding that
	// is not Hard wait in a queue, from which one is evicted a round; a finding with a taint alone has none.
	Candidates []Candidate
	// Others are pods that the finding does not choose from, and whose end would relieve the pressure as well: they count when
	// their eviction is in progress.
	Others []Candidate
	// Tolerance is how long the finding must have been met without a break before a pod is evicted.
	Tolerance time.Duration
	// GracePeriodSeconds is the victim's, nil for the pod's own; a candidate's takes precedence.
	GracePeriodSeconds *int64
	// Cooldown is the rest between two evictions of the rule in the scope.
	Cooldown time.Duration
	// SharedCooldown names the cooldown that an eviction begins, where rules share it.
	SharedCooldown string
	// Need is how much has to end, in the unit of [Candidate.Releases], where that is another than the value's, or not all of the
	// way to the threshold; 0 otherwise.
	Need float64
	// UntilCovered means that the pods that are needed are evicted at one tick, however many, unless a limit of a rule's pods is set.
	UntilCovered bool
	// Reason is the eviction's, where it is not in Katalyst's words.
	Reason string
	// Waits is, in a few words, why nobody is evicted for it at this tick although it is met; empty otherwise.
	Waits string
	// Message is one sentence for people.
	Message string
}

// About is the scope, and the part of it where there are several.
func (f *Finding) About() string {
	if f.Part == "" {
		return f.Scope
	}
	return f.Scope + " (" + f.Part + ")"
}

// CooldownKey names the cooldown that an eviction begins: the rule in the scope, for one scope's evictions show nothing about
// another's need, or what several rules share.
func (f *Finding) CooldownKey() string { return cmp.Or(f.SharedCooldown, f.Rule+" "+f.Scope) }

// Candidate is a pod with its rank for one finding.
type Candidate struct {
	Pod *tick.Pod
	// Rank is compared from left to right, and the greater is first.
	Rank []float64
	// Releases is how much of the finding's value ends with the pod.
	Releases float64
	// GracePeriodSeconds is the pod's where it is another than the finding's, and Message is about it alone.
	GracePeriodSeconds *int64
	Message            string
}

// Compare orders candidates: who is evicted first stands first; equal ones by namespace and name, so that the same tick has
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

func active(t *tick.Tick, class string) []*tick.Pod {
	var pods []*tick.Pod
	for i := range t.Sample.Pods {
		if p := &t.Sample.Pods[i]; p.QoS == class && !p.Ended() {
			pods = append(pods, p)
		}
	}
	return pods
}

// since is the contract's form of a time that may be missing.
func since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}
