package main

import (
	"slices"

	"polder/lib/stage"
	"polder/lib/tick"
)

// shadow is a second policy that decides on the same samples, and on which no tool acts.
type shadow struct {
	kind    kind
	decider decider
}

// newShadow returns the shadow of a policy's name, which --shadow has checked; nil if there is none. Its state is empty at the start of the
// process: it has no state file.
func newShadow(name string, now *loaded) (*shadow, error) {
	if name == "" {
		return nil, nil
	}
	at := slices.IndexFunc(policies, func(k kind) bool { return k.Name == name })
	if name == now.kind.Name {
		return nil, stage.Usagef("--shadow %s: that is the policy that decides: want another one", name)
	}
	return &shadow{policies[at], policies[at].start(now)}, nil
}

// unread returns the sample's fields that neither policy uses.
func (s *shadow) unread(first kind) []string {
	if s == nil {
		return first.unread
	}
	var both []string
	for _, field := range first.unread {
		if slices.Contains(s.kind.unread, field) {
			both = append(both, field)
		}
	}
	return both
}

func (s *shadow) configure(next *loaded) {
	if s != nil {
		s.decider.configure(next)
	}
}

// decide adds the shadow's decision to the advice.
func (s *shadow) decide(seen *tick.Tick, finish func(*tick.Advice), advice *tick.Advice) *tick.Advice {
	if s == nil || advice == nil {
		return advice
	}
	other := s.decider.Decide(seen)
	if other == nil {
		return advice
	}
	finish(other)
	both := *advice // the policy may keep a reference to the advice
	both.Shadow = &tick.Shadow{
		Policy: other.Policy, Reclaimed: other.Reclaimed, Withdrawn: other.Withdrawn, Pools: other.Pools, Reasons: other.Reasons,
	}
	return &both
}
