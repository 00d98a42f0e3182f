package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"polder/isolate/journal"
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
		s.Log.Warn("cannot find the cgroup hierarchy; packets of cgroups are not marked", "error", err)
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

func openNetworkJournal(s *stage.Session, o options) (*network.Journal, error) {
	if o.journal == "" {
		s.Log.Warn("no --journal: changes cannot be restored later")
		return nil, nil
	}
	j, err := network.OpenJournal(o.journal, o.root, s.Now)
	switch {
	case errors.Is(err, journal.ErrInUse):
		return nil, fmt.Errorf("--journal: %w", err)
	case err != nil:
		return nil, stage.OpenError(fmt.Errorf("--journal: %w", err))
	case j.IsForeign():
		j.Close()
		return nil, stage.Usagef("--journal %s: it is not a journal of isolate --only network", o.journal)
	}
	if err := j.CheckNamespace(); err != nil {
		j.Close()
		return nil, stage.Usagef("--journal: %w", err)
	}
	compact(s, j)
	return j, nil
}

// restoreNetwork undoes what the journal contains, and prints the result to standard error.
func restoreNetwork(s *stage.Session, o options, a network.Options) error {
	if _, err := os.Stat(o.journal); errors.Is(err, fs.ErrNotExist) {
		if !o.ifExists {
			return fmt.Errorf("the journal %s does not exist, nothing is restored: name the file that isolate --only network was run with (a complete restore removes it; with --if-exists that is no error)", o.journal)
		}
		fmt.Fprintf(s.Err, "isolate: the journal %s does not exist: nothing to restore\n", o.journal)
		return nil
	}
	j, err := network.OpenJournal(o.journal, o.root, s.Now)
	if err != nil {
		return fmt.Errorf("--journal: %w", err)
	}
	defer j.Close()
	if j.IsForeign() {
		return fmt.Errorf("--journal: %s is not a journal of isolate --only network: nothing is restored, and the file is unchanged", o.journal)
	}
	if err := j.CheckNamespace(); err != nil {
		return fmt.Errorf("--journal: %w", err)
	}
	a.Journal = j
	out, err := network.New(a).Restore()
	fmt.Fprintf(s.Err, "isolate: %s\n", out)
	if err == nil && !out.IsComplete() {
		err = fmt.Errorf("not everything of the network is restored; %s keeps the rest", o.journal)
	}
	return err
}
