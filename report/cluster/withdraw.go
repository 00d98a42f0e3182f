package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/object"
	"polder/report/reconcile"
)

// withdrawWithin bounds --withdraw: a preStop hook shares half a minute with the rest of the pod's end.
const withdrawWithin = 15 * time.Second

// forbidden is how long an API server that has just started can forbid everything.
const forbidden = 5 * time.Second

// RunWithdraw removes what was written to the cluster.
func (o *Options) RunWithdraw(ctx context.Context, s *stage.Session) error {
	kinds := []kind{cnrKind, nodeKindOf(o.prefix), nodeTaintsKind}
	if len(o.To) > 0 {
		for _, name := range o.To {
			if name != cnrKind.target && name != nodeKind.target && name != NodeMetric {
				return stage.Usagef("--to %q: --withdraw is for cnr and node", name)
			}
		}
		kinds = slices.DeleteFunc(kinds, func(k kind) bool { return !o.wants(k.of()) })
	}
	if o.wants(NodeMetric) { // a preStop hook has the --to of its report
		s.Log.Info("not removed: its updateTime shows how old it is", "target", NodeMetric)
	}
	if len(kinds) == 0 {
		return nil
	}
	client, err := o.open()
	if err != nil {
		return err
	}
	limit := withdrawWithin
	if o.AllNodes {
		limit *= 20
	}
	ctx, done := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s", limit))
	defer done()
	w := writer{client: client, log: s.Log}
	var all error
	for _, k := range kinds {
		names := []string{s.Node}
		if o.AllNodes {
			objects, err := listSeen(ctx, client, k.resource, s.Now)
			if err != nil {
				all = errors.Join(all, fmt.Errorf("withdraw %s: %w", k.target, explain(k.resource, err)))
				continue
			}
			names = names[:0]
			for _, x := range objects {
				names = append(names, x.name)
			}
		}
		for _, name := range names {
			if err := withdrawOne(ctx, s, &w, k, name); err != nil {
				all = errors.Join(all, fmt.Errorf("withdraw %s of node %s: %w", k.target, name, explain(k.resource, err)))
			}
		}
	}
	return all
}

// isFinal reports whether an error since the start is one that no retry helps. A proxy's 404 is not: the API server may soon be back.
func isFinal(err error, start time.Time) bool {
	return reconcile.Permanent(err) && kube.IsAnswer(err) && time.Since(start) > forbidden
}

// withdrawOne withdraws one object's part, with retries while these may help.
func withdrawOne(ctx context.Context, s *stage.Session, w *writer, k kind, name string) error {
	nothing := object.Figures{Taints: []tick.Taint{}}
	start := time.Now()
	for backoff := (reconcile.Backoff{}); ; {
		o, err := w.client.Get(ctx, k.resource, "", name)
		if w.client.IsAbsent(ctx, k.resource, err) {
			return nil
		}
		if err == nil {
			have := see(o)
			if k.holds(have.object, nothing) {
				return nil
			}
			if s.DryRun {
				s.Log.Info("would be withdrawn", "target", k.target, "node", name)
				return nil
			}
			_, err = k.write(ctx, w, job{node: name, have: have, figures: nothing, at: s.Now()})
		}
		switch {
		case err == nil:
			s.Log.Info("withdrawn", "target", k.target, "node", name)
			return nil
		case isFinal(err, start):
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(backoff.Failed(err, time.Now())):
		}
	}
}
