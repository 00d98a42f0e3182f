package qemu

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// An emulated machine with many CPUs now and then hangs while it boots, on Linux 6.1 and QEMU 7.2 mostly when the kernel
// changes its clock source. That says nothing about what is tested, so it is tried again.
const (
	BootLimit    = 75 * time.Second // it takes 5 to 20
	BootAttempts = 3
)

// ErrNoBoot is the reason where a machine is given up because it does not boot.
var ErrNoBoot = fmt.Errorf("not booted after %s", BootLimit)

// Run runs QEMU in a process group of its own, which is killed as a whole when the context ends, and which dies with this
// process.
func Run(ctx context.Context, args []string) error {
	// The death signal comes when the thread that started QEMU ends, so that thread must be kept.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, Program, args...)
	cmd.Stdout, cmd.Stderr = &errs, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return nil
}
