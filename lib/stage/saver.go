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
	isOff    bool
	interval time.Duration
	lastSave time.Time // when the last save began, by the session's clock
	save     func(state tick.Raw) error

	snapshots   int64         // counts the snapshots, so that an older one never replaces a newer one
	writeLock   chan struct{} // taken by the writer, so that a disk that hangs blocks only one
	lastWritten int64         // the last one that was written; only the writer uses it
	writers     sync.WaitGroup
}

// saveTimeout is the time limit of a write: a disk that hangs must not delay for longer a caller that acts only when its intention is
// saved, as evict does. At the end of the input nobody waits, and a disk that others fill takes its time: endTimeout is the limit there.
// After a signal stopWithin is the limit.
const (
	saveTimeout = 5 * time.Second
	endTimeout  = time.Minute
)

// NewSaver returns the saver of a tool's state; version is as in [Session.SaveState]. snapshot encodes the present state.
func (s *Session) NewSaver(version int, every time.Duration, snapshot func() (tick.Raw, error)) *Saver {
	return &Saver{
		session: s, snapshot: snapshot, isOff: s.State == "" || s.DryRun, interval: every, lastSave: s.Now(),
		writeLock: make(chan struct{}, 1),
		save:      func(state tick.Raw) error { return s.SaveState(version, state) },
	}
}

// SaveIfDue saves concurrently with the stream if the last save was long ago.
func (v *Saver) SaveIfDue() {
	now := v.session.Now()
	if v.isOff || now.Sub(v.lastSave) < v.interval && !now.Before(v.lastSave) {
		return
	}
	v.lastSave = now
	write := v.Prepare()
	v.writers.Go(func() {
		if err := write(); err != nil {
			v.session.Log.Warn("the state was not saved", "error", err)
		}
	})
}

// Prepare takes a snapshot now and returns the function that writes it, which may be called on any goroutine.
func (v *Saver) Prepare() func() error { return v.prepare(saveTimeout) }

func (v *Saver) prepare(timeout time.Duration) func() error {
	if v.isOff {
		return func() error { return nil }
	}
	state, err := v.snapshot()
	v.snapshots++
	number := v.snapshots
	return func() error {
		if err != nil {
			return err
		}
		return v.write(number, state, timeout)
	}
}

// write returns when the state is written, or at the time limit.
func (v *Saver) write(number int64, state tick.Raw, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	errTimeout := fmt.Errorf("write --state %s: not finished after %s (does the disk hang?)", v.session.State, timeout)
	select {
	case v.writeLock <- struct{}{}:
	case <-timer.C:
		return errTimeout
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-v.writeLock }()
		if number < v.lastWritten {
			done <- nil
			return
		}
		err := v.save(state)
		if err == nil {
			v.lastWritten = number
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errTimeout
	}
}

// SaveAtEnd saves a last time, and joins the error with err.
func (v *Saver) SaveAtEnd(err error) error {
	v.writers.Wait()
	return errors.Join(err, v.prepare(endTimeout)())
}
