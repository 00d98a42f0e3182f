// Package reconcile reconciles objects of the cluster with the ticks: a queue of keys for each target, bounded concurrency, backoff after
// errors, restoring after external changes, and a flush at the end of the input. No tick ever waits for the API server.
//
// It does not use client-go's workqueue: its rate limiter does not know the error, and it does not report whether a key waits, is being
// written or has failed, which each tick needs for its target.
package reconcile

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"polder/lib/tick"
	"polder/report/object"
)

const (
	// writesAtOnce bounds the writes in progress for one target; of one object there is never more than one.
	writesAtOnce = 16
	// writeLimit bounds one write, which may be several requests.
	writeLimit = 30 * time.Second
	// refreshShare bounds the part of the time, one in so many, that Refresh takes where there is no clock, so that a list of thousands of
	// objects is not copied for each tick.
	refreshShare = 10
	// startTimeout is how long the first lists may take before Ready's error is reported.
	startTimeout = 3 * time.Second
	// flushTimeout is how long Close waits at the end of the input for a write to succeed (the first lists of a server or a machine without
	// CPU time take several seconds), stopTimeout how long it waits after a signal for the writes in progress.
	flushTimeout = 15 * time.Second
	stopTimeout  = time.Second
	// retryInterval is how often Close checks the waiting writes.
	retryInterval = 100 * time.Millisecond
	// logInterval is the least time between two logged errors: their text may have a different port each time, and a thousand nodes may fail
	// at once.
	logInterval = 10 * time.Second
)

// Target has the functions of one kind of objects. S is the state of an object, D the job of one write. All functions but Write are
// called with the queue locked, and must not block; those that are marked optional may be nil.
type Target[S, D any] struct {
	// New is the state of a key that ticks have not named before; an error where it cannot be a key.
	New func(key string, now time.Time) (*S, error)
	// Due compares what is desired with what was written and observed: Moved is a new desired state, Undone an external change, and
	// Again a write for any other reason.
	Due func(s *S, now time.Time) object.Due
	// Desired is the job of a write that starts now.
	Desired func(s *S, now time.Time) *D
	// Write carries the job out and reports whether the object had to be written; it stores in the job what Settle needs of the answer.
	Write func(ctx context.Context, d *D) (wrote bool, err error)
	// Settle notes the end of a write, with a nil error in a dry run, too. It reports whether something new was written.
	Settle func(s *S, d *D, err error, now time.Time) (changed bool)
	// Show is what a dry run logs of a job.
	Show func(d *D, now time.Time) (string, error)

	// Refresh (optional) updates the states of all objects from the watches.
	Refresh func(states iter.Seq[*S], now time.Time)
	// Ready (optional) returns why the object cannot be written, nil where it can.
	Ready func(s *S) error
	// Forget (optional) reports whether an object that has nothing due may be forgotten.
	Forget func(s *S, now time.Time) bool
	// Note (optional) is the note for the tick.
	Note func(s *S) string
	// Explain adds what to do about an error.
	Explain func(error) error
}

// Options are a queue's settings.
type Options struct {
	Name    string          // the target's
	Label   string          // the kind of the keys, for logs: "node"
	Limit   int             // most keys
	Context context.Context // ends with a signal
	Log     *slog.Logger
	Now     func() time.Time
	DryRun  bool
	NoFlush bool          // writes that wait when the input ends are dropped
	Every   time.Duration // how often objects are checked without a tick; 0: only ticks cause writes
}

// Queue reconciles the objects of one target.
type Queue[S, D any] struct {
	Options
	target    Target[S, D]
	started   time.Time
	stopClock context.CancelFunc
	clock     sync.WaitGroup
	ended     chan struct{} // a write has ended

	mu        sync.Mutex
	items     map[string]*item[S]
	waiting   []*item[S] // due objects whose write has not started
	writing   int
	closing   bool      // no new write starts
	progress  time.Time // of the last write that succeeded
	logged    time.Time
	refreshAt time.Time // the earliest time of the next Refresh
}

// item is one object.
type item[S any] struct {
	key                 string
	state               *S
	busy, queued        bool
	backoff             Backoff
	restore             restore
	err                 error // why a due write has not succeeded
	unreported, changed bool  // a write succeeded that no tick has reported yet, and it wrote something new
}

// Start starts a queue, which Close ends.
func Start[S, D any](o Options, t Target[S, D]) *Queue[S, D] {
	q := &Queue[S, D]{Options: o, target: t, started: o.Now(), stopClock: func() {}, ended: make(chan struct{}, 1)}
	q.items = map[string]*item[S]{}
	if o.Every > 0 && !o.DryRun {
		var ctx context.Context
		ctx, q.stopClock = context.WithCancel(context.WithoutCancel(o.Context))
		q.clock.Go(func() { q.checkPeriodically(ctx) })
	}
	return q
}

func (q *Queue[S, D]) checkPeriodically(ctx context.Context) {
	clock := time.NewTicker(q.Every)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
		q.mu.Lock()
		now := q.Now()
		q.refresh(now)
		q.considerAll(now)
		q.mu.Unlock()
	}
}

func (q *Queue[S, D]) refresh(now time.Time) {
	if q.target.Refresh != nil && !now.Before(q.refreshAt) {
		q.target.Refresh(q.states, now)
		ended := q.Now()
		q.refreshAt = ended.Add(refreshShare * ended.Sub(now))
	}
}

func (q *Queue[S, D]) states(yield func(*S) bool) {
	for _, it := range q.items {
		if !yield(it.state) {
			return
		}
	}
}

func (q *Queue[S, D]) considerAll(now time.Time) {
	for _, it := range q.items {
		q.consider(it, now)
	}
}

// Set updates an object's state by a tick of the time at, and starts a write where one is due. A dry run uses the ticks' clock,
// because they may be a recording.
func (q *Queue[S, D]) Set(key string, at time.Time, update func(s *S, now time.Time)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, err := q.set(key, at, update)
	return err
}

// Put is Set, and returns the outcome of the object's writes.
func (q *Queue[S, D]) Put(key string, at time.Time, update func(s *S, now time.Time)) tick.Target {
	q.mu.Lock()
	defer q.mu.Unlock()
	it, err := q.set(key, at, update)
	if err != nil {
		return tick.Target{Target: q.Name, State: tick.TargetFailed, Error: err.Error()}
	}
	return q.report(it, q.Now())
}

func (q *Queue[S, D]) set(key string, at time.Time, update func(s *S, now time.Time)) (*item[S], error) {
	now := q.Now()
	if q.DryRun {
		now = at
	}
	it, err := q.item(key, now)
	if err != nil {
		return nil, err
	}
	update(it.state, now)
	if q.DryRun {
		q.dryRun(it, now)
		return it, nil
	}
	if q.Every == 0 {
		q.refresh(now)
	}
	q.consider(it, now)
	return it, nil
}

// Each considers every object and returns the outcome of its writes.
func (q *Queue[S, D]) Each(at time.Time, visit func(*S, tick.Target)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.Now()
	if q.DryRun {
		now = at
	}
	q.dropOldItems(now)
	for _, it := range q.items {
		if !q.DryRun {
			q.consider(it, now)
		}
		visit(it.state, q.report(it, now))
	}
}

func (q *Queue[S, D]) item(key string, now time.Time) (*item[S], error) {
	if it := q.items[key]; it != nil {
		return it, nil
	}
	state, err := q.target.New(key, now)
	if err != nil {
		return nil, err
	}
	if len(q.items) >= q.Limit {
		if q.dropOldItems(now); len(q.items) >= q.Limit {
			return nil, fmt.Errorf("more than %d %ss", q.Limit, q.Label)
		}
	}
	it := &item[S]{key: key, state: state}
	q.items[key] = it
	return it, nil
}

// dropOldItems forgets the objects that may be forgotten, whether or not something is due.
func (q *Queue[S, D]) dropOldItems(now time.Time) {
	for key, it := range q.items {
		if q.target.Forget != nil && !it.busy && !it.queued && q.target.Forget(it.state, now) {
			delete(q.items, key)
		}
	}
}

// consider starts a write, or queues it, where one is due and need not wait.
func (q *Queue[S, D]) consider(it *item[S], now time.Time) {
	if it.busy || it.queued || q.closing {
		return
	}
	due := q.target.Due(it.state, now)
	if due == object.NotDue {
		it.resetFailures()
		if q.target.Forget != nil && q.target.Forget(it.state, now) {
			delete(q.items, it.key)
		}
		return
	}
	if it.waits(due, now) {
		return
	}
	if q.target.Ready != nil {
		if err := q.target.Ready(it.state); err != nil {
			if now.Sub(q.started) > startTimeout {
				q.noteError(it, err)
			}
			return
		}
	}
	it.queued = true
	q.waiting = append(q.waiting, it)
	q.start()
}

// waits reports whether a write that is due has to wait.
func (it *item[S]) waits(due object.Due, now time.Time) bool {
	if due != object.ChangedExternally {
		it.restore.pending = false
	} else if it.restore.changed(now); now.Before(it.restore.at) {
		return true
	}
	return now.Before(it.backoff.until)
}

// resetFailures forgets failures, and an external change that is no longer there.
func (it *item[S]) resetFailures() { it.err, it.backoff, it.restore.pending = nil, Backoff{}, false }

// start starts writes as long as there may be more.
func (q *Queue[S, D]) start() {
	for q.writing < writesAtOnce && len(q.waiting) > 0 {
		it := q.waiting[0]
		q.waiting = q.waiting[1:]
		it.queued = false
		now := q.Now()
		switch q.target.Due(it.state, now) {
		case object.NotDue:
			it.resetFailures()
			continue
		case object.ChangedExternally:
			q.Log.Warn("restoring the object after an external change", "target", q.Name, q.Label, it.key)
		}
		it.busy = true
		q.writing++
		go q.write(it, q.target.Desired(it.state, now))
	}
}

func (q *Queue[S, D]) write(it *item[S], d *D) {
	ctx, done := context.WithTimeout(context.WithoutCancel(q.Context), writeLimit)
	defer done()
	wrote, err := q.target.Write(ctx, d)
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.Now()
	q.writing--
	it.busy = false
	changed := q.target.Settle(it.state, d, err, now)
	if err == nil {
		q.progress = now
		if it.err != nil {
			q.Log.Info("written again", "target", q.Name, q.Label, it.key)
		}
		if wrote {
			it.unreported, it.changed = true, changed || it.changed && it.unreported
		}
		it.resetFailures()
	} else {
		it.backoff.Failed(err, now)
		q.noteError(it, q.target.Explain(err))
	}
	q.start()
	q.consider(it, now) // a newer desired state may already be due
	select {
	case q.ended <- struct{}{}:
	default:
	}
}

// noteError keeps an error for the tick, and logs it where it differs from the last one.
func (q *Queue[S, D]) noteError(it *item[S], err error) {
	now := q.Now()
	alone := len(q.items) == 1 && it.err == nil
	if alone || (it.err == nil || it.err.Error() != err.Error()) && now.Sub(q.logged) > logInterval {
		q.Log.Error("not written", "target", q.Name, q.Label, it.key, "error", err)
		q.logged = now
	}
	it.err = err
}

// dryRun logs what would be written.
func (q *Queue[S, D]) dryRun(it *item[S], now time.Time) {
	it.resetFailures()
	if q.target.Due(it.state, now) == object.NotDue {
		return
	}
	d := q.target.Desired(it.state, now)
	text, err := q.target.Show(d, now)
	it.changed = q.target.Settle(it.state, d, nil, now)
	if it.err = err; err == nil {
		it.unreported = true
		q.Log.Info("would be written", "target", q.Name, q.Label, it.key, "object", text)
	}
}

// report is the tick's result for the object.
func (q *Queue[S, D]) report(it *item[S], now time.Time) tick.Target {
	t := tick.Target{Target: q.Name, State: tick.TargetUnchanged}
	if q.target.Note != nil {
		t.Note = q.target.Note(it.state)
	}
	hasChanged := func() bool { return q.target.Due(it.state, now) == object.FiguresChanged }
	switch {
	case it.err != nil:
		t.State, t.Changed, t.Error = tick.TargetFailed, hasChanged(), it.err.Error()
	case it.unreported:
		t.State, t.Changed = tick.TargetWritten, it.changed
		if it.unreported = false; q.DryRun {
			t.State = tick.TargetPending
		}
	case !q.DryRun && q.unwritten(it, now):
		t.State, t.Changed = tick.TargetPending, hasChanged()
	}
	return t
}

func (q *Queue[S, D]) unwritten(it *item[S], now time.Time) bool {
	return it.busy || it.queued || q.target.Due(it.state, now) != object.NotDue
}
