package act

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"polder/lib/cgroup"
	"polder/lib/tick"
)

// Actions.
const (
	Log        = "log"
	EvictPods  = "evict"
	DeletePods = "delete"
	FreezePods = "freeze"
	KillPods   = "kill"
)

// Order is one eviction to carry out.
type Order struct {
	Node string
	// Eviction names the pod and the reason.
	Eviction tick.PodEviction
	Cgroup   string
	Inode    uint64 // the cgroup's, 0 where it is not known
	// Grace is how long the pod has still to end by itself, Patience how long it is waited for in all.
	Grace, Patience time.Duration
	Asked           Asked
	// Koordinator means that the events are in that dialect's words.
	Koordinator bool
	// Record is called before anything is done, so that what was done is found again after a crash.
	Record func() error
	// graceIs is called with the pod's own grace period once it is known.
	graceIs func(time.Duration)
}

// Asked reports whether a pod was asked to end already: by an earlier run.
type Asked bool

// The values of Asked.
const (
	NotAsked     Asked = false
	AlreadyAsked Asked = true
)

// Result is what came of an order so far: State is requested (with Err: why it is not more yet), created, succeeded or
// failed.
type Result struct {
	Node, UID string
	State     string
	Err       error
	// OwnGrace is the pod's own grace period, where that was found out: it comes with StateCreated.
	OwnGrace time.Duration
	// Again is how soon after a failure the pod may be tried again; 0 leaves that to the caller.
	Again time.Duration
}

// Way is how an order is carried out. It reports created once the pod was asked to end, and returns nil when it has.
type Way func(ctx context.Context, o Order, report func(state string, err error)) error

// Runner carries orders out beside the stream, which it never holds up.
type Runner struct {
	Action string
	Do     Way
	Log    *slog.Logger

	work    sync.WaitGroup
	mu      sync.Mutex
	results []Result
}

// Start begins an order and returns at once. When ctx ends, the order is left where it is.
func (r *Runner) Start(ctx context.Context, o Order) {
	o.graceIs = func(grace time.Duration) {
		r.put(Result{Node: o.Node, UID: o.Eviction.UID, State: tick.StateCreated, OwnGrace: grace})
	}
	r.work.Go(func() {
		err := o.Record()
		if err == nil {
			err = r.Do(ctx, o, func(state string, err error) { r.report(o, state, err, 0) })
		}
		var later *laterError
		switch {
		case errors.Is(err, context.Canceled):
			r.Log.Warn("stopped before the eviction was finished", "cgroup", o.Cgroup, "uid", o.Eviction.UID)
		case errors.As(err, &later):
			r.report(o, tick.StateFailed, err, later.again)
		case err != nil:
			r.report(o, tick.StateFailed, err, 0)
		default:
			r.report(o, tick.StateSucceeded, nil, 0)
		}
	})
}

// laterError is a failure that may be over soon.
type laterError struct {
	error
	again time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// FreezeWay freezes the pod's cgroup. Of one that an earlier run has asked for it sees whether that was begun.
func FreezeWay(h *cgroup.Hierarchy) Way {
	return func(ctx context.Context, o Order, _ func(string, error)) error {
		if o.Cgroup == "" {
			return errNoCgroup
		}
		if (Target{o.Cgroup, o.Inode}).replaced(h, freezer) {
			return fmt.Errorf("freeze %s: there is another cgroup of that name now", o.Cgroup)
		}
		if o.Asked == AlreadyAsked {
			return refreeze(ctx, h, o.Cgroup)
		}
		return Freeze(ctx, h, o.Cgroup)
	}
}

// KillWay ends the processes of the pod's cgroup.
func KillWay(h *cgroup.Hierarchy) Way {
	return func(ctx context.Context, o Order, report func(string, error)) error {
		if o.Cgroup == "" {
			return errNoCgroup
		}
		return Kill(ctx, h, Target{o.Cgroup, o.Inode}, o.Grace, o.Asked, func() { report(tick.StateCreated, nil) })
	}
}

var errNoCgroup = errors.New("the sample does not name the pod's cgroup")

func (r *Runner) report(o Order, state string, err error, again time.Duration) {
	r.put(Result{Node: o.Node, UID: o.Eviction.UID, State: state, Err: err, Again: again})
}

func (r *Runner) put(result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, result)
}

// Take returns the results since the last call.
func (r *Runner) Take() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	results := r.results
	r.results = nil
	return results
}

// Wait returns when all orders are finished.
func (r *Runner) Wait() { r.work.Wait() }
