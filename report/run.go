package main

import (
	"context"
	"io"
	"slices"

	"polder/lib/series"
	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/cluster"
)

// run reports each tick when it is read, or passes the whole input to a target that reads all of it.
func (o *options) run(ctx context.Context, s *stage.Session) (err error) {
	o.cluster.To = o.to
	if err := o.cluster.Check(s); err != nil {
		return err
	}
	if o.cluster.Withdraw {
		return o.cluster.RunWithdraw(ctx, s)
	}
	names, err := o.names(s)
	if err != nil {
		return err
	}
	out, closeOut, err := output(s, names)
	if err != nil {
		return err
	}
	defer closeOut()
	all, err := o.recordingTarget(s, names)
	if err != nil {
		return err
	}
	if all != nil {
		return all(o, ctx, s, out)
	}
	return o.follow(ctx, s, names, out)
}

// follow reports each tick when it is read.
func (o *options) follow(ctx context.Context, s *stage.Session, names []string, out io.Writer) (err error) {
	r := reporter{batchTotals: batchTotals{own: s.Node}}
	defer func() {
		if text := r.batchTotals.String(); r.views && text != "" {
			s.Log.Info(text)
		}
		if e := r.targets.Close(); err == nil {
			err = e
		}
	}()
	if err := r.open(ctx, s, o, names, out); err != nil {
		return err
	}
	var ignored []string
	if slices.Equal(names, []string{"prometheus"}) {
		ignored = metricsUnread
	}
	return s.Filter(ctx, stage.Filter{
		Ignores:  ignored,
		Section:  tick.SectionReport,
		Reads:    []string{tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction, tick.SectionNetwork},
		Terminal: r.views,
		Handle:   r.report,

		UsesRefused: !r.acts,
	})
}

// reporter has the targets of --to.
type reporter struct {
	targets     cluster.Targets
	views       bool // one of them writes the output
	acts        bool // one of them writes for others, and so leaves out refused ticks
	batchTotals batchTotals
}

func (r *reporter) open(ctx context.Context, s *stage.Session, o *options, names []string, out io.Writer) error {
	for _, t := range targets {
		if !slices.Contains(names, t.name) {
			continue
		}
		opened, err := t.open(ctx, s, o, out)
		if err != nil {
			return err
		}
		r.targets, r.views = append(r.targets, opened), r.views || t.view
		r.acts = r.acts || !t.view && t.name != targetLive
	}
	return nil
}

// report passes a tick to each target, in their order, and returns the results.
func (r *reporter) report(_ context.Context, in stage.Incoming) (any, error) {
	if r.views { // only a view shows the sums
		r.batchTotals.add(in.Tick)
	}
	return r.targets.Put(in)
}

// batchTotals is what batch got on this node, or on the stream's first one if this node is not in it.
type batchTotals struct {
	own, node string
	ticks     int
	counted   *series.Node
}

func (w *batchTotals) add(t *tick.Tick) {
	if w.counted == nil || t.Node == w.own && w.node != w.own {
		w.node, w.ticks, w.counted = t.Node, 0, series.NewNode("report")
	}
	if t.Node == w.node {
		w.ticks++
		w.counted.Add(t)
	}
}

func (w *batchTotals) String() string {
	if w.ticks < 2 { // a single tick from cron has no sum
		return ""
	}
	return w.counted.Worth().String()
}
