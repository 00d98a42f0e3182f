package engine

import (
	"context"
	"slices"

	"polder/evict/pick"
	"polder/evict/rule"
	"polder/evict/settings"
	"polder/lib/sloconfig"
	"polder/lib/stage"
	"polder/lib/tick"
)

// handle processes one tick of a node: it decodes the tick, the rules and the choice decide, the runner acts on the victims,
// and the result is encoded as the tick's section.
func (e *engine) handle(_ context.Context, in stage.Incoming) (any, error) {
	e.TakeResults(in)
	e.input.add(in)
	if in.Refused != "" {
		return &tick.Eviction{DryRun: e.session.DryRun, DroppedTicks: in.Dropped, Refused: in.Refused}, nil
	}
	n := e.node(in.Node)
	x := e.decode(n, in)
	d := n.decide(x, in.Tick)
	e.LogLimits(&n.Record, d.round.ReachedLimits)
	evictions := e.Act(&n.Record, d.round.Victims, d.round.WouldEvict, in.Time)
	return e.encode(n, in, x, d, evictions), nil
}

// decoded contains a tick, and the settings in force for it.
type decoded struct {
	settings    *settings.Settings
	koordinator *sloconfig.Strategies
	// changes are the evictions that changed since the previous tick.
	changes []tick.PodEviction
	// whyNotMeasured says why nothing can be measured, empty if it can; refused names the configurations that cannot be used.
	whyNotMeasured string
	refused        []string
}

func (e *engine) decode(n *node, in stage.Incoming) decoded {
	var x decoded
	x.settings, x.refused = n.SettingsAt(e.settings.Load(), in.Tick, e.session.Log)
	if slo := x.settings.SLO; slo != nil {
		e.reported.Unsupported(e.session.Log, slo.Unsupported)
	}
	e.dropReplaced(n)
	pods := pick.PodsOf(in.Sample)
	if in.Sample != nil && len(pods.ByUID) < len(in.Sample.Pods) {
		in.Sample.Pods = eachOnce(in.Sample.Pods)
		pods = pick.PodsOf(in.Sample)
	}
	x.changes = e.Observe(&n.Record, in, pods)
	if in.Sample == nil {
		x.whyNotMeasured = "the tick has no sample: nothing was measured"
		return x
	}
	var errs []string
	x.koordinator, errs = n.Strategies.Read(x.settings, in.Tick)
	n.Strategies.Log(e.session.Log.With("node", n.Record.Node()))
	x.refused = append(slices.Clip(x.refused), errs...)
	return x
}

// eachOnce returns the pods without those of which an earlier one has the UID: a stage that lists a pod twice must not have pods evicted
// for twice what it requests and uses. Those without a UID are never evicted, and all stay.
func eachOnce(pods []tick.Pod) []tick.Pod {
	seen := make(map[string]bool, len(pods))
	return slices.DeleteFunc(pods, func(p tick.Pod) bool {
		isListed := p.UID != "" && seen[p.UID]
		seen[p.UID] = true
		return isListed
	})
}

// decision contains the rules' findings, and the victims chosen for them.
type decision struct {
	findings []rule.Finding
	errors   []string
	taints   []tick.Taint
	round    pick.Round
}

func (n *node) decide(x decoded, t *tick.Tick) decision {
	var d decision
	if x.whyNotMeasured != "" {
		d.errors = []string{x.whyNotMeasured}
	} else {
		d.findings, d.errors = n.measure(x.settings, x.koordinator, t)
	}
	d.taints = n.taints(d.findings, t.Time, x.settings.TaintTransitionPeriod)
	d.round = pick.Choose(t.Time, d.findings, x.settings.Limits(), &n.State)
	if t.Sample != nil {
		n.Queue = d.round.Queue
	}
	return d
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
	if e.explaining {
		n.explanation = explain(n, in.Tick, x.settings, section, d.round)
	}
	n.Forget(section.Evictions)
	e.Save()
	return section
}
