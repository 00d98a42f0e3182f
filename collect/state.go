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
		r.session.Log.Warn("start anew", "error", err)
		return false
	}
	if !ok {
		return false
	}
	if !r.collector.Load(&state, within.Seconds()) {
		r.session.Log.Info("the state is of another start of the machine, starting anew", "path", r.session.State)
		return false
	}
	return true
}

// save saves the state, after a save in the background has ended.
func (r *run) save() error {
	if r.saving != nil {
		<-r.saving
	}
	if r.session.State == "" {
		return nil
	}
	return r.session.SaveState(source.StateVersion, r.collector.Save())
}

// saveBehind saves the state in the background: a slow disk must not hold up the ticks. A save that has not ended yet
// takes this one's place.
func (r *run) saveBehind() {
	if r.session.State == "" {
		return
	}
	if r.saving != nil {
		select {
		case err := <-r.saving:
			if err != nil {
				r.session.Log.Warn("save the state", "error", err)
			}
		default:
			return
		}
	}
	r.saving = make(chan error, 1)
	state := r.collector.Save()
	go func(done chan<- error) { done <- r.session.SaveState(source.StateVersion, state) }(r.saving)
}
