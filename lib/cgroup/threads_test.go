package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The threads of descendants count too; those of another PID namespace, and text that is not a number, do not.
func TestRunnable(t *testing.T) {
	h, base := copyOfV2(t)
	for path, content := range map[string]string{
		base + "/a/cgroup.threads":       "1\n2\n0\nx\n99\n",
		base + "/a/b/c/cgroup.threads":   "3\n",
		base + "/a/b/cgroup.procs":       "4\n",
		h.root + "/proc/1/task/1/stat":   "1 (a b) R 0\n",
		h.root + "/proc/1/stat":          "1 (a b) S 0\n", // the process's own file is not read
		h.root + "/proc/2/stat":          "2 (a) R) S 0\n",
		h.root + "/proc/3/stat":          "3 (c) R 0\n",
		h.root + "/proc/4/stat":          "4 (c) R 0\n",
		base + "/other/cgroup.threads":   "1\n",
		base + "/a/b/c/memory.not-a-dir": "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(h, false)
	var w Walk
	if done, ok := r.Runnable("/a", &w, nil); w.Count != 3 || !done || !ok {
		t.Errorf("Runnable(/a) = %d, %v, %v; want 3", w.Count, done, ok)
	}
	if done, ok := r.Runnable("/gone", new(Walk), nil); done || ok {
		t.Errorf("Runnable(/gone) = %v, %v; want that it could not be read", done, ok)
	}
	if _, ok := r.Runnable("/../a", new(Walk), nil); ok {
		t.Error("Runnable accepts a path that leads out of the hierarchy")
	}

	var tids []uint64
	hidden, err := h.Threads("/a", nil, func(tid uint64) { tids = append(tids, tid) })
	if slices.Sort(tids); err != nil || hidden != 1 || !slices.Equal(tids, []uint64{1, 2, 3, 4, 99}) {
		t.Errorf("Threads(/a) = %v, %d hidden, %v; want 1 2 3 4 99 and the hidden one", tids, hidden, err)
	}
	if _, err := h.Threads("/gone", nil, func(uint64) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Threads(/gone): %v", err)
	}
	if _, err := h.Threads("/../a", nil, func(uint64) {}); !errors.Is(err, ErrPath) {
		t.Errorf("Threads accepts a path that leads out of the hierarchy: %v", err)
	}
}

// A walk that is stopped repeatedly, at any position, counts each thread once.
func TestRunnableResumes(t *testing.T) {
	h, base := copyOfV2(t)
	dirs := []string{"/a", "/a/b", "/a/b/c", "/a/b-", "/a/d", "/a/d/empty", "/a/d/empty/e"}
	want, tid := uint64(0), 0
	for i, dir := range dirs {
		list := ""
		for range 40 * (i % 3) { // some have none
			tid++
			state := "S"
			if tid%3 == 0 {
				state = "R"
				want++
			}
			list = fmt.Sprintf("%d\n", tid) + list // the kernel's order is arbitrary
			put(t, fmt.Sprintf("%s/proc/%d/task/%d/stat", h.root, tid, tid), fmt.Sprintf("%d (x) %s 0\n", tid, state))
		}
		put(t, base+dir+"/cgroup.threads", list)
	}
	r := NewReader(h, false)
	for limit := range 60 {
		walks := map[string]func(*Walk, HasTime) (bool, bool){
			"running": func(w *Walk, more HasTime) (bool, bool) { return r.Runnable("/a", w, more) },
			"all":     func(w *Walk, more HasTime) (bool, bool) { return r.walk("/a", w, more, nil) },
		}
		for name, walk := range walks {
			var w Walk
			rounds := 0
			for done := false; !done; rounds++ {
				taken := 0
				var ok bool
				if done, ok = walk(&w, func(steps int) bool { taken += steps; return taken <= limit }); !ok || rounds > 100 {
					t.Fatalf("%s, %d steps a round: ok %v after %d rounds, at %+v", name, limit, ok, rounds, w)
				}
			}
			if expected := map[string]uint64{"running": want, "all": uint64(tid)}[name]; w.Count != expected {
				t.Errorf("%s, %d steps a round: %d in %d rounds; want %d", name, limit, w.Count, rounds, expected)
			}
			if limit == 0 && rounds < 3 {
				t.Errorf("%s: done in %d rounds without any time", name, rounds)
			}
		}
	}
	if err := os.RemoveAll(base + "/a"); err != nil {
		t.Fatal(err)
	}
	w := Walk{Dir: "/b", TID: 50, Count: 7}
	if done, ok := r.Runnable("/a", &w, nil); done || ok || w != (Walk{}) {
		t.Errorf("a cgroup that was removed in the middle: %v, %v, %+v; want that it could not be read", done, ok, w)
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
