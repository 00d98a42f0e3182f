package tick

import (
	"errors"
	"io"
	"sync"
	"syscall"
	"time"
)

// Mailbox writes lines in the background and has at most one waiting line: when the next stage is slow, a newer
// line replaces the waiting one, so that a slow reader gets the newest one. Lines are written whole or not at all.
type Mailbox struct {
	out io.Writer

	mu           sync.Mutex
	wake         *sync.Cond
	buffer       []byte
	unusedBuffer []byte
	hasLine      bool
	isWriting    bool
	isClosed     bool
	dropped      int64
	err          error
	written      chan struct{} // has a value when everything was written, or nothing more will be written
	done         chan struct{}
}

// NewMailbox returns a Mailbox that writes to out. Close ends it.
func NewMailbox(out io.Writer) *Mailbox {
	m := &Mailbox{out: out, written: make(chan struct{}, 1), done: make(chan struct{})}
	m.wake = sync.NewCond(&m.mu)
	go m.run()
	return m
}

// Put copies line, which ends with a newline, into the mailbox. It never blocks on the output. It returns the error of
// an earlier write.
func (m *Mailbox) Put(line []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.hasLine {
		m.dropped++
	}
	m.buffer = append(m.buffer[:0], line...)
	m.hasLine = true
	m.wake.Signal()
	return nil
}

// WaitWritten waits until all lines are written, or a write failed, but no longer than within. Only one goroutine at a
// time may call it.
func (m *Mailbox) WaitWritten(timeout time.Duration) {
	var expired <-chan time.Time
	for {
		m.mu.Lock()
		isWritten := !m.hasLine && !m.isWriting || m.err != nil
		m.mu.Unlock()
		if isWritten {
			return
		}
		if expired == nil {
			t := time.NewTimer(timeout)
			defer t.Stop()
			expired = t.C
		}
		select {
		case <-m.written:
		case <-expired:
			return
		}
	}
}

// Dropped returns the number of lines that were not written: a newer one replaced them, or the output failed. Those of an output that
// nobody reads any more do not count: its reader has ended, and was not slow.
func (m *Mailbox) Dropped() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropped
}

// Close waits until the current line and the waiting one are written, and returns the first error of a write.
func (m *Mailbox) Close() error {
	m.mu.Lock()
	m.isClosed = true
	m.wake.Signal()
	m.mu.Unlock()
	<-m.done
	return m.err
}

func (m *Mailbox) run() {
	defer close(m.done)
	for {
		m.mu.Lock()
		for !m.hasLine && !m.isClosed {
			m.wake.Wait()
		}
		if !m.hasLine {
			m.mu.Unlock()
			return
		}
		line := m.buffer
		m.buffer, m.unusedBuffer = m.unusedBuffer, nil
		m.hasLine, m.isWriting = false, true
		m.mu.Unlock()

		_, err := m.out.Write(line)

		m.mu.Lock()
		m.isWriting = false
		m.unusedBuffer = line
		if m.buffer == nil {
			m.buffer, m.unusedBuffer = m.unusedBuffer, nil
		}
		if err != nil {
			m.err = err
			if !errors.Is(err, syscall.EPIPE) {
				m.dropped++
				if m.hasLine {
					m.dropped++
				}
			}
		}
		m.mu.Unlock()
		select {
		case m.written <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}
