package source

import (
	"time"

	"polder/collect/loadavg"
)

// threadShare is the part of the interval that reading threads' states may take in a round; counting threads, where no file has
// their number, may take as much again. Both together delay a tick by a tenth of the interval at most.
const threadShare = 20

// leastSteps are always taken: so many threads cost a millisecond or two, and on a busy machine that much time can pass without a
// step.
const leastSteps = 256

// budget is the time for threads in one round.
type budget struct {
	now   func() time.Time
	until time.Time
	limit time.Duration // 0 is no limit
	taken int
}

// threadTime begins a round's budget for the threads' states.
func (e *Env) threadTime() *budget { return e.allow(threadShare) }

// allow begins a round's budget of a part of the interval. Where rounds are far apart, the load is sampled between them.
func (e *Env) allow(share time.Duration) *budget {
	b := &budget{now: e.Now, limit: min(e.Interval, loadavg.Every) / share}
	if b.limit > 0 {
		b.until = b.now().Add(b.limit)
	}
	return b
}

// hasTime is a [cgroup.HasTime].
func (b *budget) hasTime(steps int) bool {
	b.taken += steps
	return b.limit <= 0 || b.taken <= leastSteps || b.now().Before(b.until)
}
