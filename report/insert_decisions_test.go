package main

import (
	"context"
	"io"
	"testing"
	"time"

	"polder/lib/tick"
)

// A stop ends the wait for an input that sends nothing: one tick without decisions does not tell whether the recording has any.
func TestInsertDecisionsStops(t *testing.T) {
	for name, text := range map[string]string{
		"no tick": "", "one tick": `{"v":1,"node":"n","time":"2026-11-21T12:00:00Z","sample":{}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			in, into := io.Pipe()
			defer into.Close()
			ctx, stop := context.WithCancel(t.Context())
			s := session(nil)
			s.In = in
			ended := make(chan error, 1)
			go func() {
				complete, err := readRecording(ctx, s, true, func([]string) {}, func(*tick.Tick) {})
				if complete {
					t.Error("the recording counts as complete")
				}
				ended <- err
			}()
			if _, err := io.WriteString(into, text); err != nil { // returns when it is read
				t.Error(err)
			}
			stop()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("%v; want a stop without an error", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it still waits for its input")
			}
		})
	}
}
