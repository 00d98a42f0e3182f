package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"polder/evict/fleet"
	"polder/evict/pick"
	"polder/evict/rule"
	"polder/lib/stage"
	"polder/lib/tick"
)

// qps bounds the requests a second: the fleet controller waits for the pods of several nodes at a time.
func (o *options) qps() float32 {
	if o.fleet {
		return 100
	}
	return 0
}

// controller is what evict --fleet remembers beside the nodes.
type controller struct {
	state fleet.State
	// granted are the nodes whose turn has come where nothing is done, so that what would be done is said for as long as it
	// holds.
	granted map[string]bool
	// What was logged: the protection, the nodes of which it is not known how they are, and when one of them was named.
	protected bool
	unknown   map[string]bool
	unknownAt time.Time
	// heard is when each node was last heard of, swept when those that are gone were last forgotten.
	heard map[string]time.Time
	swept time.Time
}

func newController() *controller {
	return &controller{granted: map[string]bool{}, unknown: map[string]bool{}, heard: map[string]time.Time{}}
}

const (
	// mostFleet bounds the nodes that are remembered.
	mostFleet = 10_000
	// forgetNode is how long a node is remembered of which there are no more ticks.
	forgetNode = time.Hour
	// fleetEnd is how long the end of the input waits for what was begun. Who leads next sees which pods are on their way out,
	// and those of a dead node stay so.
	fleetEnd = 5 * time.Second
	// unknownEvery is how often nodes are named of which it is not known how they are: it may be all of them.
	unknownEvery = 10 * time.Second
)

// fleet runs the fleet controller. Ticks of many nodes go through it: none takes the place of another's.
func (e *engine) fleet(ctx context.Context) error {
	e.session.Node = ""
	err := e.session.Filter(ctx, stage.Filter{
		Section: tick.SectionEviction,
		Reads:   []string{tick.SectionSample},
		Handle:  e.handleFleet,
	})
	if e.runner != nil {
		time.AfterFunc(fleetEnd, e.cancel)
	}
	return err
}

func (e *engine) handleFleet(_ context.Context, in stage.Incoming) (any, error) {
	section := &tick.Eviction{DryRun: e.session.DryRun, DroppedTicks: in.Dropped}
	e.takeResults(in.Tick)
	if in.Refused != "" {
		section.Refused = in.Refused
		return section, nil
	}
	if e.nodes[in.Node] == nil && len(e.nodes) >= mostFleet {
		section.Errors = []string{fmt.Sprintf("more than %d nodes: nothing is done about this one", mostFleet)}
		section.Fleet = &tick.FleetEviction{Held: true}
		return section, nil
	}
	n := e.node(in.Node)
	e.controller.heard[n.name] = in.Time
	s := e.settings.Load()

	present, complete := pods(in.Sample)
	if in.Sample == nil || in.Sample.Agent == nil || in.Sample.Agent.State == "" {
		complete = false // the pods are those of an old list, or none was read yet
	}
	section.Evictions = n.takeNews()
	section.Evictions = append(section.Evictions, n.Observe(in.Time, in.Sample, present, complete)...)
	e.logChanges(n, section.Evictions)

	evictable := func(p *tick.Pod) bool {
		return !n.Going.Has(p.UID) && !n.Going.Spared(p.UID) && pick.Protected(p, s.OptOut) == ""
	}
	granted := e.controller.granted[n.name]
	d := e.controller.state.Decide(s.Fleet, in.Tick, func(p *tick.Pod) bool { return !granted && evictable(p) })
	section.Pressures, section.Taints, section.Errors, section.Fleet = d.Pressures, d.Taints, d.Errors, &d.Fleet
	e.logFleet(n.name, in.Tick, &d)

	e.resumeFleet(n, in.Time, d.Due, present)
	if granted = e.runner == nil && d.Due && (granted || d.Victims != nil); granted {
		d.Victims = fleet.Reclaimed(in.Tick, evictable)
		e.controller.granted[n.name] = true
	} else if !d.Fleet.Held {
		delete(e.controller.granted, n.name)
	}
	section.Evictions = append(section.Evictions, e.act(n, victims(&d), nil, in.Time)...)
	n.forget(section.Evictions)
	e.forgetNodes(in.Time)
	e.saver.SaveIfDue()
	return section, nil
}

// victims are the decision's, with its reason.
func victims(d *fleet.Decision) []pick.Victim {
	if d.Victims == nil {
		return nil
	}
	hard := d.Pressures[len(d.Pressures)-1]
	var all []pick.Victim
	for _, p := range d.Victims {
		f := rule.Finding{PressureFinding: hard, Message: d.Message}
		all = append(all, pick.NewVictim(&f, &pick.Choice{Candidate: rule.Candidate{Pod: p}}))
	}
	return all
}

// resumeFleet goes on with what an earlier run began. A pod that is on its way out was asked. One that may not have been is
// decided on anew where the node is not due any more: its agent may be back, or the protection holds.
func (e *engine) resumeFleet(n *node, now time.Time, due bool, present map[string]*tick.Pod) {
	if n.last.IsZero() && e.runner != nil {
		for uid, l := range n.Going {
			switch {
			case l.Eviction.State != tick.StateRequested || !l.Spared.IsZero():
			case present[uid] != nil && present[uid].Terminating:
				l.Eviction.State = tick.StateCreated
			case !due:
				delete(n.Going, uid)
			}
		}
	}
	e.resume(n, now)
}

// logFleet says once when the protection begins and when it ends, and names nodes of which it is not known how they are.
func (e *engine) logFleet(name string, t *tick.Tick, d *fleet.Decision) {
	c := e.controller
	if now := d.Fleet.Protection; t.Sample != nil && t.Sample.Fleet != nil && (now != "") != c.protected {
		if c.protected = now != ""; c.protected {
			e.session.Log.Error("nothing new is done to any node: no taint, no eviction", "because", now)
		} else {
			e.session.Log.Warn("the fleet is well enough again to act on single nodes")
		}
	}
	switch {
	case !d.Fleet.Held, d.Fleet.Protection != "":
		delete(c.unknown, name)
	case !c.unknown[name]:
		c.unknown[name] = true
		if since := t.Time.Sub(c.unknownAt); since >= unknownEvery || since < 0 {
			c.unknownAt = t.Time
			e.session.Log.Warn("nothing is done about a node", "node", name, "error", strings.Join(d.Errors, "; "))
		}
	}
}

// forgetNodes drops what is remembered of nodes that are gone.
func (e *engine) forgetNodes(now time.Time) {
	c := e.controller
	if since := now.Sub(c.swept); since >= 0 && since < forgetNode/4 {
		return
	}
	c.swept = now
	for name := range e.nodes {
		heard, ok := c.heard[name]
		switch {
		case !ok:
			c.heard[name] = now // from the state file: it has as long as the others
		case now.Sub(heard) > forgetNode:
			delete(e.nodes, name)
			delete(c.heard, name)
			delete(c.granted, name)
			delete(c.unknown, name)
		}
	}
}
