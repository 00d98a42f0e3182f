package main

import (
	"context"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/sloconfig"
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
	counts   counts
	runner   *act.Runner // nil where nothing is to be done: --action log, --dry-run, --explain
	cgroups  *cgroups    // nil where none is frozen or killed
	events   *act.Events // nil without a cluster
	explains bool
	heard    heard
	slo      *sloconfig.File // the ConfigMap of which the log has what is not supported
	centre   *centre         // nil without --fleet
	// orders ends what the runner does when the tool stops, cancel does so when the stream has failed.
	orders context.Context
	cancel context.CancelFunc
}

func (e *engine) handle(_ context.Context, in stage.Incoming) (any, error) {
	section := &tick.Eviction{DryRun: e.session.DryRun, DroppedTicks: in.Dropped}
	e.takeResults(in.Tick)
	e.heard.add(in)
	if in.Refused != "" {
		section.Refused = in.Refused
		return section, nil
	}
	n := e.node(in.Node)
	s, refused := e.settingsFor(n, in.Tick)
	e.announce(s)
	e.check(n)
	e.resume(n, in.Time)

	present, complete := pods(in.Sample)
	section.Evictions = n.say()
	section.Evictions = append(section.Evictions, n.Observe(in.Time, in.Sample, present, complete)...)
	e.logChanges(n, section.Evictions)

	var findings []rule.Finding
	if in.Sample == nil {
		section.Errors = []string{"the tick has no sample: nothing was measured"}
	} else {
		koordinator, wrong := n.strategies.read(s, in.Tick)
		e.logStrategies(n, koordinator, wrong)
		findings, section.Errors = n.measure(s, koordinator, in.Tick)
		refused = append(refused[:len(refused):len(refused)], wrong...)
	}
	section.Errors = append(section.Errors, refused...)
	for _, f := range findings {
		section.Pressures = append(section.Pressures, f.PressureFinding)
	}
	section.Taints = n.taints(findings, in.Time, s.TaintTransitionPeriod)

	round := pick.Choose(in.Time, findings, s.limits(), &n.Memory)
	if in.Sample != nil {
		n.Queue = round.Queue
	}
	section.Queued = len(n.Queue)
	e.logLimits(n, round.Limited)
	section.Evictions = append(section.Evictions, e.evict(n, round, in.Time)...)
	if e.explains {
		n.explained = explain(n, in.Tick, s, section, round)
	}
	n.forget(section.Evictions)
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
func (e *engine) evict(n *node, round pick.Round, now time.Time) []tick.PodEviction {
	var asked, would []tick.PodEviction
	for _, v := range round.Victims {
		if e.runner == nil {
			would = append(would, v.Eviction)
			continue
		}
		l := n.Take(v, now)
		l.Inode = e.cgroups.inode(l.Cgroup)
		asked = append(asked, l.Eviction)
		e.order(n, l, pick.Grace(&l.Eviction), act.NotAsked)
	}
	for _, v := range round.Would {
		would = append(would, v.Eviction)
	}
	for i := range would {
		would[i].State = tick.StateWouldEvict
	}
	e.logChanges(n, asked)
	e.logWould(n, would)
	return append(asked, would...)
}

func (e *engine) order(n *node, l *pick.Leaving, grace time.Duration, asked act.Asked) {
	record := e.saver.prepare(e.snapshot)
	l.Awaited = true
	e.runner.Start(e.orders, act.Order{
		Node: n.name, Eviction: l.Eviction, Cgroup: l.Cgroup, Inode: l.Inode,
		Grace: grace, Patience: pick.Patience(&l.Eviction), Asked: asked, Koordinator: rule.Koordinator(l.Eviction.Rule), Record: record,
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
