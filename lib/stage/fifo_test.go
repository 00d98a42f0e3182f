package stage

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
	"polder/tests/await"
)

// tool runs an echo between two FIFOs until it is stopped.
func tool(t *testing.T, h *harness, in, out string, change func(*Filter)) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		done <- h.echo(filterKind, change).Execute(ctx, Env{
			Args: []string{"echo", "--input", in, "--output", out}, In: strings.NewReader(""), Out: io.Discard, Err: &h.err,
			Getenv: os.Getenv, Now: func() time.Time { return now },
		})
	}()
	return func() int {
		cancel()
		select {
		case status := <-done:
			return status
		case <-time.After(time.Minute):
			t.Fatal("the tool does not stop")
			return -1
		}
	}
}

func openTestFIFO(t *testing.T, path string) *os.File {
	t.Helper()
	f, fifo, err := open(path, os.O_RDWR)
	if err != nil || !fifo {
		t.Fatalf("open %s: fifo %t, %v", path, fifo, err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Tools start and stop between two FIFOs; their neighbours see neither an end nor an error, and no tick is lost, not even
// the one that is half written when a tool stops.
func TestFIFOSurvivesRestarts(t *testing.T) {
	patiently(t, &drainTimeout)
	dir := t.TempDir()
	inPath, outPath := filepath.Join(dir, "in.fifo"), filepath.Join(dir, "out.fifo")
	in, out := openTestFIFO(t, inPath), openTestFIFO(t, outPath)
	if info, err := os.Stat(inPath); err != nil || info.Mode().Perm()&^0o660 != 0 {
		t.Errorf("mode of the FIFO: %v, %v; want 0660 at most", info.Mode(), err)
	}
	lines := bufio.NewReader(out)
	next := func() string {
		t.Helper()
		if err := out.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for {
			text, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			if text != "\n" {
				l, err := tick.ParseLine([]byte(strings.TrimSuffix(text, "\n")))
				if err != nil {
					t.Fatalf("garbled: %v: %s", err, text)
				}
				return l.Node
			}
		}
	}
	for round := range 20 {
		h := &harness{}
		stop := tool(t, h, inPath, outPath, nil)
		name := func(i int) string { return fmt.Sprintf("n%d-%d", round, i) }
		fmt.Fprintln(in, line(name(0), 0))
		if got := next(); got != name(0) {
			t.Fatalf("got %s; want %s", got, name(0))
		}
		// Half a line is in the FIFO when the tool is stopped.
		whole := line(name(1), 0) + "\n"
		fmt.Fprint(in, whole[:len(whole)/2])
		await.Until(t, time.Minute, "the tool has begun the line", await.Is(func() bool { return waiting(t, in) < len(whole)/2 }))
		finish := func() { fmt.Fprint(in, whole[len(whole)/2:], line(name(2), 0)+"\n") }
		rest := time.AfterFunc(20*time.Millisecond, finish)
		if got := stop(); got != 0 {
			t.Fatalf("exit status %d: %s", got, &h.err)
		}
		if rest.Stop() { // it has not begun the line
			finish()
		}
		stop = tool(t, &harness{}, inPath, outPath, nil) // unread ticks wait for the successor
		for i := 1; i <= 2; i++ {
			if got := next(); got != name(i) {
				t.Fatalf("got %s; want %s", got, name(i))
			}
		}
		stop()
	}
}

// The first byte into a FIFO ends a line that a killed predecessor left incomplete.
func TestFIFOStartsOnANewLine(t *testing.T) {
	dir := t.TempDir()
	inPath, outPath := filepath.Join(dir, "in.fifo"), filepath.Join(dir, "out.fifo")
	in, out := openTestFIFO(t, inPath), openTestFIFO(t, outPath)
	fmt.Fprint(out, `{"v":1,"node":"killed in the mid`)
	h := &harness{}
	stop := tool(t, h, inPath, outPath, nil)
	fmt.Fprint(in, `ed first line of ours"}`+"\n"+line("a", 0)+"\n")
	scanner := bufio.NewScanner(out)
	var got []string
	for len(got) < 2 && scanner.Scan() {
		got = append(got, scanner.Text())
	}
	want := []string{`{"v":1,"node":"killed in the mid`, strings.TrimSuffix(line("a", 0), "}") + `,"advice":{"policy":"a"}}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	stop()
	if log := h.err.String(); !strings.Contains(log, "cut=1") || strings.Contains(log, "dropped a line") {
		t.Errorf("log = %q; want the cut-off first line counted and no warning", log)
	}
}

// A live tool whose next stage does not read continues: the newest tick waits, the others are counted.
func TestLiveToolIsNotStoppedByASlowNextStage(t *testing.T) {
	dir := t.TempDir()
	inPath, outPath := filepath.Join(dir, "in.fifo"), filepath.Join(dir, "out.fifo")
	in, out := openTestFIFO(t, inPath), openTestFIFO(t, outPath)
	h := &harness{}
	dropped := make(chan int64, 1000)
	stop := tool(t, h, inPath, outPath, func(f *Filter) {
		f.Live = true
		handle := f.Handle
		f.Handle = func(ctx context.Context, i Incoming) (any, error) {
			dropped <- i.Dropped
			return handle(ctx, i)
		}
	})
	padding := strings.Repeat("x", 100<<10)
	for i := range 40 { // 4 MB into a FIFO of 1 MiB without a reader
		fmt.Fprintf(in, `{"padding":%q,%s`+"\n", padding, line(fmt.Sprintf("n%d", i), 0)[1:])
		<-dropped
	}
	fmt.Fprintln(in, line("end", 0))
	if n := <-dropped; n < 10 {
		t.Errorf("dropped = %d; want most of the ticks", n)
	}
	lines := bufio.NewReader(out)
	for last := ""; last != "end"; {
		text, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if text == "\n" {
			continue
		}
		l, err := tick.ParseLine(bytes.TrimSuffix([]byte(text), []byte("\n")))
		if err != nil {
			t.Fatalf("garbled: %v", err)
		}
		last = l.Node
	}
	stop()
}

func TestOpenRefusesNonFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.fifo")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(path, os.O_RDONLY); err == nil || !strings.Contains(err.Error(), "is not a FIFO") {
		t.Errorf("open: %v; want a refusal", err)
	}
	if _, _, err := open("fifo:"+filepath.Join(t.TempDir(), "no", "directory"), os.O_RDONLY); err == nil || !strings.Contains(err.Error(), "does its directory exist?") {
		t.Errorf("open: %v; want a hint", err)
	}
}

// A tool's own text is not written over its input, and --output names a FIFO for it as for ticks.
func TestOpenText(t *testing.T) {
	dir := t.TempDir()
	day := filepath.Join(dir, "day.jsonl")
	recording := []byte(line("a", 0) + "\n")
	if err := os.WriteFile(day, recording, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Session{Input: day, Output: day}
	if _, err := s.OpenText(); err == nil || !strings.Contains(err.Error(), "it is the input, too") {
		t.Errorf("%v; want the reason", err)
	}
	if got, err := os.ReadFile(day); err != nil || !bytes.Equal(got, recording) {
		t.Errorf("the recording is %q, %v; want it unchanged", got, err)
	}
	s.Output = "fifo:" + filepath.Join(dir, "table")
	reader := openTestFIFO(t, s.Output)
	out, err := s.OpenText()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(out, "text")
	got := make([]byte, 10)
	if n, err := reader.Read(got); err != nil || string(got[:n]) != "text\n" {
		t.Errorf("read %q, %v; want the text alone", got[:n], err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
}

// An output that is the input is refused before anything is written: a recording would be emptied before it is read.
func TestOutputIsInput(t *testing.T) {
	recording := []byte(line("a", 0) + "\n")
	path := filepath.Join(t.TempDir(), "day.jsonl")
	if err := os.WriteFile(path, recording, 0o600); err != nil {
		t.Fatal(err)
	}
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "1.fifo")
	openTestFIFO(t, fifo)
	for _, args := range [][]string{
		{"--input", path, "--output", path},
		{"--input", link, "--output", path},
		{"--input", fifo, "--output", "fifo:" + fifo},
	} {
		h := &harness{in: strings.NewReader("")}
		if got := h.run(t, h.echo(filterKind, nil), args...); got != 2 || !strings.Contains(h.err.String(), "it is the input, too") {
			t.Errorf("%v: exit status %d, stderr %q; want 2 and the reason", args, got, h.err.String())
		}
	}
	both, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer both.Close()
	h := &harness{}
	env := Env{Args: []string{"echo"}, In: both, Out: both, Err: &h.err, Getenv: os.Getenv, Now: time.Now}
	status := h.echo(filterKind, nil).Execute(t.Context(), env)
	if status != 2 {
		t.Errorf("standard input and output: exit status %d, stderr %q; want 2", status, h.err.String())
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, recording) {
		t.Errorf("the recording is %q, %v; want it unchanged", got, err)
	}
}
