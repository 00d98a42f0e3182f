// Package cputime reads how long the CPUs of this machine have run programs, and how long not.
package cputime

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Times are sums over all CPUs since the machine's start.
type Times struct {
	Busy time.Duration // without steal time
	Idle time.Duration // waits for a disk included
	// Steal is what the host took from this virtual machine while it wanted to run.
	Steal time.Duration
}

// Read returns the present times, from /proc/stat (proc_stat(5)).
func Read() (t Times, err error) {
	const file = "/proc/stat"
	data, err := os.ReadFile(file)
	if err != nil {
		return t, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	const idleField, iowaitField, stealField = 3, 4, 7
	for i, field := range strings.Fields(line)[1:] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return t, fmt.Errorf("%s: %w", file, err)
		}
		ticks := time.Duration(n) * 10 * time.Millisecond // USER_HZ
		switch {
		case i == stealField:
			t.Steal = ticks
		case i == idleField || i == iowaitField:
			t.Idle += ticks
		case i < stealField: // the fields after it, guests, are already in user time
			t.Busy += ticks
		}
	}
	return t, nil
}

// UsedPart returns the part of the time between two readings in which the CPUs were not idle, 0 if no time passed.
func UsedPart(first, last Times) float64 {
	used := last.Busy - first.Busy + last.Steal - first.Steal
	all := used + last.Idle - first.Idle
	if all <= 0 {
		return 0
	}
	return used.Seconds() / all.Seconds()
}
