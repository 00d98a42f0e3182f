package main

import (
	"context"

	"polder/isolate/network"
	"polder/lib/cgroup"
	"polder/lib/stage"
	"polder/lib/tick"
)

// These are the values of --only: each process has the privileges for one of them.
const (
	onlyCgroups = "cgroups"
	onlyNetwork = "network"
)

// networkTool is the state of isolate --only network between two ticks.
type networkTool struct {
	s       *stage.Session
	network *network.Applier
	logger  logger
}

func runNetwork(ctx context.Context, s *stage.Session, o options) error {
	h, err := cgroup.Detect(o.root)
	if err != nil {
		s.Log.Warn("no cgroup hierarchy was found; packets of cgroups are not marked", "error", err)
		h = nil
	}
	a := network.Options{Hierarchy: h, Contest: o.contest, DryRun: s.DryRun, Now: s.Now, Log: s.Log}
	if o.restore {
		return restoreNetwork(s, o, a)
	}
	if !s.DryRun {
		if a.Journal, err = openNetworkJournal(s, o); err != nil {
			return err
		}
		defer a.Journal.Close()
	}
	t := &networkTool{s: s, network: network.New(a)}
	return s.Filter(ctx, stage.Filter{Section: tick.SectionNetwork, Reads: []string{tick.SectionAdvice}, Handle: t.handle, Live: !s.DryRun})
}

// handle applies an advice. In a silence everything stays as it is: the present state already prefers services.
func (t *networkTool) handle(_ context.Context, in stage.Incoming) (any, error) {
	out := tick.NetworkIsolation{DryRun: t.s.DryRun, Refused: in.Refused, DroppedTicks: in.Dropped}
	if in.Refused == "" && in.Advice != nil {
		t.network.Apply(&out, in.Advice.Network)
		t.logger.logNew(t.s.Log, out.Errors)
	}
	return out, nil
}
