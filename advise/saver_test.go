package main

import (
	"log/slog"
	"slices"
	"testing"

	"polder/lib/tick"
)

// A disk that hangs does not hold up the stream: a save that is due meanwhile is left out, and what is saved is of its own time.
func TestASlowDiskDoesNotHoldUpTheStream(t *testing.T) {
	hang := make(chan struct{})
	var saved []string
	v := saver{log: slog.New(slog.DiscardHandler), save: func(state tick.Raw) error {
		<-hang
		saved = append(saved, string(state))
		return nil
	}}
	state := map[string]int{"n": 1}
	v.begin(&state) // returns although the disk hangs
	state["n"] = 2
	v.begin(&state)
	close(hang)
	v.wait()
	v.begin(&state)
	v.wait()
	if want := []string{`{"n":1}`, `{"n":2}`}; !slices.Equal(saved, want) {
		t.Errorf("saved %q; want %q", saved, want)
	}
}
