// Package policy defines a policy: an algorithm that converts a sample to advice.
package policy

import "polder/lib/tick"

// Policy is one algorithm that converts samples to advice.
type Policy struct {
	Name string
	Doc  string // the first line is the title
	// StateVersion changes with the format of the policy's state. It is unique among policies, to identify the owner of a state.
	StateVersion int
}

// Decider decides tick by tick. It is pure except for its state: time comes from the tick, and a recording that is replayed from the same
// state gives the same advice.
type Decider interface {
	// Decide returns the advice for a tick. It never returns nil: if the sample does not allow a decision, the advice says so in its reasons
	// and desires nothing.
	Decide(t *tick.Tick) *tick.Advice
	// State returns the state for [tick.Marshal]; unmarshalling into it restores it.
	State() any
}
