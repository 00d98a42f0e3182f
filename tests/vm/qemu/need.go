// Package qemu has the parts of QEMU virtual machines: the machine and the numbers of its CPUs, Debian's kernel, an
// initramfs, a process that leaves nothing behind. scripts/setup-vm installs the prerequisites.
package qemu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

const (
	// Program is QEMU.
	Program = "qemu-system-x86_64"
	// Busybox is the statically linked one: a guest has no C library.
	Busybox = "/bin/busybox"
)

// ErrMissing is wrapped if a prerequisite is missing.
var ErrMissing = errors.New("run scripts/setup-vm")

// Missing returns an error that names the missing prerequisite.
func Missing() error {
	if _, err := exec.LookPath(Program); err != nil {
		return fmt.Errorf("no virtual machine: %w: %w", err, ErrMissing)
	}
	if _, err := os.Stat(Busybox); err != nil {
		return fmt.Errorf("no virtual machine: %w: %w", err, ErrMissing)
	}
	_, err := Kernel()
	return err
}

// Variable asks for virtual machines if it is 1: they take minutes.
const Variable = "POLDER_VM"

// Need skips a test if virtual machines were not asked for. If they were, a missing prerequisite is a failure.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(Variable) != "1" {
		t.Skip("no virtual machine: run `make test-vm` or `make test-vmnode`, or set " + Variable + "=1")
	}
	if err := Missing(); err != nil {
		t.Fatal(err)
	}
}

// Kernel finds the newest kernel in the cache.
func Kernel() (string, error) {
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

// Root is the archive of a Debian with systemd.
func Root() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "root.tar")
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("no root file system: %w: run scripts/setup-vm-root", err)
	}
	return file, nil
}

// Modules are the kernel modules that a guest with a disk and a network loads, in this order; see scripts/setup-vm.
var Modules = []string{"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk", "failover", "net_failover", "virtio_net", "overlay"}

// TestModules are those that single tests of a guest load.
var TestModules = []string{"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk", "zsmalloc", "lzo", "lzo-rle", "zram", "configfs", "null_blk"}

// ModuleFile is a module's path in the cache.
func ModuleFile(name string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "kernel/modules", name+".ko")
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("no kernel module: %w: %w", err, ErrMissing)
	}
	return file, nil
}
