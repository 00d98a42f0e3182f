package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Close carries out the waiting writes if the input has ended. After a signal, and with NoFlush, it waits only for the writes in progress,
// because the next process has newer figures or withdraws everything.
func (q *Queue[S, D]) Close() error {
	err := q.flush()
	q.stopClock()
	q.clock.Wait()
	q.mu.Lock()
	q.closing, q.waiting = true, nil
	q.mu.Unlock()
	ctx, done := context.WithTimeout(context.WithoutCancel(q.Context), stopTimeout)
	defer done()
	for ctx.Err() == nil && q.isWriting() {
		select {
		case <-q.ended:
		case <-ctx.Done():
		}
	}
	return err
}

func (q *Queue[S, D]) isWriting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.writing > 0
}

// flush waits until everything is written, as long as writes succeed.
func (q *Queue[S, D]) flush() error {
	begun := q.Now()
	for q.Context.Err() == nil && !q.NoFlush && !q.DryRun {
		n, progress, err := q.remaining()
		switch now := q.Now(); {
		case n == 0:
			return nil
		case now.Sub(begun) <= flushTimeout || now.Sub(progress) <= flushTimeout:
		case n == 1:
			return fmt.Errorf("%s: not written at the end of the input: %w", q.Name, err)
		default:
			return fmt.Errorf("%s: %d %ss not written at the end of the input: %w", q.Name, n, q.Label, err)
		}
		select {
		case <-q.ended:
		case <-q.Context.Done():
		case <-time.After(retryInterval): // for retries
		}
	}
	return nil
}

// remaining counts the objects that must still be written, with an error of one of them, and returns when a write succeeded last.
func (q *Queue[S, D]) remaining() (n int, progress time.Time, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.Now()
	if q.Every == 0 {
		q.refresh(now)
		q.considerAll(now)
	}
	err = errors.New("the API server has not answered yet")
	for _, it := range q.items {
		if q.unwritten(it, now) {
			n++
			if it.err != nil {
				err = it.err
			}
		}
	}
	return n, q.progress, err
}
