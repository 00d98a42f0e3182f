package stage

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"polder/lib/tick"
)

// Saver writes the state file concurrently with the stream, which a slow disk must not delay. With --dry-run it writes nothing, because
// nothing was changed. Its methods are called on the goroutine of the stream.
type Saver struct {
	session  *Session
	snapshot func() (tick.Raw, error)
	off      bool
	every    time.Duration
	at       time.Time // when the last save began, by the session's clock
	save     func(state tick.Raw) error

	made    int64         // counts the snapshots, so that an older one never replaces a newer one
	turn    chan struct{} // taken by the writer, so that a disk that hangs blocks only one
	written int64         // the last one that was written; only the writer uses it
	busy    sync.WaitGroup
}

// saveWithin is the time limit of a write: a disk that hangs must not delay a caller that waits for a record. At the end of the input
// nobody waits, and a disk that others fill takes its time: endWithin is the limit there. After a signal Main's is shorter.
const (
	saveWithin = 5 * time.Second
	endWithin  = time.Minute
)

// NewSaver returns the saver of a tool's state; version is as in [Session.SaveState]. snapshot encodes the present state.
func (s *Session) NewSaver(version int, every time.Duration, snapshot func() (tick.Raw, error)) *Saver {
	return &Saver{
		session: s, snapshot: snapshot, off: s.State == "" || s.DryRun, every: every, at: s.Now(),
		turn: make(chan struct{}, 1),
		save: func(state tick.Raw) error { return s.SaveState(version, state) },
	}
}

// SaveIfDue saves concurrently with the stream if the last save was long ago.
func (v *Saver) SaveIfDue() {
	now := v.session.Now()
	if v.off || now.Sub(v.at) < v.every && !now.Before(v.at) {
		return
	}
	v.at = now
	write := v.Prepare()
	v.busy.Go(func() {
		if err := write(); err != nil {
			v.session.Log.Warn("the state is not saved", "error", err)
		}
	})
}

// Prepare takes a snapshot now and returns the function that writes it, which may be called on any goroutine.
func (v *Saver) Prepare() func() error { return v.prepare(saveWithin) }

func (v *Saver) prepare(within time.Duration) func() error {
	if v.off {
		return func() error { return nil }
	}
	state, err := v.snapshot()
	v.made++
	number := v.made
	return func() error {
		if err != nil {
			return err
		}
		return v.write(number, state, within)
	}
}

// write returns when the state is written, or at the time limit.
func (v *Saver) write(number int64, state tick.Raw, within time.Duration) error {
	late := time.NewTimer(within)
	defer late.Stop()
	hangs := fmt.Errorf("write --state %s: not done after %s (a disk that hangs?)", v.session.State, within)
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

// End saves a last time, and joins the error with err.
func (v *Saver) End(err error) error {
	v.busy.Wait()
	return errors.Join(err, v.prepare(endWithin)())
}
