package progress

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
)

// A disk that hangs holds one writer, and neither an eviction nor the end of the tool.
func TestStateOnAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var mu sync.Mutex
		var saved []string
		s := &stage.Session{Env: stage.Env{Now: time.Now}, State: "/slow/state", Log: slog.New(slog.DiscardHandler)}
		v := newSaver(s, 1)
		var waiting atomic.Int32
		v.save = func(state tick.Raw) error {
			waiting.Add(1)
			defer waiting.Add(-1)
			<-hang
			mu.Lock()
			defer mu.Unlock()
			saved = append(saved, string(state))
			return nil
		}
		snapshot := func(text string) func() (tick.Raw, error) {
			return func() (tick.Raw, error) { return tick.Raw(text), nil }
		}
		for range 60 {
			time.Sleep(saveEvery)
			v.maybe(snapshot("1"))
		}
		time.Sleep(saveWithin)
		synctest.Wait()
		if n := waiting.Load(); n != 1 {
			t.Errorf("after ten minutes %d goroutines wait; want one", n)
		}
		before := time.Now()
		if err := v.prepare(snapshot("2"))(); err == nil || !strings.Contains(err.Error(), "write --state /slow/state: not done after 5s") {
			t.Errorf("an eviction's record: %v", err)
		}
		failed := errors.New("the stream")
		if err := v.last(failed, snapshot("3")); !errors.Is(err, failed) || !strings.Contains(err.Error(), "not done after") {
			t.Errorf("at the end: %v", err)
		}
		if took := time.Since(before); took > 2*saveWithin {
			t.Errorf("the record and the end took %s; want 5 s each at most", took)
		}
		close(hang) // it comes back
		if err := v.last(nil, snapshot("4")); err != nil {
			t.Error(err)
		}
		if want := []string{"1", "4"}; !slices.Equal(saved, want) {
			t.Errorf("written %q; want %q", saved, want)
		}
	})
}
