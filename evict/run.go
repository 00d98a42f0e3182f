package main

import (
	"context"
	"fmt"

	"polder/evict/act"
	"polder/lib/cgroup"
	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
)

func run(ctx context.Context, s *stage.Session, o *options) error {
	var settings live
	first, _, err := o.resolve(s)
	if err != nil {
		return err
	}
	settings.Store(first)

	acts := o.action != act.Log && !s.DryRun
	if acts && o.action == act.FreezePods && s.State == "" {
		return stage.Usagef("--action freeze needs --state FILE: evict --thaw finds there what was frozen")
	}
	e := &engine{session: s, settings: &settings, nodes: map[string]*node{}, saver: newSaver(s)}
	if err := e.load(); err != nil {
		return err
	}
	if acts {
		if e.runner, err = o.runner(s, e); err != nil {
			return fmt.Errorf("--action %s: %w", o.action, err)
		}
		e.orders, e.cancel = context.WithCancel(ctx)
		defer e.cancel()
	}
	if err := o.watch(ctx, s, &settings); err != nil {
		return err
	}
	err = s.Filter(ctx, stage.Filter{
		Section: tick.SectionEviction,
		Reads:   []string{tick.SectionSample, tick.SectionAdvice},
		Handle:  e.handle,
		Live:    acts,
	})
	return e.finish(err)
}

// runner makes what carries the action out.
func (o *options) runner(s *stage.Session, e *engine) (*act.Runner, error) {
	r := &act.Runner{Action: o.action, Log: s.Log}
	switch o.action {
	case act.EvictPods, act.DeletePods:
		client, err := kube.Open(kube.Options{Kubeconfig: o.kubeconfig, UserAgent: act.Controller})
		if err != nil {
			return nil, stage.Usagef("%w", err)
		}
		e.events = act.NewEvents(client, s.Node, s.Log, s.Now)
		c := &act.Cluster{Client: client, Events: e.events}
		r.Do = c.Evict
		if o.action == act.DeletePods {
			r.Do = c.Delete
		}
		return r, nil
	}
	h, err := cgroup.Detect("/")
	if err != nil {
		return nil, err
	}
	r.Do = act.KillWay(h)
	if o.action == act.FreezePods {
		r.Do = act.FreezeWay(h)
	}
	return r, nil
}
