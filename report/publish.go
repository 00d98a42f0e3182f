package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
)

const (
	// lookEvery is how often objects are looked at without a tick: for what is stale, undone or to be tried again.
	lookEvery = 250 * time.Millisecond
	// maxNodes bounds what --all-nodes remembers.
	maxNodes = 10_000
	// writesAtOnce bounds the writes that are under way; of one object there is never more than one.
	writesAtOnce = 16
	// flushPatience is how long the end of the input waits for a write to succeed, stopPatience how long a signal waits for
	// the writes under way.
	flushPatience = 5 * time.Second
	stopPatience  = time.Second
	// startPatience is how long the first lists may take before that is a failure.
	startPatience = 3 * time.Second
)

// publisher keeps one kind of objects as the ticks say. Nothing in it waits for the cluster but the writes, which run
// beside the stream; what comes of them is said with the next tick.
type publisher struct {
	kind
	writer
	session    *stage.Session
	ctx        context.Context // ends with a signal
	cluster    *cluster        // nil in a dry run
	rules      object.Rules
	given      object.Given // which of them the user has set
	staleAfter time.Duration
	// growInterval is how long an amount that has grown waits after the object's amounts have moved; growGiven says that it is the user's.
	growInterval time.Duration
	growGiven    bool
	left         bool // a Node's taints, if there are ours, are of another process

	stopLooking context.CancelFunc
	looking     sync.WaitGroup

	mu       sync.Mutex
	entries  map[string]*entry
	queue    []*entry // those that are due and wait for their turn
	writing  int
	started  time.Time
	progress time.Time // of the last write that succeeded
	logged   time.Time
	// What the watches had when they were looked at last.
	version, nodesVersion uint64
	objects               map[string]*seen
	uids                  map[string]string // the cluster's nodes
	marks                 map[string]string // why the centre has withdrawn the offer of some
}

func openCNR(ctx context.Context, s *stage.Session, o *options, _ io.Writer) (target, error) {
	return openPublisher(ctx, s, o, cnrKind)
}

func openNode(ctx context.Context, s *stage.Session, o *options, _ io.Writer) (target, error) {
	return openPublisher(ctx, s, o, nodeKindOf(o.cluster.prefix))
}

func openNodeTaints(ctx context.Context, s *stage.Session, o *options, _ io.Writer) (target, error) {
	return openPublisher(ctx, s, o, nodeTaintsKind)
}

func openPublisher(ctx context.Context, s *stage.Session, o *options, k kind) (target, error) {
	p := &publisher{kind: k, session: s, ctx: ctx, started: s.Now(), rules: o.cluster.rules(), given: given(s), staleAfter: o.cluster.staleAfter, entries: map[string]*entry{}, stopLooking: func() {}}
	p.growInterval, p.growGiven = o.cluster.growAge, s.IsSet("grow-interval")
	p.left = k.target == nodeKind.target && !o.cluster.taintNode
	if s.DryRun {
		return p, nil // which needs no cluster
	}
	c, err := o.connect(ctx, s)
	if err != nil {
		return nil, err
	}
	p.cluster, p.writer = c, writer{client: c.client, log: s.Log}
	if s.Node != "" {
		p.entries[s.Node] = newEntry(s.Node, s.Now()) // what a process before this one wrote becomes stale, too
	}
	var looks context.Context
	looks, p.stopLooking = context.WithCancel(context.WithoutCancel(ctx))
	p.looking.Go(func() { p.look(looks) })
	return p, nil
}

func (p *publisher) look(ctx context.Context) {
	clock := time.NewTicker(lookEvery)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
		p.mu.Lock()
		p.refresh()
		for _, e := range p.entries {
			p.consider(e)
		}
		p.mu.Unlock()
	}
}

// refresh takes over what the watches have seen.
func (p *publisher) refresh() {
	if v := p.cluster.nodes.Version(); v != p.nodesVersion {
		p.nodesVersion, p.uids, p.marks = v, map[string]string{}, map[string]string{}
		for _, n := range p.cluster.nodes.List() {
			p.uids[n.name] = n.uid
			if reason := object.Mark(n.object); reason != "" {
				p.marks[n.name] = reason
			}
		}
	}
	if v := p.watch().Version(); v != p.version {
		p.version, p.objects = v, map[string]*seen{}
		for _, x := range p.watch().List() {
			p.objects[x.name] = x
		}
	}
	now := p.session.Now()
	for _, e := range p.entries {
		e.see(p.objects[e.node], p.kind, now)
	}
}

func (p *publisher) watch() *kube.Watch[*seen] {
	if p.resource == kube.Nodes {
		return p.cluster.nodes
	}
	return p.cluster.cnrs
}

// lacking says why nothing can be written for a node, if so.
func (p *publisher) lacking(node string) error {
	for r, w := range map[kube.Resource]*kube.Watch[*seen]{kube.Nodes: p.cluster.nodes, p.resource: p.watch()} {
		if s := w.State(); !s.Synced {
			return explain(r, fmt.Errorf("list %s of %s: %w", r, p.client.Server(), s.Err))
		}
	}
	if _, ok := p.uids[node]; !ok {
		return fmt.Errorf("the cluster has no node %s: is --node its name there?", strconv.Quote(node))
	}
	return nil
}

// put notes what a tick says and returns what has become of the ones before.
func (p *publisher) put(in stage.Incoming) (tick.Target, error) {
	if in.Refused != "" {
		return tick.Target{Target: p.target, State: tick.TargetUnchanged}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e, err := p.entry(in.Node)
	if err != nil {
		return said(p.target, tick.TargetFailed, false, err), nil
	}
	now, figures := p.session.Now(), object.Read(in.Tick)
	if p.isNode() {
		e.strategies.Take(in.Sample)
	}
	if p.cluster == nil {
		return p.pretend(e, figures, in.Time), nil
	}
	e.memory.Take(figures, now)
	if figures.Speaks() || figures.Taints != nil {
		e.heard = now
	}
	p.consider(e)
	return e.say(p, now), nil
}

// want is what the entry's object should hold now.
func (p *publisher) want(e *entry, now time.Time) object.Figures {
	f := e.memory.Now(now, p.staleAfter)
	f = p.figures(f, e.published(f.Dialect, p.prefix))
	switch reason := p.marks[e.node]; {
	case f.TaintsAlone && f.Taints == nil && now.Sub(e.since) >= p.staleAfter:
		f.Taints, f.Said = []tick.Taint{}, true // a process before this one may have left some, and nobody speaks of them
	case !f.TaintsAlone && reason != "":
		f = f.Withdrawn(reason)
	}
	f = e.damped(p, f, now)
	f.Left = e.left(f.Dialect)
	if f.Note == "" && p.left && e.have != nil {
		if ours := object.NodeTaintsOf(e.have.object).Ours(); len(ours) > 0 {
			f.Note = fmt.Sprintf("the Node still has taints of a report with --taint-node: %.300s (report --withdraw --to node takes them away)", strings.Join(ours, ", "))
		}
	}
	return f
}

// nodeName is what a node may be called in a cluster; anything else would be another path on the server.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

func (p *publisher) entry(node string) (*entry, error) {
	e := p.entries[node]
	switch {
	case e != nil:
		return e, nil
	case !nodeName.MatchString(node):
		return nil, fmt.Errorf("%.80q is no name of a node in a cluster", node)
	case len(p.entries) >= maxNodes:
		return nil, fmt.Errorf("more than %d nodes", maxNodes)
	}
	e = newEntry(node, p.session.Now())
	p.entries[node] = e
	e.have = p.objects[node]
	return e, nil
}

// pretend shows what would be written. It goes by the ticks' clock: they may be a recording.
func (p *publisher) pretend(e *entry, f object.Figures, now time.Time) tick.Target {
	e.memory.Take(f, now)
	want := p.want(e, now)
	e.note = want.Note
	if want.Empty() && len(want.Taints) == 0 && e.written.Figures == nil || e.rules(p, want).Next(e.written, want, true, now) == object.NotDue {
		return said(p.target, tick.TargetUnchanged, false, nil)
	}
	changed := e.written.Figures == nil || !e.written.Figures.Equal(want)
	e.try(want)
	e.settle(want, now)
	text, err := tick.Marshal(p.show(e.node, want, now))
	if err != nil {
		return said(p.target, tick.TargetFailed, changed, err)
	}
	p.session.Log.Info("would be written", "target", p.target, "node", e.node, "object", string(text))
	return said(p.target, tick.TargetPending, changed, nil)
}

// consider starts a write, or queues it, where one is due.
func (p *publisher) consider(e *entry) {
	now := p.session.Now()
	p.remark(e, p.want(e, now).Note)
	switch {
	case e.busy || e.queued:
		return
	case e.next(p, now) == object.NotDue:
		e.calm()
		// A node that nobody speaks of any more, and that offers nothing.
		if e.node != p.session.Node && now.Sub(e.heard) > 2*p.staleAfter {
			delete(p.entries, e.node)
		}
		return
	case e.paused(now):
		return
	}
	if err := p.lacking(e.node); err != nil {
		if now.Sub(p.started) > startPatience {
			p.complain(e, err)
		}
		return
	}
	e.queued = true
	p.queue = append(p.queue, e)
	p.start()
}

// isNode reports whether it is a Node's status that is kept.
func (p *publisher) isNode() bool { return p.target == nodeKind.target }

// digits are taken out of notes that are compared: a number that moves with each tick is no news.
var digits = regexp.MustCompile(`[0-9]+`)

// remark logs once why an object is not what the ticks say.
func (p *publisher) remark(e *entry, note string) {
	switch {
	case note == e.note:
		return
	case digits.ReplaceAllString(note, "") == digits.ReplaceAllString(e.note, ""):
	case note == "":
		p.session.Log.Info("as the ticks say again", "target", p.target, "node", e.node)
	default:
		p.session.Log.Warn(note, "target", p.target, "node", e.node)
	}
	e.note = note
}

// start starts writes as long as there may be more.
func (p *publisher) start() {
	for p.writing < writesAtOnce && len(p.queue) > 0 {
		e := p.queue[0]
		p.queue = p.queue[1:]
		e.queued, e.busy = false, true
		p.writing++
		now := p.session.Now()
		if !e.intact {
			p.session.Log.Warn("putting back what somebody else has changed or taken away", "target", p.target, "node", e.node)
		}
		e.try(p.want(e, now))
		j := job{node: e.node, uid: p.uids[e.node], have: e.have, figures: p.want(e, now), at: now}
		go func() {
			ctx, done := context.WithTimeout(context.WithoutCancel(p.ctx), 3*requestLimit)
			defer done()
			after, err := p.write(ctx, &p.writer, j)
			p.finish(e, j, after, err)
		}()
	}
}

func (p *publisher) finish(e *entry, j job, after *seen, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.session.Now()
	p.writing--
	e.busy = false
	if err == nil {
		p.progress = now
		if e.err != nil {
			p.session.Log.Info("written again", "target", p.target, "node", e.node)
		}
		if j.figures.Empty() && !j.figures.Said && (e.written.Figures == nil || !e.written.Figures.Empty()) {
			p.session.Log.Warn("withdrawn: no tick has confirmed the figures", "target", p.target, "node", e.node, "for", p.staleAfter)
		}
		e.wrote(p, j, after, now)
	} else {
		e.failed(err, now)
		p.complain(e, explain(p.resource, err))
		if kube.IsNotFound(err) {
			e.have = nil // deleted meanwhile: it is made anew
		}
	}
	p.start()
	p.consider(e) // the newest wins
}

// complain keeps an error for the tick, and logs it where it is not the same as before.
func (p *publisher) complain(e *entry, err error) {
	now := p.session.Now()
	const often = 10 * time.Second // the text may have another port each time, and a thousand nodes fail at once
	if alone := len(p.entries) == 1 && e.err == nil; alone || (e.err == nil || e.err.Error() != err.Error()) && now.Sub(p.logged) > often {
		p.session.Log.Error("not written", "target", p.target, "node", e.node, "error", err)
		p.logged = now
	}
	e.err = err
}

// close writes what waits, if the input has ended; a signal waits for the writes under way alone: the process that comes
// after this one knows newer figures.
func (p *publisher) close() error {
	if p.cluster == nil {
		return nil
	}
	defer p.cluster.leave()
	end := time.Now()
	for p.ctx.Err() == nil {
		waiting, err := p.unwritten()
		if waiting == 0 {
			break
		}
		p.mu.Lock()
		since := time.Since(p.progress)
		p.mu.Unlock()
		if time.Since(end) > flushPatience && since > flushPatience {
			p.stopLooking()
			return fmt.Errorf("%s: not written at the end of the input: %w", p.target, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.stopLooking()
	p.looking.Wait()
	for deadline := time.Now().Add(stopPatience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		writing := p.writing
		p.mu.Unlock()
		if writing == 0 {
			break
		}
	}
	return nil
}

// unwritten counts the objects that are to be written yet.
func (p *publisher) unwritten() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, n := p.session.Now(), 0
	err := errors.New("the API server has not answered yet")
	for _, e := range p.entries {
		if e.busy || e.queued || e.next(p, now) != object.NotDue {
			n++
			if e.err != nil {
				err = e.err
			}
		}
	}
	return n, err
}
