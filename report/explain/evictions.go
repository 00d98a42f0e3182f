package explain

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"polder/lib/clip"
	"polder/lib/reason"
	"polder/lib/tick"
)

// keptEvictions bounds the evictions that are remembered of one node.
const keptEvictions = 200

// eviction is one pod's eviction, over all ticks that have it.
type eviction struct {
	uid, rule, scope string
	name             string
	first, last      time.Time
	state, message   string
	failure          string
	finding          *tick.PressureFinding // what was measured at first
}

// evictions are the evictions of a node.
type evictions struct {
	all []*eviction
	// more counts the evictions that are not remembered, moreStates their last states.
	more       int
	moreStates map[string]int
	// current are the states, at the last tick, of the evictions that are not remembered.
	current map[string]string
}

func (es *evictions) add(t *tick.Tick, of func(*tick.PodEviction) bool) {
	if t.Eviction == nil || t.Eviction.Refused != "" { // a refused tick does not say which evictions there are
		return
	}
	current := map[string]string{}
	for i := range t.Eviction.Evictions {
		x := &t.Eviction.Evictions[i]
		if !of(x) {
			continue
		}
		e := es.find(x)
		if e == nil {
			if len(es.all) >= keptEvictions {
				current[x.UID+" "+x.Rule+" "+x.Scope] = short(x.State)
				continue
			}
			e = &eviction{
				uid: short(x.UID), rule: short(x.Rule), scope: short(x.Scope), name: nameOf(x.Namespace, x.Name),
				first: t.Time, message: short(x.Message), finding: findingOf(t, x),
			}
			es.all = append(es.all, e)
		}
		e.last, e.state, e.failure = t.Time, short(x.State), short(x.Error)
	}
	es.countMore(current)
}

// countMore counts the evictions of a tick that are not remembered: each once, by its last state.
func (es *evictions) countMore(current map[string]string) {
	if es.moreStates == nil {
		es.moreStates = map[string]int{}
	}
	for key, state := range current {
		switch before, known := es.current[key]; {
		case !known:
			es.more++
			es.moreStates[state]++
		case before != state:
			es.moreStates[before]--
			es.moreStates[state]++
		}
	}
	es.current = current
	maps.DeleteFunc(es.moreStates, func(_ string, n int) bool { return n == 0 })
}

// forget drops the evictions that were last seen before a time.
func (es *evictions) forget(before time.Time) {
	es.all = slices.DeleteFunc(es.all, func(e *eviction) bool { return e.last.Before(before) })
	if len(es.all) == 0 {
		es.more, es.moreStates, es.current = 0, nil, nil
	}
}

func (es *evictions) find(x *tick.PodEviction) *eviction {
	uid, rule, scope := short(x.UID), short(x.Rule), short(x.Scope)
	for _, e := range es.all {
		if e.uid == uid && e.rule == rule && e.scope == scope {
			return e
		}
	}
	return nil
}

// findingOf is the rule's finding when it named the pod.
func findingOf(t *tick.Tick, x *tick.PodEviction) *tick.PressureFinding {
	var found *tick.PressureFinding
	for i := range t.Eviction.Pressures {
		p := &t.Eviction.Pressures[i]
		if p.Rule == x.Rule && p.Scope == x.Scope && (found == nil || p.Met && (!found.Met || p.Hard)) {
			found = p
		}
	}
	if found == nil {
		return nil
	}
	f := *found
	f.Rule, f.Scope, f.Part, f.Since = short(f.Rule), short(f.Scope), short(f.Part), ""
	return &f
}

// describe returns the eviction in sentences.
func (e *eviction) describe(clock func(time.Time) string) string {
	words := map[string]string{
		tick.StateWouldEvict: "would have been evicted", tick.StateRequested: "had its eviction requested",
		tick.StateCreated:   "had its eviction accepted",
		tick.StateSucceeded: "was evicted", tick.StateFailed: "was to be evicted, which failed",
	}[e.state]
	if words == "" {
		words = clip.Clean(e.state)
	}
	when := "at " + clock(e.first)
	if clock(e.first) != clock(e.last) {
		when = fmt.Sprintf("from %s to %s", clock(e.first), clock(e.last))
	}
	text := fmt.Sprintf("%s %s %s by %s: %s.", e.name, words, when, clip.Clean(e.rule), sentence(plain(e.message)))
	if e.failure != "" {
		text += " The error: " + clip.Clean(e.failure) + "."
	}
	if f := e.finding; f != nil && !reason.HasThreshold(e.message) { // otherwise the message has the figures
		text += fmt.Sprintf(" Measured: %s %s; the threshold is %s.",
			describeScope(f.Scope, f.Part), measure(f.Scope, f.Part, f.Value), measure(f.Scope, f.Part, f.Threshold))
	}
	if e.state == tick.StateWouldEvict {
		text += " (A dry run: nothing was done.)"
	}
	return text
}

// whatToChange names what would have spared the pod.
func (e *eviction) whatToChange() string {
	f := e.finding
	if f == nil || f.Value == f.Threshold {
		return ""
	}
	by := f.Value - f.Threshold
	if f.Below != (by < 0) {
		return "" // the value is within the threshold: the rule uses other values, too
	}
	side, amount := "lower", by
	if f.Below {
		side, amount = "higher", -by
	}
	return fmt.Sprintf("%s would have stayed, had the %s been %s %s.",
		e.name, describeScope(f.Scope, f.Part), measure(f.Scope, f.Part, amount), side)
}

// sentence removes the dots at the end of a message.
func sentence(text string) string {
	for len(text) > 0 && text[len(text)-1] == '.' {
		text = text[:len(text)-1]
	}
	return text
}
