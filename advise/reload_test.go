package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/tests/await"
)

// waitLimit is the tests' timeout: they check the result, not the speed of a busy machine.
const waitLimit = 3 * time.Minute

// The configuration file is read again when it changes, also by the symlink swap of a ConfigMap; an invalid one is rejected with its line,
// and the old one stays in force.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	write := func(version, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "advise.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		next := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(version, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	write("..one", "reserve-cpu: 8\n")
	path := filepath.Join(dir, "advise.yaml")
	if err := os.Symlink(filepath.Join("..data", "advise.yaml"), path); err != nil {
		t.Fatal(err)
	}

	in, input := io.Pipe()
	output, out := io.Pipe()
	log := &await.Log{}
	done := make(chan int)
	go func() {
		done <- command().Execute(t.Context(), stage.Env{Args: []string{"advise", "--config", path, "--floor-cpu", "2"}, In: in, Out: out, Err: log, Getenv: os.Getenv, Now: time.Now})
		out.Close()
	}()
	lines := bufio.NewScanner(output)
	second := 0
	reclaimed := func() int64 {
		t.Helper()
		second += 3600 // past every hold-down
		at := time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC).Format(time.RFC3339)
		fmt.Fprintf(input, `{"v":1,"node":"n","time":%q,"sample":{"intervalSeconds":1,"topology":{"cpus":"0-47"}}}`+"\n", at)
		if !lines.Scan() {
			t.Fatalf("no tick: %v", lines.Err())
		}
		l, err := tick.ParseLine(lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := l.Decode(tick.SectionAdvice)
		if err != nil {
			t.Fatal(err)
		}
		return *decoded.Advice.Reclaimed.MilliCPU
	}
	expect := func(what string, want int64) {
		t.Helper()
		if got := reclaimed(); got != want {
			t.Errorf("%s: reclaimed = %d; want %d", what, got, want)
		}
	}
	expect("first file", 40000)
	write("..two", "reserve-cpu: 20\n")
	log.Await(t, waitLimit, "configuration read again", 1)
	expect("second file", 28000)
	write("..three", "hold: 1s\nreserve-cpu: many\n")
	log.Await(t, waitLimit, "advise.yaml:2:", 1)
	expect("a bad file", 28000)
	write("..four", "reserve-cpu: 30\n")
	log.Await(t, waitLimit, "configuration read again", 2)
	expect("fourth file", 18000)
	input.Close()
	if got := <-done; got != 0 {
		t.Errorf("exit status %d: %s", got, log)
	}
}

// Any configuration file is either rejected with its name or gives valid settings.
func FuzzSettings(f *testing.F) {
	for _, seed := range []string{"", "policy: katalyst\nreserve-cpu: 2\n", "hold: 1m\npool-min-cpus: 9\nreserved-cpus: 0-1", "policy: gold", "pool-min-cpus: 0", "policy: koordinator", "policy: koordinator\nhold: 1s", "reserved-cpus: [1]"} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "advise.yaml")
	one, err := tick.ParseLine([]byte(`{"v":1,"node":"n","time":"2026-01-01T00:00:00Z","sample":{"topology":{"cpus":"0-15"},"pods":[{"uid":"u","name":"p","qos":"shared"}]}}`))
	if err != nil {
		f.Fatal(err)
	}
	sample, err := one.Decode(tick.SectionSample)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l := liveSettings{path: path}
		now, err := l.load()
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Fatalf("an error without the file's name: %v", err)
			}
			return
		}
		if advice := now.kind.start(now).Decide(sample); len(advice.Reasons) == 0 {
			t.Fatalf("no reasons with %+v", now)
		}
	})
}
