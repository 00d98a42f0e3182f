package engine

import (
	"context"
	"slices"
	"time"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/evict/settings"
	"polder/lib/sloconfig"
	"polder/lib/stage"
	"polder/lib/tick"
)

// handle is the way of one tick of a node: what it says is decoded, the rules and the choice decide, the runner acts on the victims, and
// what came of all is encoded as the tick's section.
func (e *engine) handle(_ context.Context, in stage.Incoming) (any, error) {
	e.takeResults(in.Tick)
	e.input.add(in)
	if in.Refused != "" {
		return &tick.Eviction{DryRun: e.session.DryRun, DroppedTicks: in.Dropped, Refused: in.Refused}, nil
	}
	n := e.node(in.Node)
	x := e.decode(n, in)
	d := n.decide(x, in.Tick)
	e.logLimits(n, d.round.Limited)
	evictions := e.act(n, d.round.Victims, d.round.Would, in.Time)
	return e.encode(n, in, x, d, evictions), nil
}

// decoded is what a tick says, and what is in force for it.
type decoded struct {
	settings    *settings.Settings
	koordinator *sloconfig.Strategies
	// changes are the evictions that changed since the tick before.
	changes []tick.PodEviction
	// unmeasured says why nothing can be measured, empty where it can be; refused are the configurations that cannot be used.
	unmeasured string
	refused    []string
}

func (e *engine) decode(n *node, in stage.Incoming) decoded {
	var x decoded
	x.settings, x.refused = n.SettingsAt(e.settings.Load(), in.Tick, e.session.Log)
	e.logUnsupported(x.settings)
	e.forgetReplaced(n)
	e.resume(n, in.Time)

	present, complete := pods(in.Sample)
	x.changes = append(n.takeNews(), n.Observe(in.Time, in.Sample, present, complete)...)
	e.logChanges(n, x.changes)
	if in.Sample == nil {
		x.unmeasured = "the tick has no sample: nothing was measured"
		return x
	}
	var wrong []string
	x.koordinator, wrong = n.Strategies.Read(x.settings, in.Tick)
	n.Strategies.Log(e.session.Log.With("node", n.name))
	x.refused = append(x.refused[:len(x.refused):len(x.refused)], wrong...)
	return x
}

// pods are the sample's pods by UID. They are complete, so that a pod that is missing has gone, unless collect says that it
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

// decision is what the rules have found, and who is evicted for it.
type decision struct {
	findings []rule.Finding
	errors   []string
	taints   []tick.Taint
	round    pick.Round
}

func (n *node) decide(x decoded, t *tick.Tick) decision {
	var d decision
	if x.unmeasured != "" {
		d.errors = []string{x.unmeasured}
	} else {
		d.findings, d.errors = n.measure(x.settings, x.koordinator, t)
	}
	d.taints = n.taints(d.findings, t.Time, x.settings.TaintTransitionPeriod)
	d.round = pick.Choose(t.Time, d.findings, x.settings.Limits(), &n.Memory)
	if t.Sample != nil {
		n.Queue = d.round.Queue
	}
	return d
}

// act has the victims ended, or says who would be evicted. What is remembered is written once, before the first one is asked.
func (e *engine) act(n *node, victims, tried []pick.Victim, now time.Time) []tick.PodEviction {
	if e.runner == nil {
		victims, tried = nil, slices.Concat(victims, tried)
	}
	var asked, would []tick.PodEviction
	leaving := make([]*pick.Leaving, len(victims))
	for i, v := range victims {
		leaving[i] = n.Take(v, now)
		leaving[i].Inode = e.cgroups.inode(leaving[i].Cgroup)
		asked = append(asked, leaving[i].Eviction)
	}
	e.order(n, act.NotAsked, leaving...)
	for _, v := range tried {
		v.Eviction.State = tick.StateWouldEvict
		would = append(would, v.Eviction)
	}
	e.logChanges(n, asked)
	e.logWould(n, would)
	return append(asked, would...)
}

func (e *engine) encode(n *node, in stage.Incoming, x decoded, d decision, evictions []tick.PodEviction) *tick.Eviction {
	section := &tick.Eviction{
		DryRun: e.session.DryRun, DroppedTicks: in.Dropped,
		Evictions: append(x.changes, evictions...),
		Errors:    append(d.errors, x.refused...),
		Taints:    d.taints,
		Queued:    len(n.Queue),
	}
	for _, f := range d.findings {
		section.Pressures = append(section.Pressures, f.PressureFinding)
	}
	if e.explains {
		n.explained = explain(n, in.Tick, x.settings, section, d.round)
	}
	n.forget(section.Evictions)
	e.saver.SaveIfDue()
	return section
}
