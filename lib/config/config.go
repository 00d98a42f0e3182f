// Package config reads the tools' own configuration files: strict YAML, with the line in every error, read again
// when they change.
package config

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.yaml.in/yaml/v3"

	"polder/lib/choice"
)

// maxBytes bounds a configuration file; a larger one is an error.
const maxBytes = 4 << 20

// Decode reads YAML (or JSON, which is YAML) into v. Unknown and duplicate keys are errors; every error contains
// path and line. An empty document does not change v.
func Decode(path string, data []byte, v any) error {
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return withPath(path, err)
	}
	var more yaml.Node
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: more than one document", path)
	}
	return nil
}

// withPath converts the library's "yaml: line 3: …" to "PATH:3: …".
func withPath(path string, err error) error {
	if typed, ok := errors.AsType[*yaml.TypeError](err); ok {
		lines := make([]error, len(typed.Errors))
		for i, text := range typed.Errors {
			lines[i] = withLine(path, text)
		}
		return errors.Join(lines...)
	}
	return withLine(path, strings.TrimPrefix(err.Error(), "yaml: "))
}

// unknownField matches the library's error about an unknown key, which contains the name of a Go type.
var unknownField = regexp.MustCompile(`^(.*)field (\S+) not found in type \S+$`)

func withLine(path, text string) error {
	text = unknownField.ReplaceAllString(text, "${1}key $2 is not known")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, what, ok := strings.Cut(rest, ": "); ok {
			return fmt.Errorf("%s:%s: %s", path, number, what)
		}
	}
	return fmt.Errorf("%s: %s", path, text)
}

// DecodeKeys reads YAML whose keys are those of into, each into its pointer, and returns their lines. Values that are missing in the
// file, or null, do not change. The errors are like those of [Decode].
func DecodeKeys(path string, data []byte, into map[string]any) (map[string]int, error) {
	values, lines := map[string]yaml.Node{}, Lines(data)
	if err := Decode(path, data, &values); err != nil {
		return nil, err
	}
	var errs []error
	for _, key := range slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Compare(lines[a], lines[b]) }) {
		pointer, value := into[key], values[key]
		if pointer == nil {
			known := slices.Sorted(maps.Keys(into))
			errs = append(errs, fmt.Errorf("%s:%d: key %s is not known%s", path, lines[key], key, choice.Suggestion(key, known)))
		} else if value.ShortTag() == "!!null" {
			delete(lines, key)
		} else if err := value.Decode(pointer); errors.As(err, new(*yaml.TypeError)) {
			errs = append(errs, withPath(path, err))
		} else if err != nil { // from the type itself, which does not know its line
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", path, lines[key], key, err))
		}
	}
	return lines, errors.Join(errs...)
}

// Read reads a configuration file into v; see [Decode].
func Read(path string, v any) error {
	data, err := Load(path)
	if err != nil {
		return err
	}
	return Decode(path, data, v)
}

// Lines returns those of the top-level keys, for errors about their values.
func Lines(data []byte) map[string]int {
	lines := map[string]int{}
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return lines
	}
	m := doc.Content[0]
	for i := 0; i+1 < len(m.Content); i += 2 {
		lines[m.Content[i].Value] = m.Content[i].Line
	}
	return lines
}

// debounce is how long a file must not change before it is read again: editors and ConfigMap updates write several times.
const debounce = 100 * time.Millisecond

// maxDebounce bounds that wait if the directory keeps changing.
const maxDebounce = 20 * debounce

// Watch calls first, which reads the file for the first time, and returns its error. Then it calls changed, from its own goroutine, each
// time the file's content may have changed, until ctx ends: also if that was while first read it. It watches the file's directory, so that
// it detects a rename over the file and a ConfigMap's symlink swap.
func Watch(ctx context.Context, path string, log *slog.Logger, first func() error, changed func()) error {
	w, watchErr := newWatcher(path)
	data, _ := os.ReadFile(path)
	if err := cmp.Or(first(), watchErr); err != nil { // in a directory that does not exist the error of first explains more
		if w != nil {
			w.Close()
		}
		return err
	}
	go watch(ctx, w, path, data, log, changed)
	return nil
}

func newWatcher(path string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	if err := w.Add(filepath.Dir(path)); err != nil {
		w.Close()
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	return w, nil
}

func watch(ctx context.Context, w *fsnotify.Watcher, path string, lastData []byte, log *slog.Logger, changed func()) {
	defer w.Close()
	timer := time.NewTimer(debounce)
	timer.Stop()
	var firstPending time.Time // of the first event that was not handled
	postpone := func() {
		if firstPending.IsZero() {
			firstPending = time.Now()
		}
		if time.Since(firstPending) < maxDebounce { // a busy directory never stops changing
			timer.Reset(debounce)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.Events: // any event of the directory: a symlink's target changes under another name
			if !ok {
				return
			}
			postpone()
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			log.Warn("watch configuration", "path", path, "error", err)
			postpone()
		case <-timer.C:
			firstPending = time.Time{}
			now, err := os.ReadFile(path)
			if err == nil && bytes.Equal(now, lastData) {
				continue
			}
			lastData = now
			changed()
		}
	}
}
