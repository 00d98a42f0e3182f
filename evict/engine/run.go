package engine

import (
	"context"
	"errors"
	"fmt"

	"polder/evict/act"
	"polder/evict/settings"
	"polder/lib/cgroup"
	"polder/lib/kube"
	"polder/lib/stage"
	"polder/lib/tick"
)

func run(ctx context.Context, s *stage.Session, o *options) error {
	var live settings.Live
	first, err := o.Resolve(s)
	if err != nil {
		return err
	}
	live.Store(first)

	if o.explain {
		s.DryRun = true
	}
	acts := o.action != act.Log && !s.DryRun
	if acts && o.action == act.FreezePods && s.State == "" {
		return stage.Usagef("--action freeze needs --state FILE: evict --thaw finds there what was frozen")
	}
	e := &engine{session: s, settings: &live, nodes: map[string]*node{}, explains: o.explain}
	e.saver = s.NewSaver(stateVersion, saveEvery, e.snapshot)
	if o.fleet {
		e.controller = newController()
	}
	if err := e.load(o.action); err != nil {
		return err
	}
	if acts {
		if e.runner, err = o.runner(s, e); err != nil {
			return fmt.Errorf("--action %s: %w", o.action, err)
		}
		e.orders, e.cancel = context.WithCancel(ctx)
		defer e.cancel()
	}
	if err := o.Watch(ctx, s, &live); err != nil {
		return err
	}
	e.counts.tell(s.Metrics)
	if o.fleet {
		return e.finish(e.fleet(ctx))
	}
	err = s.Filter(ctx, stage.Filter{
		Section:  tick.SectionEviction,
		Reads:    []string{tick.SectionSample, tick.SectionAdvice},
		Handle:   e.handle,
		Live:     acts,
		Terminal: o.explain,
	})
	if err == nil {
		e.input.tell(s.Log)
	}
	if o.explain {
		err = errors.Join(err, e.explain())
	}
	return e.finish(err)
}

// runner makes what carries the action out.
func (o *options) runner(s *stage.Session, e *engine) (*act.Runner, error) {
	r := &act.Runner{Action: o.action, Log: s.Log}
	switch o.action {
	case act.EvictPods, act.DeletePods:
		if api := s.Metrics.API(); api != nil {
			kube.Observe(api)
		}
		client, err := kube.Open(kube.Options{Kubeconfig: o.kubeconfig, UserAgent: act.Controller, QPS: o.qps()})
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
	e.cgroups = &cgroups{h, o.action}
	r.Do = act.KillWay(h)
	if o.action == act.FreezePods {
		r.Do = act.FreezeWay(h)
	}
	return r, nil
}
