package act

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"polder/lib/cgroup"
	"polder/lib/tick"
)

// Actions.
const (
	Log        = "log"
	FreezePods = "freeze"
	KillPods   = "kill"
)

// Order is one eviction to carry out.
type Order struct {
	Node, UID string
	Cgroup    string
	Grace     time.Duration
	Asked     Asked
	// Record is called before anything is done, so that what was done is found again after a crash.
	Record func() error
}

// Result is what came of an order so far: State is created, succeeded or failed.
type Result struct {
	Node, UID string
	State     string
	Err       error
}

// Runner carries orders out beside the stream, which it never holds up.
type Runner struct {
	Action  string
	Cgroups *cgroup.Hierarchy
	Log     *slog.Logger

	work    sync.WaitGroup
	mu      sync.Mutex
	results []Result
}

// Start begins an order and returns at once. When ctx ends, the order is left where it is.
func (r *Runner) Start(ctx context.Context, o Order) {
	r.work.Go(func() {
		err := r.run(ctx, o)
		switch {
		case errors.Is(err, context.Canceled):
			r.Log.Warn("stopped before the eviction was finished", "cgroup", o.Cgroup, "uid", o.UID)
		case err != nil:
			r.report(o, tick.StateFailed, err)
		default:
			r.report(o, tick.StateSucceeded, nil)
		}
	})
}

func (r *Runner) run(ctx context.Context, o Order) error {
	if o.Cgroup == "" {
		return errors.New("the sample does not name the pod's cgroup")
	}
	if err := o.Record(); err != nil {
		return err
	}
	if r.Action == FreezePods {
		return Freeze(ctx, r.Cgroups, o.Cgroup)
	}
	return Kill(ctx, r.Cgroups, o.Cgroup, o.Grace, o.Asked, func() { r.report(o, tick.StateCreated, nil) })
}

func (r *Runner) report(o Order, state string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, Result{o.Node, o.UID, state, err})
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
