// Package config reads the tools' own configuration files: strict YAML, with the line in every error, read again
// when they change.
package config

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"math"
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

// wrongKind matches the library's error about a value of another kind than the file needs there, which contains the name of a Go type.
var wrongKind = regexp.MustCompile("^(.*)cannot unmarshal !!(\\S+)(?: (`.*`))? into (\\S+)$")

func withLine(path, text string) error {
	text = unknownField.ReplaceAllString(text, "${1}key $2 is not known")
	if m := wrongKind.FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("%swant %s, not %s", m[1], wantedKind(m[4]), cmp.Or(m[3], kinds[m[2]], m[2]))
	}
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, what, ok := strings.Cut(rest, ": "); ok {
			return fmt.Errorf("%s:%s: %s", path, number, what)
		}
	}
	return fmt.Errorf("%s: %s", path, text)
}

// kinds describe the YAML tags of values that the library's errors do not quote.
var kinds = map[string]string{"seq": "a list", "map": "keys with values"}

// wantedKind describes what a file must contain for a value of a Go type.
func wantedKind(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "bool":
		return "true or false"
	case goType == "time.Duration":
		return "a time span such as 30s or 5m"
	case goType == "quantity.Bytes":
		return "an amount of memory such as 2Gi"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case goType == "string":
		return "a single value"
	}
	return "keys with values" // maps and structs
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
		} else if err := checkWhole(&value, pointer); err != nil {
			errs = append(errs, withPath(path, err))
		} else if err := value.Decode(pointer); errors.As(err, new(*yaml.TypeError)) {
			errs = append(errs, withPath(path, err))
		} else if err != nil { // from the type itself, which does not know its line
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", path, lines[key], key, err))
		}
	}
	return lines, errors.Join(errs...)
}

// checkWhole rejects a fraction where a whole number belongs. The library would truncate it: a limit of half a pod would be none at all.
func checkWhole(value *yaml.Node, pointer any) error {
	if _, isWhole := pointer.(*int); !isWhole || value.ShortTag() != "!!float" {
		return nil
	}
	var number float64
	if value.Decode(&number) != nil || number == math.Trunc(number) {
		return nil // the library's own error says what is wrong, if anything is
	}
	text := value.Value
	if value.Alias != nil {
		text = value.Alias.Value
	}
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: cannot unmarshal !!float `%s` into int", value.Line, text)}}
}

// Lines returns the line numbers of the top-level keys, from 1, for errors about their values.
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

// pollInterval is how often the file is read through its name. inotify watches a directory and not its name, so it reports nothing when
// the file is a symlink whose target is edited elsewhere, or when the directory is replaced. Somebody who has changed a file can wait for
// 10 seconds, and a reading that rare costs next to nothing.
const pollInterval = 10 * time.Second

// Watch calls first, which reads the file for the first time, and returns its error. Then it calls changed, from its own goroutine, each
// time the file's content may have changed, until ctx ends: also if that was while first read it. It watches the file's directory, so that
// it detects a rename over the file and a ConfigMap's symlink swap at once, and polls the file for all other changes.
func Watch(ctx context.Context, path string, log *slog.Logger, first func() error, changed func()) error {
	poll := time.NewTicker(pollInterval)
	context.AfterFunc(ctx, poll.Stop)
	return watch(ctx, path, log, first, changed, poll.C)
}

// watch is [Watch], which polls the file at each value of poll.
func watch(ctx context.Context, path string, log *slog.Logger, first func() error, changed func(), poll <-chan time.Time) error {
	directory, watchErr := watchDirectory(path)
	last := contentOf(path)
	if err := cmp.Or(first(), watchErr); err != nil { // in a directory that does not exist the error of first explains more
		if directory != nil {
			directory.Close()
		}
		return err
	}
	f := follower{path: path, log: log, changed: changed, directory: directory, last: last}
	go f.run(ctx, poll)
	return nil
}

// directory is the watched one of a file.
type directory struct {
	*fsnotify.Watcher
	info os.FileInfo
}

func watchDirectory(path string) (*directory, error) {
	name := filepath.Dir(path)
	info, err := os.Stat(name) // before it is watched: if it is replaced in between, it differs from the watched one, and is watched again
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	if err := w.Add(name); err != nil {
		w.Close()
		return nil, fmt.Errorf("watch %s: %w", path, err)
	}
	return &directory{w, info}, nil
}

// isReplaced reports whether another directory has the name now. One that is removed and made again may get the same inode, but the
// removal ends the watch.
func (d *directory) isReplaced(path string) bool {
	info, err := os.Stat(filepath.Dir(path))
	return err == nil && (!os.SameFile(info, d.info) || len(d.WatchList()) == 0)
}

// content is what a file's content is compared by: a hash, because a file of pods has up to hundreds of megabytes. A file that cannot be
// read differs from an empty one. A pipe (--config <(…)) is never read for this, because its text would be missing where it is needed.
type content struct {
	isReadable bool
	bytes      int64
	hash       uint64
}

var seed = maphash.MakeSeed()

func contentOf(path string) content {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return content{}
	}
	f, err := os.Open(path)
	if err != nil {
		return content{}
	}
	defer f.Close()
	var h maphash.Hash
	h.SetSeed(seed)
	n, err := io.Copy(&h, f)
	if err != nil {
		return content{}
	}
	return content{isReadable: true, bytes: n, hash: h.Sum64()}
}

// follower calls changed when a file's content is another than the last.
type follower struct {
	path      string
	log       *slog.Logger
	changed   func()
	directory *directory
	last      content
	watchErr  string // why the directory that has the name now is not watched
}

func (f *follower) run(ctx context.Context, poll <-chan time.Time) {
	defer func() { f.directory.Close() }() // the one that is watched then
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
		case <-f.directory.Events: // any event of the directory: a symlink's target changes under another name
			postpone()
		case err := <-f.directory.Errors:
			f.log.Warn("watch configuration", "path", f.path, "error", err)
			postpone()
		case <-poll:
			f.watchAgain() // before the file is read, so that no later change is missed
			if contentOf(f.path) != f.last {
				postpone() // it may be half written
			}
		case <-timer.C:
			firstPending = time.Time{}
			now := contentOf(f.path)
			if now == f.last {
				continue
			}
			f.last = now
			f.changed()
		}
	}
}

// watchAgain watches the directory that has the name now, if it is another one. While that is not possible the file is only polled.
func (f *follower) watchAgain() {
	if !f.directory.isReplaced(f.path) {
		return
	}
	next, err := watchDirectory(f.path)
	if err != nil {
		if text := err.Error(); text != f.watchErr {
			f.watchErr = text
			f.log.Warn("watch configuration", "path", f.path, "error", err)
		}
		return
	}
	f.directory.Close()
	f.directory, f.watchErr = next, ""
}
