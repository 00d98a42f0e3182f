package fleet

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"polder/evict/fleet/health"
	"polder/evict/pick"
	"polder/evict/progress"
	"polder/evict/rule"
	"polder/lib/stage"
	"polder/lib/tick"
)

// controller takes each tick through the decision and the action.
type controller struct {
	*progress.Work
	session  *stage.Session
	settings atomic.Pointer[inForce]
	nodes    map[string]*progress.Record
	state    health.State
	// granted are the nodes whose turn has come in a dry run, so that what would be done is reported while it continues.
	granted map[string]bool
	// What was logged: the protection, the nodes in unknown state, and when one of them was named.
	protected bool
	unknown   map[string]bool
	unknownAt time.Time
	// heard is when each node's last tick came; swept is when nodes without ticks were last forgotten.
	heard map[string]time.Time
	swept time.Time
}

func newController(s *stage.Session) *controller {
	c := &controller{
		session: s, nodes: map[string]*progress.Record{}, granted: map[string]bool{}, unknown: map[string]bool{}, heard: map[string]time.Time{},
	}
	c.Work = progress.New(s, stateVersion, append(rule.Names(), health.Rule), c.record, c.snapshot)
	return c
}

// record returns the record of a node's evictions.
func (c *controller) record(node string) *progress.Record {
	r := c.nodes[node]
	if r == nil {
		r = &progress.Record{}
		c.nodes[node] = r
	}
	if r.Node() == "" { // new, or from the state file
		r.Init(node)
	}
	return r
}

const (
	// mostNodes bounds the nodes that are remembered.
	mostNodes = 10_000
	// forgetNode is how long a node without ticks is remembered.
	forgetNode = time.Hour
	// endWithin is how long the end of the input waits for evictions in progress. The next leader sees which evictions are in
	// progress, and those of a dead node stay in progress.
	endWithin = 5 * time.Second
	// unknownEvery is how often nodes in unknown state are logged: it may be all of them.
	unknownEvery = 10 * time.Second
)

// follow processes the ticks. They are of many nodes, so that no tick replaces another one.
func (c *controller) follow(ctx context.Context) error {
	err := c.session.Filter(ctx, stage.Filter{
		Section: tick.SectionEviction,
		Reads:   []string{tick.SectionSample},
		Handle:  c.handle,
	})
	if c.Acts() {
		time.AfterFunc(endWithin, c.Cancel)
	}
	return err
}

func (c *controller) handle(_ context.Context, in stage.Incoming) (any, error) {
	section := &tick.Eviction{DryRun: c.session.DryRun, DroppedTicks: in.Dropped}
	c.TakeResults(in.Tick)
	if in.Refused != "" {
		section.Refused = in.Refused
		return section, nil
	}
	if c.nodes[in.Node] == nil && len(c.nodes) >= mostNodes {
		section.Errors = []string{fmt.Sprintf("more than %d nodes: nothing is done about this one", mostNodes)}
		section.Fleet = &tick.FleetEviction{Held: true}
		return section, nil
	}
	r := c.record(in.Node)
	c.heard[in.Node] = in.Time
	s := c.settings.Load()

	present, complete := progress.Pods(in.Sample)
	if in.Sample == nil || in.Sample.Agent == nil || in.Sample.Agent.State == "" {
		complete = false // the pods are from an old list, or none was read yet
	}
	section.Evictions = r.TakeNews()
	section.Evictions = append(section.Evictions, r.Observe(in.Time, in.Sample, present, complete)...)
	c.LogChanges(r, section.Evictions)

	evictable := func(p *tick.Pod) bool {
		return !r.InProgress.Has(p.UID) && !r.InProgress.Spared(p.UID) && pick.Protected(p, s.OptOut) == ""
	}
	granted := c.granted[in.Node]
	d := c.state.Decide(s.Settings, in.Tick, func(p *tick.Pod) bool { return !granted && evictable(p) })
	section.Pressures, section.Taints, section.Errors, section.Fleet = d.Pressures, d.Taints, d.Errors, &d.Fleet
	c.logDecision(in.Tick, &d)

	c.resume(r, in.Time, d.Due, present)
	if granted = !c.Acts() && d.Due && (granted || d.Victims != nil); granted {
		d.Victims = health.Reclaimed(in.Tick, evictable)
		c.granted[in.Node] = true
	} else if !d.Fleet.Held {
		delete(c.granted, in.Node)
	}
	section.Evictions = append(section.Evictions, c.Act(r, victims(&d), nil, in.Time)...)
	r.Forget(section.Evictions)
	c.forgetNodes(in.Time)
	c.Save()
	return section, nil
}

// victims returns the decision's victims, with its reason.
func victims(d *health.Decision) []pick.Victim {
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

// resume continues what an earlier run began. A pod that terminates has been asked. One that may not have been asked is decided on again if
// its node is no longer due: its agent may be back, or the protection is active.
func (c *controller) resume(r *progress.Record, now time.Time, due bool, present map[string]*tick.Pod) {
	if r.New() && c.Acts() {
		for uid, l := range r.InProgress {
			switch {
			case l.Eviction.State != tick.StateRequested || !l.Spared.IsZero():
			case present[uid] != nil && present[uid].Terminating:
				l.Eviction.State = tick.StateCreated
			case !due:
				delete(r.InProgress, uid)
			}
		}
	}
	c.Resume(r, now)
}

// logDecision logs once when the protection begins and when it ends, and names nodes in unknown state.
func (c *controller) logDecision(t *tick.Tick, d *health.Decision) {
	if now := d.Fleet.Protection; t.Sample != nil && t.Sample.Fleet != nil && (now != "") != c.protected {
		if c.protected = now != ""; c.protected {
			c.session.Log.Error("nothing new is done to any node: no taint, no eviction", "because", now)
		} else {
			c.session.Log.Warn("the fleet is well enough again to act on single nodes")
		}
	}
	switch {
	case !d.Fleet.Held, d.Fleet.Protection != "":
		delete(c.unknown, t.Node)
	case !c.unknown[t.Node]:
		c.unknown[t.Node] = true
		if since := t.Time.Sub(c.unknownAt); since >= unknownEvery || since < 0 {
			c.unknownAt = t.Time
			c.session.Log.Warn("nothing is done about a node", "node", t.Node, "error", strings.Join(d.Errors, "; "))
		}
	}
}

// forgetNodes drops the state of nodes that are gone.
func (c *controller) forgetNodes(now time.Time) {
	if since := now.Sub(c.swept); since >= 0 && since < forgetNode/4 {
		return
	}
	c.swept = now
	for name := range c.nodes {
		heard, ok := c.heard[name]
		switch {
		case !ok:
			c.heard[name] = now // from the state file: it is kept as long as the others
		case now.Sub(heard) > forgetNode:
			delete(c.nodes, name)
			delete(c.heard, name)
			delete(c.granted, name)
			delete(c.unknown, name)
		}
	}
}
