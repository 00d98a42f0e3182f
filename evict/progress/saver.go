package progress

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
)

// saveEvery is how often the state is saved while nothing is evicted.
const saveEvery = 10 * time.Second

// saver writes the state file beside the stream, which a slow disk must not hold up. With --dry-run it writes nothing:
// what did not happen is not to be remembered.
type saver struct {
	session *stage.Session
	off     bool
	at      time.Time // when the state was last saved, by the session's clock
	save    func(tick.Raw) error
	within  time.Duration

	made    int64         // counts the snapshots, so that an older one never replaces a newer one
	turn    chan struct{} // taken by who writes: a disk that hangs holds one writer
	written int64         // by the one whose turn it is
	busy    sync.WaitGroup
}

// saveWithin is how long a disk may take: a hung one must hold up neither an eviction's word of what became of it nor the end.
const saveWithin = 5 * time.Second

// newSaver makes the run's; version is that of what it saves.
func newSaver(s *stage.Session, version int) *saver {
	return &saver{
		session: s, off: s.State == "" || s.DryRun, at: s.Now(), within: saveWithin, turn: make(chan struct{}, 1),
		save: func(state tick.Raw) error { return s.SaveState(version, state) },
	}
}

// prepare takes a snapshot now and returns the function that writes it.
func (v *saver) prepare(snapshot func() (tick.Raw, error)) func() error {
	if v.off {
		return func() error { return nil }
	}
	state, err := snapshot()
	v.made++
	number := v.made
	return func() error {
		if err != nil {
			return err
		}
		return v.write(number, state)
	}
}

// write returns when the state is written, or within the time that a disk may take.
func (v *saver) write(number int64, state tick.Raw) error {
	late := time.NewTimer(v.within)
	defer late.Stop()
	hangs := fmt.Errorf("write --state %s: not done after %s (a disk that hangs?)", v.session.State, v.within)
	select {
	case v.turn <- struct{}{}:
	case <-late.C:
		return hangs
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-v.turn }()
		if number < v.written {
			done <- nil
			return
		}
		v.written = number
		done <- v.save(state)
	}()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return hangs
	}
}

// maybe saves when the last time is long ago.
func (v *saver) maybe(snapshot func() (tick.Raw, error)) {
	now := v.session.Now()
	if v.off || now.Sub(v.at) < saveEvery && !now.Before(v.at) {
		return
	}
	v.at = now
	write := v.prepare(snapshot)
	v.busy.Go(func() {
		if err := write(); err != nil {
			v.session.Log.Warn("save what is remembered", "error", err)
		}
	})
}

// last saves at the end.
func (v *saver) last(err error, snapshot func() (tick.Raw, error)) error {
	v.busy.Wait()
	return errors.Join(err, v.prepare(snapshot)())
}
