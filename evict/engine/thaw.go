package engine

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"polder/evict/act"
	"polder/evict/pick"
	"polder/lib/cgroup"
	"polder/lib/stage"
	"polder/lib/tick"
)

// thaw thaws the cgroups that the state file lists as frozen, and those whose freezing may have been in progress
// when an earlier run was killed.
func thaw(s *stage.Session) error {
	if s.State == "" {
		return stage.Usagef("--thaw needs --state FILE, the file of evict --action freeze")
	}
	var state savedState
	found, err := s.LoadState(stateVersion, &state)
	if err != nil {
		return err
	}
	if !found {
		if err := checkNoState(s); err != nil {
			return fmt.Errorf("--thaw: %w", err)
		}
		s.Log.Info("nothing to thaw: there is no state file", "path", s.State)
		return nil
	}
	h, err := cgroup.Detect("/")
	if err != nil {
		return fmt.Errorf("--thaw: %w", err)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(state.Nodes)) {
		errs = append(errs, thawNode(s, h, state.Nodes[name]))
	}
	if s.DryRun {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, s.SaveState(stateVersion, state))...)
}

// checkNoState returns an error if there is a state file; it could not be used, and why was logged.
func checkNoState(s *stage.Session) error {
	if _, err := os.Lstat(s.State); err != nil {
		return nil
	}
	return fmt.Errorf("the state file %s cannot be used, so that it is unknown which pods are frozen: "+
		"look for cgroups in which freezer.state is FROZEN or cgroup.freeze is 1, and remove the file", s.State)
}

func thawNode(s *stage.Session, h *cgroup.Hierarchy, n *node) error {
	if n == nil {
		return nil
	}
	n.State.Init()
	// A kill records the other hierarchy's inode, and may have stopped while it froze the cgroup, after it had sent its signal.
	hasOtherCgroup := func(l *pick.Ongoing) bool {
		frozen, killed := act.InodeOf(h, act.FreezePods, l.Cgroup), act.InodeOf(h, act.KillPods, l.Cgroup)
		return l.Inode != 0 && frozen != 0 && frozen != l.Inode && killed != l.Inode
	}
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(n.InProgress)) {
		l := n.InProgress[uid]
		mayBeFrozen := slices.Contains([]string{tick.StateRequested, tick.StateCreated, tick.StateFailed}, l.Eviction.State)
		if l.Cgroup == "" || !l.Frozen && !mayBeFrozen {
			continue
		}
		if s.StateBoot == stage.OtherBoot || hasOtherCgroup(l) {
			s.Log.Info("not thawed: the frozen cgroup no longer exists, even if another one has its name", "cgroup", l.Cgroup)
			delete(n.InProgress, uid)
			continue
		}
		if s.DryRun {
			fmt.Fprintf(s.Out, "would thaw %s\n", l.Cgroup)
			continue
		}
		if err := act.Thaw(h, l.Cgroup); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(n.InProgress, uid)
		fmt.Fprintf(s.Out, "thawed %s\n", l.Cgroup)
	}
	return errors.Join(errs...)
}
