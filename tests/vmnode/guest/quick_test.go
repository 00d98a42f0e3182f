package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"polder/tests/vmnode/wire"
)

// A quick script returns the shell's result, and other scripts are left to the shell.
func TestQuick(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "one\ntwo\n", "b": "two and\nthree", "empty": "", "line": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for script, isQuick := range map[string]bool{
		"cat DIR/a": true, "cat DIR/a DIR/b": true, "cat DIR/none": false, "cat DIR/a DIR/none": false, "cat DIR/a; echo more": false,
		"cat DIR/a DIR/none DIR/b 2>/dev/null || true": true, "cat DIR/none 2>/dev/null || true": true, "cat DIR/* 2>/dev/null || true": false, "cat": false,
		"tail -n 1 DIR/a": true, "tail -n 1 DIR/b": true, "tail -n 1 DIR/empty": true, "tail -n 1 DIR/line": true, "tail -n 2 DIR/a": false, "tail -n 1 DIR/none": false,
		"grep -c 'two' DIR/a || true": true, "grep -c 't' DIR/b || true": true, "grep -c 'none' DIR/a || true": true, "grep -c 'x' DIR/empty || true": true,
		"grep -c 't.o' DIR/a || true": false, "grep -c 'two' DIR/a": false, "grep -c 'two' DIR/none || true": false,
		"echo one": false,
	} {
		script = strings.ReplaceAll(script, "DIR", dir)
		got, ok := quick(script)
		if ok != isQuick {
			t.Errorf("%s: quick %t, want %t", script, ok, isQuick)
		}
		if !ok {
			continue
		}
		if want := shell(wire.Command{Script: script}); got.Status != want.Status || got.Stderr != want.Stderr ||
			strings.TrimSpace(string(got.Output)) != strings.TrimSpace(string(want.Output)) {
			t.Errorf("%s: %+v, the shell gives %+v", script, got, want)
		}
	}
}
