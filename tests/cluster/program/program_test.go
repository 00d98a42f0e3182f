package program

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, script string) *Program {
	t.Helper()
	p, err := Start(filepath.Join(t.TempDir(), "log"), exec.Command("sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestDied(t *testing.T) {
	p := start(t, "echo first; echo last words; exit 3")
	never := errors.New("not yet")
	err := p.Await(t.Context(), func(context.Context) error { return never })
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "last words") {
		t.Errorf("Await = %v, want its exit status and its output", err)
	}
	if p.Running() || p.Died() == nil {
		t.Errorf("Running %v, Died %v", p.Running(), p.Died())
	}
	if got := p.Tail(1); got != "last words" {
		t.Errorf("Tail(1) = %q", got)
	}
	if err := p.Signal(syscall.SIGTERM); err == nil {
		t.Error("a signal was sent to a process that has ended")
	}
}

func TestKill(t *testing.T) {
	p := start(t, "echo up; sleep 1000 & wait") // its child is killed, too
	if err := p.Await(t.Context(), func(context.Context) error {
		if p.Tail(1) != "up" {
			return errors.New("silent")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if p.ResidentBytes() == 0 {
		t.Error("it uses no memory")
	}
	p.Kill()
	if p.Running() || p.Died() != nil {
		t.Errorf("Running %v, Died %v after Kill", p.Running(), p.Died())
	}
	for deadline := time.Now().Add(time.Minute); syscall.Kill(-p.PID, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the group still has members")
		}
	}
}

func TestAwaitLimit(t *testing.T) {
	p := start(t, "sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := p.Await(ctx, func(context.Context) error { return errors.New("the port is silent") })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the port is silent") {
		t.Errorf("Await = %v", err)
	}
}

func TestNoSuchProgram(t *testing.T) {
	if _, err := Start(filepath.Join(t.TempDir(), "log"), exec.Command("/nonexistent/program")); err == nil || !strings.Contains(err.Error(), "/nonexistent/program") {
		t.Errorf("Start = %v", err)
	}
}
