package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Watcher notes which cgroups come and go in the directories that it watches. inotify tells of cgroups that programs
// make and remove, which is how all of them come and go.
type Watcher struct {
	base string
	w    *fsnotify.Watcher
	done chan struct{}

	mu      sync.Mutex
	changes Changes
}

// Changes is what happened since the last time.
type Changes struct {
	// Removed are cgroups that were removed; a new one of the same name may be there.
	Removed []string
	// Parents are cgroups with new or removed children; one may be named more than once.
	Parents []string
	// Lost says that events were lost: all must be looked at again.
	Lost bool
	// Err is the last error of watching.
	Err error
}

// Watch returns a Watcher of the primary hierarchy that watches nothing yet.
func (h *Hierarchy) Watch() (*Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch cgroups: %w (fs.inotify.max_user_instances may be too low)", err)
	}
	watcher := &Watcher{base: h.Primary(), w: w, done: make(chan struct{})}
	go watcher.run()
	return watcher, nil
}

// Add watches a cgroup's directory. It is to be called before the directory is listed.
func (w *Watcher) Add(cgroup string) error {
	if err := CheckPath(cgroup); err != nil {
		return err
	}
	if err := w.w.Add(filepath.Join(w.base, cgroup)); err != nil {
		return fmt.Errorf("watch cgroup %s: %w", cgroup, err)
	}
	return nil
}

// Remove ends the watch of a directory; one that is gone is no error.
func (w *Watcher) Remove(cgroup string) { _ = w.w.Remove(filepath.Join(w.base, cgroup)) }

// Take returns what happened since the last call.
func (w *Watcher) Take() Changes {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.changes
	w.changes = Changes{}
	return c
}

// maxChanges bounds what is remembered between two calls of Take: past it, looking at everything is cheaper.
const maxChanges = 4096

func (w *Watcher) run() {
	defer close(w.done)
	for {
		select {
		case event, ok := <-w.w.Events:
			if !ok {
				return
			}
			w.note(event)
		case err, ok := <-w.w.Errors:
			if !ok {
				return
			}
			w.mu.Lock()
			w.changes.Lost = true
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.changes.Err = err
			}
			w.mu.Unlock()
		}
	}
}

func (w *Watcher) note(event fsnotify.Event) {
	came := event.Has(fsnotify.Create)
	went := event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
	if !came && !went {
		return // a write to a file in the directory
	}
	cgroup, ok := strings.CutPrefix(event.Name, w.base)
	if !ok || cgroup == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &w.changes
	if len(c.Removed)+len(c.Parents) >= maxChanges {
		c.Lost = true
		return
	}
	if went {
		c.Removed = append(c.Removed, cgroup)
	}
	c.Parents = append(c.Parents, filepath.Dir(cgroup))
}

// Close ends the watching.
func (w *Watcher) Close() error {
	err := w.w.Close()
	<-w.done
	return err
}
