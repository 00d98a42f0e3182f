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

// These are the actions.
const (
	Log        = "log"
	EvictPods  = "evict"
	DeletePods = "delete"
	FreezePods = "freeze"
	KillPods   = "kill"
)

// Order is one eviction to execute.
type Order struct {
	Node string
	// Eviction names the pod and the reason.
	Eviction tick.PodEviction
	Cgroup   string
	Inode    uint64 // the cgroup's, 0 if unknown
	// Grace is the remaining time for the pod to end by itself; Timeout is the total time that evict waits for it.
	Grace, Timeout time.Duration
	Requested      Requested
	// Koordinator means that the events use Koordinator's wording.
	Koordinator bool
	// Record is called before the order is executed, so that the eviction is known after a crash.
	Record func() error
	// reportGrace is called with the pod's own grace period once it is known.
	reportGrace func(time.Duration)
}

// Requested says whether an earlier run requested that the pod ends.
type Requested bool

// These are the values of Requested.
const (
	NotRequested     Requested = false
	AlreadyRequested Requested = true
)

// Result is the present result of an order: State is requested (Err says why it is not further), created, succeeded or
// failed.
type Result struct {
	Node, UID string
	State     string
	Err       error
	// OwnGrace is the pod's own grace period, if known: it is set with StateCreated.
	OwnGrace time.Duration
	// RetryAfter is how soon after a failure the pod may be tried again; 0 leaves that to the caller.
	RetryAfter time.Duration
}

// Executor executes an order. It reports created once the pod's end is requested, and returns nil when the pod has ended.
type Executor func(ctx context.Context, o Order, report func(state string, err error)) error

// Runner executes orders in parallel with the stream, which it never blocks.
type Runner struct {
	Action string
	Do     Executor
	Log    *slog.Logger

	work    sync.WaitGroup
	mu      sync.Mutex
	results []Result
}

// Start begins an order and returns at once. When ctx ends, the order stops where it is.
func (r *Runner) Start(ctx context.Context, o Order) {
	o.reportGrace = func(grace time.Duration) {
		r.addResult(Result{Node: o.Node, UID: o.Eviction.UID, State: tick.StateCreated, OwnGrace: grace})
	}
	r.work.Go(func() {
		err := o.Record()
		if err == nil {
			err = r.Do(ctx, o, func(state string, err error) { r.report(o, state, err, 0) })
		}
		var retry *retryError
		switch {
		case errors.Is(err, context.Canceled):
			r.Log.Warn("stopped before the eviction was finished", "cgroup", o.Cgroup, "uid", o.Eviction.UID)
		case errors.As(err, &retry):
			r.report(o, tick.StateFailed, err, retry.retryAfter)
		case err != nil:
			r.report(o, tick.StateFailed, err, 0)
		default:
			r.report(o, tick.StateSucceeded, nil, 0)
		}
	})
}

// retryError is a failure after which the pod may be tried again after retryAfter.
type retryError struct {
	error
	retryAfter time.Duration
}

func (e *retryError) Unwrap() error { return e.error }

// FreezeExecutor freezes the pod's cgroup. If an earlier run requested it, it first checks whether the freeze was begun.
func FreezeExecutor(h *cgroup.Hierarchy) Executor {
	return func(ctx context.Context, o Order, _ func(string, error)) error {
		if o.Cgroup == "" {
			return errNoCgroup
		}
		if (Target{o.Cgroup, o.Inode}).isReplaced(h, freezer) {
			return fmt.Errorf("freeze %s: another cgroup has that name now", o.Cgroup)
		}
		if o.Requested == AlreadyRequested {
			return refreeze(ctx, h, o.Cgroup)
		}
		return Freeze(ctx, h, o.Cgroup)
	}
}

// KillExecutor ends the processes of the pod's cgroup.
func KillExecutor(h *cgroup.Hierarchy) Executor {
	return func(ctx context.Context, o Order, report func(string, error)) error {
		if o.Cgroup == "" {
			return errNoCgroup
		}
		return Kill(ctx, h, Target{o.Cgroup, o.Inode}, o.Grace, o.Requested, func() { report(tick.StateCreated, nil) })
	}
}

var errNoCgroup = errors.New("the sample does not name the pod's cgroup")

func (r *Runner) report(o Order, state string, err error, retryAfter time.Duration) {
	r.addResult(Result{Node: o.Node, UID: o.Eviction.UID, State: state, Err: err, RetryAfter: retryAfter})
}

func (r *Runner) addResult(result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, result)
}

// TakeResults returns the results since the last call.
func (r *Runner) TakeResults() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	results := r.results
	r.results = nil
	return results
}

// Wait returns when all orders are finished.
func (r *Runner) Wait() { r.work.Wait() }
