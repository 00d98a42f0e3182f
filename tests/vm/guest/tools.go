package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"polder/lib/tick"
)

// pipe is the project's tools, joined as a shell joins them.
type pipe struct {
	stages []*exec.Cmd
	log    bytes.Buffer
	logMu  sync.Mutex

	mu    sync.Mutex
	ticks []*tick.Tick
	bad   []error
	eof   chan struct{}
}

// Write receives the stages' standard error.
func (p *pipe) Write(data []byte) (int, error) {
	p.logMu.Lock()
	defer p.logMu.Unlock()
	return p.log.Write(data)
}

// startPipe starts the tools, each given as one line. The last one's output is decoded as it comes.
func (t *T) startPipe(commands ...string) *pipe { return t.startPipeFrom(nil, commands...) }

// startFed starts one tool like startPipe; it gets its ticks from the test, and ends when the test closes its input.
func (t *T) startFed(command string) (*pipe, io.WriteCloser) {
	from, input, err := os.Pipe()
	t.Must(err)
	return t.startPipeFrom(from, command), input
}

// startPipeFrom starts the tools with the first one's input, which is closed here after it has started; nil for none.
func (t *T) startPipeFrom(input io.Reader, commands ...string) *pipe {
	p := &pipe{eof: make(chan struct{})}
	for _, command := range commands {
		words := strings.Fields(command)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Stdin, cmd.Stderr = input, p
		output, err := cmd.StdoutPipe()
		t.Must(err)
		t.Must(cmd.Start())
		if f, ok := input.(*os.File); ok {
			f.Close() // it belongs to the stage now
		}
		input = output
		p.stages = append(p.stages, cmd)
	}
	go p.decode(input)
	t.Cleanup(p.kill)
	return p
}

func (p *pipe) decode(from io.Reader) {
	defer close(p.eof)
	lines := bufio.NewReaderSize(from, 1<<20)
	for {
		raw, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var tk tick.Tick
		err = tick.Unmarshal(raw, &tk)
		p.mu.Lock()
		if err == nil {
			p.ticks = append(p.ticks, &tk)
		} else {
			p.bad = append(p.bad, fmt.Errorf("%w: %.200q", err, raw))
		}
		p.mu.Unlock()
	}
}

// last is the newest tick; nil before the first.
func (p *pipe) last() *tick.Tick {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ticks) == 0 {
		return nil
	}
	return p.ticks[len(p.ticks)-1]
}

// await waits for a tick that meets the condition and returns it.
func (t *T) await(p *pipe, what string, wanted func(*tick.Tick) bool) *tick.Tick {
	var found *tick.Tick
	if within(func() bool {
		found = p.last()
		return found != nil && wanted(found)
	}) {
		return found
	}
	text := []byte("none")
	if found != nil {
		text, _ = tick.Marshal(found) // it came as JSON
	}
	t.Fatalf("no tick with %s in %s; the last one: %s\nthe tools logged: %s", what, patience, text, p.logs())
	return nil
}

func (p *pipe) logs() string {
	p.logMu.Lock()
	defer p.logMu.Unlock()
	return p.log.String()
}

// stop ends the first stage as a user would; the others end at their input's end. All must succeed.
func (t *T) stop(p *pipe) {
	t.Must(p.stages[0].Process.Signal(unix.SIGTERM))
	t.wait(p)
}

// wait waits for the pipe's own end.
func (t *T) wait(p *pipe) {
	select {
	case <-p.eof:
	case <-time.After(patience):
		t.Fatalf("the pipe does not end; the tools logged: %s", p.logs())
	}
	for _, s := range p.stages {
		if err := s.Wait(); err != nil {
			t.Errorf("%s: %v; the tools logged: %s", s.Args[0], err, p.logs())
		}
	}
	for _, err := range p.bad {
		t.Errorf("%v", err)
	}
}

func (p *pipe) kill() {
	for _, s := range p.stages {
		_ = s.Process.Kill() // it may have ended
		_ = s.Wait()
	}
}

// tool runs one tool to its end with input, and returns its output; it must end with the given status.
func (t *T) tool(status int, input, command string) (output, stderr string) {
	words := strings.Fields(command)
	cmd := exec.Command(words[0], words[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	_ = cmd.Run() // judged by the status
	if got := cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("%s ended with status %d, want %d: %s", command, got, status, errs.String())
	}
	return out.String(), errs.String()
}

// isolate runs isolate on one constructed advice.
func (t *T) isolate(flags string, wanted ...tick.Cgroup) *tick.Isolation {
	host, err := os.Hostname()
	t.Must(err)
	line, err := tick.Marshal(tick.Tick{V: tick.Version, Node: host, Time: time.Now().UTC(), Advice: &tick.Advice{Policy: "by hand", Cgroups: wanted}})
	t.Must(err)
	out, stderr := t.tool(0, string(line)+"\n", "isolate --max-age 10m "+flags)
	var tk tick.Tick
	if err := tick.Unmarshal([]byte(out), &tk); err != nil || tk.Isolation == nil {
		t.Fatalf("isolate wrote %q (%v), logged %s", out, err, stderr)
	}
	text, err := tick.Marshal(tk.Isolation)
	t.Must(err)
	t.Logf("isolation: %s", text)
	return tk.Isolation
}

// classify writes a file of rules and returns its path.
func (t *T) classify(rules string) string {
	const path = "/run/classify.yaml"
	t.Must(os.WriteFile(path, []byte("rules:\n"+rules), 0o644))
	return path
}

// pod finds a pod of a sample by its cgroup; nil if there is none.
func pod(tk *tick.Tick, cgroup string) *tick.Pod {
	if tk.Sample == nil {
		return nil
	}
	for i := range tk.Sample.Pods {
		if tk.Sample.Pods[i].Cgroup == cgroup {
			return &tk.Sample.Pods[i]
		}
	}
	return nil
}

// number is a value that may be missing.
func number(p *float64) float64 {
	if p == nil {
		return -1
	}
	return *p
}
