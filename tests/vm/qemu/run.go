package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// BootAttempts is how often a machine is booted that hangs before it has run anything. An emulated machine with many CPUs does so now
// and then, on Linux 6.1 and QEMU 7.2 mostly when the kernel changes its clock source. That is unrelated to what is tested.
const BootAttempts = 3

// ErrNoBoot is the reason if a machine never ran anything.
var ErrNoBoot = errors.New("the machine does not boot")

// KernelParameters are the machine's own, and those for every guest on a host that may be busy:
//
//   - no_timer_check: it panics otherwise where its timer does not tick within some milliseconds.
//   - tsc=reliable: all emulated CPUs share one time stamp counter, so that a late reading has no meaning. The kernel
//     otherwise selects another clock source in the middle of a run, and may hang then.
//   - nowatchdog, rcupdate.rcu_cpu_stall_suppress=1: the detectors of lockups report an emulated CPU that the host does not run for
//     some seconds. A guest that really hangs writes nothing any more, which [Progress] sees: their reports would count as a sign of life.
//   - mitigations=off: page tables that change with every system call cost an emulator most of its speed.
//   - tsc_early_khz: see frequency.
func (m Machine) KernelParameters() string {
	all := parameters + " " + frequency(max(m.Dilation, 1)) + " " + m.Parameters
	if m.Dilation > 0 {
		all += " " + steadyParameter
	}
	return all
}

const parameters = "console=ttyS0 panic=-1 no_timer_check tsc=reliable nowatchdog rcupdate.rcu_cpu_stall_suppress=1 mitigations=off"

// Run runs QEMU in a process group of its own, which is killed as a whole when the context ends, and which dies with this
// process. It is also killed if its guest, which writes the files, hangs.
func (m Machine) Run(ctx context.Context, args []string, files ...string) (cpu time.Duration, err error) {
	// The death signal comes when the thread that started QEMU ends, so that thread must be kept.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, Program, args...)
	cmd.Stdout, cmd.Stderr = &errs, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if m.Dilation > 0 {
		if err := m.steady(ctx, cmd); err != nil {
			return 0, err
		}
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	progress := Watch(cmd.Process.Pid, files...)
	progress.slowDown(m.Dilation)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := progress.Stalled(); err != nil {
					cancel(err)
				}
			}
		}
	}()
	err = cmd.Wait()
	cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	switch {
	case ctx.Err() != nil:
		return cpu, context.Cause(ctx)
	case err != nil:
		return cpu, fmt.Errorf("qemu: %w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return cpu, nil
}
