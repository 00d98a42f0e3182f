// Package progress executes evictions and tracks their progress, whether a node's own rules or the fleet controller decided on them. It
// has the orders and their results, the log, the counters and the state file.
package progress

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
)

// saveEvery is how often the state is saved while no pod is evicted.
const saveEvery = 10 * time.Second

// Tracker tracks the evictions of one run. Only the runner's orders and the saving of the state leave the goroutine of the stream.
type Tracker struct {
	// Quiet keeps would-be evictions out of the log.
	Quiet bool
	// Inode returns a cgroup's inode; nil if no cgroup is frozen or killed.
	Inode func(cgroup string) uint64

	session     *stage.Session
	saver       *stage.Saver
	record      func(node string) *Record
	limitCounts limitCounts
	runner      *act.Runner // nil if nothing must be done: --action log, --dry-run, --explain
	events      *act.Events // nil without a cluster
	// ordersContext ends the runner's work when the tool stops; cancel does so when the stream has failed.
	ordersContext context.Context
	cancel        context.CancelFunc
}

// New returns a Tracker. Record finds or creates the record of a node, snapshot encodes the state, on the goroutine of the stream.
func New(s *stage.Session, version int, record func(string) *Record, snapshot func() (tick.Raw, error)) *Tracker {
	return &Tracker{session: s, saver: s.NewSaver(version, saveEvery, snapshot), record: record}
}

// Begin exposes the counts of limits as metrics, and lets the runner, which may be nil, act until ctx ends.
func (w *Tracker) Begin(ctx context.Context, r *act.Runner) {
	w.limitCounts.registerMetrics(w.session.Metrics)
	w.runner = r
	w.ordersContext, w.cancel = context.WithCancel(ctx)
}

// Cluster returns the runner that evicts or deletes pods through the API server; instance names this process in the pods' events.
func (w *Tracker) Cluster(action, kubeconfig, instance string, qps float32) (*act.Runner, error) {
	if api := w.session.Metrics.API(); api != nil {
		kube.Observe(api)
	}
	client, err := kube.Open(kube.Options{Kubeconfig: kubeconfig, UserAgent: act.Controller, QPS: qps})
	if err != nil {
		return nil, stage.Usagef("%w", err)
	}
	w.events = act.NewEvents(client, instance, w.session.Log, w.session.Now)
	c := &act.Cluster{Client: client, Events: w.events}
	r := &act.Runner{Action: action, Log: w.session.Log, Do: c.Evict}
	if action == act.DeletePods {
		r.Do = c.Delete
	}
	return r, nil
}

// Acts reports whether the runner acts on pods.
func (w *Tracker) Acts() bool { return w.runner != nil }

// Cancel ends the runner's work.
func (w *Tracker) Cancel() { w.cancel() }

// startOrders passes evictions to the runner; requested says whether an earlier run requested them. The state is saved once, before the
// first request.
func (w *Tracker) startOrders(r *Record, requested act.Requested, evictions ...*pick.Ongoing) {
	if len(evictions) == 0 {
		return
	}
	record := sync.OnceValue(w.saver.Prepare())
	for _, l := range evictions {
		l.Awaited = true
		grace := max(0, pick.Grace(&l.Eviction)-r.lastTick.Sub(l.RequestedAt)) // the remaining grace period
		w.runner.Start(w.ordersContext, act.Order{
			Node: r.name, Eviction: l.Eviction, Cgroup: l.Cgroup, Inode: l.Inode,
			Grace: grace, Timeout: pick.Timeout(&l.Eviction), Requested: requested, Koordinator: rule.IsKoordinator(l.Eviction.Rule), Record: record,
		})
	}
}

// TakeResults records the results of orders since the previous tick. The time of a refused tick is not now, so that the node's previous
// tick counts there.
func (w *Tracker) TakeResults(in stage.Incoming) {
	if w.runner == nil {
		return
	}
	for _, x := range w.runner.TakeResults() {
		r := w.record(x.Node)
		at := in.Time
		if in.Node != x.Node || in.Refused != "" {
			at = r.lastTick
		}
		r.recordResult(x, at, w.runner.Action)
	}
}

// Observe begins a tick of a node, and returns the evictions that have changed since the previous tick.
func (w *Tracker) Observe(r *Record, in stage.Incoming, pods pick.Pods) []tick.PodEviction {
	w.resume(r, in.Time, pods)
	changes := append(r.takeChanges(), r.State.Observe(in.Time, in.Sample, pods)...)
	w.awaitAccepted(r)
	w.LogChanges(r, changes)
	return changes
}

// resume continues what an earlier run began, as long as its time is not over; a later process in a cgroup of the same name is not a
// target. What that run requested, without a known answer, is decided on again: nothing is done to a pod for a stale reason. A freeze is
// checked however old it is, because a frozen pod that is forgotten stays frozen forever.
func (w *Tracker) resume(r *Record, now time.Time, pods pick.Pods) {
	isFirst := r.lastTick.IsZero()
	r.lastTick = now
	if !isFirst || w.runner == nil {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(r.InProgress)) {
		switch l := r.InProgress[uid]; {
		case l.IsRequested() && w.runner.Action == act.FreezePods:
			l.RequestedAt = now
			w.resumeOrder(r, l, "resuming an eviction of an earlier run")
		case l.IsRequested():
			r.decideAgain(uid, now, pods)
		case l.Eviction.State == tick.StateCreated && l.StillAwaited(now):
			w.resumeOrder(r, l, "resuming an eviction of an earlier run")
		}
	}
}

// awaitAccepted waits for the pods whose eviction turns out to be accepted because they terminate: the API server knows their grace
// period. The processes of a cgroup are not waited for, because at the end of that wait they would be killed.
func (w *Tracker) awaitAccepted(r *Record) {
	if w.runner == nil || w.runner.Action != act.EvictPods && w.runner.Action != act.DeletePods {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(r.InProgress)) {
		l := r.InProgress[uid]
		if l.Eviction.State == tick.StateCreated && !l.Awaited && l.StillAwaited(r.lastTick) {
			w.resumeOrder(r, l, "waiting for a pod that terminates: its eviction was accepted")
		}
	}
}

// resumeOrder continues an eviction that was requested already, and logs why.
func (w *Tracker) resumeOrder(r *Record, l *pick.Ongoing, why string) {
	w.session.Log.Info(why, "pod", l.Eviction.Name, "uid", l.Eviction.UID)
	w.startOrders(r, act.AlreadyRequested, l)
}

// Act evicts the victims, or reports which would be evicted. The state is saved once, before the first request.
func (w *Tracker) Act(r *Record, victims, dryRun []pick.Victim, now time.Time) []tick.PodEviction {
	if w.runner == nil {
		victims, dryRun = nil, slices.Concat(victims, dryRun)
	}
	var requested, wouldEvict []tick.PodEviction
	evictions := make([]*pick.Ongoing, len(victims))
	for i, v := range victims {
		l := r.RecordRequest(v, now)
		if evictions[i] = l; w.Inode != nil {
			l.Inode = w.Inode(l.Cgroup)
		}
		requested = append(requested, l.Eviction)
	}
	w.startOrders(r, act.NotRequested, evictions...)
	for _, v := range dryRun {
		v.Eviction.State = tick.StateWouldEvict
		wouldEvict = append(wouldEvict, v.Eviction)
	}
	w.LogChanges(r, requested)
	w.logWouldEvict(r, wouldEvict)
	return append(requested, wouldEvict...)
}

// Save saves the state if the last save was long ago.
func (w *Tracker) Save() { w.saver.SaveIfDue() }

// Finish ends the run. At the end of the input it waits for orders in progress; at a signal it does not: with --state
// the next run continues them.
func (w *Tracker) Finish(err error) error {
	defer w.cancel()
	if w.runner != nil {
		if err != nil {
			w.cancel()
		}
		w.runner.Wait()
		for _, x := range w.runner.TakeResults() {
			r := w.record(x.Node)
			r.recordResult(x, r.lastTick, w.runner.Action)
			w.LogChanges(r, r.takeChanges())
		}
		if w.events != nil {
			w.events.Close()
		}
	}
	return w.saver.SaveAtEnd(err)
}
