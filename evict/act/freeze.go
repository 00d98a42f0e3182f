package act

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"polder/lib/cgroup"
)

const (
	freezer      = "freezer"
	freezeWithin = 5 * time.Second
	pollEvery    = 20 * time.Millisecond
)

// Freeze stops every process of a cgroup until [Thaw]. A cgroup that does not freeze in time is thawed again,
// because a partly frozen pod is of no use.
func Freeze(ctx context.Context, h *cgroup.Hierarchy, path string) error {
	if err := freezable(h, path); err != nil {
		return err
	}
	return freeze(ctx, h, path, freezeWithin)
}

// refreeze completes a freeze that an earlier run may have begun long ago. It does not begin one, because the need of that
// time may no longer exist.
func refreeze(ctx context.Context, h *cgroup.Hierarchy, path string) error {
	switch begun, err := Frozen(h, path); {
	case err != nil:
		return fmt.Errorf("freeze %s: look whether an earlier run has done it: %w", path, err)
	case !begun:
		return fmt.Errorf("freeze %s: the earlier run that was to do it has not, and its reason is stale", path)
	}
	return Freeze(ctx, h, path)
}

func freezable(h *cgroup.Hierarchy, path string) error {
	pids, err := h.PIDs(freezer, path)
	switch {
	case errors.Is(err, cgroup.ErrNoController):
		return fmt.Errorf("freeze %s: no freezer is mounted (mount -t cgroup -o freezer, or use cgroup v2)", path)
	case cgroup.Gone(err):
		return fmt.Errorf("freeze %s: there is no freezer cgroup of that name (make it, and put the pod's processes in)", path)
	case err != nil:
		return fmt.Errorf("freeze %s: %w", path, err)
	}
	if err := guard(path, pids); err != nil {
		return err
	}
	if len(pids) > 0 {
		return nil
	}
	elsewhere, err := h.PIDs("", path)
	if err == nil && len(elsewhere) > 0 {
		return fmt.Errorf("freeze %s: its %d processes are not in the freezer cgroup of that name (write them to its cgroup.procs)", path, len(elsewhere))
	}
	return nil
}

func freeze(ctx context.Context, h *cgroup.Hierarchy, path string, within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		// Version 1 must be asked again: if a process forks while it freezes, the state stays at FREEZING forever.
		if err := setFrozen(h, path, true); err != nil {
			return fmt.Errorf("freeze: %w", err)
		}
		frozen, err := isFrozen(h, path)
		if frozen {
			return nil
		}
		if err == nil && time.Now().After(deadline) {
			err = fmt.Errorf("freeze %s: not frozen after %s (a process in an uninterruptible wait?), thawed again", path, within)
		}
		if err == nil {
			err = sleep(ctx, pollEvery)
		}
		if err != nil {
			return errors.Join(err, Thaw(h, path))
		}
	}
}

// Thaw resumes a frozen cgroup. A removed cgroup needs no thawing.
func Thaw(h *cgroup.Hierarchy, path string) error {
	err := setFrozen(h, path, false)
	if err == nil || cgroup.Gone(err) {
		return nil
	}
	return fmt.Errorf("thaw: %w", err)
}

func setFrozen(h *cgroup.Hierarchy, path string, frozen bool) error {
	file, on, off := "freezer.state", "FROZEN", "THAWED"
	if h.Version(freezer) == 2 {
		file, on, off = "cgroup.freeze", "1", "0"
	}
	if frozen {
		return h.WriteFile(freezer, path, file, on)
	}
	return h.WriteFile(freezer, path, file, off)
}

// Frozen reports whether a cgroup is frozen, or freezing, by a request of its own.
func Frozen(h *cgroup.Hierarchy, path string) (bool, error) {
	file := "freezer.self_freezing"
	if h.Version(freezer) == 2 {
		file = "cgroup.freeze"
	}
	text, err := h.ReadFile(freezer, path, file)
	return text == "1", err
}

func isFrozen(h *cgroup.Hierarchy, path string) (bool, error) {
	if h.Version(freezer) == 2 {
		events, err := h.ReadFile(freezer, path, "cgroup.events")
		return strings.Contains(events, "frozen 1"), err
	}
	state, err := h.ReadFile(freezer, path, "freezer.state")
	return state == "FROZEN", err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
