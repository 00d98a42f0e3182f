package qemu

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A guest that is silent for so long hangs. A busy host gives it little CPU time, so that the CPU time
// counts: between two lines of a boot, or two signs of life of a suite, a guest needs some 10 s of it. One that waits for an interrupt that
// never comes uses none; the host's clock finds it.
const (
	silentCPU  = 120 * time.Second
	silentWall = 6 * time.Minute
)

// Progress distinguishes a slow guest from one that hangs, by its output and by the CPU time that it has had since it last wrote.
type Progress struct {
	pid   int
	files []string

	silentCPU, silentWall time.Duration

	bytes int64         // written so far
	cpu   time.Duration // of the process when it last wrote
	at    time.Time
}

// Watch starts with a QEMU process that has just been started, and its guest's output files.
func Watch(pid int, files ...string) *Progress {
	return &Progress{pid: pid, files: files, silentCPU: silentCPU, silentWall: silentWall, at: time.Now()}
}

// slowDown allows for a guest whose clock is so many times slower: its signs of life are rarer.
func (p *Progress) slowDown(dilation int) {
	p.silentCPU *= time.Duration(max(dilation, 1))
	p.silentWall *= time.Duration(max(dilation, 1))
}

// ErrHangs is the reason if a machine that ran something hangs, which an emulated one on a busy host does now and then: its CPUs wait for
// one another. A program that hangs in a guest is none: the guest goes on to write its signs of life.
var ErrHangs = errors.New("the guest hangs")

// Stalled is the error of a guest that hangs, nil for one that makes progress.
func (p *Progress) Stalled() error {
	var bytes int64
	for _, file := range p.files {
		if info, err := os.Stat(file); err == nil {
			bytes += info.Size()
		}
	}
	cpu := CPUTime(p.pid)
	if bytes != p.bytes {
		p.bytes, p.cpu, p.at = bytes, cpu, time.Now()
		return nil
	}
	used, waited := cpu-p.cpu, time.Since(p.at)
	if used < p.silentCPU && waited < p.silentWall {
		return nil
	}
	return fmt.Errorf("%w: it wrote nothing for %.0f s, in which it had %.0f s of CPU time", ErrHangs, waited.Seconds(), used.Seconds())
}

// CPUTime is the CPU time that a process has used.
func CPUTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0 // it has ended
	}
	_, rest, _ := strings.Cut(string(data), ") ") // the name may contain spaces
	var user, system int64
	if fields := strings.Fields(rest); len(fields) > 12 {
		user, _ = strconv.ParseInt(fields[11], 10, 64) // the kernel's own numbers
		system, _ = strconv.ParseInt(fields[12], 10, 64)
	}
	return time.Duration(user+system) * time.Second / 100 // USER_HZ
}
