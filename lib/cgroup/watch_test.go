package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"polder/tests/await"
)

// copyOfV2 writes a root with an empty v2 hierarchy.
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
	w, err := h.Watch(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add("/"); err != nil {
		t.Fatal(err)
	}
	if err := w.Add("/missing"); !IsGone(err) {
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
	await.Until(t, time.Minute, "the removal is reported", await.Is(func() bool {
		c := w.Take()
		removed, parents = append(removed, c.Removed...), append(parents, c.Parents...)
		return len(removed) > 0
	}))
	if !slices.Equal(removed, []string{"/a"}) || !slices.Contains(parents, "/") {
		t.Errorf("removed %q, parents %q; want /a and /", removed, parents)
	}
}

func TestWatcherDropsExcessChanges(t *testing.T) {
	w := newWatcher("/cg")
	for i := range maxChanges {
		w.record(fsnotify.Event{Name: fmt.Sprintf("/cg/a/%d", i), Op: fsnotify.Create})
	}
	if c := w.Take(); c.Lost || !slices.Equal(c.Parents, []string{"/a"}) {
		t.Errorf("lost = %v, changes %q; want the one parent of many children once", c.Lost, c.Parents)
	}
	for i := range maxChanges + 1 {
		w.record(fsnotify.Event{Name: fmt.Sprintf("/cg/%d/a", i), Op: fsnotify.Create})
	}
	if c := w.Take(); !c.Lost || len(c.Parents) != maxChanges {
		t.Errorf("lost = %v with %d changes; want true, %d", c.Lost, len(c.Parents), maxChanges)
	}
	if c := w.Take(); c.Lost || len(c.Parents) != 0 {
		t.Errorf("a second Take has %+v; want nothing", c)
	}
	w.record(fsnotify.Event{Name: "/elsewhere/a", Op: fsnotify.Create})
	w.record(fsnotify.Event{Name: "/cg/a", Op: fsnotify.Write})
	if c := w.Take(); len(c.Parents) != 0 {
		t.Errorf("changes %q after events that do not matter", c.Parents)
	}
}
