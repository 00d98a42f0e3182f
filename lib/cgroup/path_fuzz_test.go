package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzPath makes a hierarchy of an arbitrary mountinfo and names an arbitrary cgroup in it: whatever is read or written
// stays beneath the root, whichever names the hierarchy accepts.
func FuzzPath(f *testing.F) {
	const mount = "36 25 0:32 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	for _, path := range []string{"/a", "/", "", "a", "/../outside", "/a/../../outside", "//a", "/a/", "/link", "/a\n", "/a\x00", "/./a", "/a/cpu.weight", "/\xff", strings.Repeat("/x", 3000)} {
		f.Add([]byte(mount), path)
	}
	f.Add([]byte("36 25 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n37 25 0:33 / /../../outside rw - cgroup cgroup rw,memory\n"), "/a")
	f.Add([]byte("36 25 0:32 / /sys\\040fs - cgroup2\n"), "/a")
	f.Add([]byte("\x00\n\n1 2 3"), "/a")
	f.Fuzz(func(t *testing.T, mountinfo []byte, path string) {
		dir := t.TempDir()
		root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
		base := filepath.Join(root, "sys/fs/cgroup")
		for _, d := range []string{filepath.Join(base, "a"), filepath.Join(base, "cpu/a"), outside, filepath.Join(outside, "a"), filepath.Join(root, "proc/self")} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(d, "cpu.weight"), []byte("100\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range map[string][]byte{
			filepath.Join(base, "cgroup.controllers"):      []byte("cpu memory\n"),
			filepath.Join(root, "proc/self/mountinfo"):     mountinfo,
			filepath.Join(outside, "cgroup.controllers"):   []byte("cpu memory\n"),
			filepath.Join(outside, "a/cgroup.controllers"): []byte("cpu memory\n"),
		} {
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(outside, filepath.Join(base, "link")); err != nil {
			t.Fatal(err)
		}
		h, err := Detect(root)
		if err != nil {
			return
		}
		for _, h := range []*Hierarchy{h, h.WithAnyNames()} {
			for _, controller := range []string{"", "cpu", "memory", "cpuset", "freezer", "io"} {
				d, _, err := h.Dir(controller, path)
				if err == nil && d != root && !strings.HasPrefix(d, root+"/") {
					t.Errorf("Dir(%q, %q) = %s; want it beneath the root", controller, path, d)
				}
				_, _ = h.ReadFile(controller, path, "cpu.weight")
				_ = h.WriteFile(controller, path, "cpu.weight", "7")
				_, _ = h.Exists(controller, path)
			}
		}
		for _, d := range []string{outside, filepath.Join(outside, "a")} {
			if data, err := os.ReadFile(filepath.Join(d, "cpu.weight")); err != nil || string(data) != "100\n" {
				t.Errorf("with cgroup %q and mounts %q, %s outside is %q, %v", path, mountinfo, d, data, err)
			}
		}
	})
}
