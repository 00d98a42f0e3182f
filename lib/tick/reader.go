package tick

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// DefaultMaxLine is the longest line that a Reader accepts by default.
const DefaultMaxLine = 16 << 20

// TooLong is wrapped, beside [ErrInvalidTick], by the error of a line over the limit.
type TooLong struct{ Limit int }

func (e TooLong) Error() string { return fmt.Sprintf("longer than %d bytes (--max-line)", e.Limit) }

// Counts are a Reader's counters.
type Counts struct {
	Lines   int64 // ticks returned
	Invalid int64 // lines dropped because they were not valid ticks
	Cut     int64 // incomplete first and last lines, which a restart or a killed writer leaves behind
	TooLong int64 // lines over the limit (counted in Invalid, too)
}

// Reader reads ticks line by line. Lines that are not valid ticks are counted, passed to OnInvalid and skipped; with
// Strict they end the stream.
type Reader struct {
	// OnInvalid is called for every dropped line; nil is allowed.
	OnInvalid func(number int64, err error)
	// Strict makes the first invalid line an error of Next.
	Strict bool
	// MaxLine is the longest line in bytes, without its newline; 0 means DefaultMaxLine.
	MaxLine int
	// Restarted means that the first line may be incomplete because another process read its beginning.
	Restarted bool
	// WholeLines means that one read of the input never returns data of two lines, so that Finish need not read byte by byte.
	WholeLines bool

	in          io.Reader
	buf         []byte
	start       int // the beginning of the current line in buf
	end         int // the end of the data in buf
	number      int64
	counts      Counts
	skip        bool // inside a line that is too long
	last        bool // the current line ends with the input, not with a newline
	err         error
	isFinishing bool
	line        Line
}

// NewReader returns a Reader of in.
func NewReader(in io.Reader) *Reader {
	return &Reader{in: in, buf: make([]byte, 64<<10)}
}

// Counts returns the counts so far.
func (r *Reader) Counts() Counts { return r.counts }

// Finish makes the Reader read no further than the end of the line that it has begun: Next returns that line,
// then io.EOF. So a stopping tool leaves a FIFO at the beginning of a line for its successor. It must not be
// called while Next runs; an interrupted Next (a deadline on the input) has returned os.ErrDeadlineExceeded.
func (r *Reader) Finish() {
	r.isFinishing = true
	if errors.Is(r.err, os.ErrDeadlineExceeded) {
		r.err = nil
	}
}

// Next returns the next tick, which is valid until the next call. It returns io.EOF at the end of the input, and the
// input's own error otherwise.
func (r *Reader) Next() (*Line, error) {
	for {
		raw, err := r.nextLine()
		if err != nil {
			return nil, err
		}
		raw = bytes.TrimSuffix(raw, []byte{'\r'})
		if len(bytes.TrimLeft(raw, " \t")) == 0 {
			continue
		}
		r.line.Number = r.number
		if err := r.line.parse(raw); err != nil {
			if r.last || r.number == 1 && r.Restarted {
				r.counts.Cut++
				continue
			}
			if err := r.drop(err); err != nil {
				return nil, err
			}
			continue
		}
		r.counts.Lines++
		return &r.line, nil
	}
}

func (r *Reader) drop(err error) error {
	r.counts.Invalid++
	if r.Strict {
		return fmt.Errorf("line %d: %w", r.number, err)
	}
	if r.OnInvalid != nil {
		r.OnInvalid(r.number, err)
	}
	return nil
}

// nextLine returns the next line without its newline.
func (r *Reader) nextLine() ([]byte, error) {
	maxLine := r.MaxLine
	if maxLine <= 0 {
		maxLine = DefaultMaxLine
	}
	scanned := r.start
	for {
		if i := bytes.IndexByte(r.buf[scanned:r.end], '\n'); i >= 0 {
			line := r.buf[r.start : scanned+i]
			r.start = scanned + i + 1
			scanned = r.start
			r.number++
			if r.skip || len(line) > maxLine {
				r.skip = false
				r.counts.TooLong++
				if err := r.drop(fmt.Errorf("%w: %w", ErrInvalidTick, TooLong{maxLine})); err != nil {
					return nil, err
				}
				continue
			}
			return line, nil
		}
		scanned = r.end
		if r.err != nil {
			err := r.err
			if errors.Is(err, io.EOF) && (r.end > r.start || r.skip) {
				rest, whole := r.buf[r.start:r.end], !r.skip && r.end-r.start <= maxLine
				r.start = r.end
				r.skip = false
				if whole { // a last tick without a newline; a line that was cut off is not a tick
					r.number++
					r.last = true
					return rest, nil
				}
				r.counts.Cut++ // its writer was killed
			}
			return nil, err
		}
		if r.end-r.start > maxLine {
			r.skip = true
			r.start, r.end, scanned = 0, 0, 0 // discard it, whatever its length
		}
		if r.isFinishing && r.end == r.start && !r.skip {
			return nil, io.EOF
		}
		scanned -= r.makeRoom(maxLine)
		r.fill()
	}
}

// makeRoom moves the incomplete line to the buffer's start and enlarges a full buffer. It returns by how much offsets
// decrease.
func (r *Reader) makeRoom(maxLine int) int {
	moved := 0
	if r.start > 0 && (r.start == r.end || r.end == len(r.buf)) {
		moved = r.start
		copy(r.buf, r.buf[r.start:r.end])
		r.end -= moved
		r.start = 0
	}
	if r.end == len(r.buf) { // maxLine may be the largest int
		grown := make([]byte, len(r.buf)+min(len(r.buf), max(maxLine-len(r.buf), 0)+(64<<10)))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	return moved
}

func (r *Reader) fill() {
	room := r.buf[r.end:]
	if r.isFinishing && !r.WholeLines {
		room = room[:1]
	}
	for range 100 {
		n, err := r.in.Read(room)
		r.end += n
		if err != nil {
			r.err = err
			return
		}
		if n > 0 {
			return
		}
	}
	r.err = io.ErrNoProgress
}
