package stage

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lineReader reads a FIFO no further than to the end of a line. Data that a killed process has read is lost; data that it has not read
// stays in the kernel for its successor: so SIGKILL costs the current line and none after it. tee(2) copies the content of a pipe, without
// consuming it, to the reader's own pipe; lineReader finds the end of the line there, and then reads exactly up to it.
type lineReader struct {
	fifo              *os.File // the FIFO, which the caller owns
	writeEnd, readEnd *os.File // the write and read ends of the reader's own pipe
	lineBytes         int      // bytes read of the current line
	copyBytes         int      // how much to copy: about the length of the last line
}

// pageBytes is one page, which is the unit of tee.
const pageBytes = 4096

// newLineReader fails if tee is unavailable: a seccomp filter may forbid it.
func newLineReader(fifo *os.File) (*lineReader, error) {
	back, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	l := &lineReader{fifo: fifo, writeEnd: to, readEnd: back, copyBytes: pageBytes}
	if _, err := l.tee(0); err != nil {
		return nil, errors.Join(fmt.Errorf("tee %s: %w", fifo.Name(), err), l.Close())
	}
	return l, nil
}

// Read reads into p up to the end of a line at most. It waits for data, until the file's read deadline.
func (l *lineReader) Read(p []byte) (int, error) {
	p = p[:min(len(p), l.copyBytes)]
	n, err := l.peek(p)
	if err != nil {
		return 0, err
	}
	end := bytes.IndexByte(p[:n], '\n') + 1
	if end > 0 {
		n = end
	}
	// Only the bytes that were really read count, in case another process reads the FIFO, too.
	if n, err = l.fifo.Read(p[:n]); err != nil {
		return n, err
	}
	l.lineBytes += n
	l.copyBytes = max(l.copyBytes, l.lineBytes)
	if end > 0 {
		l.copyBytes, l.lineBytes = max(pageBytes, l.lineBytes+l.lineBytes/8), 0
	}
	return n, nil
}

// peek copies the FIFO's content to p, without consuming it.
func (l *lineReader) peek(p []byte) (int, error) {
	n, err := l.tee(len(p))
	if err != nil {
		return 0, err
	}
	for read := 0; read < n; { // all of it is available
		some, err := l.readEnd.Read(p[read:n])
		if err != nil {
			return 0, err
		}
		read += some
	}
	return n, nil
}

// tee copies up to length bytes to the reader's own pipe, which is empty.
func (l *lineReader) tee(length int) (n int, err error) {
	from, err := l.fifo.SyscallConn()
	if err != nil {
		return 0, err
	}
	to, err := l.writeEnd.SyscallConn()
	if err != nil {
		return 0, err
	}
	var teeErr, toErr error
	err = from.Read(func(in uintptr) bool {
		toErr = to.Control(func(out uintptr) {
			teeErr = unix.EINTR
			for errors.Is(teeErr, unix.EINTR) {
				var copied int64
				copied, teeErr = unix.Tee(int(in), int(out), length, unix.SPLICE_F_NONBLOCK)
				n = int(copied)
			}
		})
		return !errors.Is(teeErr, unix.EAGAIN) // else it waits for data
	})
	return n, errors.Join(err, toErr, teeErr)
}

// Close closes the reader's own pipe.
func (l *lineReader) Close() error {
	return errors.Join(l.writeEnd.Close(), l.readEnd.Close())
}
