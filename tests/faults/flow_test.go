package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
	"polder/lib/tick/ticktest"
	"polder/tests/await"
)

// patient is how long the fault tests wait for anything: they check what happens, not how fast a busy machine does it.
const patient = 3 * time.Minute

// proc is a running tool; it may be restarted.
type proc struct {
	t    *testing.T
	tool string
	args []string
	cmd  *exec.Cmd
	log  *await.Log
	done chan error
}

// launch starts a tool, and ends it with the test.
func launch(t *testing.T, tool string, args ...string) *proc {
	t.Helper()
	p := &proc{t: t, tool: tool, args: args, log: &await.Log{}}
	p.start()
	t.Cleanup(func() {
		if p.cmd != nil {
			p.stop(unix.SIGKILL)
		}
		checkLog(t, tool, p.log.String())
	})
	return p
}

func (p *proc) start() {
	p.t.Helper()
	p.cmd = exec.Command(filepath.Join(bin, p.tool), p.args...)
	p.cmd.Stderr = p.log // standard output is the null device: all data is in FIFOs
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.tool, err)
	}
	p.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan<- error) { done <- cmd.Wait() }(p.cmd, p.done)
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("signal %s: %v", p.tool, err)
	}
}

// wait waits for the end and returns the exit status, -1 after a signal.
func (p *proc) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patient):
		_ = p.cmd.Process.Kill()
		p.t.Fatalf("%s has not ended after %s: %s", p.tool, patient, p.log)
	}
	status := p.cmd.ProcessState.ExitCode()
	p.cmd = nil
	return status
}

func (p *proc) stop(s syscall.Signal) int {
	p.t.Helper()
	p.signal(s)
	return p.wait()
}

// alive fails the test if the tool has ended: its neighbour's end is no reason to.
func (p *proc) alive() {
	p.t.Helper()
	select {
	case err := <-p.done:
		p.done <- err
		p.t.Fatalf("%s ended (%v) with its neighbour: %s", p.tool, err, p.log)
	default:
	}
}

// standsStill waits until all threads of a tool that got SIGSTOP have stopped.
func (p *proc) standsStill() {
	p.t.Helper()
	await.Until(p.t, patient, p.tool+" stands still", func() string {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			return fmt.Sprintf("its threads are %v, %v", threads, err)
		}
		for _, path := range threads {
			data, _ := os.ReadFile(path) // none if the thread has ended
			if _, rest, ok := strings.Cut(string(data), ") "); ok && !strings.HasPrefix(rest, "T") {
				return string(data)
			}
		}
		return ""
	})
}

// anonymousKiB is the resident memory without the pages of files, which a machine that is short of memory drops and reads again.
func (p *proc) anonymousKiB() int {
	p.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "RssAnon:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		p.t.Fatalf("no RssAnon of %s", p.tool)
	}
	n, err := strconv.Atoi(fields[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// descriptors is the number of open files.
func (p *proc) descriptors() int {
	p.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(entries)
}

// checkLog fails the test if a tool crashed.
func checkLog(t *testing.T, tool, log string) {
	t.Helper()
	for _, bad := range []string{"panic", "goroutine ", "fatal error", "SIGSEGV", "DATA RACE"} {
		if strings.Contains(log, bad) {
			t.Errorf("%s: standard error has %q: %s", tool, bad, clip(log, 4000))
			return
		}
	}
}

func clip(text string, n int) string {
	if len(text) > n {
		return text[:n] + "…"
	}
	return text
}

// seen is a tick as the last tool wrote it.
type seen struct {
	*tick.Tick
	line []byte // its beginning
	at   time.Time
}

// sink reads the end of the pipe.
type sink struct {
	t     *testing.T
	f     *os.File
	ended chan struct{}

	mu    sync.Mutex
	cond  *sync.Cond
	ticks []seen
	bad   []string
	check func([]byte) error // of every line
}

// keepLine is how much of a line is kept for the tests.
const keepLine = 400

// newFIFO makes a FIFO and returns its path.
func newFIFO(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openSink reads the ticks that come out of a FIFO until the test ends.
func openSink(t *testing.T, path string, check func([]byte) error) *sink {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{t: t, f: f, ended: make(chan struct{}), check: check}
	s.cond = sync.NewCond(&s.mu)
	go s.read()
	t.Cleanup(func() {
		f.Close()
		<-s.ended
	})
	return s
}

func (s *sink) read() {
	defer close(s.ended)
	r := tick.NewReader(s.f)
	r.OnInvalid = func(number int64, err error) {
		s.mu.Lock()
		s.bad = append(s.bad, fmt.Sprintf("line %d: %v", number, err))
		s.mu.Unlock()
	}
	for n := 0; ; n++ {
		line, err := r.Next()
		if err != nil {
			return
		}
		x := seen{line: bytes.Clone(line.Bytes()[:min(keepLine, len(line.Bytes()))]), at: time.Now()}
		x.Tick, err = line.Decode(tick.SectionAdvice, tick.SectionIsolation, tick.SectionEviction, tick.SectionReport)
		if err == nil && s.check != nil {
			err = s.check(line.Bytes())
		}
		if err == nil && (n%50 == 0 || len(line.Bytes()) < 5000 && n%5 == 0) { // the schema is slow: some of them
			err = ticktest.Validate(line.Bytes())
		}
		if err != nil {
			r.OnInvalid(line.Number, fmt.Errorf("%w: %s", err, clip(string(line.Bytes()), keepLine)))
			continue
		}
		s.mu.Lock()
		s.ticks = append(s.ticks, x)
		s.mu.Unlock()
		s.cond.Broadcast()
	}
}

// all is what came so far.
func (s *sink) all() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.ticks)
}

// last is the time of the newest tick; zero while something waits in the FIFO.
func (s *sink) last(t *testing.T) time.Time {
	t.Helper()
	c, err := s.f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	waiting := 0
	if cErr := c.Control(func(fd uintptr) { waiting, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); cErr != nil || err != nil {
		t.Fatal(cErr, err)
	}
	all := s.all()
	if waiting > 0 || len(all) == 0 {
		return time.Time{}
	}
	return all[len(all)-1].Time
}

// await returns the first tick from the number `from` on that meets the condition.
func (s *sink) await(from int, what string, is func(seen) bool) (seen, int) {
	s.t.Helper()
	deadline := time.Now().Add(patient)
	late := time.AfterFunc(patient, s.cond.Broadcast) // after the deadline
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := from; ; {
		for ; i < len(s.ticks); i++ {
			if is(s.ticks[i]) {
				return s.ticks[i], i
			}
		}
		if !time.Now().Before(deadline) {
			s.t.Fatalf("not within %s: %s; %d ticks came, refused lines %q", patient, what, len(s.ticks), s.bad)
		}
		s.cond.Wait()
	}
}

// whole fails the test if an output line is not a tick, breaks the contract or differs from the input.
func (s *sink) whole() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bad {
		s.t.Errorf("a garbled line came out: %s", b)
	}
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
