package progress

import (
	"errors"
	"maps"
	"slices"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/kube"
	"polder/lib/reason"
	"polder/lib/tick"
)

// Record is the state of one node's evictions. The state file contains the exported fields.
type Record struct {
	pick.State

	name     string
	lastTick time.Time          // time of the newest tick; zero before the first one of this run
	changes  []tick.PodEviction // to be reported in the next tick
	logged   logged
}

// evictionStates are the states that the contract defines: an entry of a state file with another one is invalid.
var evictionStates = []string{tick.StateWouldEvict, tick.StateRequested, tick.StateCreated, tick.StateSucceeded, tick.StateFailed}

// DropInvalid drops invalid entries from a record that was read from a state file.
func (r *Record) DropInvalid() {
	maps.DeleteFunc(r.InProgress, func(_ string, l *pick.Ongoing) bool {
		return l == nil || !slices.Contains(evictionStates, l.Eviction.State)
	})
}

// Init prepares a record that is new, or was read from a file.
func (r *Record) Init(node string) {
	r.name = node
	r.State.Init()
}

// Node returns the node's name.
func (r *Record) Node() string { return r.name }

// LastTick returns the time of the newest tick; zero before the first one of this run.
func (r *Record) LastTick() time.Time { return r.lastTick }

// takeChanges returns what has changed since the previous tick.
func (r *Record) takeChanges() []tick.PodEviction {
	changes := r.changes
	r.changes = nil
	return changes
}

// recordResult records the result of an order.
func (r *Record) recordResult(x act.Result, at time.Time, action string) {
	l := r.InProgress[x.UID]
	if l == nil {
		return // no longer in the sample, which was reported
	}
	switch x.State {
	case tick.StateFailed:
		r.recordFailure(x, l, at)
		r.changes = append(r.changes, l.Eviction)
	case tick.StateSucceeded:
		if action == act.FreezePods {
			l.Frozen = true
			l.Eviction.State = tick.StateSucceeded
			l.Eviction.Message += reason.Frozen
			return // reported for as long as it is frozen
		}
		if ended, ok := r.InProgress.End(x.UID, at); ok {
			r.changes = append(r.changes, ended)
		}
	default:
		if l.FailedAt.IsZero() {
			l.Eviction.State, l.Eviction.Error = x.State, ""
			if x.Err != nil { // not yet, and the reason
				l.Eviction.Error = x.Err.Error()
			}
			switch {
			case x.OwnGrace > 0:
				l.OwnGrace = x.OwnGrace
			case x.State == tick.StateCreated:
				l.RequestedAt = at // its grace period begins now
			}
		}
	}
}

// decideAgain makes the eviction that an earlier run requested, with an unknown answer, depend on the choice of this tick: its need may
// be over, and the pod may be protected now. A pod that terminates was evicted, and one that is missing has ended, which Observe reports.
func (r *Record) decideAgain(uid string, now time.Time, pods pick.Pods) {
	l := r.InProgress[uid]
	switch pod := pods.ByUID[uid]; {
	case pods.HasEnded(uid):
	case pod != nil && rule.IsTerminating(pod):
		l.Accept(now)
	default:
		r.InProgress.NoAnswer(uid, "an earlier run of evict ended before the answer to the request was known", now)
		r.changes = append(r.changes, l.Eviction)
	}
}

// recordFailure records an order that failed: after the pod's end was requested, because the pod did not end; with a failure for an
// answer; with an unknown answer; or before the pod's end was requested, so that nothing has changed.
func (r *Record) recordFailure(x act.Result, l *pick.Ongoing, at time.Time) {
	switch wasRequested := l.Eviction.State != tick.StateRequested; {
	case wasRequested:
		r.InProgress.Fail(x.UID, x.Err.Error(), at, x.RetryAfter)
	case kube.IsDisruptionBudget(x.Err):
		r.Refuse(x.UID, x.Err.Error(), at, x.RetryAfter)
	case kube.IsServerError(x.Err), kube.IsTooManyRequests(x.Err):
		r.ServerError(x.UID, x.Err.Error(), at, x.RetryAfter)
	case errors.Is(x.Err, act.ErrStale): // nothing was done, so that it is a candidate at once
		r.Refuse(x.UID, x.Err.Error(), at, x.RetryAfter)
		delete(r.InProgress, x.UID)
	case isUnanswered(x.Err):
		r.InProgress.NoAnswer(x.UID, x.Err.Error(), at)
	default:
		r.Refuse(x.UID, x.Err.Error(), at, x.RetryAfter)
	}
}

// isUnanswered reports whether an error leaves open what the API server has done.
func isUnanswered(err error) bool {
	return kube.IsUnreachable(err) || kube.IsNotFound(err) && !kube.IsAnswer(err)
}
