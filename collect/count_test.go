package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"polder/lib/stage"
)

// slow is a next stage that needs far longer for a tick than the interval.
type slow struct{ bytes.Buffer }

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(100 * time.Millisecond)
	return s.Buffer.Write(p)
}

// With --count N a next stage that is slower than the interval gets all N ticks.
func TestCountIsWritten(t *testing.T) {
	var out slow
	var log bytes.Buffer
	status := command().Execute(t.Context(), stage.Env{
		Args: []string{"collect", "--interval", "10ms", "--count", "5", "--node", "n1"},
		In:   bytes.NewReader(nil), Out: &out, Err: &log, Getenv: os.Getenv, Now: time.Now,
	})
	if lines := bytes.Count(out.Bytes(), []byte("\n")); status != 0 || lines != 5 {
		t.Errorf("status %d, %d ticks; want 5: %s", status, lines, log.String())
	}
}

// A list of pods that cannot be read may just be being written: a supervisor starts collect again after exit status 1, but not after 2.
func TestPodsBeingWritten(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "pods.json")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]int{empty: 1, empty + ".missing": 1, empty + "\x00--in-cluster": 2} {
		var log bytes.Buffer
		status := command().Execute(t.Context(), stage.Env{
			Args: append([]string{"collect", "--once", "--node", "n1", "--pods"}, strings.Split(args, "\x00")...),
			In:   bytes.NewReader(nil), Out: io.Discard, Err: &log, Getenv: os.Getenv, Now: time.Now,
		})
		if status != want {
			t.Errorf("--pods %q: status %d, %s; want %d", args, status, log.String(), want)
		}
	}
}
