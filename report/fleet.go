package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
)

// targetFleet is what --fleet writes.
const targetFleet = "fleet"

// fleetNames are the targets of the centre: its own beside those that were asked for.
func fleetNames(to []string) ([]string, error) {
	for _, name := range []string{cnrKind.target, nodeKind.target, targetNodeMetric} {
		if slices.Contains(to, name) {
			return nil, stage.Usagef("--to %s and --fleet exclude each other: a node's figures are its own report's to write", name)
		}
	}
	names := append(slices.Clone(to), targetFleet)
	if !slices.Contains(names, targetKCC) {
		names = append(names, targetKCC)
	}
	return names, nil
}

// refreshEvery is how often the watches are looked at at most: a list of thousands of objects is not copied for every tick.
const refreshEvery = 100 * time.Millisecond

// fleet writes what the centre has to say of each node. Only ticks make it write: without them all stays as it is. It
// remembers nothing that matters, for what is to be written is what the cluster's objects lack.
type fleet struct {
	writer
	session *stage.Session
	ctx     context.Context // ends with a signal
	cluster *cluster        // nil in a dry run
	noFlush bool            // what waits when the input ends is dropped
	started time.Time

	mu       sync.Mutex
	members  map[string]*member
	queue    []*member // those that lack something and wait for their turn
	writing  int
	progress time.Time // of the last write that succeeded
	logged   time.Time
	// What the watches had when they were looked at last.
	refreshed             time.Time
	version, nodesVersion uint64
	nodes, cnrs           map[string]*seen
}

// member is one node of the fleet.
type member struct {
	node string
	want object.Centre
	// Our own last writes, of which the watches may not know yet.
	ownNode, ownCNR *seen

	busy, queued bool
	failures     int
	vain         bool
	retryAt      time.Time
	err          error

	written   object.Centre // what was written last, and when
	wroteAt   time.Time
	undone    int // how often that was undone
	restoreAt time.Time

	news, changed bool // a write succeeded that no tick has said yet, and it was something new
}

func openFleet(ctx context.Context, s *stage.Session, o *options, _ io.Writer) (target, error) {
	f := &fleet{session: s, ctx: ctx, noFlush: o.cluster.noFlush, started: s.Now(), members: map[string]*member{}}
	if s.DryRun {
		return f, nil // which needs no cluster
	}
	c, err := o.connect(ctx, s)
	if err != nil {
		return nil, err
	}
	f.cluster, f.writer = c, writer{client: c.client, log: s.Log}
	return f, nil
}

// put notes what a tick says and returns what has become of the ones before.
func (f *fleet) put(in stage.Incoming) (tick.Target, error) {
	if in.Refused != "" {
		return tick.Target{Target: targetFleet, State: tick.TargetUnchanged}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.member(in.Node)
	if err != nil {
		return said(targetFleet, tick.TargetFailed, false, err), nil
	}
	before := m.want
	m.want = object.ReadCentre(in.Tick)
	if f.cluster == nil {
		return f.pretend(m, before), nil
	}
	f.refresh()
	f.consider(m)
	return f.say(m), nil
}

func (f *fleet) member(node string) (*member, error) {
	m := f.members[node]
	switch {
	case m != nil:
		return m, nil
	case !nodeName.MatchString(node):
		return nil, fmt.Errorf("%.80q is no name of a node in a cluster", node)
	case len(f.members) >= maxNodes:
		for name := range f.members { // nodes that are no more
			if _, ok := f.nodes[name]; !ok && !f.members[name].busy && !f.members[name].queued {
				delete(f.members, name)
			}
		}
		if len(f.members) >= maxNodes {
			return nil, fmt.Errorf("more than %d nodes", maxNodes)
		}
	}
	m = &member{node: node}
	f.members[node] = m
	return m, nil
}

// pretend shows what would be written, when that changes.
func (f *fleet) pretend(m *member, before object.Centre) tick.Target {
	if m.want.Equal(before) {
		return said(targetFleet, tick.TargetUnchanged, false, nil)
	}
	f.session.Log.Info("would be written", "target", targetFleet, "node", m.node, "object", m.want.String())
	return said(targetFleet, tick.TargetPending, true, nil)
}

// refresh takes over what the watches have seen.
func (f *fleet) refresh() {
	now := time.Now()
	if now.Sub(f.refreshed) < refreshEvery {
		return
	}
	f.refreshed = now
	byName := func(w *kube.Watch[*seen], version *uint64, into *map[string]*seen) {
		if v := w.Version(); v != *version || *into == nil {
			*version, *into = v, map[string]*seen{}
			for _, x := range w.List() {
				(*into)[x.name] = x
			}
		}
	}
	byName(f.cluster.nodes, &f.nodesVersion, &f.nodes)
	byName(f.cluster.cnrs, &f.version, &f.cnrs)
}

// have are the node's objects, nil where they are not there.
func (f *fleet) have(m *member) (node, cnr *seen) {
	return newest(f.nodes[m.node], &m.ownNode), newest(f.cnrs[m.node], &m.ownCNR)
}

// newest is the later one of what the watch has and of our own write; what the watch has caught up with is forgotten.
func newest(watched *seen, own **seen) *seen {
	if *own != nil && (watched == nil || newer((*own).version, watched.version)) {
		return *own
	}
	*own = nil
	return watched
}

// lacks says what is to be written for a node; nothing where that cannot be known yet.
func (f *fleet) lacks(m *member) string {
	node, cnr := f.have(m)
	if node == nil {
		return ""
	}
	return m.want.Lacks(node.object, objectOf(cnr))
}

func objectOf(x *seen) kube.Object {
	if x == nil {
		return nil
	}
	return x.object
}

// unable says why nothing can be written for a node, if so.
func (f *fleet) unable(m *member) error {
	for r, w := range map[kube.Resource]*kube.Watch[*seen]{kube.Nodes: f.cluster.nodes, kube.CustomNodeResources: f.cluster.cnrs} {
		if s := w.State(); !s.Synced {
			return explain(r, fmt.Errorf("list %s of %s: %w", r, f.client.Server(), s.Err))
		}
	}
	if f.nodes[m.node] == nil {
		return fmt.Errorf("the cluster has no node %s", strconv.Quote(m.node))
	}
	return nil
}

// consider queues a write where something lacks.
func (f *fleet) consider(m *member) {
	now := f.session.Now()
	if m.busy || m.queued {
		return
	}
	if err := f.unable(m); err != nil {
		if now.Sub(f.started) > startPatience {
			f.complain(m, err)
		}
		return
	}
	if f.lacks(m) == "" {
		m.err, m.failures, m.retryAt, m.restoreAt = nil, 0, time.Time{}, time.Time{}
		return
	}
	if m.restoreAt.IsZero() && m.err == nil && now.Sub(m.wroteAt) < 2*longestRestore && m.written.Equal(m.want) {
		// Somebody else undoes it. Who is faster is not to be found out at the server's cost.
		m.restoreAt = now.Add(min(firstRestore<<m.undone, longestRestore))
		m.undone = min(m.undone+1, 10)
	}
	if now.Before(m.retryAt) || now.Before(m.restoreAt) {
		return
	}
	m.queued = true
	f.queue = append(f.queue, m)
	f.start()
}

// start starts writes as long as there may be more.
func (f *fleet) start() {
	for f.writing < writesAtOnce && len(f.queue) > 0 {
		m := f.queue[0]
		f.queue = f.queue[1:]
		m.queued = false
		what := f.lacks(m)
		if what == "" {
			continue
		}
		m.busy = true
		f.writing++
		node, cnr := f.have(m)
		j := centreJob{node: m.node, want: m.want, haveNode: node, haveCNR: cnr, at: f.session.Now()}
		go func() {
			ctx, done := context.WithTimeout(context.WithoutCancel(f.ctx), 3*requestLimit)
			defer done()
			err := f.writeCentre(ctx, &j)
			f.finish(m, &j, what, err)
		}()
	}
}

func (f *fleet) finish(m *member, j *centreJob, what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.session.Now()
	f.writing--
	m.busy = false
	if j.wroteNode {
		m.ownNode = j.haveNode
	}
	if j.wroteCNR {
		m.ownCNR = j.haveCNR
	}
	if err == nil {
		f.progress = now
		m.changed = m.changed && m.news || !m.written.Equal(j.want)
		if !m.written.Equal(j.want) || now.Sub(m.wroteAt) > 2*longestRestore {
			m.undone = 0
		}
		m.news, m.written, m.wroteAt, m.restoreAt = true, j.want, now, time.Time{}
		m.err, m.failures, m.retryAt = nil, 0, time.Time{}
		if what != "conditions" { // those are written for every node when it is first seen
			f.session.Log.Info("written", "target", targetFleet, "node", m.node, "parts", what, "now", j.want.String())
		}
	} else {
		m.ownNode, m.ownCNR = nil, nil // it may be deleted, or another one by now
		m.failed(err, now)
		f.complain(m, explain(kube.CustomNodeResources, err))
	}
	f.start()
}

// failed notes a write that did not succeed.
func (m *member) failed(err error, now time.Time) {
	longest, vain := longestPause, hopeless(err)
	if vain != m.vain {
		m.vain, m.failures = vain, 0
	}
	if vain {
		longest = hopelessPause
	}
	pause := min(firstPause<<m.failures, longest)
	m.failures = min(m.failures+1, 10)
	m.retryAt = now.Add(max(jittered(pause), kube.RetryAfter(err)))
}

// complain keeps an error for the tick, and logs one now and then: a thousand nodes fail at once.
func (f *fleet) complain(m *member, err error) {
	const often = 10 * time.Second
	if now := f.session.Now(); now.Sub(f.logged) > often {
		f.session.Log.Error("not written", "target", targetFleet, "node", m.node, "error", err)
		f.logged = now
	}
	m.err = err
}

// say is what a tick says of the node.
func (f *fleet) say(m *member) tick.Target {
	switch {
	case m.err != nil:
		return said(targetFleet, tick.TargetFailed, false, m.err)
	case m.news:
		m.news = false
		return said(targetFleet, tick.TargetWritten, m.changed, nil)
	case m.busy || m.queued || f.unable(m) != nil || f.lacks(m) != "":
		return said(targetFleet, tick.TargetPending, false, nil)
	}
	return said(targetFleet, tick.TargetUnchanged, false, nil)
}

// close writes what waits, if the input has ended. After a signal, and with --no-flush, it waits for the writes under way alone:
// a live input ends with a lost lease or with the centre's removal, and whoever leads next, or takes all back, knows better.
func (f *fleet) close() error {
	if f.cluster == nil {
		return nil
	}
	defer f.cluster.leave()
	end := time.Now()
	for f.ctx.Err() == nil && !f.noFlush {
		left, err := f.unwritten()
		if left == 0 {
			return nil
		}
		f.mu.Lock()
		since := time.Since(f.progress)
		f.mu.Unlock()
		if time.Since(end) > flushPatience && since > flushPatience {
			return fmt.Errorf("%s: %d nodes not written at the end of the input: %w", targetFleet, left, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for deadline := time.Now().Add(stopPatience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		f.mu.Lock()
		f.queue = nil
		writing := f.writing
		f.mu.Unlock()
		if writing == 0 {
			break
		}
	}
	return nil
}

// unwritten considers every node once more and counts those that are to be written yet.
func (f *fleet) unwritten() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	n, err := 0, errors.New("the API server has not answered yet")
	for _, m := range f.members {
		f.consider(m)
		if m.busy || m.queued || f.unable(m) != nil || f.lacks(m) != "" {
			n++
			if m.err != nil {
				err = m.err
			}
		}
	}
	return n, err
}
