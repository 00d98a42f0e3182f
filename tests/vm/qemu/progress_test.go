package qemu

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// begin starts a command and watches it and a file.
func begin(t *testing.T, command string) (p *Progress, file string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", command)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	file = filepath.Join(t.TempDir(), "console")
	return Watch(cmd.Process.Pid, file), file
}

// A process that uses CPU time and writes nothing counts as hung by that time, whatever the clock shows.
func TestStalledByCPUTime(t *testing.T) {
	p, file := begin(t, "while :; do :; done")
	p.silentCPU = 300 * time.Millisecond
	for p.Stalled() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	// Its output gives it as much time again.
	if err := os.WriteFile(file, []byte("a line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Stalled(); err != nil {
		t.Errorf("after a line: %v", err)
	}
	if p.cpu < p.silentCPU {
		t.Errorf("its recorded CPU time is %s, and it has used %s at least", p.cpu, p.silentCPU)
	}
}

// A process without CPU time counts as hung by the clock alone.
func TestStalledByClock(t *testing.T) {
	p, _ := begin(t, "exec sleep 3600")
	if err := p.Stalled(); err != nil {
		t.Errorf("at once: %v", err)
	}
	p.at = p.at.Add(-silentWall)
	if p.Stalled() == nil {
		t.Errorf("it waits for ever")
	}
	if p.slowDown(3); p.Stalled() != nil {
		t.Errorf("a guest with a slower clock has no more time")
	}
	p.at = p.at.Add(-2 * silentWall)
	if p.Stalled() == nil {
		t.Errorf("such a guest has it for ever")
	}
}
