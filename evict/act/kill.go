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
	// killWithin is how long killed processes may take to disappear; one in an uninterruptible wait may never do so.
	killWithin = 10 * time.Second
	// termPoll is how often evict checks whether the processes that got SIGTERM have ended.
	termPoll = 100 * time.Millisecond
	// killFreeze is how long a kill waits until the cgroup is frozen; then it continues without.
	killFreeze = 500 * time.Millisecond
)

// Kill ends every process of a cgroup: it sends SIGTERM to all, unless asked means that they already got it, and after
// grace it kills the remaining ones. It calls begun once SIGTERM is sent, and returns nil when the cgroup is empty.
func Kill(ctx context.Context, h *cgroup.Hierarchy, c Target, grace time.Duration, asked Asked, begun func()) error {
	processes, err := members(h, c)
	if err != nil {
		return err
	}
	if asked == NotAsked {
		if err := signalAll(processes, unix.SIGTERM); err != nil {
			return err
		}
	}
	begun()
	empty, err := untilEmpty(ctx, h, c, grace)
	if empty || err != nil {
		return err
	}
	return killHard(ctx, h, c)
}

func untilEmpty(ctx context.Context, h *cgroup.Hierarchy, c Target, within time.Duration) (bool, error) {
	deadline := time.Now().Add(within)
	for {
		processes, err := members(h, c)
		if err != nil || len(processes) == 0 {
			return err == nil, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false, nil
		}
		if err := sleep(ctx, min(left, termPoll)); err != nil {
			return false, err
		}
	}
}

func killHard(ctx context.Context, h *cgroup.Hierarchy, c Target) error {
	if h.Version("") == 2 {
		err := killV2(ctx, h, c)
		if !notOurs(err) {
			return err
		}
	}
	deadline := time.Now().Add(killWithin)
	for {
		left, err := killRound(ctx, h, c)
		if left == 0 || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill %s: %d processes are still there %s after SIGKILL (in an uninterruptible wait?)", c.Path, left, killWithin)
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// notOurs reports whether cgroup.kill does not exist (Linux before 5.14) or is not writable (a confined unit, in
// which cgroups are read-only): then signals are used.
func notOurs(err error) bool {
	for _, errno := range []error{unix.ENOENT, unix.EROFS, unix.EACCES, unix.EPERM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func killV2(ctx context.Context, h *cgroup.Hierarchy, c Target) error {
	if _, err := members(h, c); err != nil { // check the guard again: processes move
		return err
	}
	if err := h.WriteFile("", c.Path, "cgroup.kill", "1"); err != nil {
		if exists, _ := h.Exists("", c.Path); !exists {
			return nil
		}
		return fmt.Errorf("kill: %w", err)
	}
	empty, err := untilEmpty(ctx, h, c, killWithin)
	if err == nil && !empty {
		err = fmt.Errorf("kill %s: processes are still there %s after cgroup.kill (in an uninterruptible wait?)", c.Path, killWithin)
	}
	return err
}

// killRound kills the processes of a cgroup while it is frozen, so that none can fork after the list is read, and then
// thaws it, because a frozen process does not die. It returns the number of processes.
func killRound(ctx context.Context, h *cgroup.Hierarchy, c Target) (int, error) {
	if freezable(h, c.Path) == nil && freeze(ctx, h, c.Path, killFreeze) == nil {
		defer func() { _ = Thaw(h, c.Path) }()
	}
	processes, err := members(h, c)
	if err != nil {
		return 0, err
	}
	return len(processes), signalAll(processes, unix.SIGKILL)
}
