// Package spool reads ticks of a recording again whose input can be read only once.
package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"polder/lib/tick"
)

// Spool reads lines of a recording again: from its file if it has one, otherwise from a temporary file that no other process can open and
// that is removed with this process.
type Spool struct {
	mu    sync.Mutex
	file  *os.File
	own   bool    // the file is a temporary one, to which the lines are written
	begin []int64 // where each line of the recording's file begins; with own, where each tick does
	size  int64
}

// Open uses the recording's own file if in is a regular one.
func Open(in io.Reader) (*Spool, error) {
	if f, ok := in.(*os.File); ok && IsSeekable(f) {
		from, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, fmt.Errorf("find the recording's beginning: %w", err)
		}
		s := &Spool{file: f, begin: []int64{from}, size: from}
		return s, s.scan()
	}
	f, err := os.CreateTemp("", "polder-replay-*")
	if err != nil {
		return nil, fmt.Errorf("make a file in which a recording from a pipe is found again: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Spool{file: f, own: true}, nil
}

// scan notes where the lines of the file begin, from the present offset on, which it does not change.
func (s *Spool) scan() error {
	buffer := make([]byte, 1<<20)
	for at := s.size; ; {
		n, err := s.file.ReadAt(buffer, at)
		for i := 0; i < n; {
			end := bytes.IndexByte(buffer[i:n], '\n')
			if end < 0 {
				break
			}
			i += end + 1
			s.begin = append(s.begin, at+int64(i))
		}
		at += int64(n)
		s.size = at
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the recording: %w", err)
		}
	}
}

// Add stores a tick, and returns the number for [Spool.Tick].
func (s *Spool) Add(l *tick.Line) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.own {
		number := int(l.Number) - 1
		if number+1 >= len(s.begin) { // the last line, or one of a file that grows
			return number, s.scan()
		}
		return number, nil
	}
	if _, err := s.file.WriteAt(l.Bytes(), s.size); err != nil {
		return 0, fmt.Errorf("keep the recording in a temporary file (TMPDIR): %w", err)
	}
	s.begin = append(s.begin, s.size)
	s.size += int64(len(l.Bytes()))
	return len(s.begin) - 1, nil
}

// Tick is the tick with a number.
func (s *Spool) Tick(number int) (*tick.Tick, error) {
	s.mu.Lock()
	if number < 0 || number >= len(s.begin) {
		s.mu.Unlock()
		return nil, fmt.Errorf("line %d: the recording was truncated while it was played", number+1)
	}
	from, to := s.begin[number], s.size
	if number+1 < len(s.begin) {
		to = s.begin[number+1]
	}
	s.mu.Unlock()
	raw := make([]byte, to-from)
	if _, err := s.file.ReadAt(raw, from); err != nil {
		return nil, fmt.Errorf("read the recording: %w", err)
	}
	line, err := tick.ParseLine(bytes.TrimSpace(raw))
	if err != nil {
		return nil, fmt.Errorf("line %d of the recording has changed while it was played: %w", number+1, err)
	}
	t, err := line.Decode(tick.SectionSample, tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction, tick.SectionNetwork)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, err)
	}
	return t, nil
}

// Close removes a temporary file.
func (s *Spool) Close() {
	if s.own {
		_ = s.file.Close()
	}
}

// IsSeekable reports whether a file can be read from another place: it is none that is read once.
func IsSeekable(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}
