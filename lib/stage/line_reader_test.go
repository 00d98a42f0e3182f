package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/tests/await"
)

// waiting returns how many bytes are in a FIFO.
func waiting(t testing.TB, f *os.File) int {
	t.Helper()
	c, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if cErr := c.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil || cErr != nil {
		t.Fatal(err, cErr)
	}
	return n
}

func openLineReader(t testing.TB, f *os.File) *lineReader {
	t.Helper()
	l, err := newLineReader(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// sized returns a tick of about so many bytes, with its newline.
func sized(node string, bytes int) string {
	return fmt.Sprintf(`{"v":1,"node":%q,"time":"2026-01-01T00:00:00Z","pad":%q}`+"\n", node, strings.Repeat("x", bytes))
}

// For any length of a line, and any way in which it was written to the FIFO, the data after it stays there.
func TestLineReaderTakesOneLine(t *testing.T) {
	f := openTestFIFO(t, filepath.Join(t.TempDir(), "in.fifo"))
	r := tick.NewReader(openLineReader(t, f))
	r.WholeLines = true
	sizes := []int{1, 100, 4000, 4096, 5000, 30_000, 65_536, 100_000, 200_000, 10}
	var text []byte
	for i, size := range sizes {
		text = append(text, sized(fmt.Sprint("n", i), size)...)
	}
	for _, piece := range []int{len(text), 64 << 10, 4096, 1000} {
		left := len(text)
		for part := text; len(part) > 0; {
			n, err := f.Write(part[:min(piece, len(part))])
			if err != nil {
				t.Fatal(err)
			}
			part = part[n:]
		}
		for i := range sizes {
			l, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			left -= len(l.Bytes()) + 1
			if want := fmt.Sprint("n", i); l.Node != want {
				t.Errorf("line %d is of node %s; want %s", i, l.Node, want)
			}
			if got := waiting(t, f); got != left {
				t.Errorf("in pieces of %d: %d bytes are left behind line %d; want %d", piece, got, i, left)
			}
		}
	}
}

// Without a whole line it waits, until the deadline; the beginning of a line is kept, and the rest is read as soon as it is
// available.
func TestLineReaderWaits(t *testing.T) {
	f := openTestFIFO(t, filepath.Join(t.TempDir(), "in.fifo"))
	r := tick.NewReader(openLineReader(t, f))
	r.WholeLines = true
	whole := sized("a", 100_000)
	fmt.Fprint(f, whole[:50_000])
	next := make(chan error)
	go func() {
		_, err := r.Next()
		next <- err
	}()
	await.Until(t, time.Minute, "the line is begun", await.Is(func() bool { return waiting(t, f) == 0 }))
	if err := f.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := <-next; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Next: %v; want the deadline", err)
	}
	if err := f.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	r.Finish()
	go fmt.Fprint(f, whole[50_000:], sized("b", 10))
	if l, err := r.Next(); err != nil || l.Node != "a" {
		t.Fatalf("Next: %v, %v; want the begun line", l, err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("Next: %v; want EOF", err)
	}
	await.Until(t, time.Minute, "the next line waits, whose writer writes in two pieces", await.Is(func() bool { return waiting(t, f) == len(sized("b", 10)) }))
}

// While one tick is handled the following ones are in the FIFO, also for a live tool, which forwards it before it reads
// the next one.
func TestOneTickInMemory(t *testing.T) {
	patiently(t, &settleTimeout)
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live=%t", live), func(t *testing.T) {
			dir := t.TempDir()
			inPath, outPath := filepath.Join(dir, "in.fifo"), filepath.Join(dir, "out.fifo")
			in, out := openTestFIFO(t, inPath), openTestFIFO(t, outPath)
			const ticks = 20
			left := 0
			for i := range ticks {
				text := sized(fmt.Sprint("n", i), 3000)
				fmt.Fprint(in, text)
				left += len(text)
			}
			inHand, step := make(chan string), make(chan struct{})
			stop := tool(t, &harness{}, inPath, outPath, func(f *Filter) {
				f.Live = live
				f.Handle = func(_ context.Context, i Incoming) (any, error) {
					inHand <- i.Node
					<-step
					return nil, nil
				}
			})
			passed := 1 // the newline
			for i := range ticks {
				text := sized(fmt.Sprint("n", i), 3000)
				left -= len(text)
				if got, want := <-inHand, fmt.Sprint("n", i); got != want {
					t.Fatalf("%s is in hand; want %s", got, want)
				}
				if got := waiting(t, in); got != left {
					t.Errorf("%d bytes wait behind tick %d; want %d", got, i, left)
				}
				if got := waiting(t, out); i > 0 && got != passed {
					t.Errorf("%d bytes are passed on with tick %d in hand; want %d", got, i, passed)
				}
				passed += len(text)
				step <- struct{}{}
			}
			if status := stop(); status != 0 {
				t.Errorf("exit status %d", status)
			}
		})
	}
}

// fill writes to a FIFO until it is full.
func fill(t *testing.T, f *os.File) {
	t.Helper()
	c, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	blank := bytes.Repeat([]byte{'\n'}, 4096) // the kernel accepts this many bytes as a whole or not at all
	if cErr := c.Control(func(fd uintptr) {
		for err == nil {
			_, err = unix.Write(int(fd), blank)
		}
	}); cErr != nil || !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err, cErr)
	}
}

// A live tool whose next stage reads nothing logs at its end how many ticks it dropped.
func TestDroppedAtEndIsLogged(t *testing.T) {
	dir := t.TempDir()
	inPath, outPath := filepath.Join(dir, "in.fifo"), filepath.Join(dir, "out.fifo")
	in, out := openTestFIFO(t, inPath), openTestFIFO(t, outPath)
	fill(t, out)
	h := &harness{}
	handled := make(chan struct{}, 10)
	stop := tool(t, h, inPath, outPath, func(f *Filter) {
		f.Live = true
		f.Handle = func(context.Context, Incoming) (any, error) {
			handled <- struct{}{}
			return nil, nil
		}
	})
	for i := range 5 {
		fmt.Fprint(in, sized(fmt.Sprint("n", i), 10))
	}
	for range 5 {
		<-handled
	}
	stop()
	if log := h.err.String(); !strings.Contains(log, "droppedTicks=5") {
		t.Errorf("log = %q; want all five ticks counted", log)
	}
}

// BenchmarkFIFO measures the cost of looking ahead: lines through a FIFO, with it and with plain reads.
func BenchmarkFIFO(b *testing.B) {
	for _, size := range []int{3_000, 30_000, 200_000} {
		text := []byte(sized("n", size))
		for _, how := range []string{"plain", "line by line"} {
			b.Run(fmt.Sprintf("%dKB/%s", size/1000, how), func(b *testing.B) {
				path := filepath.Join(b.TempDir(), "in.fifo")
				f, _, err := open(path, os.O_RDWR)
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				var r io.Reader = f
				if how != "plain" {
					r = openLineReader(b, f)
				}
				lines := tick.NewReader(r)
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					if _, err := f.Write(text); err != nil {
						b.Fatal(err)
					}
					if _, err := lines.Next(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
