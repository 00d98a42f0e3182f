package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// steadyParameter makes idle CPUs poll.
	steadyParameter = "idle=poll"
	// turn is how long the host runs one emulated CPU before it runs another.
	turn = 250 * time.Microsecond
	// fakeTime is Debian's library for a slower clock, of the package faketime.
	fakeTime = "/usr/lib/*/faketime/libfaketimeMT.so.1"
)

// steady prepares QEMU's command, and the host, for emulated CPUs of a steady speed.
//
// The host runs more emulated CPUs than it has CPUs, in turns of some milliseconds. Where an idle emulated CPU needs none of them, a busy
// one is several times faster beside idle ones than beside batch, and a thread that wakes beside batch waits for its CPU's next turn. Then
// batch harms a service through the host, which no scheduling class in the guest prevents. So here:
//
//   - idle CPUs poll, and use as much of the host as busy ones;
//   - the host chooses every [turn] which of them it runs, because a thread wakes on each of its CPUs so often;
//   - the guest's clock is slower, so that turns and emulation take less of its time.
//
// What remains is that emulated CPUs share the host's caches, and that a change between two processes is expensive: QEMU forgets all
// translated addresses.
func (m Machine) steady(ctx context.Context, cmd *exec.Cmd) error {
	if m.Dilation > 1 {
		found, err := filepath.Glob(fakeTime)
		if err != nil || len(found) == 0 {
			return fmt.Errorf("slow down the guest's clock: no %s, which is in Debian's package faketime: %w", fakeTime, ErrMissing)
		}
		// The last one is for the processes that QEMU may start: their clock goes on.
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+found[0], fmt.Sprintf("FAKETIME=+0 x%f", 1/float64(m.Dilation)), "FAKETIME_DONT_RESET=1")
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	var errs error
	for cpu, left := 0, all.Count(); left > 0; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		ready := make(chan error)
		go wakeEach(ctx, cpu, turn, ready)
		errs = errors.Join(errs, <-ready)
		left--
	}
	return errs
}

// wakeEach wakes on a CPU again and again until the context ends.
func wakeEach(ctx context.Context, cpu int, interval time.Duration, ready chan<- error) {
	runtime.LockOSThread() // and the thread ends with this goroutine
	var only unix.CPUSet
	only.Set(cpu)
	// Where this is not permitted the thread is a usual one, whose wakes make the host choose, too.
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	err := os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &only))
	if ready <- err; err != nil {
		return
	}
	for span := unix.NsecToTimespec(int64(interval)); ctx.Err() == nil; {
		_ = unix.Nanosleep(&span, nil)
	}
}
