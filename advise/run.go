package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"polder/advise/harvest"
	"polder/advise/katalyst"
	"polder/advise/koordinator"
	"polder/advise/policy"
	"polder/advise/settings"
	"polder/lib/stage"
	"polder/lib/tick"
)

// policyKind is a policy, with what the tool needs to run it.
type policyKind struct {
	policy.Policy
	// unread are the sample's fields that the policy does not use.
	unread []string
	start  func(*loaded) decider
}

// decider is a policy's Decider that accepts the settings of a changed configuration.
type decider interface {
	policy.Decider
	configure(*loaded)
	// Reboot discards the state that a reboot invalidates.
	Reboot()
}

// policies lists the values of --policy; the first is the default.
var policies = []policyKind{
	{katalyst.Policy, []string{
		"Sample.Annotations", "Sample.Resctrl", "Sample.IO", "Sample.Disks",
		"NodeCPU.StealMilliCPU", "NodeCPU.Load1", "NodeCPU.Load5", "NodeCPU.Load15",
		"Pod.Priority", "Pod.KoordinatorPriority", "Pod.Labels", "Pod.OwnerKind", "Pod.Static", "Pod.Errors",
		"Container.ID", "Container.Name",
		"Memory.CacheBytes",
	}, func(l *loaded) decider { return katalystDecider{katalyst.New(l.ForKatalyst(l.sources))} }},
	{koordinator.Policy, []string{
		"Sample.NUMANodes", "Sample.IO", "Sample.Disks",
		"Pod.KoordinatorPriority", "Pod.StartTime", "Pod.Load5", "Pod.Threads", "Pod.OwnerKind", "Pod.Static", "Pod.Errors",
		"Container.ID", "Container.Load1", "Container.Load5", "Container.Threads", "Container.NUMAMemory",
		"NodeCPU.StealMilliCPU", "NodeCPU.Load1", "NodeCPU.Load5", "NodeCPU.Load15", "NodeMemory.Pressure", "NodeMemory.CacheBytes",
		"NodeMemory.LowWatermarkBytes", "NodeMemory.WatermarkScaleFactor", "NodeMemory.KswapdStealPages", "NodeMemory.KswapdStealPerSecond",
	}, func(l *loaded) decider { return koordinatorDecider{koordinator.New(l.ForKoordinator())} }},
	{harvest.Policy, []string{
		"Sample.Labels", "Sample.Annotations", "Sample.Config", "Sample.Resctrl", "Sample.IO", "Sample.Disks",
		"NodeCPU.Load1", "NodeCPU.Load5", "NodeCPU.Load15", "NodeMemory.Pressure", "NodeMemory.FreeBytes", "NodeMemory.CacheBytes",
		"NodeMemory.LowWatermarkBytes", "NodeMemory.WatermarkScaleFactor", "NodeMemory.KswapdStealPages", "NodeMemory.KswapdStealPerSecond",
		"Pod.Priority", "Pod.KoordinatorPriority", "Pod.Labels", "Pod.Annotations", "Pod.Load5", "Pod.Threads",
		"Pod.OwnerKind", "Pod.Static", "Pod.Errors",
		"Container.ID", "Container.Name", "Container.Load1", "Container.Load5", "Container.Threads",
		"Container.NUMAMemory",
		"Memory.CacheBytes",
	}, func(l *loaded) decider { return harvestDecider{harvest.New(l.ForHarvest())} }},
}

type katalystDecider struct{ *katalyst.Decider }

func (d katalystDecider) configure(l *loaded) { d.Configure(l.ForKatalyst(l.sources)) }

type koordinatorDecider struct{ *koordinator.Decider }

func (d koordinatorDecider) configure(l *loaded) { d.Configure(l.ForKoordinator()) }

type harvestDecider struct{ *harvest.Decider }

func (d harvestDecider) configure(l *loaded) { d.Configure(l.ForHarvest()) }

type options struct {
	list   bool
	shadow string
	// checkedFile is the configuration file that is only checked.
	checkedFile string
	live        liveSettings
}

func command() stage.Command {
	o := options{live: liveSettings{flag: "config", fromFlags: settings.Defaults()}}
	return stage.Command{
		Name:     "advise",
		Synopsis: "decide what may be reclaimed, and which CPUs each pod gets",
		Summary:  summary,
		Tasks:    tasks,
		Manual:   manual,
		Kind:     stage.Kind{Reads: true, Writes: true, State: true},
		Flags: func(f *stage.Flags) {
			f.Category("Decision")
			f.Path(&o.live.path, "config", "", "read settings from the YAML `FILE`, again on every change\nIt has settings, or Katalyst's configuration objects, or Koordinator's ConfigMap in kubectl's form.")
			f.Path(&o.checkedFile, "check-config", "", "validate --config `FILE`, print the resulting settings, and end\nOr print its error. The status is 0 or 2.")
			f.Bool(&o.list, "list", "print the policies and end")
			f.Choice(&o.shadow, "shadow", "", "compare with this `POLICY`\nIt decides on the same samples, with the settings of --config and the cluster. Its decisions are in advice.shadow; no tool acts on them.", settings.PolicyNames()...)
			o.live.fromFlags.AddFlags(f)
		},
		Run: func(ctx context.Context, s *stage.Session) error { return run(ctx, s, &o) },
	}
}

func run(ctx context.Context, s *stage.Session, o *options) error {
	if o.list {
		for _, p := range policies {
			if _, err := fmt.Fprintf(s.Out, "%s: %s\n", p.Name, strings.ReplaceAll(p.Doc, "\n", "\n  ")); err != nil {
				return err
			}
		}
		return nil
	}
	o.live.isSet = s.IsSet
	if o.checkedFile != "" {
		return checkConfig(s, o)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := o.live.watch(ctx, s); err != nil {
		return stage.OpenError(err)
	}
	current := o.live.changed.Swap(nil)
	shadow, err := newShadow(o.shadow, current)
	if err != nil {
		return err
	}

	o.live.running.Store(&current.kind)
	decider := shaper{decider: current.kind.start(current), settings: current.Network}
	objects := objects{file: current.objects, log: s.Log}
	version := current.kind.StateVersion
	isLoaded, err := s.LoadState(version, decider.State())
	if err != nil {
		return err
	}
	if isLoaded && s.StateBoot == stage.OtherBoot {
		s.Log.Info("the state is from before a reboot: its advice on cgroups is discarded")
		decider.Reboot()
	}
	if _, err := os.Stat(s.State); s.State != "" && !isLoaded && err == nil {
		s.Log.Warn("earlier advice is unknown, and is not reverted: after a change of --policy run isolate --restore, and report --withdraw with the old flags")
	}
	return decideAll(ctx, s, o, current, &decider, shadow, &objects)
}

// saveEvery is how often the state is saved while the stream runs; it is also saved at the end.
const saveEvery = 10 * time.Second

// decideAll decides on every tick, and saves the state periodically and at the end.
func decideAll(
	ctx context.Context, s *stage.Session, o *options, current *loaded, decider decider, shadow *shadow, objects *objects,
) error {
	saver := s.NewSaver(current.kind.StateVersion, saveEvery, func() (tick.Raw, error) { return tick.Marshal(decider.State()) })
	err := s.Filter(ctx, stage.Filter{
		Section: tick.SectionAdvice,
		Reads:   []string{tick.SectionSample},
		Ignores: shadow.unread(current.kind),
		Handle: func(_ context.Context, in stage.Incoming) (any, error) {
			if next := o.live.changed.Swap(nil); next != nil {
				decider.configure(next)
				shadow.configure(next)
				objects.file = next.objects
			}
			objects.override(in.Tick)
			restricted, finish := policy.WithoutPartitions(in.Tick)
			advice := decider.Decide(restricted)
			finish(advice)
			advice = shadow.decide(restricted, finish, advice)
			saver.SaveIfDue()
			return advice, nil
		},
	})
	return saver.SaveAtEnd(err)
}
