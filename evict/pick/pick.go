// Package pick chooses the pods to evict: which are protected, their order, their number, and which evictions are in progress. It
// is pure: the same findings have the same victims.
package pick

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"polder/evict/rule"
	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// Unlimited instead of a number sets no limit.
const Unlimited = evictconfig.Unlimited

// Limits bound the victims. Each is a number of pods, or Unlimited.
type Limits struct {
	// PerRule limits one rule at one tick, PerTick all rules together. PerRuleUntilCovered is PerRule for the findings that must be
	// covered at one tick (see [rule.Finding.UntilCovered]).
	PerRule, PerTick, PerRuleUntilCovered int
	// PerHour limits the last hour of the ticks' time, PerNamespace the pods of one namespace within it. A soft finding may not use the
	// second half of either.
	PerHour, PerNamespace int
	// OptOut are annotations that protect a pod: KEY=VALUE, or KEY for any value.
	OptOut []string
}

// The limits' names are those of the settings.
const (
	LimitPerRule      = "per-rule"
	LimitBurst        = "burst"
	LimitPerHour      = "per-hour"
	LimitPerNamespace = "per-namespace"
)

// Victim is a chosen pod.
type Victim struct {
	Pod      *tick.Pod
	Eviction tick.PodEviction // without a state
	// Rules chose it: more than one if several rules named the same pod. Cooldowns are those that its eviction
	// begins (see [rule.Finding.CooldownKey]).
	Rules, Cooldowns []string
}

// Round is the choice at one tick.
type Round struct {
	// Victims are evicted; WouldEvict are the victims of rules in dry run (PressureFinding.DryRun).
	Victims, WouldEvict []Victim
	// Verdicts are in the findings' order.
	Verdicts []Verdict
	// ReachedLimits names the limit that excluded a pod that was needed, each once per finding.
	ReachedLimits []ReachedLimit
	// Queue contains the pods that wait after this round (see [Queue]).
	Queue Queue
}

// ReachedLimit is a limit that was reached.
type ReachedLimit struct{ Rule, Limit string }

// Verdict is the result of one finding.
type Verdict struct {
	Finding *rule.Finding
	// Why says briefly why no pod is evicted for it; empty if the candidates' own verdicts say so.
	Why string
	// ToleranceLeft and CooldownLeft are the time until a pod may be evicted for it.
	ToleranceLeft, CooldownLeft time.Duration
	// Candidates are in the order of eviction.
	Candidates []Choice
}

// Choice is the result for one candidate.
type Choice struct {
	rule.Candidate
	Chosen bool
	// Why says why it is chosen or not.
	Why string
}

// round is the state of a choice in progress.
type round struct {
	now    time.Time
	limits Limits
	state  *State
	result Round

	acting, wouldEvict passVictims
	evictedInHour      int            // pods evicted within the hour
	evictedByNamespace map[string]int // of them, by namespace
}

// passVictims are the victims of one pass.
type passVictims struct {
	byUID   map[string]int // index among the victims
	perRule map[string]int
}

func newPassVictims() passVictims { return passVictims{map[string]int{}, map[string]int{}} }

// Choose returns a tick's victims. Each finding requires victims while its value, less the pods whose eviction is in progress and
// those chosen earlier in this round, is past its threshold: hard findings one after the other, then one pod for the soft ones. The
// rules in dry run come last, separately: the victims of others count for them, their own do not count for others. The state does
// not change: [State.RecordRequest] records which pods are evicted.
func Choose(now time.Time, findings []rule.Finding, limits Limits, m *State) Round {
	r := &round{
		now: now, limits: limits, state: m, acting: newPassVictims(), wouldEvict: newPassVictims(),
		evictedInHour: len(m.LastHour), evictedByNamespace: map[string]int{},
	}
	r.result.Verdicts = make([]Verdict, len(findings))
	for i := range findings {
		r.result.Verdicts[i] = r.verdict(&findings[i])
	}
	for _, dryRun := range []bool{false, true} {
		for i := range findings {
			if f := &findings[i]; f.Hard && f.DryRun == dryRun {
				r.chooseHard(&r.result.Verdicts[i])
			}
		}
		r.chooseSoft(dryRun)
	}
	return r.result
}

// verdict examines one finding: whether it requires victims, and which pods may not be evicted in any case.
func (r *round) verdict(f *rule.Finding) Verdict {
	v := Verdict{Finding: f}
	if !f.Met {
		v.Why = "not met"
		return v
	}
	v.ToleranceLeft = r.state.Continuity.toleranceLeft(f, r.now)
	v.CooldownLeft = r.state.CooldownLeft(f.CooldownKey(), r.now, f.Cooldown)
	v.Candidates = make([]Choice, len(f.Candidates))
	for i, x := range f.Candidates {
		v.Candidates[i] = Choice{Candidate: x, Why: r.whyExcluded(&x)}
	}
	slices.SortFunc(v.Candidates, func(a, b Choice) int {
		return cmp.Or(r.unansweredFirst(a)-r.unansweredFirst(b), rule.Compare(a.Candidate, b.Candidate))
	})
	switch {
	case !f.Hard && len(f.Candidates) == 0:
		v.Why = "only sets a taint"
	case !(uncoveredNeed(f, f.Threshold, 0) > 0):
		v.Why = "its value is not past the threshold now"
	case !(uncoveredNeed(f, f.Threshold, r.releasedInProgress(f)) > 0):
		v.Why = "the evictions in progress are enough"
	case v.ToleranceLeft > 0:
		v.Why = "met for less than the tolerance"
	case f.WhyWait != "":
		v.Why = f.WhyWait
	case v.CooldownLeft > 0:
		r.applyCooldown(&v)
	}
	return v
}

// applyCooldown leaves a rule in its cooldown only the candidate whose end it has requested without a known answer.
func (r *round) applyCooldown(v *Verdict) {
	const why = "the rule is in its cooldown"
	if len(v.Candidates) == 0 || r.unansweredFirst(v.Candidates[0]) != 0 || v.Candidates[0].Why != "" {
		v.Why = why
		return
	}
	for i := range v.Candidates[1:] {
		if x := &v.Candidates[i+1]; x.Why == "" {
			x.Why = why
		}
	}
}

// unansweredFirst is a sort key: it orders candidates whose request has no known answer before all others.
func (r *round) unansweredFirst(x Choice) int {
	if r.state.InProgress.Unanswered(x.Pod.UID) {
		return 0
	}
	return 1
}

// whyExcluded returns why a candidate cannot be evicted, whatever the finding needs.
func (r *round) whyExcluded(x *rule.Candidate) string {
	switch why := Protected(x.Pod, r.limits.OptOut); {
	case r.state.InProgress.Has(x.Pod.UID):
		return "eviction in progress"
	case x.Pod.Terminating:
		return "already terminating"
	case why != "":
		return "protected: " + why
	case r.state.InProgress.FailedRecently(x.Pod.UID):
		return "its last eviction failed"
	case !(x.Releases > 0):
		return "its eviction would release nothing"
	}
	return ""
}

// releasedInProgress returns how much of the finding's value ends with the pods whose eviction is in progress.
func (r *round) releasedInProgress(f *rule.Finding) float64 {
	sum := 0.0
	for _, list := range [][]rule.Candidate{f.Candidates, f.Others} {
		for _, x := range list {
			if x.Releases > 0 && r.state.releases(x.Pod, r.now) {
				sum += x.Releases
			}
		}
	}
	return sum
}

// uncoveredNeed returns how much more than released must end to cover the finding's need: without an explicit need, until its value
// is no longer past the threshold, which may be a pod's own.
func uncoveredNeed(f *rule.Finding, threshold, released float64) float64 {
	if f.Need > 0 {
		return f.Need - released
	}
	if f.Below {
		return threshold - (f.Value + released)
	}
	return (f.Value - released) - threshold
}

// chooseHard chooses the victims of a hard finding.
func (r *round) chooseHard(v *Verdict) {
	if v.Why != "" {
		return
	}
	need := newNeed(r, v)
	for i := range v.Candidates {
		x := &v.Candidates[i]
		if x.Why == "" {
			x.Chosen, x.Why = r.tryChoose(need, x)
		}
	}
}

// need is the uncovered part of a finding while its candidates are examined.
type need struct {
	finding  *rule.Finding
	released float64
	limited  map[string]bool
}

// newNeed counts the evictions in progress and the pods chosen before; the latter are joined, as long as they are needed.
func newNeed(r *round, v *Verdict) *need {
	f := v.Finding
	n := &need{finding: f, released: r.releasedInProgress(f), limited: map[string]bool{}}
	pass := r.pass(f)
	for i := range v.Candidates {
		x := &v.Candidates[i]
		switch {
		case !r.isChosen(pass, x.Pod.UID), x.Why == "" && r.join(n, x):
		default: // its end counts, also where it is excluded for this finding, as in a cooldown
			x.Why = cmp.Or(x.Why, "chosen for another finding")
			n.released += max(x.Releases, 0)
		}
	}
	for _, x := range f.Others {
		if r.isChosen(pass, x.Pod.UID) && x.Releases > 0 { // one whose eviction is in progress is not chosen
			n.released += x.Releases
		}
	}
	return n
}

// join adds the finding's reason to a candidate that was chosen for another one, if its end is needed and the rule's limit allows it.
func (r *round) join(n *need, x *Choice) bool {
	f := n.finding
	pass := r.pass(f)
	at, isChosen := pass.byUID[x.Pod.UID]
	if !isChosen || !n.isUncoveredBy(x) || !allowsOneMore(r.limits.perRule(f), pass.perRule[f.Rule]) {
		return false
	}
	r.victims(f)[at].join(f, x)
	pass.perRule[f.Rule]++
	n.released += x.Releases
	x.Chosen, x.Why = true, "chosen, for another finding too"
	return true
}

// isChosen reports whether any finding has chosen a pod in this round.
func (r *round) isChosen(pass *passVictims, uid string) bool {
	_, chosenInPass := pass.byUID[uid]
	_, chosenToEvict := r.acting.byUID[uid]
	return chosenInPass || chosenToEvict
}

// isUncoveredBy reports whether this candidate's end is still needed.
func (n *need) isUncoveredBy(x *Choice) bool {
	return uncoveredNeed(n.finding, cmp.Or(x.Threshold, n.finding.Threshold), n.released) > 0
}

// tryChoose chooses a candidate that nothing excludes, if it is needed and within the limits. It returns the reason in both cases.
func (r *round) tryChoose(n *need, x *Choice) (bool, string) {
	f := n.finding
	pass := r.pass(f)
	if _, ok := pass.byUID[x.Pod.UID]; ok {
		return false, "listed twice"
	}
	if !n.isUncoveredBy(x) {
		return false, "not needed: the candidates before it are enough"
	}
	if limit := r.exceededLimit(f, x.Pod); limit != "" {
		if !n.limited[limit] && !f.DryRun {
			n.limited[limit] = true
			r.result.ReachedLimits = append(r.result.ReachedLimits, ReachedLimit{f.Rule, limit})
		}
		return false, "over the limit: --" + limit
	}
	pass.perRule[f.Rule]++
	n.released += x.Releases
	victim := NewVictim(f, x)
	if f.DryRun {
		pass.byUID[x.Pod.UID] = len(r.result.WouldEvict)
		r.result.WouldEvict = append(r.result.WouldEvict, victim)
		return true, "would be evicted: the rule is in dry run"
	}
	pass.byUID[x.Pod.UID] = len(r.result.Victims)
	r.result.Victims = append(r.result.Victims, victim)
	if !r.state.IsCounted(x.Pod.UID) {
		r.evictedInHour++
		r.evictedByNamespace[x.Pod.Namespace]++
	}
	return true, "chosen"
}

// exceededLimit names the limit that a pod would exceed. A rule in dry run does not count towards limits, and only its
// own limit applies.
func (r *round) exceededLimit(f *rule.Finding, p *tick.Pod) string {
	switch pass := r.pass(f); {
	case !allowsOneMore(r.limits.perRule(f), pass.perRule[f.Rule]):
		return LimitPerRule
	case f.DryRun:
		return ""
	case !allowsOneMore(r.limits.PerTick, len(r.result.Victims)):
		return LimitBurst
	case r.state.IsCounted(p.UID):
		return ""
	case !allowsOneMore(partOf(r.limits.PerHour, f), r.evictedInHour):
		return LimitPerHour
	case !allowsOneMore(partOf(r.limits.PerNamespace, f), r.state.LastHour.InNamespace(p.Namespace)+r.evictedByNamespace[p.Namespace]):
		return LimitPerNamespace
	}
	return ""
}

// perRule returns the limit of the finding's rule at one tick.
func (l *Limits) perRule(f *rule.Finding) int {
	if f.UntilCovered {
		return l.PerRuleUntilCovered
	}
	return l.PerRule
}

// partOf returns the part of an hour's limit up to which a finding may have more evictions. Pods' own annotations lower the thresholds of
// soft findings, so that tenants can have their pods evicted as often as they like: half of the hour's evictions remain for the node's
// needs. Of those of a namespace too, because a tenant whose namespace is at its limit has the pods of others evicted instead.
func partOf(limit int, f *rule.Finding) int {
	if f.Hard || limit == Unlimited {
		return limit
	}
	return (limit + 1) / 2
}

// allowsOneMore reports whether one more is allowed.
func allowsOneMore(limit, count int) bool { return limit == Unlimited || count < limit }

func (r *round) pass(f *rule.Finding) *passVictims {
	if f.DryRun {
		return &r.wouldEvict
	}
	return &r.acting
}

func (r *round) victims(f *rule.Finding) []Victim {
	if f.DryRun {
		return r.result.WouldEvict
	}
	return r.result.Victims
}

// NewVictim returns a pod that is chosen for a finding.
func NewVictim(f *rule.Finding, x *Choice) Victim {
	p, grace := x.Pod, f.GracePeriodSeconds
	if x.GracePeriodSeconds != nil {
		grace = x.GracePeriodSeconds
	}
	return Victim{Pod: p, Rules: []string{f.Rule}, Cooldowns: []string{f.CooldownKey()}, Eviction: tick.PodEviction{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name,
		Rule: f.Rule, Scope: f.Scope,
		Reason:             cmp.Or(f.Reason, fmt.Sprintf("met threshold in scope: %s from plugin: %s", f.Scope, f.Rule)),
		Message:            cmp.Or(x.Message, f.Message),
		GracePeriodSeconds: grace,
	}}
}

// join adds another finding's reason, except to Koordinator's wording, which clusters search for in events. The longer grace
// period applies, and the pod's own, which is unknown here, counts as the longest.
func (v *Victim) join(f *rule.Finding, x *Choice) {
	other := NewVictim(f, x).Eviction
	if !slices.Contains(v.Rules, f.Rule) {
		v.Rules = append(v.Rules, f.Rule)
	}
	if !slices.Contains(v.Cooldowns, f.CooldownKey()) {
		v.Cooldowns = append(v.Cooldowns, f.CooldownKey())
	}
	if !rule.IsKoordinator(v.Eviction.Rule) {
		v.Eviction.Reason += "; " + other.Reason
		v.Eviction.Message += "; " + other.Message
	}
	current, added := v.Eviction.GracePeriodSeconds, other.GracePeriodSeconds
	if added == nil || current != nil && *added > *current {
		v.Eviction.GracePeriodSeconds = added
	}
}
