package main

import (
	"bytes"
	"os"
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
