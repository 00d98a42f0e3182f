package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"polder/isolate/apply"
	"polder/isolate/reclaim"
	"polder/isolate/resched"
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
	resched *resched.Runner

	interval        time.Duration // of the ticks; 0 if unknown
	fallback        []tick.Cgroup
	lastAdvice      time.Time // when the last advice that was applied arrived; the start if there was none
	fallbackApplied bool      // the last attempt to apply the fallback since then was complete
	fallbackBegun   bool      // the fallback was begun since then
	// unreported is what was done since the last tick, to be reported with the next one.
	unreported *tick.Isolation
	logger     logger
	// networkReported means that the log already names the process that applies advice.network.
	networkReported bool
}

func (t *tool) handle(_ context.Context, in stage.Incoming) (any, error) {
	out := tick.Isolation{DryRun: t.s.DryRun}
	if in.Advice != nil && in.Advice.Network != nil && !t.networkReported {
		t.networkReported = true
		t.s.Log.Info("this isolate does not apply advice.network: run a second one with --only network")
	}
	if in.Refused == "" {
		t.interval = cmp.Or(in.Line.Interval(), t.interval)
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
		t.logger.logNew(t.s.Log, out.Errors)
	default:
		t.apply.At(in.Time)
		out = t.apply.Apply(in.Advice.Cgroups)
		t.resctrl.Apply(&out, in.Advice.Resctrl)
		t.reclaim.Apply(&out, in.Advice.MemoryReclaim)
		t.resched.Apply(&out, in.Advice)
		t.logger.logNew(t.s.Log, out.Errors)
		t.fallback, t.lastAdvice = in.Advice.Fallback, t.s.Now()
		if t.fallbackBegun {
			t.s.Log.Info("advice arrives again")
			t.fallbackApplied, t.fallbackBegun = false, false
		}
	}
	if t.unreported != nil {
		out.Fallback = true
		out.Applied += t.unreported.Applied
		out.Writes = mergeWrites(t.unreported.Writes, out.Writes)
		out.Errors = append(t.unreported.Errors, out.Errors...)
		t.unreported = nil
	}
	t.reclaim.Report(&out)
	t.resched.Report(&out)
	out.DroppedTicks = in.Dropped
	return out, nil
}

// close ends the work that runs in parallel with the ticks, and closes the files that are kept open.
func (t *tool) close() {
	t.reclaim.Close()
	t.resched.Stop()
	t.apply.Close()
}

// silenceLimit returns how long advice may be missing before the fallback is applied; 0 is forever. Unless the user gave a time it follows
// the ticks' interval, so that the fallback is not applied between two ticks.
func (t *tool) silenceLimit() time.Duration {
	if t.o.isStaleAfterSet {
		return t.o.staleAfter
	}
	return stage.IntervalLimit(t.interval, t.o.staleAfter)
}

// untilSilence returns how long advice may still be missing: ticks without advice do not postpone the fallback. Where the limit is over, as
// while the fallback is in force, it returns the limit.
func (t *tool) untilSilence() time.Duration {
	limit := t.silenceLimit()
	if left := limit - t.s.Now().Sub(t.lastAdvice); left > 0 {
		return min(left, limit) // the clock may have been set back
	}
	return limit
}

// checkSilence applies the fallback once the last advice is too old, even if other ticks arrive.
func (t *tool) checkSilence() {
	if t.s.Now().Sub(t.lastAdvice) >= t.silenceLimit() {
		t.applyFallback()
	}
}

// applyFallback makes the observed state equal the fallback, each time that it is called while no advice arrives: what failed is retried,
// values that kubelet or another program changed are written again as in any tick, and cgroups that appear are confined.
func (t *tool) applyFallback() {
	if !t.s.DryRun && t.o.staleAfter > 0 {
		t.resched.Stop() // no advice says that batch still runs
	}
	if t.s.DryRun || len(t.fallback) == 0 || t.o.staleAfter <= 0 {
		return
	}
	age := t.s.Now().Sub(t.lastAdvice).Round(time.Millisecond)
	t.apply.At(t.s.Now())
	out := t.apply.Apply(t.fallback)
	switch {
	case !t.fallbackBegun:
		t.s.Log.Warn("no advice: fallback applied", "after", age, "applied", out.Applied, "errors", len(out.Errors))
	case out.Applied > 0:
		t.s.Log.Info("still no advice: fallback applied again", "after", age, "applied", out.Applied, "errors", len(out.Errors))
	}
	t.logger.logNew(t.s.Log, out.Errors)
	if !t.fallbackBegun || out.Applied > 0 || len(out.Errors) > 0 {
		t.report(out)
	}
	t.fallbackApplied, t.fallbackBegun = t.apply.Failed() == 0, true
}

// report keeps what an attempt did for the next tick. Only the errors of the last attempt count: it retried what failed before.
func (t *tool) report(out tick.Isolation) {
	if t.unreported != nil {
		out.Applied += t.unreported.Applied
		out.Writes = mergeWrites(t.unreported.Writes, out.Writes)
	}
	t.unreported = &out
}

// mergeWrites appends later writes to earlier ones and keeps the last [apply.MaxListed]: advice may be missing for days.
func mergeWrites(earlier, later []tick.Write) []tick.Write {
	all := slices.Concat(earlier, later)
	return all[max(0, len(all)-apply.MaxListed):]
}

// These constants bound the retries of a fallback at the end of the input, and the wait between two.
const (
	maxEndAttempts   = 5
	endRetryInterval = time.Second
)

// end applies the fallback if the input ended, or the output failed, without a signal: then a neighbour in the pipe has died, and no
// program would revert the last change.
func (t *tool) end(ctx context.Context) error {
	if t.o.atEnd == keepAtEnd {
		return nil
	}
	for attempt := 1; ; attempt++ {
		t.applyFallback()
		switch {
		case t.fallbackApplied || !t.fallbackBegun:
			return nil
		case attempt == maxEndAttempts:
			return fmt.Errorf("the pipe has ended, and the fallback could not be applied: %d errors (isolate --restore restores everything)", t.apply.Failed())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(endRetryInterval):
		}
	}
}
