// Package program runs a server for as long as a test needs it, and never longer.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Program is a running server in a process group of its own, its output in a log.
type Program struct {
	Name string
	Log  string
	PID  int

	stopping bool
	done     chan struct{}
	err      error // once done
}

// Start starts cmd, whose output is added to log. The process dies with this one, whatever kills it.
func Start(log string, cmd *exec.Cmd) (*Program, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &Program{Name: filepath.Base(cmd.Path), Log: log, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The death signal comes when the thread that started the process ends, so that thread is kept until the process has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.PID = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Running reports whether the process is running.
func (p *Program) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Done is closed when the process has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Died is the error of a process that ended by itself; nil otherwise.
func (p *Program) Died() error {
	if p.Running() || p.stopping {
		return nil
	}
	return fmt.Errorf("%s ended by itself: %w; its log's end:\n%s", p.Name, p.err, p.Tail(15))
}

// Signal sends a signal to the process group.
func (p *Program) Signal(signal syscall.Signal) error {
	if !p.Running() {
		return fmt.Errorf("%s is not running", p.Name)
	}
	return syscall.Kill(-p.PID, signal)
}

// Kill kills the process group and returns when the process is gone.
func (p *Program) Kill() {
	p.stopping = true
	if p.Running() {
		_ = syscall.Kill(-p.PID, syscall.SIGKILL) // it may have ended meanwhile
	}
	<-p.done
}

// Tail is the last lines of the log.
func (p *Program) Tail(lines int) string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// ResidentBytes is the memory of the process itself.
func (p *Program) ResidentBytes() int64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID)) // zero if the process has ended
	var size, resident int64
	_, _ = fmt.Sscan(string(data), &size, &resident)
	return resident * int64(os.Getpagesize())
}

// Await calls ready until it returns nil, the context ends or the process ends.
func (p *Program) Await(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			if died := p.Died(); died != nil {
				return died
			}
			return fmt.Errorf("%s was stopped before it was ready", p.Name)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w): %w; its log's end:\n%s", p.Name, context.Cause(ctx), err, p.Tail(15))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
