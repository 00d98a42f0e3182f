package main

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
)

// withdrawWithin bounds --withdraw: a preStop hook has half a minute, and so has the rest of the pod's end.
const withdrawWithin = 15 * time.Second

// forbidden is how long an API server that has just started may forbid everything.
const forbidden = 5 * time.Second

// withdraw takes away what was written to the cluster.
func (o *options) withdraw(ctx context.Context, s *stage.Session) error {
	kinds := []kind{cnrKind, nodeKindOf(o.cluster.prefix), nodeTaintsKind}
	if len(o.to) > 0 {
		for _, name := range o.to {
			if name != cnrKind.target && name != nodeKind.target && name != targetNodeMetric {
				return stage.Usagef("--to %q: --withdraw is for cnr and node", name)
			}
		}
		kinds = slices.DeleteFunc(kinds, func(k kind) bool { return !o.wants(k.of()) })
	}
	if o.wants(targetNodeMetric) { // a preStop hook has the --to of the report that it is for
		s.Log.Info("stays: its updateTime says how old it is", "target", targetNodeMetric)
	}
	if len(kinds) == 0 {
		return nil
	}
	client, err := o.cluster.open()
	if err != nil {
		return err
	}
	limit := withdrawWithin
	if o.cluster.allNodes {
		limit *= 20
	}
	ctx, done := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s", limit))
	defer done()
	w := writer{client: client, log: s.Log}
	var all error
	for _, k := range kinds {
		names := []string{s.Node}
		if o.cluster.allNodes {
			if names, err = list(ctx, client, k.resource, s.Now); err != nil {
				all = errors.Join(all, fmt.Errorf("withdraw %s: %w", k.target, explain(k.resource, err)))
				continue
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

func list(ctx context.Context, client *kube.Client, r kube.Resource, now func() time.Time) ([]string, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := kube.Start(ctx, client, selection(r, ""), now, func(o kube.Object) string { return see(o).name })
	if err := w.WaitSynced(ctx); err != nil {
		return nil, err
	}
	return w.List(), nil
}

// withdrawOne withdraws one object's part, again and again while that may be of use.
func withdrawOne(ctx context.Context, s *stage.Session, w *writer, k kind, name string) error {
	nothing := object.Figures{Taints: []tick.Taint{}}
	begun := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		o, err := w.client.Get(ctx, k.resource, "", name)
		if kube.IsNotFound(err) {
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
		case hopeless(err) && time.Since(begun) > forbidden:
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(max(jittered(pause), kube.RetryAfter(err))):
		}
	}
}
