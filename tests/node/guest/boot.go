package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"polder/tests/node/wire"
)

// boot moves into the node's cgroups and makes them the roots of a cgroup namespace: within, the node's pods are in /kubepods.
func boot(dir string, c wire.Config) error {
	hierarchies, err := wire.Hierarchies()
	if err != nil {
		return err
	}
	if err := wire.Join(hierarchies, c.Cgroup); err != nil {
		return err
	}
	// A thread's namespace is the process's once that thread has become another program.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	self := os.Args[0]
	return fmt.Errorf("restart %s: %w", self, syscall.Exec(self, []string{self, "serve", dir}, os.Environ()))
}

// sysctls are those that kubelet sets. Within the node they are files of its own: the machine keeps its values.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// view makes the node's view of the machine. All mounts are the node's alone, and end with it.
func view(dir string, c wire.Config) error {
	hierarchies, err := wire.Hierarchies() // of the current /proc: the machine's
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(c.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	// The machine's own files are hidden where the node's programs write.
	for _, path := range []string{"/run", "/var/lib", "/var/log", "/sys/fs/cgroup"} {
		if err := mount("node", path, "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
	}
	for _, path := range []string{"/var/lib/kubelet", "/var/lib/containerd", "/run/lock"} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	for _, h := range hierarchies {
		if err := os.MkdirAll(h.Mount, 0o755); err != nil {
			return err
		}
		if err := mount("cgroup", h.Mount, h.Type, 0, h.Options); err != nil {
			return err
		}
	}
	for name, value := range sysctls {
		from, to := filepath.Join(dir, strings.ReplaceAll(name, "/", ".")), filepath.Join("/proc/sys", name)
		if err := os.WriteFile(from, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(from, to, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// kubelet and runc need propagation of mounts, among their own.
	return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s (%s %s) on %s: %w", source, kind, data, target, err)
	}
	return nil
}
