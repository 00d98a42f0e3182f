package vmnode

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/tests/vm/qemu"
)

// A machine that cannot boot is an error that shows its kernel's output, boot does not retry it, and nothing is left of it.
func TestBootFails(t *testing.T) {
	need(t)
	dir := t.TempDir()
	m := qemu.Tiny
	m.Parameters = "rdinit=/no-such-program"
	archive, err := initramfs(m, "/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "initramfs"), archive, 0o644), os.WriteFile(disk, make([]byte, 1<<20), 0o644)); err != nil {
		t.Fatal(err)
	}
	o := Options{Machine: m, Log: t.Logf}
	n, err := o.bootAgain(t.Context(), dir, disk)
	if n != nil || err == nil || errors.Is(err, qemu.ErrNoBoot) {
		t.Fatalf("boot = %v, %v, want an error that is not %v", n, err, qemu.ErrNoBoot)
	}
	if !strings.Contains(err.Error(), "Kernel panic") {
		t.Errorf("the error does not contain the panic: %v", err)
	}
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if text, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(text), qemu.Program) && strings.Contains(string(text), dir) {
			t.Errorf("%s is left: %q", path, text)
		}
	}
}
