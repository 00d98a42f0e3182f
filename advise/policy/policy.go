// Package policy defines what a policy is: how a sample becomes advice.
package policy

import "polder/lib/tick"

// Policy is one way to turn samples into advice.
type Policy struct {
	Name string
	Doc  string // the first line is the title
	// StateVersion changes with the form of the policy's state. No two policies have the same: it tells whose a state is.
	StateVersion int
}

// Decider decides tick by tick. It is pure but for what it remembers: time comes from the tick, and a recording
// replayed from the same state gives the same advice.
type Decider interface {
	// Decide returns the advice for a tick. It never returns nil: where the sample does not allow a decision, the
	// advice has that in its reasons and wants nothing.
	Decide(t *tick.Tick) *tick.Advice
	// State returns what must be remembered, for [tick.Marshal]; unmarshalling into it restores it.
	State() any
}
