// Package guard takes resources from batch while services wait, after a policy has decided. Contention that scheduling class and CPU lists
// do not prevent shows as waiting: for a CPU, for memory, for I/O. The guard compares each service's waiting with its target: the waiting
// while batch used almost nothing, plus a margin. It takes from batch in steps while a service exceeds its target, and reverts them slowly:
//
//	CPUs    batch's CPU lists become shorter, by thirds of the part above the policy's floor
//	quota   batch's CPU use is limited, by thirds of its use above its floor
//	disk    batch's reads and writes are limited, by thirds of their rates (if services wait for I/O, on cgroup v2, first; off by default)
//	memory  memory.high of batch at its use, then a tenth below (only if services wait for memory or I/O, on cgroup v2)
//
// Its desired values only ever tighten what the policy advises. It reverts the last step after a hold-down; if the step is needed again
// soon, the hold-down doubles, so that a constant load causes fewer and fewer changes and no oscillation. If the services' own use has
// fallen since the step, the load has changed and the first hold-down applies again.
//
// The idea is that of Heracles (Lo and others, ISCA 2015): feedback from the services, take immediately, revert slowly; the target's idea
// is CPI2's (Zhang and others, EuroSys 2013): compare a service with its own history, not with one number for all.
package guard

import (
	"fmt"
	"slices"
	"time"

	"polder/advise/class"
	"polder/advise/policy"
	"polder/lib/reason"
	"polder/lib/tick"
)

// These are the modes of the guard, and of its steps of disk.
const (
	On  = "on"
	Off = "off"
)

// Modes are all modes.
var Modes = []string{Off, On}

// Settings are what an administrator can set.
type Settings struct {
	// Mode is one of [Modes]; empty means off.
	Mode string
	// Disk is one of [Modes] too, empty for off: whether batch's disk I/O is throttled. On a file system that batch shares with services,
	// throttling may harm the services (docs/disk.md).
	Disk string
	// TargetPermille is how long each service may wait, in thousandths of the time; 0 means the waiting while batch used almost nothing, plus
	// MarginPermille.
	TargetPermille, MarginPermille float64
}

// DefaultMarginPermille is the default margin, 20 ms per second.
const DefaultMarginPermille = 20

const (
	// takeAfter and takeTicks are for how long and in how many ticks a service must exceed its target before a step is taken; the same applies
	// between two steps, so that the first one can take effect.
	takeAfter = 5 * time.Second
	takeTicks = 3
	// firstHold and maxHold are the first and the longest hold-down before a step is reverted; repeatWithin is how soon after the revert
	// a step must be needed again for the hold-down to double.
	firstHold    = 30 * time.Second
	maxHold      = 24 * time.Hour
	repeatWithin = 10 * time.Minute
	// loadFellPart is the part of the services' use at the last step below which the load counts as changed.
	loadFellPart = 0.75
	// maxPause is the longest time between two ticks that counts as if there were ticks in it, unless ticks are so rare.
	maxPause = 10 * time.Second
	// unknownAfter is how long steps stay while no service's waiting is known.
	unknownAfter = time.Minute
	// learnAfter is how long all steps must have been in force before what is left of the services' waiting counts as their own, if batch was
	// part of the cause.
	learnAfter = 20 * time.Second
)

// State is what the guard remembers of one node, in the format of the state file.
type State struct {
	// Services has the history of each service, by [policy.Identity].
	Services map[string]*service `json:"services,omitempty"`
	// Steps are the steps in force, oldest first.
	Steps []step `json:"steps,omitempty"`
	// Batch are the batch cgroups of which a quota or memory.high was set, by path.
	Batch map[string]*applied `json:"batch,omitempty"`
	// OverSince is since when some service exceeds its target, OverTicks for how many ticks; CalmSince is since when none does, and
	// LowUseSince since when batch uses almost nothing.
	OverSince time.Time `json:"over,omitzero"`
	OverTicks int       `json:"overTicks,omitempty"`
	// MeanPermille is the mean of the longest waiting over the last few ticks.
	MeanPermille float64   `json:"mean,omitempty"`
	CalmSince    time.Time `json:"calm,omitzero"`
	LowUseSince  time.Time `json:"little,omitzero"`
	// NeededAt is when a service last exceeded its target for long enough to cause a step.
	NeededAt time.Time `json:"needed,omitzero"`
	// ExhaustedSince is since when no further step is possible, although a service exceeded its target, and there is no other batch. A
	// service whose waiting varies about its target exceeds it from time to time only.
	ExhaustedSince time.Time `json:"exhausted,omitzero"`
	// Floor is how long the service that caused the steps has waited since then.
	Floor *atFloor `json:"floor,omitempty"`
	// NoStepUntil is until when no step is taken, because batch was found not to be the cause.
	NoStepUntil time.Time `json:"absolved,omitzero"`
	// LoadFellSince is since when the services use less than at the last step.
	LoadFellSince time.Time `json:"fallen,omitzero"`
	// ChangedAt is when a step was last taken or reverted, or ticks came again after a pause, and RevertedAt when one was last reverted under
	// the same load.
	ChangedAt  time.Time `json:"changed,omitzero"`
	RevertedAt time.Time `json:"gaveBack,omitzero"`
	// Hold is the hold-down in force, KnownAt when some service's waiting was last known.
	Hold    time.Duration `json:"hold,omitempty"`
	KnownAt time.Time     `json:"known,omitzero"`
	// CauseKnownAt is when the waiting for which the last step was taken was last known, or its service was not there.
	CauseKnownAt time.Time `json:"causeKnown,omitzero"`
	// ComparedAt is when the services' waiting was last compared.
	ComparedAt time.Time `json:"compared,omitzero"`
}

// step is one reduction of batch's resources, and its cause.
type step struct {
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`
	// Service waited for Resource for Permille thousandths of the time, over Target.
	Service  string  `json:"service"`
	Resource string  `json:"resource"`
	Permille float64 `json:"permille"`
	Target   float64 `json:"target"`
	// MeanPermille is the mean of the waiting over the last few ticks.
	MeanPermille float64 `json:"mean"`
	// Use is the services' CPU use in milli-CPU; negative if it was unknown.
	Use float64 `json:"use"`
}

// Kinds of steps, in the order in which the guard takes them.
const (
	kindCPUs   = "CPUs"
	kindQuota  = "quota"
	kindMemory = "memory"
	kindDisk   = tick.GuardStepDisk // before the others, if services wait for I/O
)

// stepsOf is the maximum number of steps of each kind.
var stepsOf = map[string]int{kindCPUs: 3, kindQuota: 3, kindMemory: 2, kindDisk: 3}

// Reboot discards what was set of cgroups before a reboot. The history of the services' waiting stays.
func (st *State) Reboot() *State {
	if st == nil || len(st.Services) == 0 {
		return nil
	}
	return &State{Services: st.Services}
}

// Advise compares the services' waiting with their targets, and tightens the batch cgroups in the advice and its fallback. It returns the
// new state, nil if there is nothing to remember.
func (st *State) Advise(t *tick.Tick, a *tick.Advice, s Settings, m class.Machine) *State {
	if t.Sample == nil {
		return st
	}
	if s.Mode != On {
		return st.switchOff(t, a)
	}
	if st == nil {
		st = &State{}
	}
	st.sanitize(t.Time)
	st.observePause(t)
	v := newView(t.Sample)
	worst := st.compare(t, a, &v, s, m)
	switch {
	case v.pods == 0:
		st.Steps = nil
		st.endSpans()
	case !v.isKnown:
		st.keepWhileUnknown(t.Time, a, &v)
	default:
		if !v.isNodeOnly {
			st.KnownAt = t.Time
		}
		st.decide(t.Time, a, &v, worst, st.nextKind(a, &v, worst, s, m))
	}
	st.addReasons(a, v.pods > 0)
	for i := range st.Steps {
		a.GuardSteps = append(a.GuardSteps, st.Steps[i].Kind)
	}
	st.apply(t.Time, a, &v, m)
	if v.pods == 0 && v.services == 0 && len(st.Services) == 0 {
		return nil
	}
	return st
}

// switchOff undoes the values that the guard set before it was switched off.
func (st *State) switchOff(t *tick.Tick, a *tick.Advice) *State {
	if st == nil || len(st.Batch) == 0 {
		return nil
	}
	st = &State{Batch: st.Batch}
	v := newView(t.Sample)
	st.apply(t.Time, a, &v, class.Machine{})
	return st
}

// sanitize corrects invalid values of a state file, and times after a clock was set back.
func (st *State) sanitize(now time.Time) {
	for _, at := range []*time.Time{
		&st.OverSince, &st.CalmSince, &st.LowUseSince, &st.NeededAt, &st.ExhaustedSince, &st.LoadFellSince, &st.ChangedAt, &st.RevertedAt,
		&st.KnownAt, &st.CauseKnownAt, &st.ComparedAt,
	} {
		if at.After(now) {
			*at = now
		}
	}
	st.Hold = min(max(st.Hold, firstHold), maxHold)
	if latest := now.Add(st.Hold); st.NoStepUntil.After(latest) {
		st.NoStepUntil = latest
	}
	st.OverTicks = min(max(st.OverTicks, 0), takeTicks)
	for _, s := range st.Batch {
		if s != nil {
			s.Base, s.Floor, s.Bytes = min(max(s.Base, 0), maxMilliCPU), min(max(s.Floor, 0), maxMilliCPU), min(max(s.Bytes, 0), 1<<53)
			for i, n := range s.Rates {
				s.Rates[i] = min(max(n, 0), maxRate)
			}
		}
	}
	count := map[string]int{}
	st.Steps = slices.DeleteFunc(st.Steps, func(candidate step) bool {
		count[candidate.Kind]++
		return count[candidate.Kind] > stepsOf[candidate.Kind]
	})
}

// endSpans ends what is counted from the first of some consecutive ticks: services' waiting is not compared in this one.
func (st *State) endSpans() {
	st.OverSince, st.OverTicks, st.MeanPermille = time.Time{}, 0, 0
	st.CalmSince, st.ExhaustedSince, st.LoadFellSince = time.Time{}, time.Time{}, time.Time{}
}

// observePause ends what is counted from the first of some consecutive ticks after a time without any, of which nothing is known. The steps
// stay as if one had just been taken.
func (st *State) observePause(t *tick.Tick) {
	if !st.ComparedAt.IsZero() && t.Time.Sub(st.ComparedAt) > max(maxPause, 3*t.Sample.Interval()) {
		st.endSpans()
		st.LowUseSince, st.ChangedAt = time.Time{}, t.Time
		if !st.KnownAt.IsZero() {
			st.KnownAt = t.Time
		}
	}
	st.ComparedAt = t.Time
}

// keepWhileUnknown keeps the steps for [unknownAfter] while no service's waiting is known, and then reverts them one by one.
func (st *State) keepWhileUnknown(now time.Time, a *tick.Advice, v *view) {
	st.endSpans()
	st.NeededAt = now
	if st.KnownAt.IsZero() {
		st.KnownAt = now
	}
	const text = "guard: the services' waiting is unknown"
	switch age := now.Sub(st.KnownAt); {
	case v.services == 0 && len(st.Steps) == 0:
		return
	case len(st.Steps) == 0:
		a.Reasons = append(a.Reasons, text+": no step is taken")
	case age < unknownAfter:
		a.Reasons = append(a.Reasons, fmt.Sprintf("%s for %s: the steps stay for another %s",
			text, age.Round(time.Second), (unknownAfter-age).Round(time.Second)))
	case now.Sub(st.ChangedAt) >= firstHold:
		st.revertLast(now, a, fmt.Sprintf("the services' waiting has been unknown for %s", age.Round(time.Second)))
	}
}

// decide takes or reverts a step. worst is the waiting that is longest relative to its target, nil if all are short enough, and next the
// kind of the step that can be taken, empty if there is none.
func (st *State) decide(now time.Time, a *tick.Advice, v *view, worst *waiting, next string) {
	track := func(start *time.Time, isMet bool) {
		switch {
		case !isMet:
			*start = time.Time{}
		case start.IsZero():
			*start = now
		}
	}
	if !v.isCauseUnknown || st.CauseKnownAt.IsZero() {
		st.CauseKnownAt = now
	}
	isOver := worst != nil && worst.permille > worst.target
	// The services that are known may be calm because of a step that an unknown one needed.
	mayBeOver := worst == nil && now.Sub(st.CauseKnownAt) < unknownAfter && v.isCauseUnknown
	if mayBeOver {
		age := now.Sub(st.CauseKnownAt)
		a.Reasons = append(a.Reasons, fmt.Sprintf(
			"guard: the waiting of %s, which caused the last step, is unknown for %s: the steps stay for another %s",
			policy.Quote(st.Steps[len(st.Steps)-1].Service), age.Round(time.Second), (unknownAfter-age).Round(time.Second)))
	}
	track(&st.OverSince, isOver)
	track(&st.CalmSince, worst == nil && !mayBeOver)
	track(&st.LoadFellSince, st.loadFell(v))
	track(&st.ExhaustedSince, (isOver || len(st.Steps) > 0) && v.batchKnown && next == "" && !v.hasDeleted)
	if st.ExhaustedSince.IsZero() || st.ExhaustedSince.Equal(now) { // what was observed in an earlier such phase has no part in this one
		st.Floor = nil
	}
	if st.OverTicks++; !isOver {
		st.OverTicks, st.MeanPermille = 0, 0
	} else if st.MeanPermille == 0 || st.OverTicks == 1 {
		st.MeanPermille = worst.permille
	} else {
		st.MeanPermille += (worst.permille - st.MeanPermille) / takeTicks
	}
	isNeeded := isOver && now.Sub(st.OverSince) >= takeAfter && st.OverTicks >= takeTicks
	if isNeeded || mayBeOver {
		st.NeededAt = now
	}
	switch isLowUse := !st.LowUseSince.IsZero(); {
	case v.cause != nil && v.batchKnown && st.isNotCause(now):
		st.revertAll(now, a, v.cause)
		return
	case isOver && isLowUse:
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s, but batch uses almost nothing: batch is not the cause", worst))
	case isOver && !v.batchKnown && !v.usesMuch: // batch may not be the cause
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s; batch's use is unknown: no step", worst))
		return
	case isOver:
		st.takeStep(now, a, v, worst, next)
		return
	}
	if len(st.Steps) > 0 {
		st.revertWhenDue(now, a)
	}
}

// takeStep takes the next step, if the waiting has lasted and the last step had time to take effect.
func (st *State) takeStep(now time.Time, a *tick.Advice, v *view, worst *waiting, next string) {
	switch {
	case st.NoStepUntil.After(now):
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s: batch was not the cause: no step for %s",
			worst, st.NoStepUntil.Sub(now).Round(time.Second)))
		return
	case next == "":
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s: no further step is possible", worst))
		return
	}
	if st.NeededAt.Before(now) || now.Sub(st.ChangedAt) < takeAfter {
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s: a step follows if this lasts for %s", worst, takeAfter))
		return
	}
	st.Steps = append(st.Steps, step{
		Kind: next, At: now, Service: worst.name, Resource: worst.resource,
		Permille: worst.permille, Target: worst.target, MeanPermille: st.MeanPermille, Use: v.knownServiceUse(),
	})
	st.updateHold(now)
	st.ChangedAt, st.RevertedAt, st.LoadFellSince, st.ExhaustedSince = now, time.Time{}, time.Time{}, time.Time{}
	st.OverSince, st.OverTicks = now, 0
}

// updateHold sets the hold-down of a step that was just taken: it doubles if a step was reverted not long ago.
func (st *State) updateHold(now time.Time) {
	switch {
	case !st.RevertedAt.IsZero() && now.Sub(st.RevertedAt) < max(repeatWithin, st.Hold):
		st.Hold = min(2*st.Hold, maxHold)
	case len(st.Steps) == 1:
		st.Hold = firstHold
	}
}

// revertWhenDue reverts a step when its hold-down is over.
func (st *State) revertWhenDue(now time.Time, a *tick.Advice) {
	since, why := st.CalmSince, "services wait no longer than their targets"
	if !st.LowUseSince.IsZero() && (since.IsZero() || st.LowUseSince.Before(since)) {
		since, why = st.LowUseSince, "batch uses almost nothing"
	}
	isNotCalm := since.IsZero()
	if isNotCalm && !st.NeededAt.Before(now) {
		return
	}
	hold, loadFell := st.Hold, !st.LoadFellSince.IsZero() && now.Sub(st.LoadFellSince) >= firstHold
	if loadFell {
		hold = firstHold
		why += ", and use less CPU than at the step"
	}
	since = later(since, st.ChangedAt)
	// Waiting that would cause no step need not keep one either, but twice as long.
	if brief := later(st.NeededAt, st.ChangedAt).Add(hold); isNotCalm || brief.Before(since) {
		since, why = brief, "services wait longer than their targets for moments only"
	}
	if remaining := hold - now.Sub(since); remaining > 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s: the last step is reverted in %s (hold-down %s)",
			why, remaining.Round(time.Second), hold))
		return
	}
	if st.revertLast(now, a, why); !loadFell {
		st.RevertedAt = now
	}
}

func (st *State) revertLast(now time.Time, a *tick.Advice, why string) {
	last := st.Steps[len(st.Steps)-1]
	st.Steps = st.Steps[:len(st.Steps)-1]
	st.ChangedAt, st.ExhaustedSince = now, time.Time{}
	a.Reasons = append(a.Reasons, fmt.Sprintf("guard: a step of %s is reverted: %s", last.Kind, why))
}

// later returns the later one of two times.
func later(one, other time.Time) time.Time {
	if one.After(other) {
		return one
	}
	return other
}

// loadFell reports whether the services use much less CPU than at the last step.
func (st *State) loadFell(v *view) bool {
	if len(st.Steps) == 0 {
		return false
	}
	previous, current := st.Steps[len(st.Steps)-1].Use, v.knownServiceUse()
	return previous > 0 && current >= 0 && current < loadFellPart*previous
}

// addReasons adds a reason with the cause of each step in force.
func (st *State) addReasons(a *tick.Advice, hasBatch bool) {
	if !hasBatch {
		return
	}
	counts := map[string]int{}
	for i := range st.Steps {
		step := &st.Steps[i]
		counts[step.Kind]++
		a.Reasons = append(a.Reasons, reason.GuardStep{
			Number: i + 1, Kind: step.Kind, OfKind: counts[step.Kind], Most: stepsOf[step.Kind], At: step.At.UTC().Format(time.TimeOnly),
			Because: fmt.Sprintf("service %s waited for %s", policy.Quote(step.Service), againstTarget(step.Resource, step.Permille, step.Target)),
		}.String())
	}
}

// stepsTaken returns the number of steps of a kind.
func (st *State) stepsTaken(kind string) (n int) {
	for i := range st.Steps {
		if st.Steps[i].Kind == kind {
			n++
		}
	}
	return n
}

// nextKind returns the kind of the step that can be taken for a waiting, or if none is too long for the one that caused the last step;
// empty if no step is left.
func (st *State) nextKind(a *tick.Advice, v *view, worst *waiting, s Settings, m class.Machine) string {
	resource := ""
	switch {
	case worst != nil && worst.permille > worst.target:
		resource = worst.resource
	case len(st.Steps) > 0:
		resource = st.Steps[len(st.Steps)-1].Resource
	default:
		return ""
	}
	switch {
	case s.Disk == On && resource == resourceIO && st.stepsTaken(kindDisk) < stepsOf[kindDisk] && m.CgroupVersion == 2 &&
		st.canThrottle(v):
		return kindDisk
	case st.stepsTaken(kindCPUs) < stepsOf[kindCPUs] && v.canNarrow(a, m, st.stepsTaken(kindCPUs)):
		return kindCPUs
	case st.stepsTaken(kindQuota) < stepsOf[kindQuota] && st.canLowerQuota(a, v, m):
		return kindQuota
	case st.stepsTaken(kindMemory) < stepsOf[kindMemory] && resource != resourceCPU && m.CgroupVersion == 2 && v.knowsMemory():
		return kindMemory
	}
	return ""
}

// String describes the waiting as part of a sentence.
func (w *waiting) String() string {
	return fmt.Sprintf("service %s waits for %s", policy.Quote(w.name), againstTarget(w.resource, w.permille, w.target))
}

// againstTarget names a resource, how long it was waited for, and the target. Thousandths of the time are milliseconds per second, which
// is also true of run delays: these are summed over threads, and can be more than all of the time.
func againstTarget(resource string, permille, target float64) string {
	return fmt.Sprintf("%s for %.0f ms per second, target %.0f ms", resource, permille, target)
}
