package cluster

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func session(env map[string]string) *stage.Session {
	return &stage.Session{
		Env:  stage.Env{Out: io.Discard, Getenv: func(name string) string { return env[name] }, Now: func() time.Time { return noon }},
		Log:  slog.New(slog.DiscardHandler),
		Node: "n",
	}
}

func incoming(node string, seconds int, milli int64) stage.Incoming {
	return stage.Incoming{Tick: &tick.Tick{
		V: 1, Node: node, Time: noon.Add(time.Duration(seconds) * time.Second),
		Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: &milli}},
	}}
}

func put(t *testing.T, x Target, in stage.Incoming) tick.Target {
	t.Helper()
	result, err := x.Put(in)
	if err != nil {
		t.Fatal(err)
	}
	return result
}
