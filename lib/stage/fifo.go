package stage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pipeBytes is the size of FIFOs: the maximum for an unprivileged process by default (/proc/sys/fs/pipe-max-size).
const pipeBytes = 1 << 20

// stream is an opened input or output.
type stream struct {
	*os.File        // nil if the stream is not a file
	in              io.Reader
	out             io.Writer
	isFIFO, closing bool
	hasWholeLines   bool // in reads no further than to the end of a line
	drainTimeout    time.Duration
}

func (s *stream) Close() error {
	if s.File != nil && s.closing {
		return s.File.Close()
	}
	return nil
}

// inputFile returns the file from which the input is read; nil if it is no file.
func (s *stream) inputFile() *os.File {
	if s.File != nil {
		return s.File
	}
	f, _ := s.in.(*os.File)
	return f
}

// isRecording reports whether the stream is a file on a disk.
func (s *stream) isRecording() bool {
	f := s.inputFile()
	if f == nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// Recording reports whether the input is a file on a disk: then no live stream waits for the tool.
func (s *Session) Recording() bool {
	if s.Input == "" || s.Input == "-" {
		return (&stream{in: s.In}).isRecording()
	}
	info, err := os.Stat(s.Input)
	return err == nil && info.Mode().IsRegular()
}

// isTerminal reports whether the stream is a terminal.
func (s *stream) isTerminal() bool {
	f := s.inputFile()
	if f == nil {
		return false
	}
	isTerminal := false
	if c, err := f.SyscallConn(); err == nil { // Fd would make the file blocking
		_ = c.Control(func(fd uintptr) {
			_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
			isTerminal = err == nil
		})
	}
	return isTerminal
}

// openInput opens a file or a FIFO for reading, or returns std for "-".
func openInput(path string, std io.Reader) (*stream, error) {
	if path == "-" || path == "" {
		return &stream{in: std}, nil
	}
	f, fifo, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open --input: %w", err)
	}
	return &stream{File: f, in: f, isFIFO: fifo, closing: true}, nil
}

// openOutput opens a file or a FIFO for writing, or returns std for "-". The first byte into a FIFO is a newline: it
// ends a line that a killed predecessor left incomplete.
func openOutput(path string, std io.Writer) (*stream, error) {
	if path == "-" || path == "" {
		return &stream{out: std}, nil
	}
	f, fifo, err := open(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, fmt.Errorf("open --output: %w", err)
	}
	s := &stream{File: f, out: f, isFIFO: fifo, closing: true}
	if fifo {
		s.out = &newlineFirst{f: f}
	}
	return s, nil
}

// OpenText opens --output for a tool that writes its own text there in place of ticks, by the same rules: a FIFO is created if its name
// says so, and the output must not be the input. Other than for ticks, which go on, it waits for the FIFO's reader: a text is written once,
// and would be lost. Closing standard output does nothing.
func (s *Session) OpenText() (io.WriteCloser, error) {
	if s.Output == "-" || s.Output == "" {
		return standardOutput{s.Out}, nil
	}
	if err := s.checkOutput(s.inputInfo()); err != nil {
		return nil, err
	}
	path, isFIFO, err := makeFIFO(s.Output)
	if err != nil {
		return nil, OpenError(fmt.Errorf("open --output: %w", err))
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if isFIFO { // one that vanished must not become a file
		flags = os.O_WRONLY
	}
	out, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, OpenError(fmt.Errorf("open --output: %w", err))
	}
	return out, nil
}

type standardOutput struct{ io.Writer }

func (standardOutput) Close() error { return nil }

// inputInfo describes the input that is not open yet; nil if it is no file, or cannot be found.
func (s *Session) inputInfo() fs.FileInfo {
	if s.Input == "-" || s.Input == "" {
		return (&stream{in: s.In}).info()
	}
	info, err := os.Stat(strings.TrimPrefix(s.Input, "fifo:"))
	if err != nil {
		return nil // opening it fails
	}
	return info
}

// info describes the file from which the input is read; nil if it is no file.
func (s *stream) info() fs.FileInfo {
	f := s.inputFile()
	if f == nil {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	return info
}

// checkOutput returns an error if the output is the input: opening a file for writing empties it before it is read, and a FIFO would
// give a tool its own ticks.
func (s *Session) checkOutput(input fs.FileInfo) error {
	if input == nil || !input.Mode().IsRegular() && input.Mode()&fs.ModeNamedPipe == 0 { // a terminal may be both
		return nil
	}
	var output fs.FileInfo
	var err error
	if s.Output != "-" && s.Output != "" {
		output, err = os.Stat(strings.TrimPrefix(s.Output, "fifo:"))
	} else if f, ok := s.Out.(*os.File); ok {
		output, err = f.Stat()
	}
	if err != nil || output == nil || !os.SameFile(input, output) {
		return nil
	}
	return Usagef("--output %s: it is the input, too: want another file", s.Output)
}

// newlineFirst writes a newline before the first line; not at once, because a full FIFO would block the start.
type newlineFirst struct {
	f          *os.File
	hasWritten bool
}

func (n *newlineFirst) Write(p []byte) (int, error) {
	if !n.hasWritten {
		if _, err := n.f.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		n.hasWritten = true
	}
	return n.f.Write(p)
}

// open opens path with flags, or read-write if it is a FIFO: then the end of a neighbour closes neither end of it, and
// the data in the kernel's buffer survives every restart.
func open(path string, flags int) (*os.File, bool, error) {
	path, isFIFO, err := makeFIFO(path)
	if err != nil {
		return nil, false, err
	}
	if isFIFO {
		f, err := openFIFO(path)
		return f, true, err
	}
	f, err := os.OpenFile(path, flags, 0o644)
	return f, false, err
}

// makeFIFO creates a FIFO if the path is named like one and there is none. It returns the path without its prefix, and whether it is a
// FIFO.
func makeFIFO(path string) (plain string, isFIFO bool, err error) {
	path, named := strings.CutPrefix(path, "fifo:")
	if named || strings.HasSuffix(path, ".fifo") {
		if err := unix.Mkfifo(path, 0o660); err != nil && !errors.Is(err, fs.ErrExist) {
			return path, false, fmt.Errorf("make FIFO %s: %w (does its directory exist?)", path, err)
		}
		named = true
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Mode()&fs.ModeNamedPipe != 0:
		return path, true, nil
	case named && err == nil:
		return path, false, fmt.Errorf("%s is not a FIFO (%s): remove it, or name another", path, info.Mode().Type())
	}
	return path, false, nil // opening it says what is wrong, if anything is
}

func openFIFO(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // no O_CREATE: a FIFO that vanished must not become a file
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&fs.ModeNamedPipe == 0 {
		err = fmt.Errorf("%s is no longer a FIFO", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeBytes) // a smaller pipe works too
		})
	}
	return f, nil
}

// pipe is an output that is a pipe of the shell, or of another program that started the tool. It is made large enough for a line, and no
// larger: a smaller pipe passes a line in pieces, for each of which this stage and the next one wake each other; a larger one would
// contain old ticks if the next stage is slow.
type pipe struct {
	file *os.File // nil if the output is no such pipe
	size int
}

func pipeOf(out io.Writer) pipe {
	f, ok := out.(*os.File)
	if !ok {
		return pipe{}
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return pipe{}
	}
	return pipe{file: f}
}

// makeRoom enlarges the pipe if a line needs it.
func (p *pipe) makeRoom(line int) {
	if p.file == nil || line <= p.size {
		return
	}
	conn, err := p.file.SyscallConn() // Fd would make the file blocking
	if err != nil {
		p.file = nil
		return
	}
	_ = conn.Control(func(fd uintptr) {
		if p.size, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil && p.size < min(line, pipeBytes) {
			p.size, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, min(line, pipeBytes)) // the kernel rounds up
		}
	})
	if err != nil || p.size >= pipeBytes { // this is its maximum
		p.file = nil
	}
}
