package tick

import (
	"io"
	"sync"
	"time"
)

// Mailbox writes lines in the background and has at most one waiting line: when the next stage is slow, a newer
// line replaces the waiting one, so that a slow reader gets the newest one. Lines are written whole or not at all.
type Mailbox struct {
	out io.Writer

	mu      sync.Mutex
	wake    *sync.Cond
	waiting []byte
	spare   []byte
	full    bool
	writing bool
	closed  bool
	dropped int64
	err     error
	idle    chan struct{} // has a value when everything was written, or nothing more will be written
	done    chan struct{}
}

// NewMailbox returns a Mailbox that writes to out. Close ends it.
func NewMailbox(out io.Writer) *Mailbox {
	m := &Mailbox{out: out, idle: make(chan struct{}, 1), done: make(chan struct{})}
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
	if m.full {
		m.dropped++
	}
	m.waiting = append(m.waiting[:0], line...)
	m.full = true
	m.wake.Signal()
	return nil
}

// Settle waits until all lines are written, or a write failed, but no longer than within. Only one goroutine at a
// time may call it.
func (m *Mailbox) Settle(within time.Duration) {
	var late <-chan time.Time
	for {
		m.mu.Lock()
		settled := !m.full && !m.writing || m.err != nil
		m.mu.Unlock()
		if settled {
			return
		}
		if late == nil {
			t := time.NewTimer(within)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-m.idle:
		case <-late:
			return
		}
	}
}

// Dropped returns the number of lines that were not written: a newer one replaced them, or the output failed.
func (m *Mailbox) Dropped() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropped
}

// Close waits until the current line and the waiting one are written, and returns the first error of a write.
func (m *Mailbox) Close() error {
	m.mu.Lock()
	m.closed = true
	m.wake.Signal()
	m.mu.Unlock()
	<-m.done
	return m.err
}

func (m *Mailbox) run() {
	defer close(m.done)
	for {
		m.mu.Lock()
		for !m.full && !m.closed {
			m.wake.Wait()
		}
		if !m.full {
			m.mu.Unlock()
			return
		}
		line := m.waiting
		m.waiting, m.spare = m.spare, nil
		m.full, m.writing = false, true
		m.mu.Unlock()

		_, err := m.out.Write(line)

		m.mu.Lock()
		m.writing = false
		m.spare = line
		if m.waiting == nil {
			m.waiting, m.spare = m.spare, nil
		}
		if err != nil {
			m.err = err
			m.dropped++
			if m.full {
				m.dropped++
			}
		}
		m.mu.Unlock()
		select {
		case m.idle <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}
