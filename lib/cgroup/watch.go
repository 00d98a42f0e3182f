package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Watcher records which cgroups are created and removed in the directories that it watches, with inotify.
type Watcher struct {
	base    string
	w       *fsnotify.Watcher
	done    chan struct{}
	created chan<- struct{}

	mu               sync.Mutex
	removed, parents map[string]struct{}
	lost             bool
	err              error
}

// Changes are the events since the last call of Take.
type Changes struct {
	// Removed are cgroups that were removed; a new one of the same name may exist.
	Removed []string
	// Parents are cgroups with new or removed children. The order of both lists is random, and no cgroup is in one twice.
	Parents []string
	// Lost means that events were lost: everything must be listed again.
	Lost bool
	// Err is the last error of watching.
	Err error
}

// Watch returns a Watcher of the primary hierarchy that watches nothing yet. created receives a value, if it has room for one, after a
// creation was recorded; it may be nil.
func (h *Hierarchy) Watch(created chan<- struct{}) (*Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch cgroups: %w (fs.inotify.max_user_instances may be too low)", err)
	}
	watcher := newWatcher(h.Primary())
	watcher.w, watcher.created = w, created
	go watcher.run()
	return watcher, nil
}

func newWatcher(base string) *Watcher {
	return &Watcher{base: base, done: make(chan struct{}), removed: map[string]struct{}{}, parents: map[string]struct{}{}}
}

// Add watches a cgroup's directory. It must be called before the directory is listed.
func (w *Watcher) Add(cgroup string) error {
	if err := CheckPath(cgroup); err != nil {
		return err
	}
	if err := w.w.Add(filepath.Join(w.base, cgroup)); err != nil {
		return fmt.Errorf("watch cgroup %s: %w", cgroup, err)
	}
	return nil
}

// Remove ends the watch of a directory; a removed directory is no error.
func (w *Watcher) Remove(cgroup string) { _ = w.w.Remove(filepath.Join(w.base, cgroup)) }

// Take returns the changes since the last call.
func (w *Watcher) Take() Changes {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := Changes{Removed: slices.Collect(maps.Keys(w.removed)), Parents: slices.Collect(maps.Keys(w.parents)), Lost: w.lost, Err: w.err}
	clear(w.removed)
	clear(w.parents)
	w.lost, w.err = false, nil
	return c
}

// HasChange reports whether there is a change that the next call of Take returns in a parent for which the condition holds.
func (w *Watcher) HasChange(in func(parent string) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for parent := range w.parents {
		if in(parent) {
			return true
		}
	}
	return w.lost
}

// maxChanges bounds the changed cgroups between two calls of Take: beyond it, listing everything is cheaper.
const maxChanges = 4096

func (w *Watcher) run() {
	defer close(w.done)
	for {
		select {
		case event, ok := <-w.w.Events:
			if !ok {
				return
			}
			w.record(event)
			if event.Has(fsnotify.Create) {
				select {
				case w.created <- struct{}{}:
				default:
				}
			}
		case err, ok := <-w.w.Errors:
			if !ok {
				return
			}
			w.mu.Lock()
			w.lost = true
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.err = err
			}
			w.mu.Unlock()
		}
	}
}

func (w *Watcher) record(event fsnotify.Event) {
	created := event.Has(fsnotify.Create)
	removed := event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
	if !created && !removed {
		return // a write to a file in the directory
	}
	cgroup, ok := strings.CutPrefix(event.Name, w.base)
	if !ok || cgroup == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.removed)+len(w.parents) >= maxChanges {
		w.lost = true
		return
	}
	if removed {
		w.removed[cgroup] = struct{}{}
	}
	w.parents[filepath.Dir(cgroup)] = struct{}{}
}

// Close ends the watches.
func (w *Watcher) Close() error {
	err := w.w.Close()
	<-w.done
	return err
}
