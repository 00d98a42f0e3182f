package main

import (
	"context"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/stage"
	"polder/lib/tick"
)

// engine takes each tick through the rules, the choice and the action. All but the runner's orders and the saving of the
// state is done on the goroutine of the stream.
type engine struct {
	session  *stage.Session
	settings *live
	nodes    map[string]*node
	saver    *saver
	runner   *act.Runner // nil where nothing is to be done: --action log, --dry-run
	events   *act.Events // nil without a cluster
	// orders ends what the runner does when the tool stops, cancel does so when the stream has failed.
	orders context.Context
	cancel context.CancelFunc
}

func (e *engine) handle(_ context.Context, in stage.Incoming) (any, error) {
	section := &tick.Eviction{DryRun: e.session.DryRun, DroppedTicks: in.Dropped}
	e.takeResults(in.Tick)
	if in.Refused != "" {
		section.Refused = in.Refused
		return section, nil
	}
	n := e.node(in.Node)
	s := e.settings.Load()
	e.resume(n, in.Time)

	present, complete := pods(in.Sample)
	section.Evictions = n.say()
	section.Evictions = append(section.Evictions, n.Going.Observe(in.Time, present, complete)...)
	e.logChanges(n, section.Evictions)

	var findings []rule.Finding
	if in.Sample == nil {
		section.Errors = []string{"the tick has no sample: nothing was measured"}
	} else {
		findings, section.Errors = n.measure(s, in.Tick)
	}
	for _, f := range findings {
		section.Pressures = append(section.Pressures, f.PressureFinding)
	}
	section.Taints = n.taints(findings, in.Time, s.TaintTransitionPeriod)

	victims := pick.Choose(findings, pick.Limits{Burst: s.Burst, OptOut: s.OptOut}, pick.Context{
		Going:  n.Going.Has,
		Spared: n.Going.Spared,
		CooldownLeft: func(rule string, span time.Duration) time.Duration {
			return n.cooldown(rule).Left(in.Time, span)
		},
	})
	section.Evictions = append(section.Evictions, e.evict(n, victims, in.Time)...)
	e.saver.maybe(e.snapshot)
	return section, nil
}

// pods are the sample's pods by UID. They are complete, so that who is missing has gone, unless collect says that it
// could not read them all.
func pods(s *tick.Sample) (map[string]*tick.Pod, bool) {
	if s == nil {
		return nil, false
	}
	present := make(map[string]*tick.Pod, len(s.Pods))
	for i := range s.Pods {
		present[s.Pods[i].UID] = &s.Pods[i]
	}
	for _, x := range s.Errors {
		if x.Source == "pods" || x.Source == "cgroup" {
			return present, false
		}
	}
	return present, true
}

// evict has the victims ended, or says who would go.
func (e *engine) evict(n *node, victims []pick.Victim, now time.Time) []tick.PodEviction {
	var said []tick.PodEviction
	if e.runner == nil {
		for _, v := range victims {
			v.Eviction.State = tick.StateWouldEvict
			said = append(said, v.Eviction)
		}
		e.logWould(n, said)
		return said
	}
	for _, v := range victims {
		l := n.Going.Add(v, now)
		for _, r := range v.Rules {
			n.cooldown(r).Strike(now)
		}
		said = append(said, l.Eviction)
		e.order(n, l, pick.Grace(&l.Eviction), act.NotAsked)
	}
	e.logChanges(n, said)
	return said
}

func (e *engine) order(n *node, l *pick.Leaving, grace time.Duration, asked act.Asked) {
	record := e.saver.prepare(e.snapshot)
	e.runner.Start(e.orders, act.Order{
		Node: n.name, Eviction: l.Eviction, Cgroup: l.Cgroup,
		Grace: grace, Patience: pick.Patience(&l.Eviction), Asked: asked, Record: record,
	})
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
// the same name is not meant.
func (e *engine) resume(n *node, now time.Time) {
	first := n.last.IsZero()
	n.last = now
	if !first || e.runner == nil {
		return
	}
	for _, l := range n.Going {
		if !l.Waits(now) {
			continue
		}
		asked := act.Asked(l.Eviction.State == tick.StateCreated)
		e.session.Log.Info("going on with an eviction of an earlier run", "pod", l.Eviction.Name, "uid", l.Eviction.UID)
		e.order(n, l, max(0, pick.Grace(&l.Eviction)-now.Sub(l.Requested)), asked)
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
			e.logChanges(n, n.say())
		}
		if e.events != nil {
			e.events.Close()
		}
	}
	return e.saver.last(err, e.snapshot)
}

// logChanges logs each eviction when its state changes.
func (e *engine) logChanges(n *node, said []tick.PodEviction) {
	for _, x := range said {
		key := x.UID + " " + x.Rule
		if n.logged[key] == x.State {
			continue
		}
		n.logged[key] = x.State
		attrs := []any{"state", x.State, "node", n.name, "pod", podName(x), "uid", x.UID, "reason", x.Reason, "message", x.Message}
		if x.Error != "" {
			e.session.Log.Warn("evict", append(attrs, "error", x.Error)...)
		} else {
			e.session.Log.Info("evict", attrs...)
		}
	}
}

// logWould logs who would go when that begins, not at every tick for as long as it holds.
func (e *engine) logWould(n *node, said []tick.PodEviction) {
	before := n.logged
	n.logged = map[string]string{}
	for _, x := range said {
		key := x.UID + " " + x.Rule
		if before[key] == "" {
			e.session.Log.Info("would evict", "node", n.name, "pod", podName(x), "uid", x.UID, "reason", x.Reason, "message", x.Message)
		}
		n.logged[key] = x.State
	}
}

func podName(x tick.PodEviction) string {
	if x.Namespace == "" {
		return x.Name
	}
	return x.Namespace + "/" + x.Name
}
