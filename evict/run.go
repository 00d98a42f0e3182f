package main

import (
	"context"
	"fmt"

	"polder/evict/act"
	"polder/lib/cgroup"
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
		h, err := cgroup.Detect("/")
		if err != nil {
			return fmt.Errorf("--action %s: %w", o.action, err)
		}
		e.runner = &act.Runner{Action: o.action, Cgroups: h, Log: s.Log}
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
