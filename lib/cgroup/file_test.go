package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/cgroup"
	"polder/tests/need"
)

// Limits of memory are written through a file that was opened with O_NONBLOCK, on version 2: such an open of a FIFO without a reader fails
// at once; without the flag it waits for a reader.
func TestMemoryLimitsAreWrittenNonBlocking(t *testing.T) {
	for _, name := range []string{"memory.high", "memory.max"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			base := filepath.Join(root, "sys/fs/cgroup")
			if err := os.MkdirAll(filepath.Join(base, "a"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("memory\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(filepath.Join(base, "a", name), 0o644); err != nil {
				t.Fatal(err)
			}
			h, err := cgroup.Detect(root)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- h.WriteFile("memory", "/a", name, "1") }()
			select {
			case err = <-done:
			case <-time.After(time.Minute):
				t.Fatal("the write waits: the file was opened without O_NONBLOCK")
			}
			if !errors.Is(err, unix.ENXIO) {
				t.Errorf("write: %v; want %v", err, unix.ENXIO)
			}
		})
	}
}

// Every other file is written as the kernel does it by default.
func TestOtherFilesAreWrittenBlocking(t *testing.T) {
	for _, tt := range []struct {
		version int
		name    string
	}{
		{1, "memory.limit_in_bytes"},
		{1, "memory.high"}, // of kernels that have it there, too
		{2, "memory.low"},
		{2, "cpu.max"},
		{2, "memory.reclaim"},
	} {
		if got := cgroup.WriteFlags(tt.version, tt.name); got != 0 {
			t.Errorf("%s of version %d: flags %#o; want none", tt.name, tt.version, got)
		}
	}
}

// The kernel's own files take a value through a file that was opened with O_NONBLOCK, and report an invalid one.
func TestKernelTakesNonBlockingWrites(t *testing.T) {
	dir, err := os.MkdirTemp(need.Unified(t), fmt.Sprintf("polder-write-%d-", os.Getpid()))
	if err != nil {
		t.Skipf("needs a writable cgroup v2: %v", err)
	}
	defer os.Remove(dir)
	const name = "cgroup.max.descendants"
	if err := cgroup.WriteNonBlocking(dir, name, "7"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != "7\n" {
		t.Errorf("%s is %q, %v; want 7", name, data, err)
	}
	if err := cgroup.WriteNonBlocking(dir, name, "x"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("an invalid value: %v; want %v", err, unix.EINVAL)
	}
}
