package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/tests/vm/qemu"
)

// running finds QEMU processes that were started with files in the lab's directory.
func running(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range found {
		data, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(data, []byte(qemu.Program)) && bytes.Contains(data, []byte(dir)) {
			out = append(out, path)
		}
	}
	return out
}

// A guest that hangs is killed, leaves no process, and its output until then is kept.
func TestWedgedGuest(t *testing.T) {
	need(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // it hangs as soon as it has logged that it starts to
		defer cancel()
		for ctx.Err() == nil && !hangs(lab.dir) {
			time.Sleep(100 * time.Millisecond)
		}
	}()
	r, err := lab.Run(ctx, qemu.Tiny, "wedged")
	if !errors.Is(err, context.Canceled) || r.Ended {
		t.Fatalf("Run = %v, ended %v; want it killed", err, r.Ended)
	}
	if !strings.Contains(r.String(), "all is well") || !strings.Contains(r.Console, "Linux version") {
		t.Errorf("the report lacks the guest's output:\n%s\n%s", r, r.Tail())
	}
	if left := running(t, lab.dir); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

func hangs(dir string) bool {
	found, _ := filepath.Glob(filepath.Join(dir, "wedged-*/results")) // the pattern is valid
	for _, path := range found {
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(`"hang"`)) {
			return true
		}
	}
	return false
}

// A guest whose kernel panics ends at once, and the console shows why.
func TestCrashingGuest(t *testing.T) {
	need(t)
	r, err := lab.Run(t.Context(), qemu.Tiny, "crashing")
	if err == nil || !strings.Contains(err.Error(), "went down") {
		t.Errorf("Run = %v, want one that went down", err)
	}
	if !strings.Contains(r.Console, "Kernel panic") {
		t.Errorf("the console does not contain the panic:\n%s", r.Tail())
	}
}
