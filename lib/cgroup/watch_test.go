package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// copyOfV2 makes a root with an empty v2 hierarchy.
func copyOfV2(t *testing.T) (*Hierarchy, string) {
	t.Helper()
	root := t.TempDir()
	base := filepath.Join(root, "sys/fs/cgroup")
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("cpu memory\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	return h, base
}

func TestWatcher(t *testing.T) {
	h, base := copyOfV2(t)
	w, err := h.Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add("/"); err != nil {
		t.Fatal(err)
	}
	if err := w.Add("/missing"); !Gone(err) {
		t.Errorf("Add of a missing cgroup = %v; want that it is gone", err)
	}
	dir := filepath.Join(base, "a")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	var removed, parents []string
	for deadline := time.Now().Add(5 * time.Second); len(removed) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		c := w.Take()
		removed, parents = append(removed, c.Removed...), append(parents, c.Parents...)
	}
	if !slices.Equal(removed, []string{"/a"}) || !slices.Contains(parents, "/") {
		t.Errorf("removed %q, parents %q; want /a and /", removed, parents)
	}
}

func TestWatcherForgetsWhatIsTooMuch(t *testing.T) {
	w := &Watcher{base: "/cg"}
	for i := range maxChanges + 1 {
		w.note(fsnotify.Event{Name: fmt.Sprintf("/cg/a/%d", i), Op: fsnotify.Create})
	}
	if c := w.Take(); !c.Lost || len(c.Parents) != maxChanges {
		t.Errorf("lost = %v with %d changes; want true, %d", c.Lost, len(c.Parents), maxChanges)
	}
	if c := w.Take(); c.Lost || len(c.Parents) != 0 {
		t.Errorf("a second Take has %+v; want nothing", c)
	}
	w.note(fsnotify.Event{Name: "/elsewhere/a", Op: fsnotify.Create})
	w.note(fsnotify.Event{Name: "/cg/a", Op: fsnotify.Write})
	if c := w.Take(); len(c.Parents) != 0 {
		t.Errorf("changes %q of what does not matter", c.Parents)
	}
}

// The threads of the cgroups below count too; those of another pid namespace, and what is no number, do not.
func TestRunnable(t *testing.T) {
	h, base := copyOfV2(t)
	for path, content := range map[string]string{
		base + "/a/cgroup.threads":       "1\n2\n0\nx\n99\n",
		base + "/a/b/c/cgroup.threads":   "3\n",
		base + "/a/b/cgroup.procs":       "4\n",
		h.root + "/proc/1/stat":          "1 (a b) R 0\n",
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
	if n, ok := r.Runnable("/a"); n != 3 || !ok {
		t.Errorf("Runnable(/a) = %d, %v; want 3", n, ok)
	}
	if n, ok := r.Runnable("/gone"); ok {
		t.Errorf("Runnable(/gone) = %d; want that it could not be read", n)
	}
	if _, ok := r.Runnable("/../a"); ok {
		t.Error("Runnable takes a path that leads elsewhere")
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
		t.Errorf("Threads takes a path that leads elsewhere: %v", err)
	}
}

// BenchmarkRunnable measures the walk over all threads of the machine.
func BenchmarkRunnable(b *testing.B) {
	h, err := Detect("/")
	if err != nil {
		b.Skip(err)
	}
	r := NewReader(h, false)
	threads := 0
	h.eachThread("/", r.buf, func([]byte) { threads++ })
	for b.Loop() {
		r.Runnable("/")
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(threads), "us/thread")
	b.ReportMetric(float64(threads), "threads")
}
