// Package pick chooses who goes: may this pod go at all, who first, how many, and what is already on its way out. It is
// pure: the same findings have the same victims.
package pick

import (
	"fmt"
	"slices"
	"time"

	"polder/evict/rule"
	"polder/lib/tick"
)

// Unlimited as a burst sets no limit.
const Unlimited = -1

// Limits bound a round.
type Limits struct {
	// Burst is the most pods of one round, over all rules.
	Burst int
	// OptOut are annotations that keep a pod: KEY=VALUE, or KEY for any value.
	OptOut []string
}

// Context is what the round must know beside the findings.
type Context struct {
	// Going reports whether a pod is on its way out already: what it holds counts as released.
	Going func(uid string) bool
	// Spared reports whether a pod is left out of this round, because its last eviction came to nothing.
	Spared func(uid string) bool
	// CooldownLeft is how long a rule has still to rest after its last eviction.
	CooldownLeft func(rule string, span time.Duration) time.Duration
}

// Victim is a pod that goes.
type Victim struct {
	Pod      *tick.Pod
	Eviction tick.PodEviction // without a state
	// Rules took it: more than one where several rules named the same pod.
	Rules []string
}

// Choose returns this round's victims: for each rule at most one, for its first finding that calls for one. A finding
// calls for a victim while its value, less what is already on its way out, is over its threshold.
func Choose(findings []rule.Finding, limits Limits, c Context) []Victim {
	var victims []Victim
	chosen := map[string]int{} // by UID
	served := map[string]bool{}
	for _, f := range findings {
		if served[f.Rule] || !calls(f, c) {
			continue
		}
		p := first(f, limits, c)
		if p == nil {
			continue
		}
		served[f.Rule] = true
		if i, ok := chosen[p.UID]; ok {
			victims[i].join(f)
			continue
		}
		if limits.Burst != Unlimited && len(victims) >= limits.Burst {
			continue // not break: a later rule may name a pod that goes anyway
		}
		chosen[p.UID] = len(victims)
		victims = append(victims, newVictim(p, f))
	}
	return victims
}

func calls(f rule.Finding, c Context) bool {
	if !f.Met || !f.Hard {
		return false
	}
	left := f.Value
	for _, x := range f.Candidates {
		if c.Going(x.Pod.UID) || x.Pod.Terminating {
			left -= x.Releases
		}
	}
	return left > f.Threshold && c.CooldownLeft(f.Rule, f.Cooldown) == 0
}

// first is the finding's first candidate that may go, nil where there is none.
func first(f rule.Finding, limits Limits, c Context) *tick.Pod {
	candidates := slices.Clone(f.Candidates)
	slices.SortFunc(candidates, rule.Compare)
	for _, x := range candidates {
		if x.Releases > 0 && !c.Going(x.Pod.UID) && !c.Spared(x.Pod.UID) && Protected(x.Pod, limits.OptOut) == "" {
			return x.Pod
		}
	}
	return nil
}

func newVictim(p *tick.Pod, f rule.Finding) Victim {
	return Victim{Pod: p, Rules: []string{f.Rule}, Eviction: tick.PodEviction{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name,
		Rule: f.Rule, Scope: f.Scope,
		Reason:             fmt.Sprintf("met threshold in scope: %s from plugin: %s", f.Scope, f.Rule),
		Message:            f.Message,
		GracePeriodSeconds: f.GracePeriodSeconds,
	}}
}

// join adds a second rule's reason. The longer grace period holds, and the pod's own, which is not known here, counts
// as the longest.
func (v *Victim) join(f rule.Finding) {
	other := newVictim(v.Pod, f).Eviction
	v.Rules = append(v.Rules, f.Rule)
	v.Eviction.Reason += "; " + other.Reason
	v.Eviction.Message += "; " + other.Message
	mine, its := v.Eviction.GracePeriodSeconds, other.GracePeriodSeconds
	if its == nil || mine != nil && *its > *mine {
		v.Eviction.GracePeriodSeconds = its
	}
}
