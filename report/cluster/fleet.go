package cluster

import (
	"context"
	"errors"
	"iter"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
	"polder/report/reconcile"
)

// Fleet is the target for the fleet controller's decisions about every node.
const Fleet = "fleet"

// FleetOptions are the flags of report fleet.
type FleetOptions struct {
	Access
	Withdraw bool

	noFlush bool
	resync  time.Duration
}

// Flags adds the flags.
func (o *FleetOptions) Flags(f *stage.Flags) {
	f.Category("Cluster")
	f.Path(&o.kubeconfig, "kubeconfig", "", "the cluster of `FILE` (default the one that report runs in)")
	f.Bool(&o.noFlush, "no-flush", "write nothing more when the input ends\nThis is for a live input, which ends when the lease is lost.")
	f.Duration(&o.resync, "resync", 10*time.Minute, "read a KatalystCustomConfig's status this often (0: never)")
	f.Bool(&o.Withdraw, "withdraw", "remove what was written of all nodes, and end\nThe fleet controller must have ended before: a running one would write it again.")
}

// Open opens the targets of the fleet controller.
func (o *FleetOptions) Open(ctx context.Context, s *stage.Session) (Targets, error) {
	o.AllNodes = true
	nodes, err := openFleet(ctx, s, o)
	if err != nil {
		return nil, err
	}
	configs, err := openKCC(ctx, s, &o.Access, o.resync, o.noFlush)
	if err != nil {
		return nil, errors.Join(err, nodes.Close())
	}
	return Targets{nodes, configs}, nil
}

// externalChangeWithin is how long after our own write a difference counts as an external change.
const externalChangeWithin = 2 * reconcile.LongestRestore

// fleet writes the fleet controller's decisions about each node. Only ticks cause writes. It needs no state of its own, because it writes
// what the cluster's objects lack.
type fleet struct {
	writer
	session    *stage.Session
	connection *connection // nil in a dry run
	queue      *reconcile.Queue[member, fleetJob]
	// The watches' objects when they were last read.
	version, nodesVersion uint64
	nodes, cnrs           map[string]*seen
}

// member is one node of the fleet.
type member struct {
	node string
	want object.FleetDecision
	// Our own last writes, which the watches may not have yet.
	writtenNode, writtenCNR *seen

	written object.FleetDecision // what was written last, and when
	wroteAt time.Time
}

func openFleet(ctx context.Context, s *stage.Session, o *FleetOptions) (Target, error) {
	f := &fleet{session: s}
	if !s.DryRun {
		c, err := o.connect(ctx, s, true)
		if err != nil {
			return nil, err
		}
		f.connection, f.writer = c, writer{client: c.client, log: s.Log}
	}
	q := queueOf(ctx, s, Fleet)
	q.NoFlush = o.noFlush
	t := reconcile.Target[member, fleetJob]{
		New: func(node string, _ time.Time) (*member, error) { return &member{node: node}, checkNode(node) },
		Due: f.due, Desired: f.desired, Write: f.writeDecision, Settle: f.settle,
		Show: func(j *fleetJob, _ time.Time) (string, error) { return j.want.String(), nil },
		// Nodes that were deleted.
		Forget:  func(m *member, _ time.Time) bool { return f.nodes[m.node] == nil },
		Explain: func(err error) error { return explain(kube.CustomNodeResources, err) },
	}
	if f.connection != nil {
		t.Refresh, t.Ready = f.refresh, f.whyNotWritable
	}
	f.queue = reconcile.Start(q, t)
	return f, nil
}

// Put notes a tick and returns the outcome of the previous ones.
func (f *fleet) Put(in stage.Incoming) (tick.Target, error) {
	if in.Refused != "" {
		return tick.Target{Target: Fleet, State: tick.TargetUnchanged}, nil
	}
	return f.queue.Put(in.Node, in.Time, func(m *member, _ time.Time) { m.want = object.ReadFleetDecision(in.Tick) }), nil
}

// refresh reads the watches' objects.
func (f *fleet) refresh(iter.Seq[*member], time.Time) {
	byName(f.connection.nodes, &f.nodesVersion, &f.nodes)
	byName(f.connection.cnrs, &f.version, &f.cnrs)
}

// have are the node's objects, nil where they do not exist.
func (f *fleet) have(m *member) (node, cnr *seen) {
	return newest(f.nodes[m.node], &m.writtenNode), newest(f.cnrs[m.node], &m.writtenCNR)
}

// newest is the newer one of the watch's object and our own write, which is forgotten as soon as the watch has it.
func newest(watched *seen, own **seen) *seen {
	if *own != nil && (watched == nil || newer((*own).version, watched.version)) {
		return *own
	}
	*own = nil
	return watched
}

// missing is what must be written for a node; nothing where that cannot be known yet.
func (f *fleet) missing(m *member) string {
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

// whyNotWritable returns why nothing can be written for a node, if so.
func (f *fleet) whyNotWritable(m *member) error {
	return f.connection.whyNotWritable(f.nodes, m.node, f.connection.cnrs)
}

// due compares what the fleet controller decides with the node's objects.
func (f *fleet) due(m *member, now time.Time) object.Due {
	switch same := m.want.Equal(m.written); {
	case f.connection == nil && same:
		return object.NotDue
	case f.connection == nil || f.nodes[m.node] == nil: // unknown
		return object.FiguresChanged
	case f.missing(m) == "":
		return object.NotDue
	case !same:
		return object.FiguresChanged
	case now.Sub(m.wroteAt) < externalChangeWithin:
		return object.ChangedExternally
	}
	return object.ResyncDue
}

func (f *fleet) desired(m *member, now time.Time) *fleetJob {
	j := &fleetJob{node: m.node, want: m.want, at: now}
	if f.connection != nil {
		j.haveNode, j.haveCNR = f.have(m)
		j.missing = f.missing(m)
	}
	return j
}

func (f *fleet) settle(m *member, j *fleetJob, err error, now time.Time) bool {
	if err != nil { // the objects may be deleted or replaced
		m.writtenNode, m.writtenCNR, m.written, m.wroteAt = nil, nil, object.FleetDecision{}, time.Time{}
		return false
	}
	if j.wroteNode {
		m.writtenNode = j.haveNode
	}
	if j.wroteCNR {
		m.writtenCNR = j.haveCNR
	}
	changed := !m.written.Equal(j.want)
	m.written, m.wroteAt = j.want, now
	if f.connection != nil && j.missing != "conditions" { // those are written for every new node
		f.session.Log.Info("written", "target", Fleet, "node", m.node, "parts", j.missing, "now", j.want.String())
	}
	return changed
}

func (f *fleet) Close() error {
	if f.connection != nil {
		defer f.connection.release()
	}
	return f.queue.Close()
}
