package stage

import "time"

// A tool on a node has a few milliseconds of work per second, one step after the other. With more than one processor, Go's runtime wakes
// a thread for each step to look for more work, which costs as much as the steps themselves. Several processors are only useful for more
// work: a recording, or a fleet's stream.

// manyTicks is the number of ticks within a second that counts as a lot of work.
const manyTicks = 50

// processors controls on how many processors a tool runs.
type processors struct {
	set    func(int) int // nil if it must not be changed
	all    int           // the original number
	begun  time.Time
	counts int
}

// OneProcessor limits the process to one processor at a time, unless GOMAXPROCS is set. A stream of many ticks ends that.
func (s *Session) OneProcessor() {
	if s.Processors == nil || s.Getenv("GOMAXPROCS") != "" || s.processors.set != nil {
		return
	}
	_ = calmMonitor() // without the capability the tool only costs more
	s.processors = processors{set: s.Processors, all: s.Processors(1)}
}

// tick counts a tick, and restores the number of processors if there are many ticks.
func (p *processors) tick(now time.Time) {
	if p.set == nil {
		return
	}
	if p.counts++; now.Sub(p.begun) >= time.Second || now.Before(p.begun) {
		p.begun, p.counts = now, 1
	}
	if p.counts >= manyTicks {
		p.set(p.all)
		p.set = nil
	}
}
