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
	freezer            = "freezer"
	freezeTimeout      = 5 * time.Second
	cgroupPollInterval = 20 * time.Millisecond
)

// Freeze stops every process of a cgroup until [Thaw]. A cgroup that does not freeze in time is thawed again,
// because a partly frozen pod is of no use.
func Freeze(ctx context.Context, h *cgroup.Hierarchy, path string) error {
	if err := checkFreezable(h, path); err != nil {
		return err
	}
	return freeze(ctx, h, path, freezeTimeout)
}

// ErrStale is wrapped if an earlier run requested something, but did not do it: the need of that time may no longer exist.
var ErrStale = errors.New("its reason is stale")

// refreeze completes a freeze that an earlier run may have begun long ago. It does not begin one.
func refreeze(ctx context.Context, h *cgroup.Hierarchy, path string) error {
	switch frozen, err := Frozen(h, path); {
	case err != nil:
		return fmt.Errorf("freeze %s: check whether an earlier run froze it: %w", path, err)
	case !frozen:
		return fmt.Errorf("freeze %s: an earlier run requested it but did not do it, and %w", path, ErrStale)
	}
	return Freeze(ctx, h, path)
}

func checkFreezable(h *cgroup.Hierarchy, path string) error {
	pids, err := h.PIDs(freezer, path)
	switch {
	case errors.Is(err, cgroup.ErrNoController):
		return fmt.Errorf("freeze %s: no freezer controller is mounted (mount -t cgroup -o freezer, or use cgroup v2)", path)
	case cgroup.IsGone(err):
		return fmt.Errorf("freeze %s: the freezer hierarchy has no cgroup of that name (create it and move the pod's processes into it)", path)
	case err != nil:
		return fmt.Errorf("freeze %s: %w", path, err)
	}
	if err := checkProtectedProcesses(path, pids); err != nil {
		return err
	}
	if len(pids) > 0 {
		return nil
	}
	otherPIDs, err := h.PIDs("", path)
	if err == nil && len(otherPIDs) > 0 {
		return fmt.Errorf("freeze %s: its %d processes are not in the freezer cgroup of that name (write their PIDs to its cgroup.procs)", path, len(otherPIDs))
	}
	return nil
}

func freeze(ctx context.Context, h *cgroup.Hierarchy, path string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		// Version 1 needs the request again: if a process forks while it freezes, the state stays at FREEZING forever.
		if err := setFrozen(h, path, true); err != nil {
			return fmt.Errorf("freeze: %w", err)
		}
		frozen, err := isFrozen(h, path)
		if frozen {
			return nil
		}
		if err == nil && time.Now().After(deadline) {
			err = fmt.Errorf("freeze %s: not frozen after %s (is a process in uninterruptible sleep?), thawed again", path, timeout)
		}
		if err == nil {
			err = sleep(ctx, cgroupPollInterval)
		}
		if err != nil {
			return errors.Join(err, Thaw(h, path))
		}
	}
}

// Thaw resumes a frozen cgroup. A removed cgroup needs no thawing.
func Thaw(h *cgroup.Hierarchy, path string) error {
	err := setFrozen(h, path, false)
	if err == nil || cgroup.IsGone(err) {
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
