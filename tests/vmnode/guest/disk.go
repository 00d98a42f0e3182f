package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	disk, newRoot = "/dev/vda", "/disk"
	systemd       = "/lib/systemd/systemd" // the first process if the disk has it
	diskLimit     = 5 * time.Minute        // it appears within a second on an idle host
)

// enterDisk is process 1 in the initramfs: it loads the modules, mounts the disk and continues there.
func enterDisk() error {
	if err := unix.Mount("devtmpfs", "/dev", "devtmpfs", 0, ""); err != nil && err != unix.EBUSY {
		return fmt.Errorf("mount /dev: %w", err)
	}
	order, err := os.ReadFile("/modules/order")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		if err := load("/modules/" + name); err != nil {
			return err
		}
	}
	for start := time.Now(); !exists(disk); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > diskLimit {
			return fmt.Errorf("no %s after %s", disk, diskLimit)
		}
	}
	if err := unix.Mount(disk, newRoot, "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount %s: %w", disk, err)
	}
	// As switch_root(8) does: the disk takes the place of the initramfs, which runc could not leave.
	if err := unix.Mount("/dev", newRoot+"/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move /dev: %w", err)
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if exists(systemd) {
		return unix.Exec(systemd, []string{systemd}, os.Environ())
	}
	return unix.Exec("/bin/guest", []string{"guest"}, os.Environ())
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

// mountAll mounts a node's file systems, with cgroup v2.
func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"tmpfs", "/run"},
		{"tmpfs", "/tmp"},
		{"devpts", "/dev/pts"},
		{"tmpfs", "/dev/shm"},
		{"mqueue", "/dev/mqueue"},
		{"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	// Volumes that kubelet mounts must reach the containers' mount namespaces.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	return nil
}
