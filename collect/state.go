package main

import (
	"math"
	"time"

	"polder/collect/source"
)

// anyAge is the age of a state that --once takes its rates from: any.
const anyAge = time.Duration(math.MaxInt64)

// load reads --state. It reports whether there was a state to continue from.
func (r *run) load(within time.Duration) bool {
	var state source.State
	ok, err := r.session.LoadState(source.StateVersion, &state)
	if err != nil {
		r.session.Log.Warn("read --state: starting without it", "error", err)
		return false
	}
	if !ok {
		return false
	}
	if !r.collector.Load(&state, within.Seconds()) {
		r.session.Log.Info("--state is from another boot: starting without it", "path", r.session.State)
		return false
	}
	return true
}
