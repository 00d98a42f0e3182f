package main

import (
	"slices"

	"polder/lib/stage"
	"polder/lib/tick"
)

// shadow is a second policy that decides on the same samples, and on which no tool acts.
type shadow struct {
	kind    policyKind
	decider decider
}

// newShadow returns the shadow of a policy's name, which --shadow has checked; nil if there is none. Its state is empty at the start of the
// process: it has no state file.
func newShadow(name string, current *loaded) (*shadow, error) {
	if name == "" {
		return nil, nil
	}
	index := slices.IndexFunc(policies, func(k policyKind) bool { return k.Name == name })
	if name == current.kind.Name {
		return nil, stage.Usagef("--shadow %s: this policy decides already: name another one", name)
	}
	return &shadow{policies[index], policies[index].start(current)}, nil
}

// unread returns the sample's fields that neither policy uses.
func (s *shadow) unread(first policyKind) []string {
	if s == nil {
		return first.unread
	}
	var unread []string
	for _, field := range first.unread {
		if slices.Contains(s.kind.unread, field) {
			unread = append(unread, field)
		}
	}
	return unread
}

func (s *shadow) configure(next *loaded) {
	if s != nil {
		s.decider.configure(next)
	}
}

// decide adds the shadow's decision to the advice.
func (s *shadow) decide(restricted *tick.Tick, finish func(*tick.Advice), advice *tick.Advice) *tick.Advice {
	if s == nil || advice == nil {
		return advice
	}
	other := s.decider.Decide(restricted)
	if other == nil {
		return advice
	}
	finish(other)
	combined := *advice // the policy may keep a reference to the advice
	combined.Shadow = &tick.Shadow{
		Policy: other.Policy, Reclaimed: other.Reclaimed, Withdrawn: other.Withdrawn, Pools: other.Pools, Reasons: other.Reasons,
	}
	return &combined
}
