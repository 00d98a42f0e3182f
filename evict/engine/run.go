package engine

import (
	"context"
	"errors"
	"fmt"

	"polder/evict/act"
	"polder/evict/progress"
	"polder/evict/settings"
	"polder/lib/cgroup"
	"polder/lib/stage"
	"polder/lib/tick"
)

func run(ctx context.Context, s *stage.Session, o *options) error {
	var live settings.Live
	if err := o.Watch(ctx, s, &live); err != nil {
		return err
	}
	if o.explain {
		s.DryRun = true
	}
	isActing := o.action != act.Log && !s.DryRun
	if isActing && o.action == act.FreezePods && s.State == "" {
		return stage.Usagef("--action freeze needs --state FILE: evict --thaw reads the frozen pods from it")
	}
	e := newEngine(s, &live)
	e.explaining, e.Quiet = o.explain, o.explain
	if err := e.load(o.action); err != nil {
		return err
	}
	var runner *act.Runner
	if isActing {
		var err error
		if runner, err = o.runner(e); err != nil {
			return fmt.Errorf("--action %s: %w", o.action, err)
		}
	}
	e.Begin(ctx, runner)
	err := s.Filter(ctx, stage.Filter{
		Section:  tick.SectionEviction,
		Reads:    []string{tick.SectionSample, tick.SectionAdvice},
		Ignores:  unreadFields,
		Handle:   e.handle,
		Live:     isActing,
		Terminal: o.explain,
	})
	if err == nil {
		e.input.warnIfUnusable(s.Log)
	}
	if o.explain {
		err = errors.Join(err, e.explain())
	}
	return e.Finish(err)
}

// unreadFields are the fields of a tick that no rule reads.
var unreadFields = []string{
	"Sample.PeriodSeconds", "Sample.Disks", "Sample.Partitions", "Sample.BatchCgroups", "Sample.BatchMemory", "Sample.MemoryReclaim",
	"Sample.Links",
	"NodeCPU.StealMilliCPU", "NodeCPU.Load5", "NodeCPU.Load15",
	"Pod.Load5", "Pod.MemoryEvents", "Pod.OwnerKind",
	"Container.Load5",
	"Memory.CacheBytes", "Memory.RefaultBytesPerSecond",
	"Advice.Cgroups", "Advice.Fallback",
}

func newEngine(s *stage.Session, live *settings.Live) *engine {
	e := &engine{session: s, settings: live, nodes: map[string]*node{}}
	e.Tracker = progress.New(s, stateVersion, e.record, e.snapshot)
	return e
}

// runner creates the runner for the configured action.
func (o *options) runner(e *engine) (*act.Runner, error) {
	if o.action == act.EvictPods || o.action == act.DeletePods {
		return e.Cluster(o.action, o.kubeconfig, e.session.Node, 0)
	}
	h, err := cgroup.Detect("/")
	if err != nil {
		return nil, err
	}
	e.cgroups = &cgroups{h, o.action}
	e.Inode = e.cgroups.inode
	r := &act.Runner{Action: o.action, Log: e.session.Log, Do: act.KillExecutor(h)}
	if o.action == act.FreezePods {
		r.Do = act.FreezeExecutor(h)
	}
	return r, nil
}
