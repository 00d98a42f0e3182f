package main

import (
	"context"
	"time"

	"polder/isolate/apply"
	"polder/isolate/resctrl"
	"polder/lib/stage"
	"polder/lib/tick"
)

// tool is isolate between two ticks.
type tool struct {
	s       *stage.Session
	o       options
	apply   *apply.Applier
	resctrl *resctrl.Applier

	fallback []tick.Cgroup
	heard    time.Time // when the last advice came that was acted on
	silent   bool      // the fallback was applied since
	// pending is what was done since the last tick, for the next one to tell.
	pending *tick.Isolation
	logged  map[tick.IsolationError]bool
}

func (t *tool) handle(_ context.Context, in stage.Incoming) (any, error) {
	out := tick.Isolation{DryRun: t.s.DryRun}
	switch {
	case in.Refused != "":
		t.checkSilence()
		out.Refused = in.Refused
	case in.Advice == nil: // nobody has decided anything: as good as silence
		t.checkSilence()
	case len(in.Advice.Cgroups) == 0 && len(in.Advice.Fallback) > 0: // advise could not decide, and says what should hold
		t.fallback = in.Advice.Fallback
		t.checkSilence()
		t.resctrl.Apply(&out, in.Advice.Resctrl) // has no fallback: it holds or is left as it is
		t.log(&out)
	default:
		out = t.apply.Apply(in.Advice.Cgroups)
		t.resctrl.Apply(&out, in.Advice.Resctrl)
		t.log(&out)
		t.fallback, t.heard = in.Advice.Fallback, t.s.Now()
		if t.silent {
			t.s.Log.Info("advice is back")
			t.silent = false
		}
	}
	if t.pending != nil {
		out.Fallback = true
		out.Applied += t.pending.Applied
		out.Writes = append(t.pending.Writes, out.Writes...)
		out.Errors = append(t.pending.Errors, out.Errors...)
		t.pending = nil
	}
	out.DroppedTicks = in.Dropped
	return out, nil
}

// checkSilence applies the fallback once the last advice is too old, though other ticks come.
func (t *tool) checkSilence() {
	if t.s.Now().Sub(t.heard) >= t.o.staleAfter {
		t.fall()
	}
}

// fall applies the fallback, once in a silence.
func (t *tool) fall() {
	if t.s.DryRun || t.silent || len(t.fallback) == 0 || t.o.staleAfter <= 0 {
		return
	}
	age := t.s.Now().Sub(t.heard)
	out := t.apply.Apply(t.fallback)
	t.s.Log.Warn("no advice: fallback applied", "after", age.Round(time.Millisecond), "applied", out.Applied, "errors", len(out.Errors))
	t.log(&out)
	t.silent, t.pending = true, &out
}

// maxLogged bounds the errors of one tick that are logged; all that are listed are in the tick.
const maxLogged = 10

// log logs the errors that the tick before did not have.
func (t *tool) log(out *tick.Isolation) {
	if len(out.Errors) == 0 {
		t.logged = nil
		return
	}
	now := make(map[tick.IsolationError]bool, len(out.Errors))
	count := 0
	for _, e := range out.Errors {
		if !t.logged[e] && !now[e] {
			if count++; count <= maxLogged {
				t.s.Log.Warn("not as advised", "cgroup", e.Cgroup, "key", e.Key, "error", e.Error)
			}
		}
		now[e] = true
	}
	if count > maxLogged {
		t.s.Log.Warn("not as advised: more, see isolation.errors", "notLogged", count-maxLogged)
	}
	t.logged = now
}
