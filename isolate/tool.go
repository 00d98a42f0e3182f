package main

import (
	"context"
	"fmt"
	"time"

	"polder/isolate/apply"
	"polder/isolate/reclaim"
	"polder/isolate/resctrl"
	"polder/lib/stage"
	"polder/lib/tick"
)

// tool is the state of isolate between two ticks.
type tool struct {
	s       *stage.Session
	o       options
	apply   *apply.Applier
	resctrl *resctrl.Applier
	reclaim *reclaim.Runner

	fallback []tick.Cgroup
	heard    time.Time // when the last advice that was applied arrived
	silent   bool      // the fallback was applied since, completely
	falling  bool      // the fallback was begun since
	// pending is what was done since the last tick, to be reported with the next one.
	pending *tick.Isolation
	logger  logger
	// saidNetwork means that the log already names the process that applies advice.network.
	saidNetwork bool
}

func (t *tool) handle(_ context.Context, in stage.Incoming) (any, error) {
	out := tick.Isolation{DryRun: t.s.DryRun}
	if in.Advice != nil && in.Advice.Network != nil && !t.saidNetwork {
		t.saidNetwork = true
		t.s.Log.Info("this isolate does not apply advice.network: run a second one with --only network")
	}
	switch {
	case in.Refused != "":
		t.checkSilence()
		out.Refused = in.Refused
	case in.Advice == nil: // no decision: the same as silence
		t.checkSilence()
	case len(in.Advice.Cgroups) == 0 && len(in.Advice.Fallback) > 0: // advise could not decide; the fallback applies
		t.fallback = in.Advice.Fallback
		t.checkSilence()
		t.resctrl.Apply(&out, in.Advice.Resctrl) // there is no fallback for it: it stays as it is
		t.logger.errors(t.s.Log, out.Errors)
	default:
		t.apply.At(in.Time)
		out = t.apply.Apply(in.Advice.Cgroups)
		t.resctrl.Apply(&out, in.Advice.Resctrl)
		t.reclaim.Apply(&out, in.Advice.MemoryReclaim)
		t.logger.errors(t.s.Log, out.Errors)
		t.fallback, t.heard = in.Advice.Fallback, t.s.Now()
		if t.falling {
			t.s.Log.Info("advice is back")
			t.silent, t.falling = false, false
		}
	}
	if t.pending != nil {
		out.Fallback = true
		out.Applied += t.pending.Applied
		out.Writes = append(t.pending.Writes, out.Writes...)
		out.Errors = append(t.pending.Errors, out.Errors...)
		t.pending = nil
	}
	t.reclaim.Report(&out)
	out.DroppedTicks = in.Dropped
	return out, nil
}

// close ends the work that runs in parallel with the ticks, and closes the files that are kept open.
func (t *tool) close() {
	t.reclaim.Close()
	t.apply.Close()
}

// checkSilence applies the fallback once the last advice is too old, even if other ticks arrive.
func (t *tool) checkSilence() {
	if t.s.Now().Sub(t.heard) >= t.o.staleAfter {
		t.fall()
	}
}

// fall applies the fallback once per silence. It is retried until all of it is applied except what is refused.
func (t *tool) fall() {
	if t.s.DryRun || t.silent || len(t.fallback) == 0 || t.o.staleAfter <= 0 {
		return
	}
	age := t.s.Now().Sub(t.heard)
	t.apply.At(t.s.Now())
	out := t.apply.Apply(t.fallback)
	if !t.falling || len(out.Errors) == 0 {
		t.s.Log.Warn("no advice: fallback applied", "after", age.Round(time.Millisecond), "applied", out.Applied, "errors", len(out.Errors))
	}
	t.logger.errors(t.s.Log, out.Errors)
	t.silent, t.falling = t.apply.Failed() == 0, true
	if t.pending != nil {
		out.Applied += t.pending.Applied
		out.Writes = append(t.pending.Writes, out.Writes...)
	}
	t.pending = &out
}

// These constants bound the retries of a fallback at the end of the input, and the wait between two.
const (
	endTries = 5
	endPause = time.Second
)

// end applies the fallback if the input ended, or the output failed, without a signal: then a neighbour in the pipe has died, and no
// program would revert the last change.
func (t *tool) end(ctx context.Context) error {
	if t.o.atEnd == keepAtEnd {
		return nil
	}
	for try := 1; ; try++ {
		t.fall()
		switch {
		case t.silent || !t.falling:
			return nil
		case try == endTries:
			return fmt.Errorf("the pipe has ended, and the fallback could not be applied: %d errors (isolate --restore restores everything)", t.apply.Failed())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(endPause):
		}
	}
}
