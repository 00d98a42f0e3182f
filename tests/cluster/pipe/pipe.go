// Package pipe runs the project's tools as in a pipe: it writes ticks to them line by line, and reads ticks from them.
package pipe

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
	"polder/tests/await"
	"polder/tests/binaries"
)

// Tool is a running tool.
type Tool struct {
	t     testing.TB
	name  string
	in    io.WriteCloser
	lines chan string
	ended chan error
	cmd   *exec.Cmd
	mu    sync.Mutex
	log   strings.Builder
}

// mostUnread is how many lines a tool may write while a test reads none: those of many minutes.
const mostUnread = 1 << 16

// Start starts a tool. Its log is printed if the test fails.
func Start(t testing.TB, name string, args ...string) *Tool {
	t.Helper()
	x := &Tool{t: t, name: name, lines: make(chan string, mostUnread), ended: make(chan error, 1)}
	x.cmd = exec.Command(binaries.Path(t, name), args...)
	x.cmd.Stderr = x
	var err error
	if x.in, err = x.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, 16<<20)
		for scanner.Scan() {
			x.lines <- scanner.Text()
		}
		close(x.lines)
		x.ended <- x.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("%s's log:\n%s", name, x.Log())
		}
	})
	return x
}

// Write receives the tool's standard error.
func (x *Tool) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.log.Write(b)
}

// Log is what the tool has logged.
func (x *Tool) Log() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.log.String()
}

// AwaitLog waits until the text is in the tool's log, that many times at least. A line of the log may come after a tick that was written
// later: they are read side by side.
func (x *Tool) AwaitLog(text string, times int) {
	x.t.Helper()
	await.Until(x.t, patience, fmt.Sprintf("%q is in the log of %s %d times", text, x.name, times), func() string {
		if log := x.Log(); strings.Count(log, text) < times {
			return "the log is:\n" + log
		}
		return ""
	})
}

// PID is the tool's process ID.
func (x *Tool) PID() int { return x.cmd.Process.Pid }

// patience is the limit for a tick, and for the tool's end: much longer than it needs on a busy machine.
const patience = 5 * time.Minute

// Put sends the tool a tick and returns its output.
func (x *Tool) Put(in *tick.Tick) *tick.Tick {
	x.t.Helper()
	x.Send(in)
	return x.Next()
}

// Send sends the tool a tick.
func (x *Tool) Send(in *tick.Tick) {
	x.t.Helper()
	line, err := tick.Marshal(in)
	if err != nil {
		x.t.Fatal(err)
	}
	if _, err := x.in.Write(append(line, '\n')); err != nil {
		x.t.Fatalf("write to %s: %v", x.name, err)
	}
}

// Next is the next tick that the tool writes.
func (x *Tool) Next() *tick.Tick {
	x.t.Helper()
	select {
	case line, ok := <-x.lines:
		if !ok {
			x.t.Fatalf("%s has ended", x.name)
		}
		out := new(tick.Tick)
		if err := tick.Unmarshal([]byte(line), out); err != nil {
			x.t.Fatalf("%s wrote %q: %v", x.name, line, err)
		}
		return out
	case <-time.After(patience):
		x.t.Fatalf("%s has written nothing for %s", x.name, patience)
		return nil
	}
}

// Kill kills the tool, as in a crash.
func (x *Tool) Kill() {
	x.t.Helper()
	_ = x.cmd.Process.Kill()
	<-x.ended
}

// End closes the tool's input, or sends it a signal, and waits for its end.
func (x *Tool) End(signals ...syscall.Signal) error {
	x.t.Helper()
	for _, s := range signals {
		if err := x.cmd.Process.Signal(s); err != nil {
			x.t.Fatal(err)
		}
	}
	if len(signals) == 0 {
		_ = x.in.Close()
	}
	select {
	case err := <-x.ended:
		return err
	case <-time.After(patience):
		x.t.Fatalf("%s does not end", x.name)
		return nil
	}
}
