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
	"polder/lib/tick"
)

// Modes.
const (
	On  = "on"
	Off = "off"
)

// Modes are all of them.
var Modes = []string{Off, On}

// Settings are what an administrator can set.
type Settings struct {
	// Mode is one of [Modes], or empty for the policy's default.
	Mode string
	// Disk is one of [Modes] too, empty for off: whether batch's disk I/O is throttled. On a file system that batch shares with services,
	// throttling may harm the services (docs/disk.md).
	Disk string
	// TargetPermille is how long each service may wait, in thousandths of the time; 0 means the waiting while batch used almost nothing, plus
	// MarginPermille.
	TargetPermille, MarginPermille float64
}

// DefaultMarginPermille is the default margin: 2 % of the time.
const DefaultMarginPermille = 20

const (
	// takeAfter and takeTicks are for how long and in how many ticks a service must exceed its target before a step is taken; the same applies
	// between two steps, so that the first one can take effect.
	takeAfter = 5 * time.Second
	takeTicks = 3
	// firstHold and longestHold are the first and the longest hold-down before a step is reverted; relapseWithin is how soon after the revert
	// a step must be needed again for the hold-down to double.
	firstHold     = 30 * time.Second
	longestHold   = 24 * time.Hour
	relapseWithin = 10 * time.Minute
	// fallenTo is the part of the services' use at the last step below which the load counts as changed.
	fallenTo = 0.75
	// unknownAfter is how long steps stay while no service's waiting is known.
	unknownAfter = time.Minute
	// verdictAfter is how long all steps must have been in force before the services' waiting is compared with that at the first step, at most
	// withinTime ago: if more than harmlessPart of it is left, batch was not the cause. If batch was part of the cause, the rest counts as the
	// services' own waiting after learnAfter.
	verdictAfter = 8 * time.Second
	learnAfter   = 20 * time.Second
	withinTime   = 2 * time.Minute
	harmlessPart = 0.75
)

// State is what the guard remembers of one node, in the format of the state file.
type State struct {
	// Services has the history of each service, by [policy.Identity].
	Services map[string]*service `json:"services,omitempty"`
	// Steps are the steps in force, oldest first.
	Steps []step `json:"steps,omitempty"`
	// Batch are the batch cgroups of which a quota or memory.high was set, by path.
	Batch map[string]*share `json:"batch,omitempty"`
	// Over is since when some service exceeds its target, OverTicks for how many ticks; Calm is since when none does, and Little since when
	// batch uses almost nothing.
	Over      time.Time `json:"over,omitzero"`
	OverTicks int       `json:"overTicks,omitempty"`
	// Mean is the mean of the longest waiting over the last few ticks.
	Mean   float64   `json:"mean,omitempty"`
	Calm   time.Time `json:"calm,omitzero"`
	Little time.Time `json:"little,omitzero"`
	// Exhausted is since when a service exceeds its target while no further step is possible.
	Exhausted time.Time `json:"exhausted,omitzero"`
	// Absolved is until when no step is taken, because batch was found not to be the cause.
	Absolved time.Time `json:"absolved,omitzero"`
	// Fallen is since when the services use less than at the last step.
	Fallen time.Time `json:"fallen,omitzero"`
	// Changed is when a step was last taken or reverted, and GaveBack when one was last reverted under the same load.
	Changed  time.Time `json:"changed,omitzero"`
	GaveBack time.Time `json:"gaveBack,omitzero"`
	// Hold is the hold-down in force, Known when some service's waiting was last known.
	Hold  time.Duration `json:"hold,omitempty"`
	Known time.Time     `json:"known,omitzero"`
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
	// Mean is the mean of the waiting over the last few ticks.
	Mean float64 `json:"mean"`
	// Use is the services' CPU use in milli-CPU; negative if it was unknown.
	Use float64 `json:"use"`
}

// Kinds of steps, in the order in which the guard takes them.
const (
	kindCPUs   = "CPUs"
	kindQuota  = "quota"
	kindMemory = "memory"
	kindDisk   = "disk" // before the others, if services wait for I/O
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
// new state, nil if there is nothing to remember. With byDefault the guard is on by default.
func (st *State) Advise(t *tick.Tick, a *tick.Advice, s Settings, byDefault bool, m class.Machine) *State {
	if t.Sample == nil {
		return st
	}
	if on := s.Mode == On || s.Mode == "" && byDefault; !on {
		return st.off(t, a)
	}
	if st == nil {
		st = &State{}
	}
	st.mend(t.Time)
	v := look(t.Sample)
	worst := st.compare(t, &v, s, m)
	switch {
	case v.pods == 0:
		st.Steps, st.Over, st.OverTicks, st.Calm = nil, time.Time{}, 0, time.Time{}
	case !v.known:
		st.unknown(t.Time, a, &v)
	default:
		if !v.byNode {
			st.Known = t.Time
		}
		st.decide(t.Time, a, &v, worst, st.next(a, &v, worst, s, m))
	}
	st.addReasons(a, v.pods > 0)
	st.apply(a, &v, m)
	if v.pods == 0 && v.services == 0 && len(st.Services) == 0 {
		return nil
	}
	return st
}

// off undoes the values that the guard set before it was switched off.
func (st *State) off(t *tick.Tick, a *tick.Advice) *State {
	if st == nil || len(st.Batch) == 0 {
		return nil
	}
	st = &State{Batch: st.Batch}
	v := look(t.Sample)
	st.apply(a, &v, class.Machine{})
	return st
}

// mend corrects invalid values of a state file, and times after a clock was set back.
func (st *State) mend(now time.Time) {
	for _, at := range []*time.Time{&st.Over, &st.Calm, &st.Little, &st.Exhausted, &st.Fallen, &st.Changed, &st.GaveBack, &st.Known} {
		if at.After(now) {
			*at = now
		}
	}
	st.Hold = min(max(st.Hold, firstHold), longestHold)
	if st.Absolved.After(now.Add(longestHold)) {
		st.Absolved = time.Time{}
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
	taken := map[string]int{}
	st.Steps = slices.DeleteFunc(st.Steps, func(one step) bool {
		taken[one.Kind]++
		return taken[one.Kind] > stepsOf[one.Kind]
	})
}

// unknown keeps the steps for [unknownAfter] while no service's waiting is known, and then reverts them one by one.
func (st *State) unknown(now time.Time, a *tick.Advice, v *view) {
	st.Over, st.OverTicks, st.Calm = time.Time{}, 0, time.Time{}
	if st.Known.IsZero() {
		st.Known = now
	}
	const text = "guard: how long the services wait is not known"
	switch age := now.Sub(st.Known); {
	case v.services == 0:
		return
	case len(st.Steps) == 0:
		a.Reasons = append(a.Reasons, text+": nothing is taken from batch for it")
	case age < unknownAfter:
		a.Reasons = append(a.Reasons, fmt.Sprintf("%s for %s: steps stay for %s",
			text, age.Round(time.Second), (unknownAfter-age).Round(time.Second)))
	case now.Sub(st.Changed) >= firstHold:
		st.giveBack(now, a, fmt.Sprintf("how long the services wait has not been known for %s", age.Round(time.Second)))
	}
}

// decide takes or reverts a step. worst is the waiting that is longest relative to its target, nil if all are short enough, and next the
// kind of the step that can be taken, empty if there is none.
func (st *State) decide(now time.Time, a *tick.Advice, v *view, worst *waiting, next string) {
	since := func(at *time.Time, holds bool) {
		switch {
		case !holds:
			*at = time.Time{}
		case at.IsZero():
			*at = now
		}
	}
	over := worst != nil && worst.permille > worst.target
	since(&st.Over, over)
	since(&st.Calm, worst == nil)
	since(&st.Fallen, st.fallen(v))
	since(&st.Exhausted, over && v.batchKnown && next == "")
	if st.OverTicks++; !over {
		st.OverTicks, st.Mean = 0, 0
	} else if st.Mean == 0 || st.OverTicks == 1 {
		st.Mean = worst.permille
	} else {
		st.Mean += (worst.permille - st.Mean) / takeTicks
	}
	switch absent := !st.Little.IsZero(); {
	case over && absent:
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s, but batch uses next to nothing: it is not the cause", worst))
	case over && !v.batchKnown:
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s; what batch uses is not known: no step", worst))
		return
	case over:
		st.take(now, a, v, worst, next)
		return
	}
	if len(st.Steps) > 0 {
		st.release(now, a)
	}
}

// take takes the next step, if the waiting has lasted and the last step had time to take effect.
func (st *State) take(now time.Time, a *tick.Advice, v *view, worst *waiting, next string) {
	switch {
	case st.Absolved.After(now):
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s: batch was not the cause, and is left alone for %s",
			worst, st.Absolved.Sub(now).Round(time.Second)))
		return
	case next == "" && now.Sub(st.Exhausted) >= verdictAfter && st.OverTicks >= takeTicks && st.harmless(now, v, worst):
		st.letGo(now, a, worst)
		return
	case next == "":
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s, and there is nothing left to take from batch", worst))
		return
	}
	if now.Sub(st.Over) < takeAfter || st.OverTicks < takeTicks || now.Sub(st.Changed) < takeAfter {
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s: a step follows where that lasts for %s", worst, takeAfter))
		return
	}
	st.Steps = append(st.Steps, step{
		Kind: next, At: now, Service: worst.name, Resource: worst.resource,
		Permille: worst.permille, Target: worst.target, Mean: st.Mean, Use: v.use(),
	})
	st.relapse(now)
	st.Changed, st.GaveBack, st.Fallen = now, time.Time{}, time.Time{}
	st.Over, st.OverTicks = now, 0
}

// relapse sets the hold-down of a step that was just taken: it doubles if a step was reverted not long ago.
func (st *State) relapse(now time.Time) {
	switch {
	case !st.GaveBack.IsZero() && now.Sub(st.GaveBack) < max(relapseWithin, st.Hold):
		st.Hold = min(2*st.Hold, longestHold)
	case len(st.Steps) == 1:
		st.Hold = firstHold
	}
}

// harmless reports whether taking everything from batch left the waiting unchanged, so that batch is not the cause. It compares only the
// same kind of waiting of the same service under a similar load, and only soon after the first step.
func (st *State) harmless(now time.Time, v *view, worst *waiting) bool {
	if len(st.Steps) == 0 || worst.pod == nil || worst.level < 0 {
		return false
	}
	first, use := &st.Steps[0], v.use()
	return first.Service == worst.name && first.Resource == worst.resource && st.GaveBack.IsZero() && now.Sub(first.At) <= withinTime &&
		first.Use > 0 && use >= fallenTo*first.Use && use <= first.Use/fallenTo && st.Mean > harmlessPart*first.Mean
}

// letGo reverts all steps, because batch was not the cause, and takes none for the hold-down, which doubles the next time.
func (st *State) letGo(now time.Time, a *tick.Advice, worst *waiting) {
	const text = "guard: %s, and did so before all was taken from batch (%.1f %%): batch is not the cause, and gets all back"
	a.Reasons = append(a.Reasons, fmt.Sprintf(text, worst, st.Steps[0].Mean/10))
	st.absolve(worst, now)
	st.Steps, st.Changed, st.GaveBack = nil, now, now
	st.Absolved = now.Add(st.Hold)
	st.Over, st.OverTicks, st.Mean, st.Exhausted = time.Time{}, 0, 0, time.Time{}
}

// release reverts a step when its hold-down is over.
func (st *State) release(now time.Time, a *tick.Advice) {
	quiet, why := st.Calm, "services wait no longer than their targets"
	if !st.Little.IsZero() && (quiet.IsZero() || st.Little.Before(quiet)) {
		quiet, why = st.Little, "batch uses next to nothing"
	}
	if quiet.IsZero() {
		return
	}
	if st.Changed.After(quiet) {
		quiet = st.Changed
	}
	hold, fallen := st.Hold, !st.Fallen.IsZero() && now.Sub(st.Fallen) >= firstHold
	if fallen {
		hold = firstHold
		why += ", and use less than when it was taken"
	}
	if left := hold - now.Sub(quiet); left > 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: %s: the last step is given back in %s (hold-down %s)",
			why, left.Round(time.Second), hold))
		return
	}
	if st.giveBack(now, a, why); !fallen {
		st.GaveBack = now
	}
}

func (st *State) giveBack(now time.Time, a *tick.Advice, why string) {
	last := st.Steps[len(st.Steps)-1]
	st.Steps = st.Steps[:len(st.Steps)-1]
	st.Changed = now
	a.Reasons = append(a.Reasons, fmt.Sprintf("guard: a step of %s is given back: %s", last.Kind, why))
}

// fallen reports whether the services use much less CPU than at the last step.
func (st *State) fallen(v *view) bool {
	if len(st.Steps) == 0 {
		return false
	}
	was, is := st.Steps[len(st.Steps)-1].Use, v.use()
	return was > 0 && is >= 0 && is < fallenTo*was
}

// addReasons adds a reason with the cause of each step in force.
func (st *State) addReasons(a *tick.Advice, batch bool) {
	if !batch {
		return
	}
	number := map[string]int{}
	for i := range st.Steps {
		one := &st.Steps[i]
		number[one.Kind]++
		a.Reasons = append(a.Reasons, fmt.Sprintf("guard: step %d: %s taken from batch (%d of %d) at %s, because service %s waited for %s for %.1f %% of the time, target %.1f %%",
			i+1, one.Kind, number[one.Kind], stepsOf[one.Kind], one.At.UTC().Format(time.TimeOnly),
			policy.Quote(one.Service), one.Resource, one.Permille/10, one.Target/10))
	}
}

// taken returns the number of steps of a kind.
func (st *State) taken(kind string) (n int) {
	for i := range st.Steps {
		if st.Steps[i].Kind == kind {
			n++
		}
	}
	return n
}

// next returns the kind of the step that can be taken for a waiting; empty if no step is left.
func (st *State) next(a *tick.Advice, v *view, worst *waiting, s Settings, m class.Machine) string {
	switch {
	case worst == nil || worst.permille <= worst.target:
		return ""
	case s.Disk == On && worst.resource == resourceIO && st.taken(kindDisk) < stepsOf[kindDisk] && m.CgroupVersion == 2 && st.throttles(v):
		return kindDisk
	case st.taken(kindCPUs) < stepsOf[kindCPUs] && v.narrows(a, m, st.taken(kindCPUs)):
		return kindCPUs
	case st.taken(kindQuota) < stepsOf[kindQuota] && st.limits(a, v, m):
		return kindQuota
	case st.taken(kindMemory) < stepsOf[kindMemory] && worst.resource != resourceCPU && m.CgroupVersion == 2 && v.holdsMemory():
		return kindMemory
	}
	return ""
}

// String describes the waiting as part of a sentence.
func (w *waiting) String() string {
	return fmt.Sprintf("service %s waits for %s for %.1f %% of the time, target %.1f %%",
		policy.Quote(w.name), w.resource, w.permille/10, w.target/10)
}
