package main

import (
	"math"
	"time"

	"polder/collect/source"
)

// farBack is the age of a state that --once takes its rates from: any.
const farBack = time.Duration(math.MaxInt64)

// load takes up --state. It reports whether there was one to go on from.
func (r *run) load(within time.Duration) bool {
	var state source.State
	ok, err := r.session.LoadState(source.StateVersion, &state)
	if err != nil {
		r.session.Log.Warn("start without the state", "error", err)
		return false
	}
	if !ok {
		return false
	}
	if !r.collector.Load(&state, within.Seconds()) {
		r.session.Log.Info("the state is of another start of the machine, starting without it", "path", r.session.State)
		return false
	}
	return true
}
