package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"polder/lib/stage"
	"polder/lib/tick"
	"polder/report/cluster"
	"polder/report/view"
)

const (
	// rewriteEvery is how old the file's time may become while nothing else in it changes.
	rewriteEvery = 10 * time.Second
	// diskTimeout is how long a live stream waits for the disk. A slower write ends concurrently with the stream.
	diskTimeout = 250 * time.Millisecond
	// replayTimeout is that of a recording, which has time, so that it gives the same result on every machine.
	replayTimeout = time.Minute
)

// metrics keeps a metrics file. Package reconcile does not write it: a file has no conflicts and no other writer, a disk needs no backoff,
// the time is the ticks', and each tick reports the write that it caused, for which it waits a little.
type metrics struct {
	session     *stage.Session
	path        string
	pages       view.Metrics
	diskTimeout time.Duration

	written     string    // the page without what changes at every tick, as it is in the file
	writtenAt   time.Time // by the ticks' clock
	loggedError string    // the last error that was logged
	isWriting   bool      // a write is in progress
	waiting     *write    // the newest page that could not be written yet
	done        chan write

	replace func(path string, data []byte, mode fs.FileMode) error
}

// write is one write of the file.
type write struct {
	page, stable string
	at           time.Time
	err          error
}

func openMetrics(_ context.Context, s *stage.Session, o *options, _ io.Writer) (cluster.Target, error) {
	m := &metrics{session: s, path: o.metricsFile, diskTimeout: diskTimeout, done: make(chan write, 1), replace: stage.WriteFile}
	if s.Recording() {
		m.diskTimeout = replayTimeout
	}
	return m, nil
}

func (m *metrics) Put(in stage.Incoming) (tick.Target, error) {
	result := tick.Target{Target: "prometheus", State: tick.TargetUnchanged}
	if in.Refused != "" {
		return result, nil
	}
	m.pages.Add(in.Tick)
	page, stable := m.pages.Page()
	result.Changed = stable != m.written
	if m.session.DryRun {
		result.State = tick.TargetPending
		return result, nil
	}
	var ended *write
	if m.isWriting {
		select {
		case w := <-m.done:
			ended = &w
			m.finish(w)
		default:
		}
	}
	age := in.Time.Sub(m.writtenAt)
	if stable == m.written && age >= 0 && age < rewriteEvery && !m.isWriting {
		m.waiting = nil // it is older than what is in the file
		return outcome(result, ended), nil
	}
	w := write{page: page, stable: stable, at: in.Time}
	if m.isWriting {
		m.waiting = &w
		result.State = tick.TargetPending
		return result, nil
	}
	m.start(w)
	select {
	case w := <-m.done:
		m.finish(w)
		ended = &w
	case <-time.After(m.diskTimeout):
		result.State = tick.TargetPending
		return result, nil
	}
	return outcome(result, ended), nil
}

// outcome adds the outcome of a write that ended to the result; ended is nil where none did.
func outcome(result tick.Target, ended *write) tick.Target {
	switch {
	case ended == nil:
	case ended.err != nil:
		result.State, result.Error = tick.TargetFailed, ended.err.Error()
	default:
		result.State = tick.TargetWritten
	}
	return result
}

func (m *metrics) start(w write) {
	m.isWriting, m.waiting = true, nil
	go func() {
		w.err = writeError(m.path, m.replace(m.path, []byte(w.page), 0o644))
		m.done <- w
	}()
}

// writeError removes the temporary file's name from an error, because it differs each time.
func writeError(path string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("write %s: %w (make its directory)", path, err)
	}
	return fmt.Errorf("write %s: %w", path, err)
}

func (m *metrics) finish(w write) {
	m.isWriting = false
	if w.err == nil {
		m.written, m.writtenAt, m.loggedError = w.stable, w.at, ""
		return
	}
	m.written = ""
	if text := w.err.Error(); text != m.loggedError { // once, not at every tick
		m.loggedError = text
		m.session.Log.Error("metrics are not written", "error", w.err)
	}
}

// Close writes the page that waits.
func (m *metrics) Close() error {
	if m.isWriting {
		m.finish(<-m.done)
	}
	if m.waiting != nil {
		m.start(*m.waiting)
		m.finish(<-m.done)
	}
	return nil
}
