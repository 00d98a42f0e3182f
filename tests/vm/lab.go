// Package vm runs suites of tests in virtual machines of QEMU, on Debian's kernel with cgroup v2: the project's binaries
// and a test program (guest/) in an initramfs. scripts/setup-vm brings what is needed.
package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Tools are the project's binaries, which every guest has in /bin.
var Tools = []string{"collect", "advise", "isolate", "evict", "report"}

const (
	qemu    = "qemu-system-x86_64"
	busybox = "/bin/busybox"
)

// Lab is a place with all that guests are made of.
type Lab struct {
	kernel string
	dir    string // the lab's own files: binaries, initramfs, logs
	files  map[string][]byte
}

// ErrMissing is wrapped where a prerequisite is not there.
var ErrMissing = errors.New("run scripts/setup-vm")

// Missing says which prerequisite is not there.
func Missing() error {
	if _, err := exec.LookPath(qemu); err != nil {
		return fmt.Errorf("no virtual machine: %w: %w", err, ErrMissing)
	}
	if _, err := os.Stat(busybox); err != nil {
		return fmt.Errorf("no virtual machine: %w: %w", err, ErrMissing)
	}
	_, err := kernel()
	return err
}

// kernel finds the newest kernel in the cache.
func kernel() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	glob := filepath.Join(cache, "kernel/boot/vmlinuz-*")
	found, err := filepath.Glob(glob)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("no virtual machine: no kernel at %s: %w", glob, ErrMissing)
	}
	return slices.Max(found), nil
}

// cacheDir is where scripts/setup-vm leaves the kernel.
func cacheDir() (string, error) {
	base := os.Getenv("POLDER_CACHE")
	if base == "" {
		user, err := os.UserCacheDir() // $XDG_CACHE_HOME or ~/.cache
		if err != nil {
			return "", fmt.Errorf("find the cache: %w", err)
		}
		base = filepath.Join(user, "polder")
	}
	return filepath.Join(base, "vm"), nil
}

// Open builds the binaries for guests into dir, which is the caller's to remove.
func Open(ctx context.Context, dir string) (*Lab, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	l := &Lab{dir: dir, files: map[string][]byte{}}
	var err error
	if l.kernel, err = kernel(); err != nil {
		return nil, err
	}
	packages := []string{"polder/tests/vm/guest"}
	for _, tool := range Tools {
		packages = append(packages, "polder/"+tool)
	}
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", dir + "/"}, packages...)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the guest has no C library
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the binaries for guests: %w\n%s", err, out)
	}
	for _, name := range append([]string{"guest"}, Tools...) {
		if l.files["bin/"+name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	if l.files["bin/busybox"], err = os.ReadFile(busybox); err != nil {
		return nil, err
	}
	return l, nil
}

// initramfs is the whole of a guest's files.
func (l *Lab) initramfs(m Machine) []byte {
	a := newArchive()
	if m.GuideNumbering { // the kernel looks for it first, before it unpacks anything
		a.file(madtPath, 0o644, m.madt())
	}
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp"} {
		a.directories(dir)
	}
	for name, data := range l.files {
		a.file(name, 0o755, data)
	}
	a.link("init", "/bin/guest")
	a.link("bin/sh", "busybox")
	return a.end()
}
