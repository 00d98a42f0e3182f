package tick

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func line(node string) string {
	return `{"v":1,"node":"` + node + `","time":"2026-01-01T00:00:00Z"}`
}

func readAll(r *Reader) (nodes []string, err error) {
	for {
		l, err := r.Next()
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, fmt.Sprintf("%s@%d", l.Node, l.Number))
	}
}

func TestReader(t *testing.T) {
	long := line(strings.Repeat("x", 200))
	for _, c := range []struct {
		name      string
		in        string
		restarted bool
		want      []string
		counts    Counts
		bad       []string
	}{
		{"lines, blank lines and carriage returns", line("a") + "\n\n \t\n" + line("b") + "\r\n", false, []string{"a@1", "b@4"}, Counts{Lines: 2}, nil},
		{"nothing", "", false, nil, Counts{}, nil},
		{"a bad line among good ones", line("a") + "\n{oops}\n" + line("b") + "\n", false, []string{"a@1", "b@3"}, Counts{Lines: 2, Invalid: 1}, []string{"2: offset 1"}},
		{"a last line without a newline", line("a") + "\n" + line("b"), false, []string{"a@1", "b@2"}, Counts{Lines: 2}, nil},
		{"one line without a newline", line("a"), true, []string{"a@1"}, Counts{Lines: 1}, nil},
		{"blanks without a newline", line("a") + "\n \t", false, []string{"a@1"}, Counts{Lines: 1}, nil},
		{"a cut-off last line", line("a") + "\n" + line("b")[:20], false, []string{"a@1"}, Counts{Lines: 1, Cut: 1}, nil},
		{"a last line that lacks its last byte", line("a") + "\n" + strings.TrimSuffix(line("b"), "}"), false, []string{"a@1"}, Counts{Lines: 1, Cut: 1}, nil},
		{"a cut-off first line after a restart", `ode":"a"}` + "\n" + line("b") + "\n", true, []string{"b@2"}, Counts{Lines: 1, Cut: 1}, nil},
		{"a cut-off first line otherwise", `ode":"a"}` + "\n" + line("b") + "\n", false, []string{"b@2"}, Counts{Lines: 1, Invalid: 1}, []string{"1: offset 0"}},
		{"a line over the limit", line("a") + "\n" + long + "\n" + line("b") + "\n", false, []string{"a@1", "b@3"}, Counts{Lines: 2, Invalid: 1, TooLong: 1}, []string{"2: longer than 100 bytes"}},
		{"a line over the limit that never ends", line("a") + "\n" + long, false, []string{"a@1"}, Counts{Lines: 1, Cut: 1}, nil},
		{"two lines over the limit", long + "\n" + long + "\n" + line("b") + "\n", false, []string{"b@3"}, Counts{Lines: 1, Invalid: 2, TooLong: 2}, []string{"1: longer than 100 bytes", "2: longer than 100 bytes"}},
	} {
		for how, in := range map[string]io.Reader{
			"whole":        strings.NewReader(c.in),
			"byte by byte": iotest.OneByteReader(strings.NewReader(c.in)),
			"with its end": iotest.DataErrReader(strings.NewReader(c.in)),
		} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				r := NewReader(in)
				r.buf = r.buf[:32] // so that the buffer grows in every way
				r.MaxLine, r.Restarted = 100, c.restarted
				var bad []string
				r.OnInvalid = func(number int64, err error) { bad = append(bad, fmt.Sprintf("%d: %v", number, err)) }
				got, err := readAll(r)
				if !errors.Is(err, io.EOF) {
					t.Fatalf("Next: %v; want EOF", err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("ticks (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.counts, r.Counts()); diff != "" {
					t.Errorf("counts (-want +got):\n%s", diff)
				}
				if len(bad) != len(c.bad) {
					t.Fatalf("bad = %q; want %q", bad, c.bad)
				}
				for i, want := range c.bad {
					number, text, _ := strings.Cut(want, ": ")
					if !strings.HasPrefix(bad[i], number) || !strings.Contains(bad[i], text) {
						t.Errorf("bad[%d] = %q; want %q", i, bad[i], want)
					}
				}
			})
		}
	}
}

func TestReaderStrict(t *testing.T) {
	r := NewReader(strings.NewReader(line("a") + "\n{}\n" + line("b") + "\n"))
	r.Strict = true
	got, err := readAll(r)
	if len(got) != 1 || err == nil || !strings.Contains(err.Error(), `line 2: not a valid tick: no "v"`) {
		t.Errorf("strict: %q, %v; want one tick and line 2's error", got, err)
	}
}

func TestReaderHugeLine(t *testing.T) {
	r := NewReader(strings.NewReader(strings.Repeat("x", 3<<20) + "\n" + line("a") + "\n"))
	r.MaxLine = 1 << 20
	if got, err := readAll(r); len(got) != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, %v; want the line behind the huge one", got, err)
	}
	if len(r.buf) > 2<<20 {
		t.Errorf("the buffer has grown to %d bytes; want no more than about --max-line", len(r.buf))
	}
}

// A limit that means no limit is not too large for the buffer's size.
func TestReaderLargestLimit(t *testing.T) {
	r := NewReader(strings.NewReader(strings.Repeat("x", 1<<20) + "\n" + line("a") + "\n"))
	r.MaxLine = math.MaxInt
	if got, err := readAll(r); len(got) != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, %v; want the line behind the long one", got, err)
	}
}

// interrupted is an input with a deadline: its bytes come in pieces, and then it is interrupted once.
type interrupted struct {
	pieces []string
	taken  bytes.Buffer
}

func (i *interrupted) Read(p []byte) (int, error) {
	if len(i.pieces) == 0 {
		return 0, io.EOF
	}
	if i.pieces[0] == "" {
		i.pieces = i.pieces[1:]
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(p, i.pieces[0])
	i.taken.WriteString(i.pieces[0][:n])
	if i.pieces[0] = i.pieces[0][n:]; i.pieces[0] == "" {
		i.pieces = i.pieces[1:]
	}
	return n, nil
}

// After Finish a reader reads the rest of the line that it has begun, and not a byte more: its successor starts there.
func TestReaderFinish(t *testing.T) {
	a, b, c := line("a")+"\n", line("b")+"\n", line("c")+"\n"
	for _, cut := range []int{0, 1, 20, len(b) - 1} {
		in := &interrupted{pieces: []string{a + b[:cut], "", b[cut:] + c}}
		if cut == 0 {
			in.pieces = []string{a, "", b + c}
		}
		r := NewReader(in)
		got, err := readAll(r)
		if !errors.Is(err, os.ErrDeadlineExceeded) || len(got) != 1 {
			t.Fatalf("cut at %d: %q, %v; want a, and the interruption", cut, got, err)
		}
		r.Finish()
		got, err = readAll(r)
		want, taken := 1, a+b
		if cut == 0 {
			want, taken = 0, a
		}
		if len(got) != want || !errors.Is(err, io.EOF) || in.taken.String() != taken {
			t.Errorf("cut at %d: %q, %v, took %q; want %d more ticks and EOF", cut, got, err, in.taken.String(), want)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(line("a")+"\n{}\n\r\n"+line("b")), 16)
	f.Add([]byte(strings.Repeat("x", 200)+"\n"+line("b")+"\n"), 100)
	f.Fuzz(func(t *testing.T, data []byte, maxLine int) {
		if maxLine < 1 || maxLine > 1<<20 {
			return
		}
		read := func(in io.Reader) string {
			r := NewReader(in)
			r.buf = r.buf[:16]
			r.MaxLine = maxLine
			nodes, err := readAll(r)
			if !errors.Is(err, io.EOF) {
				t.Fatalf("Next: %v", err)
			}
			return fmt.Sprint(nodes, r.Counts())
		}
		if whole, bytewise := read(bytes.NewReader(data)), read(iotest.OneByteReader(bytes.NewReader(data))); whole != bytewise {
			t.Fatalf("whole: %s\nbyte by byte: %s", whole, bytewise)
		}
	})
}

// slow is an output that accepts a line when the test permits it.
type slow struct {
	take  chan struct{}
	lines []string
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.take
	s.lines = append(s.lines, string(p))
	return len(p), nil
}

func TestMailboxKeepsTheNewest(t *testing.T) {
	out := &slow{take: make(chan struct{})}
	m := NewMailbox(out)
	put := func(s string) {
		t.Helper()
		if err := m.Put([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	put("first\n")
	for { // until the first one is being written
		m.mu.Lock()
		full := m.hasLine
		m.mu.Unlock()
		if !full {
			break
		}
	}
	for i := range 100 {
		put(fmt.Sprintf("line %d\n", i))
	}
	if got := m.Dropped(); got != 99 {
		t.Errorf("Dropped = %d; want 99", got)
	}
	close(out.take)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"first\n", "line 99\n"}, out.lines); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

func TestMailboxReturnsOutputError(t *testing.T) {
	broken := errors.New("no reader")
	m := NewMailbox(errWriter{broken})
	if err := m.Put([]byte("a\n")); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); !errors.Is(err, broken) {
		t.Errorf("Close: %v; want the output's error", err)
	}
	if err := m.Put([]byte("b\n")); !errors.Is(err, broken) {
		t.Errorf("Put: %v; want the output's error", err)
	}
}

// A line is dropped if the output failed, but not if its reader has ended: then nobody misses it.
func TestMailboxCountsFailedWrites(t *testing.T) {
	for err, want := range map[error]int64{errors.New("no room"): 1, syscall.EPIPE: 0} {
		m := NewMailbox(errWriter{err})
		if err := m.Put([]byte("a\n")); err != nil {
			t.Fatal(err)
		}
		if closeErr := m.Close(); !errors.Is(closeErr, err) {
			t.Errorf("%v: Close returned %v", err, closeErr)
		}
		if got := m.Dropped(); got != want {
			t.Errorf("%v: Dropped = %d; want %d", err, got, want)
		}
	}
}

type errWriter struct{ err error }

func (w errWriter) Write([]byte) (int, error) { return 0, w.err }
