package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// alone is how many CPUs a guest may have beside others. Two machines of 48 emulated CPUs at once are too many for a host of two.
const alone = 16

// lockFile is the same for all processes of the host.
const lockFile = "polder-guest.lock"

// Turn waits until no other guest with many CPUs runs on this host, also of other processes, and makes others wait until done is called.
// A process that is killed releases its turn.
func (m Machine) Turn(ctx context.Context) (done func(), err error) {
	if m.CPUs() <= alone {
		return func() {}, nil
	}
	path := filepath.Join(os.TempDir(), lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("wait for a turn: %w", err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("wait for a turn: lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for a turn: %w", context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
