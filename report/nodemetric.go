package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
)

const (
	// targetNodeMetric is the node's Koordinator NodeMetric.
	targetNodeMetric = "nodemetric"
	// unheardAfter is when a node of which no ticks come is forgotten.
	unheardAfter = 15 * time.Minute
)

// measurer keeps NodeMetrics. It goes by the ticks' time: what they say is averaged over a while and written in an interval.
// The writes run beside the stream, one at a time for each object, and the newest figures win.
type measurer struct {
	session *stage.Session
	ctx     context.Context // ends with a signal
	client  *kube.Client    // nil in a dry run

	mu      sync.Mutex
	all     map[string]*measured
	writing int
}

// measured is one node's.
type measured struct {
	usage      object.Usage
	strategies object.Strategies
	heard      time.Time
	due        map[string]any // the status that is to be written, nil where there is none
	at         time.Time      // of the tick that it is of

	busy    bool
	retryAt time.Time
	fails   int
	vain    bool
	err     error
	note    string
	news    bool // a write succeeded that no tick has said yet
}

func openNodeMetric(ctx context.Context, s *stage.Session, o *options, _ io.Writer) (target, error) {
	r := &measurer{session: s, ctx: ctx, all: map[string]*measured{}}
	if s.DryRun {
		return r, nil
	}
	var err error
	r.client, err = o.cluster.open()
	return r, err
}

// put notes a tick and returns what has become of the ones before.
func (r *measurer) put(in stage.Incoming) (tick.Target, error) {
	if in.Refused != "" {
		return tick.Target{Target: targetNodeMetric, State: tick.TargetUnchanged}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := r.of(in.Node)
	if err != nil {
		return said(targetNodeMetric, tick.TargetFailed, false, err), nil
	}
	m.heard = r.session.Now()
	m.strategies.Take(in.Sample)
	m.usage.Take(in.Tick, m.strategies.Colocation())
	// One that waits is made anew, but not of figures that are no longer known: it would say that the old ones are of now.
	if m.usage.Due(in.Time) || m.due != nil && m.usage.Ready(in.Time) {
		m.due, m.at = m.usage.Status(in.Time), in.Time
	}
	r.remark(in.Node, m, m.usage.Note(in.Time))
	if r.client == nil {
		return r.pretend(in.Node, m), nil
	}
	r.start(in.Node, m)
	return r.say(m), nil
}

// of is the node's, which is made.
func (r *measurer) of(node string) (*measured, error) {
	m := r.all[node]
	switch {
	case m != nil:
		return m, nil
	case !nodeName.MatchString(node):
		return nil, fmt.Errorf("%.80q is no name of a node in a cluster", node)
	}
	for name, x := range r.all {
		if r.session.Now().Sub(x.heard) > unheardAfter && !x.busy {
			delete(r.all, name)
		}
	}
	if len(r.all) >= maxNodes {
		return nil, fmt.Errorf("more than %d nodes", maxNodes)
	}
	m = &measured{}
	r.all[node] = m
	return m, nil
}

// remark keeps what is not as it should be, and logs it once; that nothing is known yet is no news.
func (r *measurer) remark(node string, m *measured, note string) {
	if note != m.note && note != "" && !m.usage.New() {
		r.session.Log.Warn(note, "target", targetNodeMetric, "node", node)
	}
	m.note = note
}

// pretend shows what would be written.
func (r *measurer) pretend(node string, m *measured) tick.Target {
	if m.due == nil {
		return r.noted(m, said(targetNodeMetric, tick.TargetUnchanged, false, nil))
	}
	text, err := tick.Marshal(object.NodeMetricStatus(node, m.due))
	m.usage.Reported(m.at)
	m.due = nil
	if err != nil {
		return said(targetNodeMetric, tick.TargetFailed, true, err)
	}
	r.session.Log.Info("would be written", "target", targetNodeMetric, "node", node, "object", string(text))
	return r.noted(m, said(targetNodeMetric, tick.TargetPending, true, nil))
}

func (r *measurer) noted(m *measured, t tick.Target) tick.Target {
	t.Note = m.note
	return t
}

// start starts the write that is due, if it may be.
func (r *measurer) start(node string, m *measured) {
	if m.due == nil || m.busy || r.session.Now().Before(m.retryAt) || r.writing >= writesAtOnce {
		return
	}
	status := m.due
	m.usage.Reported(m.at)
	m.due, m.busy = nil, true
	r.writing++
	go func() {
		ctx, done := context.WithTimeout(context.WithoutCancel(r.ctx), 3*requestLimit)
		defer done()
		r.finish(node, m, status, r.write(ctx, node, status))
	}()
}

func (r *measurer) finish(node string, m *measured, status map[string]any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing--
	m.busy = false
	if err == nil {
		if m.err != nil {
			r.session.Log.Info("written again", "target", targetNodeMetric, "node", node)
		}
		m.err, m.fails, m.retryAt, m.news = nil, 0, time.Time{}, true
		return
	}
	longest, vain := longestPause, hopeless(err)
	if vain != m.vain {
		m.vain, m.fails = vain, 0
	}
	if vain {
		longest = hopelessPause
	}
	m.retryAt = r.session.Now().Add(max(jittered(min(firstPause<<m.fails, longest)), kube.RetryAfter(err)))
	m.fails = min(m.fails+1, 10)
	if m.due == nil {
		m.due = status // unless a newer one waits
	}
	if err = explain(kube.NodeMetrics, err); m.err == nil || m.err.Error() != err.Error() && m.fails < 3 {
		r.session.Log.Error("not written", "target", targetNodeMetric, "node", node, "error", err)
	}
	m.err = err
}

// write makes the object have the status; one that is not there is made first. The spec is never touched.
func (r *measurer) write(ctx context.Context, node string, status map[string]any) error {
	err := r.patch(ctx, node, status)
	if !kube.IsNotFound(err) {
		return err
	}
	if err := r.make(ctx, node); err != nil {
		return err
	}
	return r.patch(ctx, node, status)
}

// make makes the object, which goes with its node.
func (r *measurer) make(ctx context.Context, name string) error {
	node, err := r.client.Get(ctx, kube.Nodes, "", name)
	if kube.IsNotFound(err) {
		return fmt.Errorf("the cluster has no node %s: is --node its name there?", strconv.Quote(name))
	}
	if err != nil {
		return err
	}
	_, err = r.client.Create(ctx, kube.NodeMetrics, "", object.NodeMetric(name, see(node).uid))
	if kube.IsAlreadyExists(err) {
		return nil // Koordinator's manager was faster
	}
	return err
}

// patch is a merge patch of the status: fields that are no longer known go with it, and a field that the cluster's CRD does not
// have, because it is Koordinator's of another release, is no error.
func (r *measurer) patch(ctx context.Context, node string, status map[string]any) error {
	body, err := json.Marshal(object.NodeMetricPatch(status))
	if err == nil {
		_, err = r.client.Patch(ctx, kube.NodeMetrics, "", node, kube.MergePatch, body, manager, "status")
	}
	return err
}

// say is what a tick says of the node's object.
func (r *measurer) say(m *measured) tick.Target {
	t := said(targetNodeMetric, tick.TargetUnchanged, false, nil)
	switch {
	case m.err != nil:
		t = said(targetNodeMetric, tick.TargetFailed, true, m.err)
	case m.news:
		m.news = false
		t = said(targetNodeMetric, tick.TargetWritten, true, nil)
	case m.busy || m.due != nil:
		t = said(targetNodeMetric, tick.TargetPending, true, nil)
	}
	return r.noted(m, t)
}

// close writes what is due, if the input has ended; a signal waits for the writes under way alone.
func (r *measurer) close() error {
	if r.client == nil {
		return nil
	}
	patience := flushPatience
	if r.ctx.Err() != nil {
		patience = stopPatience
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		waiting, err := r.unwritten()
		switch {
		case waiting == 0:
			return nil
		case !time.Now().After(deadline):
		case r.ctx.Err() != nil:
			return nil // the process that comes next writes it
		default:
			return fmt.Errorf("%s: not written at the end of the input: %w", targetNodeMetric, err)
		}
	}
}

func (r *measurer) unwritten() (waiting int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err = errors.New("the API server has not answered yet")
	ends := r.ctx.Err() != nil
	for node, m := range r.all {
		if !ends {
			r.start(node, m)
		}
		if m.busy || !ends && m.due != nil {
			waiting++
			if m.err != nil {
				err = m.err
			}
		}
	}
	return waiting, err
}
