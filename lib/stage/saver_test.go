package stage

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"polder/lib/tick"
)

// A disk that hangs blocks one writer, but neither the stream, nor a record, nor the end of the tool.
func TestStateOnAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 10 * time.Second
		hang := make(chan struct{})
		var mu sync.Mutex
		var saved []string
		s := &Session{Env: Env{Now: time.Now}, State: "/slow/state", Log: slog.New(slog.DiscardHandler)}
		state := "1"
		v := s.NewSaver(1, every, func() (tick.Raw, error) { return tick.Raw(state), nil })
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
		for range 60 {
			time.Sleep(every)
			v.SaveIfDue()
		}
		time.Sleep(saveTimeout)
		synctest.Wait()
		if n := waiting.Load(); n != 1 {
			t.Errorf("after ten minutes %d goroutines wait; want one", n)
		}
		before := time.Now()
		state = "2"
		if err := v.Prepare()(); err == nil || !strings.Contains(err.Error(), "write --state /slow/state: not finished after 5s") {
			t.Errorf("an eviction's record: %v", err)
		}
		failed := errors.New("the stream")
		state = "3"
		if err := v.SaveAtEnd(failed); !errors.Is(err, failed) || !strings.Contains(err.Error(), "not finished after") {
			t.Errorf("at the end: %v", err)
		}
		if took := time.Since(before); took > saveTimeout+endTimeout {
			t.Errorf("the record and the end took %s; want 5 s and a minute at most", took)
		}
		close(hang) // the disk works again
		state = "4"
		if err := v.SaveAtEnd(nil); err != nil {
			t.Error(err)
		}
		if want := []string{"1", "4"}; !slices.Equal(saved, want) {
			t.Errorf("written %q; want %q", saved, want)
		}
	})
}

// A slow disk does not delay the stream: the saved state is that of the time at which the save was due, and a clock that is set back does
// not delay the save.
func TestStateIsSavedWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved []string
		now := time.Now()
		s := &Session{Env: Env{Now: func() time.Time { return now }}, State: "state", Log: slog.New(slog.DiscardHandler)}
		state := ""
		v := s.NewSaver(1, time.Minute, func() (tick.Raw, error) { return tick.Raw(state), nil })
		slow := make(chan struct{}, 10)
		v.save = func(state tick.Raw) error {
			<-slow
			saved = append(saved, string(state))
			return nil
		}
		for i, step := range []time.Duration{59 * time.Second, time.Second, time.Second, time.Minute, -time.Hour} {
			state, now = strconv.Itoa(i), now.Add(step)
			v.SaveIfDue()
			if i > 0 {
				slow <- struct{}{}
			}
			synctest.Wait()
			state = "later" // this does not change a save in progress
		}
		if want := []string{"1", "3", "4"}; !slices.Equal(saved, want) {
			t.Errorf("saved %q; want %q", saved, want)
		}
	})
}

// A newer state that could not be written does not stand for an older one: an eviction's record is written, or its error returned.
func TestFailedSaveStandsForNoOther(t *testing.T) {
	s := &Session{Env: Env{Now: time.Now}, State: "state", Log: slog.New(slog.DiscardHandler)}
	state := "older"
	v := s.NewSaver(1, time.Minute, func() (tick.Raw, error) { return tick.Raw(state), nil })
	full := errors.New("the disk is full")
	var saved []string
	v.save = func(state tick.Raw) error {
		saved = append(saved, string(state))
		if string(state) == "newer" {
			return full
		}
		return nil
	}
	older := v.Prepare()
	state = "newer"
	if err := v.Prepare()(); !errors.Is(err, full) {
		t.Fatal(err)
	}
	if err := older(); err != nil || !slices.Equal(saved, []string{"newer", "older"}) {
		t.Errorf("%v, written %q; want the older state, too", err, saved)
	}
}

// Without --state, and with --dry-run, no snapshot is taken.
func TestNoStateIsSaved(t *testing.T) {
	for name, s := range map[string]*Session{"no --state": {}, "--dry-run": {State: "state", DryRun: true}} {
		s.Now, s.Log = time.Now, slog.New(slog.DiscardHandler)
		v := s.NewSaver(1, 0, func() (tick.Raw, error) {
			t.Errorf("%s: a snapshot is taken", name)
			return nil, nil
		})
		v.SaveIfDue()
		if err := v.SaveAtEnd(nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
