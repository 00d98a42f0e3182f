package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"polder/advise/katalyst"
	"polder/advise/policy"
	"polder/lib/stage"
	"polder/lib/tick"
)

// policies lists what --policy takes.
var policies = []policy.Policy{
	katalyst.Policy,
}

// unread are the sample's fields that no policy looks at.
var unread = []string{
	"Sample.CPU", "Sample.Annotations",
	"Pod.Threads", "Pod.Priority", "Pod.KoordinatorPriority", "Pod.Labels", "Pod.Static", "Pod.Errors",
	"Container.ID", "Container.Name", "Container.Threads", "Container.ThrottledPercent", "Container.NUMAMemory",
	"Memory.UsageBytes", "Memory.WorkingSetBytes", "Memory.CacheBytes",
}

type options struct {
	list bool
	live live
}

func command() stage.Command {
	var o options
	return stage.Command{
		Name:     "advise",
		Synopsis: "decide what may be reclaimed, and which CPUs each pod gets",
		Manual:   manual,
		Kind:     stage.Kind{Reads: true, Writes: true, State: true},
		Flags: func(f *stage.Flags) {
			f.Path(&o.live.path, "config", "", "read settings from the YAML `FILE`, or Katalyst's configuration objects as kubectl takes them, again on every change")
			f.Bool(&o.list, "list", "print the policies and end")
			o.live.given.flags(f)
		},
		Run: func(ctx context.Context, s *stage.Session) error { return run(ctx, s, &o) },
	}
}

func run(ctx context.Context, s *stage.Session, o *options) error {
	if o.list {
		for _, p := range policies {
			fmt.Fprintf(s.Out, "%s: %s\n", p.Name, strings.ReplaceAll(p.Doc, "\n", "\n  "))
		}
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := o.live.watch(ctx, s); err != nil { // before the first reading, so that no change is missed
		return stage.Usagef("--config: %w", err)
	}
	now, err := o.live.load()
	if err != nil {
		return stage.Usagef("--config: %w", err)
	}

	decider := katalyst.New(now.Settings)
	objects := objects{file: now.objects, log: s.Log}
	var _ policy.Decider = decider
	version := katalyst.Policy.StateVersion
	if _, err := s.LoadState(version, decider.State()); err != nil {
		return err
	}
	saved := s.Now()
	err = s.Filter(ctx, stage.Filter{
		Section: tick.SectionAdvice,
		Reads:   []string{tick.SectionSample},
		Ignores: unread,
		Handle: func(_ context.Context, in stage.Incoming) (any, error) {
			if next := o.live.changed.Swap(nil); next != nil {
				decider.Configure(next.Settings)
				objects.file = next.objects
			}
			objects.over(in.Tick)
			advice := decider.Decide(in.Tick)
			if now := s.Now(); s.State != "" && now.Sub(saved).Abs() >= saveEvery {
				saved = now
				if err := s.SaveState(version, decider.State()); err != nil {
					s.Log.Error("state is not saved", "error", err)
				}
			}
			return advice, nil
		},
	})
	return errors.Join(err, s.SaveState(version, decider.State()))
}
