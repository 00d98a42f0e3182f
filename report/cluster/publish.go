package cluster

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
	"polder/report/reconcile"
)

const (
	// checkInterval is how often objects are checked without a tick: for stale offers, external changes and retries.
	checkInterval = 250 * time.Millisecond
	// maxNodes bounds the nodes of --all-nodes.
	maxNodes = 10_000
)

// publisher keeps one kind of objects equal to the ticks.
type publisher struct {
	kind
	writer
	session    *stage.Session
	connection *connection // nil in a dry run
	queue      *reconcile.Queue[entry, job]
	rules      object.Rules
	given      object.Given // which of them the user has set
	staleAfter time.Duration
	// growInterval is how long an amount that has grown waits after the object's amounts have changed; growGiven means that the user has set
	// it.
	growInterval  time.Duration
	growGiven     bool
	foreignTaints bool // our taints on a Node, if any, are from another process

	// The watches' objects when they were last read.
	version, nodesVersion uint64
	nodes, objects        map[string]*seen
	marks                 map[string]string // why the fleet controller has withdrawn the offer of some nodes
}

func openPublisher(ctx context.Context, s *stage.Session, o *Options, k kind) (Target, error) {
	p := &publisher{
		kind: k, session: s, rules: o.rules(), given: given(s), staleAfter: o.staleAfter,
		growInterval: o.growAge, growGiven: s.IsSet("grow-interval"), foreignTaints: k.target == nodeKind.target && !o.TaintNode,
	}
	if !s.DryRun {
		c, err := o.connect(ctx, s, o.wants(cnrKind.target))
		if err != nil {
			return nil, err
		}
		p.connection, p.writer = c, writer{client: c.client, log: s.Log}
	}
	q := queueOf(ctx, s, k.target)
	q.Every = checkInterval
	p.queue = reconcile.Start(q, p.reconciled())
	if s.Node != "" && p.connection != nil {
		// What an earlier process wrote becomes stale, too. An invalid name is reported with the ticks.
		_ = p.queue.Set(s.Node, s.Now(), func(*entry, time.Time) {})
	}
	return p, nil
}

func (p *publisher) reconciled() reconcile.Target[entry, job] {
	t := reconcile.Target[entry, job]{
		New: p.entry, Desired: p.desired, Write: p.writeJob, Settle: p.settle,
		Due: func(e *entry, now time.Time) object.Due { return e.next(p, now) },
		Show: func(j *job, now time.Time) (string, error) {
			text, err := tick.Marshal(p.show(j.node, j.figures, now))
			return string(text), err
		},
		// A node without ticks that offers nothing.
		Forget: func(e *entry, now time.Time) bool {
			return e.node != p.session.Node && now.Sub(e.lastTick) > 2*p.staleAfter
		},
		Note:    func(e *entry) string { return e.note },
		Explain: func(err error) error { return explain(p.resource, err) },
	}
	if p.connection != nil {
		t.Refresh, t.Ready = p.refresh, p.lacking
	}
	return t
}

// refresh reads the watches' objects.
func (p *publisher) refresh(entries iter.Seq[*entry], now time.Time) {
	if byName(p.connection.nodes, &p.nodesVersion, &p.nodes) {
		p.marks = map[string]string{}
		for name, n := range p.nodes {
			if reason := object.Mark(n.object); reason != "" {
				p.marks[name] = reason
			}
		}
	}
	byName(p.watch(), &p.version, &p.objects)
	for e := range entries {
		e.seeNode(p.nodes[e.node] != nil, now)
		e.see(p.objects[e.node], p.kind, now)
		p.logNote(e, p.want(e, now).Note)
	}
}

func (p *publisher) watch() *kube.Watch[*seen] {
	if p.resource == kube.Nodes {
		return p.connection.nodes
	}
	return p.connection.cnrs
}

// lacking returns why nothing can be written for a node, nil where it can.
func (p *publisher) lacking(e *entry) error {
	return p.connection.whyNotWritable(p.nodes, e.node, p.watch())
}

// Put notes a tick and returns the outcome of the previous ones.
func (p *publisher) Put(in stage.Incoming) (tick.Target, error) {
	if in.Refused != "" {
		return tick.Target{Target: p.target, State: tick.TargetUnchanged}, nil
	}
	return p.queue.Put(in.Node, in.Time, func(e *entry, now time.Time) {
		figures := object.Read(in.Tick)
		if p.isNode() {
			_ = e.strategies.Update(in.Sample) // collect and advise report the errors
		}
		e.memory.Take(figures, now)
		if figures.HasOffer() || figures.Taints != nil {
			e.lastTick = now
		}
		p.logNote(e, p.want(e, now).Note)
	}), nil
}

// want is the desired state of the entry's object.
func (p *publisher) want(e *entry, now time.Time) object.Figures {
	f := e.memory.Now(now, p.staleAfter)
	f = p.figures(f, e.published(f.Dialect, p.prefix))
	switch reason := p.marks[e.node]; {
	case f.OnlyTaints && f.Taints == nil && now.Sub(e.since) >= p.staleAfter:
		f.Taints, f.IsIntended = []tick.Taint{}, true // an earlier process may have left some, which are not known
	case !f.OnlyTaints && reason != "":
		f = f.Withdrawn(reason)
	}
	f = e.withoutEarlyGrowth(p, f, now)
	f.Left = e.otherDialects(f.Dialect)
	if f.Note == "" && p.foreignTaints && e.observed != nil {
		if ours := object.NodeTaintsOf(e.observed.object).Ours(); len(ours) > 0 {
			f.Note = fmt.Sprintf("the Node still has taints of a report with --taint-node: %.300s (report --withdraw --to node removes them)",
				strings.Join(ours, ", "))
		}
	}
	return f
}

func (p *publisher) entry(node string, now time.Time) (*entry, error) {
	e := newEntry(node, now)
	e.observed = p.objects[node]
	return e, checkNode(node)
}

// isNode reports whether the objects are Nodes.
func (p *publisher) isNode() bool { return p.target == nodeKind.target }

// digits are removed from notes before comparing them, because a number may change with each tick.
var digits = regexp.MustCompile(`[0-9]+`)

// logNote logs once why an object differs from the ticks.
func (p *publisher) logNote(e *entry, note string) {
	switch {
	case note == e.note || p.session.DryRun:
		return
	case digits.ReplaceAllString(note, "") == digits.ReplaceAllString(e.note, ""):
	case note == "":
		p.session.Log.Info("the object has the ticks' figures again", "target", p.target, "node", e.node)
	default:
		p.session.Log.Warn(note, "target", p.target, "node", e.node)
	}
	e.note = note
}

func (p *publisher) desired(e *entry, now time.Time) *job {
	e.noteAttempt(p.want(e, now))
	j := &job{node: e.node, have: e.observed, figures: p.want(e, now), at: now}
	if n := p.nodes[e.node]; n != nil {
		j.uid = n.uid
	}
	return j
}

func (p *publisher) writeJob(ctx context.Context, j *job) (wrote bool, err error) {
	j.after, err = p.write(ctx, &p.writer, *j)
	return true, err
}

func (p *publisher) settle(e *entry, j *job, err error, now time.Time) (changed bool) {
	if err != nil {
		e.failed(kube.IsNotFound(err) && kube.IsAnswer(err))
		return false
	}
	changed = e.written.Figures == nil || !e.written.Figures.Equal(j.figures)
	if p.session.DryRun {
		e.settle(j.figures, now)
		return changed
	}
	if j.figures.Empty() && !j.figures.IsIntended && (e.written.Figures == nil || !e.written.Figures.Empty()) {
		p.session.Log.Warn("withdrawn: no tick has confirmed the figures", "target", p.target, "node", e.node, "for", p.staleAfter)
	}
	e.wrote(p, *j, j.after, now)
	return changed
}

func (p *publisher) Close() error {
	if p.connection != nil {
		defer p.connection.release()
	}
	return p.queue.Close()
}
