package tick

import (
	"io"
	"sync"
)

// Mailbox writes lines in the background and holds at most one that waits: when the next stage is slow, a newer line
// takes the waiting one's place, so that a late reader gets what is true now. Lines are written whole or not at all.
type Mailbox struct {
	out io.Writer

	mu      sync.Mutex
	wake    *sync.Cond
	waiting []byte
	spare   []byte
	full    bool
	closed  bool
	dropped int64
	err     error
	done    chan struct{}
}

// NewMailbox returns a Mailbox that writes to out. Close ends it.
func NewMailbox(out io.Writer) *Mailbox {
	m := &Mailbox{out: out, done: make(chan struct{})}
	m.wake = sync.NewCond(&m.mu)
	go m.run()
	return m
}

// Put copies line, which ends with a newline, into the mailbox. It never blocks on the output. The error is that of an
// earlier write.
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

// Dropped is the number of lines that a newer one replaced before they were written.
func (m *Mailbox) Dropped() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropped
}

// Close waits until the line in hand and the waiting one are written, and returns the first error of a write.
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
		m.full = false
		m.mu.Unlock()

		_, err := m.out.Write(line)

		m.mu.Lock()
		m.spare = line
		if m.waiting == nil {
			m.waiting, m.spare = m.spare, nil
		}
		if err != nil {
			m.err = err
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
	}
}
