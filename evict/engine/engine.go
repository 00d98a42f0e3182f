// Package engine takes ticks through evict's rules, choice and action. tick.go has the way of one tick.
package engine

import (
	"context"
	"sync"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/evict/settings"
	"polder/lib/sloconfig"
	"polder/lib/stage"
	"polder/lib/tick"
)

// engine takes each tick through the rules, the choice and the action. All but the runner's orders and the saving of the
// state is done on the goroutine of the stream.
type engine struct {
	session    *stage.Session
	settings   *settings.Live
	nodes      map[string]*node
	saver      *stage.Saver
	counts     counts
	runner     *act.Runner // nil where nothing is to be done: --action log, --dry-run, --explain
	cgroups    *cgroups    // nil where none is frozen or killed
	events     *act.Events // nil without a cluster
	explains   bool
	input      input
	slo        *sloconfig.File // the ConfigMap of which the log has what is not supported
	controller *controller     // nil without --fleet
	// orders ends what the runner does when the tool stops, cancel does so when the stream has failed.
	orders context.Context
	cancel context.CancelFunc
}

// order has the runner end pods; asked says whether an earlier run has asked for it. What is remembered is written once, before the
// first pod is asked.
func (e *engine) order(n *node, asked act.Asked, leaving ...*pick.Leaving) {
	if len(leaving) == 0 {
		return
	}
	record := sync.OnceValue(e.saver.Prepare())
	for _, l := range leaving {
		l.Awaited = true
		grace := max(0, pick.Grace(&l.Eviction)-n.last.Sub(l.Requested)) // what is left of it
		e.runner.Start(e.orders, act.Order{
			Node: n.name, Eviction: l.Eviction, Cgroup: l.Cgroup, Inode: l.Inode,
			Grace: grace, Patience: pick.Patience(&l.Eviction), Asked: asked, Koordinator: rule.Koordinator(l.Eviction.Rule), Record: record,
		})
	}
}

// takeResults notes what came of the orders since the tick before.
func (e *engine) takeResults(now *tick.Tick) {
	if e.runner == nil {
		return
	}
	for _, r := range e.runner.Take() {
		n := e.node(r.Node)
		at := now.Time
		if now.Node != r.Node {
			at = n.last
		}
		n.result(r, at, e.runner.Action)
	}
}

// resume goes on with what an earlier run began, as long as that is still waited for; a later process in a cgroup of
// the same name is not meant. What was to be frozen is looked at however long ago that is: a frozen pod that is forgotten
// stays so for good.
func (e *engine) resume(n *node, now time.Time) {
	first := n.last.IsZero()
	n.last = now
	if !first || e.runner == nil {
		return
	}
	for _, l := range n.Going {
		asked := act.Asked(l.Eviction.State == tick.StateCreated)
		switch {
		case l.Waits(now):
		case e.runner.Action == act.FreezePods && l.Eviction.State == tick.StateRequested && !l.Held && l.Spared.IsZero() && l.Ended.IsZero():
			l.Requested, asked = now, act.AlreadyAsked
		default:
			continue
		}
		e.session.Log.Info("going on with an eviction of an earlier run", "pod", l.Eviction.Name, "uid", l.Eviction.UID)
		e.order(n, asked, l)
	}
}

// finish ends the run. At the end of the input it waits for what was begun, at a signal it does not: with --state the
// next run goes on with it.
func (e *engine) finish(err error) error {
	if e.runner != nil {
		if err != nil {
			e.cancel()
		}
		e.runner.Wait()
		for _, r := range e.runner.Take() {
			n := e.node(r.Node)
			n.result(r, n.last, e.runner.Action)
			e.logChanges(n, n.takeNews())
		}
		if e.events != nil {
			e.events.Close()
		}
	}
	return e.saver.End(err)
}
