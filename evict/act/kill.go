// Package act executes evictions: through the API server, or on a machine without a cluster by freezing or killing the
// pod's cgroup.
package act

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
)

// ErrRefused is wrapped if evict must never touch the cgroup.
var ErrRefused = errors.New("refused")

const (
	// killTimeout is how long killed processes may take to disappear; one in uninterruptible sleep may never do so.
	killTimeout = 10 * time.Second
	// termPollInterval is how often evict checks whether the processes that got SIGTERM have ended.
	termPollInterval = 100 * time.Millisecond
	// killFreezeTimeout is how long a kill waits until the cgroup is frozen; then it continues without.
	killFreezeTimeout = 500 * time.Millisecond
)

// Kill ends every process of a cgroup: it sends SIGTERM to all, unless requested means that they already got it, and after
// grace it kills the remaining ones. It calls reportSent once SIGTERM is sent to any of them, and returns nil when the cgroup is empty.
func Kill(ctx context.Context, h *cgroup.Hierarchy, c Target, grace time.Duration, requested Requested, reportSent func()) error {
	processes, err := listProcesses(h, c)
	if err != nil {
		return err
	}
	if requested == NotRequested {
		sent, err := signalAll(processes, unix.SIGTERM)
		if sent > 0 || err == nil {
			reportSent()
		}
		if err != nil {
			return err
		}
	} else {
		reportSent()
	}
	empty, err := waitUntilEmpty(ctx, h, c, grace)
	if empty || err != nil {
		return err
	}
	return killRemaining(ctx, h, c)
}

func waitUntilEmpty(ctx context.Context, h *cgroup.Hierarchy, c Target, timeout time.Duration) (bool, error) {
	deadline := time.Now().Add(timeout)
	for {
		processes, err := listProcesses(h, c)
		if err != nil || len(processes) == 0 {
			return err == nil, err
		}
		remaining := time.Until(deadline)
		if remaining <= 0 {
			return false, nil
		}
		if err := sleep(ctx, min(remaining, termPollInterval)); err != nil {
			return false, err
		}
	}
}

func killRemaining(ctx context.Context, h *cgroup.Hierarchy, c Target) error {
	if h.Version("") == 2 {
		err := killByCgroupKill(ctx, h, c)
		if !isCgroupKillUnavailable(err) {
			return err
		}
	}
	deadline := time.Now().Add(killTimeout)
	for {
		remaining, err := killRound(ctx, h, c)
		if remaining == 0 || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill %s: %d processes still exist %s after SIGKILL (are they in uninterruptible sleep?)", c.Path, remaining, killTimeout)
		}
		if err := sleep(ctx, cgroupPollInterval); err != nil {
			return err
		}
	}
}

// isCgroupKillUnavailable reports whether cgroup.kill does not exist (Linux before 5.14) or is not writable (a confined unit, in
// which cgroups are read-only): then signals are used.
func isCgroupKillUnavailable(err error) bool {
	for _, errno := range []error{unix.ENOENT, unix.EROFS, unix.EACCES, unix.EPERM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func killByCgroupKill(ctx context.Context, h *cgroup.Hierarchy, c Target) error {
	// Check again for protected processes, because processes move, and whether another cgroup has the name now.
	if _, err := listProcesses(h, c); err != nil || c.isReplaced(h, "") {
		return err
	}
	if err := h.WriteFile("", c.Path, "cgroup.kill", "1"); err != nil {
		if exists, _ := h.Exists("", c.Path); !exists {
			return nil
		}
		return fmt.Errorf("kill: %w", err)
	}
	empty, err := waitUntilEmpty(ctx, h, c, killTimeout)
	if err == nil && !empty {
		err = fmt.Errorf("kill %s: processes still exist %s after cgroup.kill (are they in uninterruptible sleep?)", c.Path, killTimeout)
	}
	return err
}

// killRound kills the processes of a cgroup while it is frozen, so that none can fork after the list is read, and then
// thaws it, because a frozen process does not die. It returns the number of processes.
func killRound(ctx context.Context, h *cgroup.Hierarchy, c Target) (int, error) {
	if !c.isReplaced(h, "") && checkFreezable(h, c.Path) == nil && freeze(ctx, h, c.Path, killFreezeTimeout) == nil {
		defer func() { _ = Thaw(h, c.Path) }()
	}
	processes, err := listProcesses(h, c)
	if err != nil {
		return 0, err
	}
	_, err = signalAll(processes, unix.SIGKILL)
	return len(processes), err
}
