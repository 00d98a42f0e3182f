package main

import (
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// busyPart is the part of the machine's CPU time from which other programs keep it busy.
const busyPart = 0.5

// hasBusyArgs reports whether one of the tiers has arguments for a busy machine.
func hasBusyArgs(chosen [][]tier) bool {
	return slices.ContainsFunc(slices.Concat(chosen...), func(t tier) bool {
		return slices.ContainsFunc(t.runs, func(r run) bool { return len(r.busyArgs) > 0 })
	})
}

// isBusy reports whether the machine is busy during the given time, in which the tests do nothing. A machine that cannot tell is not.
func isBusy(during time.Duration) bool {
	first, err := cpuTime()
	if err != nil {
		return false
	}
	time.Sleep(during)
	last, err := cpuTime()
	return err == nil && usedPart(first, last) > busyPart
}

func cpuTime() (procfs.CPUStat, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return procfs.CPUStat{}, err
	}
	stat, err := fs.Stat()
	return stat.CPUTotal, err
}

// usedPart returns the part of the time between two readings in which the CPUs were busy.
func usedPart(first, last procfs.CPUStat) float64 {
	busy := func(s procfs.CPUStat) float64 { return s.User + s.Nice + s.System + s.IRQ + s.SoftIRQ + s.Steal }
	idle := func(s procfs.CPUStat) float64 { return s.Idle + s.Iowait }
	used, free := busy(last)-busy(first), idle(last)-idle(first)
	if used+free <= 0 {
		return 0
	}
	return used / (used + free)
}
