package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"polder/tests/vm/wire"
)

// resultsPort is the second serial port.
const resultsPort = "/dev/ttyS1"

// boot is process 1: it never returns.
func boot() {
	defer func() {
		unix.Sync()
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}()
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "guest: init:", err)
	}
}

func start() error {
	for _, m := range []struct{ kind, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := os.Setenv("PATH", "/bin"); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(parameter(wire.HostParameter))); err != nil {
		return fmt.Errorf("set the host's name: %w", err)
	}
	child := exec.Command("/proc/self/exe", append([]string{"suite"}, strings.Split(parameter(wire.SuiteParameter), ",")...)...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return err
	}
	return reap(child.Process.Pid)
}

// reap waits for the child, and for every orphan meanwhile: a zombie would count in its cgroup for ever.
func reap(child int) error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		case pid == child && status.ExitStatus() != 0:
			return fmt.Errorf("the suites ended with status %d, signal %s", status.ExitStatus(), status.Signal())
		case pid == child:
			return nil
		}
	}
}

// parameter is one of the kernel's command line.
func parameter(name string) string {
	data, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return ""
	}
	for word := range strings.FieldsSeq(string(data)) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}
