// Package pipe runs the project's own tools as a pipe does: ticks go in line by line, and come out the same way.
package pipe

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"polder/lib/tick"
)

// built are the tools that this process has built, each when it was first wanted.
var built struct {
	sync.Mutex
	dir  string
	have map[string]bool
}

// Main runs a package's tests and takes the tools away afterwards: func TestMain(m *testing.M) { os.Exit(pipe.Main(m)) }.
func Main(m *testing.M) int {
	defer func() {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir)
		}
	}()
	return m.Run()
}

// Binary is a tool's path.
func Binary(t testing.TB, name string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "polder-tools-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir, built.have = dir, map[string]bool{}
	}
	path := filepath.Join(built.dir, name)
	if !built.have[name] {
		command := exec.Command("go", "build", "-o", path, "polder/"+name)
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("go build polder/%s: %v\n%s", name, err, out)
		}
		built.have[name] = true
	}
	return path
}

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

// Start starts a tool. Its log is printed where the test fails.
func Start(t testing.TB, name string, args ...string) *Tool {
	t.Helper()
	x := &Tool{t: t, name: name, lines: make(chan string, 4096), ended: make(chan error, 1)}
	x.cmd = exec.Command(Binary(t, name), args...)
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

// Write is the tool's standard error.
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

// PID is the tool's.
func (x *Tool) PID() int { return x.cmd.Process.Pid }

// Put gives the tool a tick and returns it as it comes out.
func (x *Tool) Put(in *tick.Tick) *tick.Tick {
	x.t.Helper()
	x.Send(in)
	return x.Next(10 * time.Second)
}

// Send gives the tool a tick.
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

// Next is the next tick that comes out.
func (x *Tool) Next(within time.Duration) *tick.Tick {
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
	case <-time.After(within):
		x.t.Fatalf("%s has written nothing for %s", x.name, within)
		return nil
	}
}

// Kill ends the tool as a crash does.
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
	case <-time.After(30 * time.Second):
		x.t.Fatalf("%s does not end", x.name)
		return nil
	}
}
