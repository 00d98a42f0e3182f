// Package kernfile reads the kernel's text files as bytes: whole files into reused memory, and lines, fields and
// numbers from them without allocation. Its parsers accept any bytes and never panic.
package kernfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"golang.org/x/sys/unix"

	"polder/lib/clip"
)

// maxBytes bounds the files of Read: the largest one, the tasks of a huge cgroup, is far smaller.
const maxBytes = 64 << 20

// Read reads a whole file into buf, which it enlarges if needed, and returns the content. It does not use stat, whose size of
// such files is meaningless.
func Read(path string, buf []byte) ([]byte, error) { return readPath(path, buf, false) }

// ReadPiece is like Read for files that the kernel returns in one piece: it saves a system call if buf is large enough; see [File.Read].
func ReadPiece(path string, buf []byte) ([]byte, error) { return readPath(path, buf, true) }

func readPath(path string, buf []byte, onePiece bool) ([]byte, error) {
	fd, err := open(path)
	if err != nil {
		return buf[:0], &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	data, err := read(fd, buf, onePiece)
	if err != nil {
		return buf[:0], &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return data, nil
}

func open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// ReadFD reads an open file from its beginning, whatever was read from it before; see [Read].
func ReadFD(fd int, buf []byte) ([]byte, error) { return read(fd, buf, false) }

// ReadPieceFD is like ReadFD for files that the kernel returns in one piece; see [File.Read].
func ReadPieceFD(fd int, buf []byte) ([]byte, error) { return read(fd, buf, true) }

// File is an open kernel file: each reading costs one system call instead of three.
type File struct {
	fd   int
	path string
}

// NewFile returns the File of an open descriptor; path is for messages.
func NewFile(fd int, path string) *File { return &File{fd, path} }

// Path returns the file's path.
func (f *File) Path() string { return f.path }

// Read reads the whole file into buf, which it enlarges if needed, and returns the content. It is for files that the kernel
// returns in one piece, like values: a piece that does not fill the buffer is the last one.
func (f *File) Read(buf []byte) ([]byte, error) {
	data, err := read(f.fd, buf, true)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: f.path, Err: err}
	}
	return data, nil
}

// Close closes the file.
func (f *File) Close() error { return unix.Close(f.fd) }

// read reads to the end, or in one piece if buf is large enough.
func read(fd int, buf []byte, onePiece bool) ([]byte, error) {
	buf = buf[:cap(buf)]
	n := 0
	for {
		if n == len(buf) {
			if n >= maxBytes {
				return buf[:0], fmt.Errorf("more than %d bytes", maxBytes)
			}
			buf = append(buf, make([]byte, max(len(buf), 4096))...)
			buf = buf[:cap(buf)]
		}
		m, err := unix.Pread(fd, buf[n:], int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return buf[:0], err
		}
		n += m
		if m == 0 || onePiece && n < len(buf) {
			return buf[:n], nil
		}
	}
}

// Line splits data after its first line, which is returned without its newline. At the end of data, rest is nil.
func Line(data []byte) (line, rest []byte) {
	before, after, ok := bytes.Cut(data, []byte{'\n'})
	if !ok {
		return data, nil
	}
	return before, after
}

// Field splits a line after its first field; blanks and tabs separate fields. The field is empty if none is left.
func Field(line []byte) (field, rest []byte) {
	i := 0
	for i < len(line) && isBlank(line[i]) {
		i++
	}
	j := i
	for j < len(line) && !isBlank(line[j]) {
		j++
	}
	return line[i:j], line[j:]
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// Uint parses a decimal number. It rejects signs, other characters, and numbers that overflow.
func Uint(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// UintLine parses a file that contains one number.
func UintLine(data []byte) (uint64, bool) {
	field, rest := Field(Text(data))
	if more, _ := Field(rest); len(more) > 0 {
		return 0, false
	}
	return Uint(field)
}

const space = " \t\r\n"

// Text returns a one-line file's content without the white space around it and the NUL bytes after it: some kernels
// (5.x on arm64) end the lists and masks of /sys with "\n\x00". All readers of such files use it.
func Text(data []byte) []byte {
	return bytes.TrimRight(bytes.TrimLeft(data, space), space+"\x00")
}

// ReadText reads a one-line file; see [Text].
func ReadText(path string) (string, error) {
	data, err := Read(path, nil)
	return string(Text(data)), err
}

// Clip truncates a line for a message.
func Clip(line []byte) string { return clip.Text(line, 60) }
