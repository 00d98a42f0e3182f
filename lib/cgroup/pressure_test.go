package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenPressure(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"cgroup.controllers": "cpu memory", "a/memory.pressure": "some avg10=1.50 avg60=0.00 avg300=0.00 total=3\n", "b/memory.current": "1",
	} {
		path = filepath.Join(root, "sys/fs/cgroup", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := h.OpenPressure("memory", "/a")
	if err != nil || f == nil {
		t.Fatalf("OpenPressure(memory, /a) = %v, %v", f, err)
	}
	defer f.Close()
	data, err := f.Read(make([]byte, 256))
	if err != nil || !strings.HasPrefix(string(data), "some avg10=1.50 ") {
		t.Errorf("read %q, %v", data, err)
	}
	for _, none := range []string{"/b", "/gone"} {
		if f, err := h.OpenPressure("memory", none); f != nil || err != nil {
			t.Errorf("OpenPressure(memory, %s) = %v, %v; want nothing", none, f, err)
		}
	}
	if !IsPressureMissing(unix.ENODEV) || !IsPressureMissing(unix.EOPNOTSUPP) || IsPressureMissing(errors.New("x")) {
		t.Error("NoPressure is wrong about an error")
	}
}
