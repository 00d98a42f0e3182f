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
		if err == nil && bytes.HasPrefix(data, []byte(qemu)) && bytes.Contains(data, []byte(dir)) {
			out = append(out, path)
		}
	}
	return out
}

// A guest that hangs is killed at its time's end, leaves no process, and what it said until then is kept.
func TestWedgedGuest(t *testing.T) {
	need(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { // the limit need not be waited for: the guest hangs as soon as it says that it begins to
		defer cancel()
		for ctx.Err() == nil && !hangs(lab.dir) {
			time.Sleep(100 * time.Millisecond)
		}
	}()
	r, err := lab.Run(ctx, Small, "wedged")
	if !errors.Is(err, context.Canceled) || r.Ended {
		t.Fatalf("Run = %v, ended %v; want it killed", err, r.Ended)
	}
	if !strings.Contains(r.String(), "all is well") || !strings.Contains(r.Console, "Linux version") {
		t.Errorf("the report lacks what the guest said:\n%s\n%s", r, r.Tail())
	}
	if left := running(t, lab.dir); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
}

func hangs(dir string) bool {
	found, _ := filepath.Glob(filepath.Join(dir, "wedged-*/results")) // the pattern is good
	for _, path := range found {
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(`"hang"`)) {
			return true
		}
	}
	return false
}

// A guest whose kernel panics ends at once, and the console tells why.
func TestCrashingGuest(t *testing.T) {
	need(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := lab.Run(ctx, Small, "crashing")
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "went down") {
		t.Errorf("Run = %v, want one that went down", err)
	}
	if !strings.Contains(r.Console, "Kernel panic") {
		t.Errorf("the console does not tell of a panic:\n%s", r.Tail())
	}
}

func TestMADT(t *testing.T) {
	table := Guide.madt()
	var sum byte
	for _, b := range table {
		sum += b
	}
	if sum != 0 {
		t.Errorf("checksum is %d", sum)
	}
	// Entry 24 is the first core's second thread; entry 12 the second socket's first core.
	for entry, want := range map[int][2]byte{0: {0, 0}, 1: {2, 2}, 12: {24, 32}, 23: {46, 54}, 24: {1, 1}, 47: {47, 55}} {
		at := table[madtHeaderBytes+8*entry:]
		if got := [2]byte{at[2], at[3]}; got != want {
			t.Errorf("entry %d is processor %d with APIC %d, want %v", entry, got[0], got[1], want)
		}
	}
}

func TestArchive(t *testing.T) {
	a := newArchive()
	a.file("a/b/c", 0o755, []byte("12345"))
	a.file("a/b/d", 0o644, nil)
	a.link("init", "/a/b/c")
	data := a.end()
	if len(data)%4 != 0 || bytes.Count(data, []byte("070701")) != 6 || !bytes.HasPrefix(data[110:], []byte("a\x00")) {
		t.Errorf("the archive is %q", data)
	}
	if n := bytes.Count(data, []byte("a/b\x00")); n != 1 {
		t.Errorf("the directory a/b is there %d times", n)
	}
}
