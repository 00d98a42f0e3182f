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
	*progress.Tracker
	session  *stage.Session
	settings atomic.Pointer[settingsInForce]
	nodes    map[string]*progress.Record
	state    health.State
	// dryRunTurns are the nodes whose turn has come in a dry run, so that what would be done is reported while it continues.
	dryRunTurns map[string]bool
	// What was logged: the protection, the nodes in unknown state, and when one of them was named.
	protectionLogged bool
	unknownLogged    map[string]bool
	unknownLoggedAt  time.Time
	// lastTick is when each node's last tick came; lastCleanup is when nodes without ticks were last dropped.
	lastTick    map[string]time.Time
	lastCleanup time.Time
}

func newController(s *stage.Session) *controller {
	c := &controller{
		session: s, nodes: map[string]*progress.Record{}, dryRunTurns: map[string]bool{}, unknownLogged: map[string]bool{},
		lastTick: map[string]time.Time{},
	}
	c.Tracker = progress.New(s, stateVersion, c.record, c.snapshot)
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
	// maxNodes bounds the nodes that are remembered.
	maxNodes = 10_000
	// nodeRetention is how long a node without ticks is remembered.
	nodeRetention = time.Hour
	// endTimeout is how long the end of the input waits for evictions in progress. The next leader sees which evictions are in
	// progress, and those of a dead node stay in progress.
	endTimeout = 5 * time.Second
	// unknownLogInterval is how often nodes in unknown state are logged: it may be all of them.
	unknownLogInterval = 10 * time.Second
)

// processTicks processes the ticks. They are of many nodes, so that no tick replaces another one.
func (c *controller) processTicks(ctx context.Context) error {
	err := c.session.Filter(ctx, stage.Filter{
		Section: tick.SectionEviction,
		Reads:   []string{tick.SectionSample},
		Handle:  c.handle,
	})
	if c.Acts() {
		time.AfterFunc(endTimeout, c.Cancel)
	}
	return err
}

func (c *controller) handle(_ context.Context, in stage.Incoming) (any, error) {
	section := &tick.Eviction{DryRun: c.session.DryRun, DroppedTicks: in.Dropped}
	c.TakeResults(in)
	if in.Refused != "" {
		section.Refused = in.Refused
		return section, nil
	}
	if c.nodes[in.Node] == nil && len(c.nodes) >= maxNodes {
		section.Errors = []string{fmt.Sprintf("more than %d nodes: no action on this one", maxNodes)}
		section.Fleet = &tick.FleetEviction{Held: true}
		return section, nil
	}
	r := c.record(in.Node)
	c.lastTick[in.Node] = in.Time
	s := c.settings.Load()

	pods := pick.PodsOf(in.Sample)
	if in.Sample == nil || in.Sample.Agent == nil || in.Sample.Agent.State == "" {
		pods.AreComplete = false // they are from an old list, or none was read yet
	}
	section.Evictions = c.Observe(r, in, pods)

	evictable := func(p *tick.Pod) bool {
		return !r.InProgress.Has(p.UID) && !r.InProgress.FailedRecently(p.UID) && pick.Protected(p, s.OptOut) == ""
	}
	hadTurn := c.dryRunTurns[in.Node]
	d := c.state.Decide(s.Settings, in.Tick, func(p *tick.Pod) bool { return !hadTurn && evictable(p) })
	section.Pressures, section.Taints, section.Errors, section.Fleet = d.Pressures, d.Taints, d.Errors, &d.Fleet
	c.logDecision(in.Tick, &d)

	if hadTurn = !c.Acts() && d.IsDue && (hadTurn || d.Victims != nil); hadTurn {
		d.Victims = health.Reclaimed(in.Tick, evictable)
		c.dryRunTurns[in.Node] = true
	} else if !d.Fleet.Held {
		delete(c.dryRunTurns, in.Node)
	}
	section.Evictions = append(section.Evictions, c.Act(r, victims(&d), nil, in.Time)...)
	r.Forget(section.Evictions)
	c.dropOldNodes(in.Time)
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

// logDecision logs once when the protection begins and when it ends, and names nodes in unknown state.
func (c *controller) logDecision(t *tick.Tick, d *health.Decision) {
	if why := d.Fleet.Protection; t.Sample != nil && t.Sample.Fleet != nil && (why != "") != c.protectionLogged {
		if c.protectionLogged = why != ""; c.protectionLogged {
			c.session.Log.Error("the protection is active: no new taint and no new eviction on any node", "reason", why)
		} else {
			c.session.Log.Warn("the protection has ended: taints and evictions on single nodes continue")
		}
	}
	switch {
	case !d.Fleet.Held, d.Fleet.Protection != "":
		delete(c.unknownLogged, t.Node)
	case !c.unknownLogged[t.Node]:
		c.unknownLogged[t.Node] = true
		if since := t.Time.Sub(c.unknownLoggedAt); since >= unknownLogInterval || since < 0 {
			c.unknownLoggedAt = t.Time
			c.session.Log.Warn("no new action on a node", "node", t.Node, "error", strings.Join(d.Errors, "; "))
		}
	}
}

// dropOldNodes drops the state of removed nodes.
func (c *controller) dropOldNodes(now time.Time) {
	if since := now.Sub(c.lastCleanup); since >= 0 && since < nodeRetention/4 {
		return
	}
	c.lastCleanup = now
	for name := range c.nodes {
		lastTick, ok := c.lastTick[name]
		switch {
		case !ok:
			c.lastTick[name] = now // from the state file: it is kept as long as the others
		case now.Sub(lastTick) > nodeRetention:
			delete(c.nodes, name)
			delete(c.lastTick, name)
			delete(c.dryRunTurns, name)
			delete(c.unknownLogged, name)
		}
	}
}
