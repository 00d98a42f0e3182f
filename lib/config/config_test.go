package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/quantity"
)

// cpuSetting and holdSetting are settings that are read from a single value, as the tools' own are.
type (
	cpuSetting  struct{ MilliCPU }
	holdSetting struct{ Duration }
)

func (s *cpuSetting) UnmarshalYAML(n *Node) error  { return SetScalar(n, s.Set) }
func (s *holdSetting) UnmarshalYAML(n *Node) error { return SetScalar(n, s.Set) }

type example struct {
	CPU    *cpuSetting  `yaml:"cpu"`
	Memory *Bytes       `yaml:"memory"`
	Hold   *holdSetting `yaml:"hold"`
	List   []string     `yaml:"list"`
}

func TestDecode(t *testing.T) {
	var v example
	if err := Decode("x.yaml", []byte("# a comment\ncpu: 1.5\nmemory: 5Gi\nhold: 1m30s\n"), &v); err != nil {
		t.Fatal(err)
	}
	if v.CPU.MilliCPU != 1500 || *v.Memory != 5<<30 || time.Duration(v.Hold.Duration) != 90*time.Second {
		t.Errorf("decoded %v %v %v; want 1500, 5Gi and 90s", v.CPU, *v.Memory, time.Duration(v.Hold.Duration))
	}
	if err := Decode("x.yaml", []byte(`{"cpu": "250m"}`), &v); err != nil || v.CPU.MilliCPU != 250 {
		t.Errorf("JSON: %v, %v; want 250", v.CPU, err)
	}
	if err := Decode("x.yaml", nil, &v); err != nil {
		t.Errorf("nothing: %v; want no error", err)
	}
	for text, want := range map[string]string{
		"cpu: 1\ncpu: 2":            `x.yaml:2: mapping key "cpu" already defined at line 1`,
		"\n\nnonsense: 1":           "x.yaml:3: key nonsense is not known",
		"cpu: 1\nmemory: -5":        `x.yaml:2: "-5" is not an amount of memory`,
		"memory: 1e300":             `x.yaml:1: "1e300" is not an amount of memory`,
		"cpu: 0.0001":               `x.yaml:1: "0.0001" is not an amount of CPU`,
		"cpu: NaN":                  `"NaN" is not an amount of CPU`,
		"hold: -3s":                 `x.yaml:1: "-3s" is not a time span`,
		"hold: {a: 1}":              "x.yaml:1: want a single value",
		"- 1":                       "x.yaml:1: want keys with values, not a list",
		"5":                         "x.yaml:1: want keys with values, not `5`",
		"cpu: 1\nlist: 5":           "x.yaml:2: want a list, not `5`",
		"list: {a: 1}":              "x.yaml:1: want a list, not keys with values",
		"list: [a, [b]]":            "x.yaml:1: want a single value, not a list",
		"cpu: [":                    "x.yaml:1:",
		"cpu: 1\n---\ncpu: 2":       "x.yaml: more than one document",
		"a: &a [1]\nb: *missing":    "x.yaml:",
		"cpu: 1\n\tmemory: 5":       "x.yaml:2:",
		"nonsense: 1\nmore: 2\n":    "x.yaml:2: key more is not known",
		strings.Repeat("[", 20_000): "x.yaml:",
	} {
		if err := Decode("x.yaml", []byte(text), &example{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%.40q): %v; want %q", text, err, want)
		}
	}
}

func TestDecodeKeys(t *testing.T) {
	count, hold, list := 7, time.Minute, []string{"x"}
	into := map[string]any{
		"count": &count, "hold": &hold, "list": &list, "address": new(netip.Addr), "on": new(bool), "ratio": new(float64),
		"memory": new(quantity.Bytes),
	}
	if _, err := DecodeKeys("x.yaml", []byte("hold: 30s\nlist: [a, b]\n"), into); err != nil || count != 7 || hold != 30*time.Second || !slices.Equal(list, []string{"a", "b"}) {
		t.Errorf("decoded %v %v %v, %v; want 7, 30s and [a b]", count, hold, list, err)
	}
	for text, want := range map[string]string{
		"count: 1\ncount: 2":            `x.yaml:2: mapping key "count" already defined at line 1`,
		"\ncount: 1\nmore: 2\nother: 3": "x.yaml:3: key more is not known\nx.yaml:4: key other is not known",
		"hold: 1s\ncount: x":            "x.yaml:2: want a whole number, not `x`",
		"hold: 1s\ncount: 2.5":          "x.yaml:2: want a whole number, not `2.5`",
		"count: 1e-7":                   "x.yaml:1: want a whole number, not `1e-7`",
		"count: 1\nhold: [1s]":          "x.yaml:2: want a time span such as 30s or 5m, not a list",
		"on: 5":                         "x.yaml:1: want true or false, not `5`",
		"ratio: {a: 1}":                 "x.yaml:1: want a number, not keys with values",
		"memory: {a: 1}":                "x.yaml:1: want an amount of memory such as 2Gi, not keys with values",
		"- 1":                           "x.yaml:1: want keys with values, not a list",
		"count: 1\n---\ncount: 2":       "x.yaml: more than one document",
	} {
		if _, err := DecodeKeys("x.yaml", []byte(text), into); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("DecodeKeys(%.40q): %v; want %q", text, err, want)
		}
	}
	if _, err := DecodeKeys("x.yaml", []byte("count: 1e3"), into); err != nil || count != 1000 {
		t.Errorf("a whole number with an exponent: %d, %v; want 1000", count, err)
	}
	if _, err := DecodeKeys("x.yaml", nil, into); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat("# comment\n", maxBytes/10+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("a huge file: %v; want a refusal", err)
	}
	if _, err := Load(path + ".missing"); err == nil || !strings.Contains(err.Error(), "read configuration: open") {
		t.Errorf("no file: %v; want an error", err)
	}
}

func TestLines(t *testing.T) {
	data := []byte("# x\na: 1\n\nb:\n  - 2\n")
	for key, want := range map[string]int{"a": 2, "b": 4, "c": 0} {
		if got := Lines(data)[key]; got != want {
			t.Errorf("Lines()[%s] = %d; want %d", key, got, want)
		}
	}
}

func TestQuantitiesPrintAsTheyAreRead(t *testing.T) {
	for text, want := range map[string]string{"4": "4", "0.5": "500m", "1500m": "1500m", "0": "0", "2.01": "2010m", "16.1": "16100m"} {
		var m MilliCPU
		if err := m.Set(text); err != nil || m.String() != want {
			t.Errorf("MilliCPU %s = %s, %v; want %s", text, m, err, want)
		}
	}
}

// noReading is a first reading that succeeds.
func noReading() error { return nil }

// A change while the file is read for the first time is not missed, and the error of the first reading is returned.
func TestWatchFirstReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.yaml")
	read := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	write := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	changed, initial := make(chan string, 10), ""
	first := func() error {
		initial = read()
		write("two")
		return nil
	}
	if err := Watch(t.Context(), path, slog.New(slog.DiscardHandler), first, func() { changed <- read() }); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-changed:
		if initial != "one" || got != "two" {
			t.Errorf("first %q, then %q; want one and two", initial, got)
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("the change is not seen")
	}
	refused := errors.New("refused")
	for _, where := range []string{path, filepath.Join(filepath.Dir(path), "no", "x.yaml")} {
		if err := Watch(t.Context(), where, slog.Default(), func() error { return refused }, func() {}); !errors.Is(err, refused) {
			t.Errorf("%s: %v; want the error of the first reading", where, err)
		}
	}
}

// Every way of replacing a file is detected, and a touch without a change is ignored.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.yaml")
	// Not truncated first: the watch would see the empty file if the test is interrupted then. The texts are of the same length.
	write := func(p, text string) {
		t.Helper()
		f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(path, "one")
	changed := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := Watch(ctx, path, slog.New(slog.DiscardHandler), noReading, func() {
		data, _ := os.ReadFile(path)
		changed <- string(data)
	})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-changed:
			if got != want {
				t.Errorf("changed to %q; want %q", got, want)
			}
		case <-time.After(3 * time.Minute):
			t.Fatalf("the change to %q is not seen", want)
		}
	}
	write(path, "two")
	expect("two")
	write(path, "two") // the same content is no change
	write(filepath.Join(dir, "tmp"), "six")
	if err := os.Rename(filepath.Join(dir, "tmp"), path); err != nil {
		t.Fatal(err)
	}
	expect("six")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("")
	write(path, "ten")
	select { // or the new file was read before it was written
	case got := <-changed:
		if got == "" {
			expect("ten")
		} else if got != "ten" {
			t.Errorf("changed to %q; want %q", got, "ten")
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("a file that is there again is not seen")
	}
	if err := Watch(ctx, filepath.Join(dir, "no", "x.yaml"), slog.Default(), noReading, func() {}); err == nil {
		t.Error("Watch in no directory: want an error")
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"cpu: 1", "cpu: 1m\nmemory: 5Gi\nhold: 3s", "{}", "[", "a: &a\n  <<: *a", "cpu: !!float 1"} {
		f.Add([]byte(seed))
	}
	for _, seed := range objectSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzObjects(t, data)
		var v example
		if err := Decode("x.yaml", data, &v); err != nil {
			if !strings.HasPrefix(err.Error(), "x.yaml") {
				t.Fatalf("an error without the file's name: %v", err)
			}
			return
		}
		if v.CPU != nil && v.CPU.MilliCPU < 0 || v.Memory != nil && *v.Memory < 0 || v.Hold != nil && v.Hold.Duration < 0 {
			t.Fatalf("negative: %+v", v)
		}
	})
}

// A change is detected although other files of the directory change all the time.
func TestWatchBusyDirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.yaml")
	changed := make(chan struct{}, 10)
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Watch(t.Context(), path, slog.New(slog.DiscardHandler), noReading, func() { changed <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	busy := time.NewTicker(debounce / 4)
	defer busy.Stop()
	end := time.After(3 * time.Minute)
	if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		select {
		case <-changed:
			return
		case <-end:
			t.Fatal("the change is not seen")
		case <-busy.C:
			if err := os.WriteFile(filepath.Join(dir, "other"), []byte{byte(i)}, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// files are the steps of a test that changes files and directories.
type files struct{ *testing.T }

func (f files) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// put replaces a file, whose directory it makes, in one step.
func (f files) put(path, text string) {
	f.Helper()
	f.must(os.MkdirAll(filepath.Dir(path), 0o700))
	f.must(os.WriteFile(path+".new", []byte(text), 0o600))
	f.must(os.Rename(path+".new", path))
}

// followed is a file that is watched, and polled when the test says so.
type followed struct {
	*testing.T
	poll    chan time.Time
	changes chan string
}

func follow(t *testing.T, path string) followed {
	t.Helper()
	f := followed{t, make(chan time.Time), make(chan string, 100)}
	err := watch(t.Context(), path, slog.New(slog.DiscardHandler), noReading, func() {
		data, err := os.ReadFile(path)
		if err != nil {
			data = []byte("unreadable")
		}
		f.changes <- string(data)
	}, f.poll)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// await waits for a content; the file may have been read before, in the middle of a change.
func (f followed) await(want string) {
	f.Helper()
	limit := time.After(3 * time.Minute)
	for got := "nothing"; got != want; {
		select {
		case got = <-f.changes:
		case <-limit:
			f.Fatalf("changed to %q at last; want %q", got, want)
		}
	}
}

// awaitPolled polls once, after a change of which inotify does not report everything.
func (f followed) awaitPolled(want string) {
	f.Helper()
	f.poll <- time.Time{}
	f.await(want)
}

// A change behind a symlink to the file, in a directory that is not watched, is found by the next poll.
func TestWatchFollowsSymlinkToFile(t *testing.T) {
	dir := files{t}
	root := t.TempDir()
	path, target := filepath.Join(root, "link", "x.yaml"), filepath.Join(root, "target", "x.yaml")
	dir.put(target, "one")
	dir.must(os.Mkdir(filepath.Dir(path), 0o700))
	dir.must(os.Symlink(target, path))
	f := follow(t, path)
	dir.put(target, "two")
	f.awaitPolled("two")
	dir.must(os.WriteFile(target, []byte("six"), 0o600))
	f.awaitPolled("six")
}

// A directory that is another one than at the start is found by the next poll, and watched from then on.
func TestWatchFollowsDirectory(t *testing.T) {
	for name, replace := range map[string]func(dir files, name, second string){
		"a symlink is switched": func(dir files, name, second string) {
			dir.put(filepath.Join(second, "x.yaml"), "two")
			dir.must(os.Symlink(second, name+".new"))
			dir.must(os.Rename(name+".new", name))
		},
		"removed and made again": func(dir files, name, _ string) {
			dir.must(os.RemoveAll(name))
			dir.put(filepath.Join(name, "x.yaml"), "two")
		},
		"replaced by mv": func(dir files, name, second string) {
			dir.put(filepath.Join(second, "x.yaml"), "two")
			dir.must(os.Rename(name, name+".old"))
			dir.must(os.Rename(second, name))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files{t}
			root := t.TempDir()
			path := filepath.Join(root, "directory", "x.yaml")
			if name == "a symlink is switched" {
				dir.must(os.Mkdir(filepath.Join(root, "first"), 0o700))
				dir.must(os.Symlink("first", filepath.Dir(path)))
			}
			dir.put(path, "one")
			f := follow(t, path)
			replace(dir, filepath.Dir(path), filepath.Join(root, "second"))
			f.awaitPolled("two")
			dir.put(path, "six") // the poll may still be under way, and see this
			f.awaitPolled("six")
			dir.put(path, "ten")
			f.await("ten")
		})
	}
}

// A file that is removed and then created empty has changed twice.
func TestWatchDistinguishesEmptyAndMissing(t *testing.T) {
	dir := files{t}
	path := filepath.Join(t.TempDir(), "x.yaml")
	dir.put(path, "one")
	f := follow(t, path)
	dir.must(os.Remove(path))
	f.await("unreadable")
	dir.put(path, "")
	f.await("")
}

// A shell's --config <(…) is a pipe, whose text the first reading gets.
func TestWatchLeavesPipeToFirstReading(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := writer.WriteString("one"); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	path := fmt.Sprintf("/dev/fd/%d", reader.Fd())
	initial := ""
	first := func() error {
		data, err := os.ReadFile(path)
		initial = string(data)
		return err
	}
	if err := Watch(t.Context(), path, slog.New(slog.DiscardHandler), first, func() {}); err != nil {
		t.Fatal(err)
	}
	if initial != "one" {
		t.Errorf("the first reading gets %q; want what is in the pipe", initial)
	}
}
