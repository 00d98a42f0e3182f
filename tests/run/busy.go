package main

import (
	"slices"
	"time"

	"polder/tests/cputime"
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
	first, err := cputime.Read()
	if err != nil {
		return false
	}
	time.Sleep(during)
	last, err := cputime.Read()
	return err == nil && cputime.UsedPart(first, last) > busyPart
}
