package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"polder/lib/kube"
	"polder/lib/sloconfig"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
	"polder/report/reconcile"
)

const (
	// NodeMetric is the node's Koordinator NodeMetric.
	NodeMetric = "nodemetric"
	// forgetNodeAfter is the time without ticks after which a node is forgotten.
	forgetNodeAfter = 15 * time.Minute
)

// measurer keeps NodeMetrics. Its clock is the ticks' time: their figures are averaged over the configured times and written once in an
// interval.
type measurer struct {
	session *stage.Session
	client  *kube.Client // nil in a dry run
	queue   *reconcile.Queue[measured, metricJob]
}

// measured is the state of one node.
type measured struct {
	node       string
	usage      object.Usage
	strategies sloconfig.InForce
	lastTick   time.Time
	due        map[string]any // the status that must be written, nil where there is none
	at         time.Time      // of its tick
	writing    bool
	note       string
}

// metricJob is one write.
type metricJob struct {
	node   string
	status map[string]any
}

func openNodeMetric(ctx context.Context, s *stage.Session, a *Access) (Target, error) {
	r := &measurer{session: s}
	if !s.DryRun {
		var err error
		if r.client, err = a.open(); err != nil {
			return nil, err
		}
	}
	r.queue = reconcile.Start(queueOf(ctx, s, NodeMetric), r.target())
	return r, nil
}

func (r *measurer) target() reconcile.Target[measured, metricJob] {
	return reconcile.Target[measured, metricJob]{
		New: func(node string, _ time.Time) (*measured, error) { return &measured{node: node}, checkNode(node) },
		Due: func(m *measured, _ time.Time) object.Due {
			if m.due == nil && !m.writing {
				return object.NotDue
			}
			return object.FiguresChanged
		},
		Desired: desiredMetric, Write: r.write, Settle: settleMetric, Show: showMetric,
		Forget:  func(m *measured, now time.Time) bool { return now.Sub(m.lastTick) > forgetNodeAfter },
		Note:    func(m *measured) string { return m.note },
		Explain: func(err error) error { return explain(kube.NodeMetrics, err) },
	}
}

// Put notes a tick and returns the outcome of the previous ones.
func (r *measurer) Put(in stage.Incoming) (tick.Target, error) {
	if in.Refused != "" {
		return tick.Target{Target: NodeMetric, State: tick.TargetUnchanged}, nil
	}
	return r.queue.Put(in.Node, in.Time, func(m *measured, now time.Time) {
		m.lastTick = now
		_ = m.strategies.Update(in.Sample) // collect and advise report the errors
		m.usage.Take(in.Tick, m.strategies.Colocation())
		// A waiting status is rebuilt, but not after its figures became unknown: old figures would look current.
		if m.usage.Due(in.Time) || m.due != nil && m.usage.Ready(in.Time) {
			m.due, m.at = m.usage.Status(in.Time), in.Time
		}
		note := m.usage.Note(in.Time)
		if note != m.note && note != "" && !m.usage.New() { // at first nothing is known, which is not logged
			r.session.Log.Warn(note, "target", NodeMetric, "node", m.node)
		}
		m.note = note
	}), nil
}

func desiredMetric(m *measured, _ time.Time) *metricJob {
	j := &metricJob{node: m.node, status: m.due}
	m.usage.Reported(m.at)
	m.due, m.writing = nil, true
	return j
}

func settleMetric(m *measured, j *metricJob, err error, _ time.Time) bool {
	m.writing = false
	if err != nil && m.due == nil {
		m.due = j.status // unless a newer one waits
	}
	return true
}

func showMetric(j *metricJob, _ time.Time) (string, error) {
	text, err := tick.Marshal(object.NodeMetricStatus(j.node, j.status))
	return string(text), err
}

// write writes the status; a missing object is created first. The spec is never changed.
func (r *measurer) write(ctx context.Context, j *metricJob) (bool, error) {
	err := r.patch(ctx, j)
	if kube.IsNotFound(err) {
		if err = r.make(ctx, j.node); err == nil {
			err = r.patch(ctx, j)
		}
	}
	return true, err
}

// make creates the object, which is deleted with its node.
func (r *measurer) make(ctx context.Context, name string) error {
	node, err := r.client.Get(ctx, kube.Nodes, "", name)
	if kube.IsMissing(err, kube.Nodes, name) {
		return fmt.Errorf("the cluster has no node %s: set its name there with --node", strconv.Quote(name))
	}
	if err != nil {
		return err
	}
	_, err = r.client.Create(ctx, kube.NodeMetrics, "", object.NodeMetric(name, see(node).uid))
	if kube.IsAlreadyExists(err) {
		return nil // conflict: Koordinator's manager has created it meanwhile
	}
	return err
}

// patch is a merge patch of the status: it removes fields that are no longer known, and a field that the cluster's CRD does not
// have, because it is from another release of Koordinator, is no error.
func (r *measurer) patch(ctx context.Context, j *metricJob) error {
	body, err := json.Marshal(object.NodeMetricPatch(j.status))
	if err == nil {
		_, err = r.client.Patch(ctx, kube.NodeMetrics, "", j.node, kube.MergePatch, body, manager, "status")
	}
	return err
}

func (r *measurer) Close() error { return r.queue.Close() }
