// Package loadavg averages numbers of runnable threads as the kernel averages its own load.
package loadavg

import (
	"math"
	"time"
)

// Every is how often the kernel samples its own load (LOAD_FREQ, kernel/sched/loadavg.c).
const Every = 5 * time.Second

// early is how long before it is due a sample may be taken, so that it is not a whole interval late.
const early = 500 * time.Millisecond

// beginEvery is how often samples are taken in the first 5 seconds.
const beginEvery = time.Second

// longestGap is the time without samples after which the averages begin again: little of the 5 minutes' average is left by then, and one
// sample would make up the rest.
const longestGap = 5 * time.Minute

// Average is a number of runnable threads averaged as the kernel averages its own load: exponentially, over 1 and 5
// minutes. Unlike the kernel's, which begins at 0 when the machine starts, it begins with the mean of its first samples:
// the threads ran before they were first sampled, and a load that begins at 0 would be too low for minutes. A single sample
// would be wrong, too, because a service that runs a tenth of the time is found either running or not: in the first 5
// seconds samples come every second.
type Average struct {
	Load1 float64 `json:"load1"`
	Load5 float64 `json:"load5"`
	// At is the time of the last sample, zero where there is none and the averages mean nothing.
	At time.Time `json:"at"`
	// Began is the time of the first sample, Samples the number in the first 5 seconds.
	Began   time.Time `json:"began"`
	Samples int       `json:"samples"`
}

// Due reports whether it is time for a sample.
func (l *Average) Due(at time.Time) bool {
	every := Every
	if l.beginning(at) {
		every = beginEvery
	}
	return !l.Valid() || at.Before(l.At) || at.Sub(l.At) >= every-early
}

func (l *Average) beginning(at time.Time) bool {
	return !at.Before(l.Began) && at.Sub(l.Began) < Every-early
}

// Add takes a sample. Late and missed samples decay the averages by the time that really passed, which for samples
// every 5 s is the kernel's own formula. A sample of before the last one (a clock that was set back) counts as one at
// the same time: the averages stay.
func (l *Average) Add(at time.Time, runnable float64) {
	if !(runnable >= 0) || math.IsInf(runnable, 1) {
		return
	}
	switch {
	case !l.Valid():
		l.Began = at
	case at.Sub(l.At) > longestGap:
		*l = Average{Began: at}
	case at.Before(l.Began):
		l.Began = at.Add(-Every) // the clock was set back; the beginning is over
	}
	if l.beginning(at) {
		l.Samples++
		l.Load1 += (runnable - l.Load1) / float64(l.Samples)
		l.Load5 = l.Load1
	} else if seconds := at.Sub(l.At).Seconds(); seconds > 0 {
		l.Load1 = decay(l.Load1, runnable, seconds, 60)
		l.Load5 = decay(l.Load5, runnable, seconds, 300)
	}
	l.At = at
}

// Valid reports whether there has been a sample.
func (l *Average) Valid() bool { return !l.At.IsZero() }

// Known reports whether the averages are usable: the first 5 seconds are over. A pool that is sized by the first sample, and keeps
// its size for half a minute, would have a whole core too much for a service that ran at that moment.
func (l *Average) Known(now time.Time) bool { return l.Valid() && now.Sub(l.Began) >= Every-early }

func decay(load, sample, seconds, window float64) float64 {
	e := math.Exp(-seconds / window)
	return load*e + sample*(1-e)
}
