package resctrl

import (
	"fmt"

	"polder/lib/schemata"
)

// contest counts how often another program has changed one line.
type contest struct {
	agreed    schemata.Line // as it was read or written last
	contested int
	quiet     int
}

// quietRounds without a change by someone else end a contest, and forgiveRounds take one change off its count.
const (
	quietRounds   = 100
	forgiveRounds = 20
)

// agree notes a line that is as wanted.
func (r *round) agree(group string, l schemata.Line) {
	if r.DryRun {
		return
	}
	key := line{group, l.Resource}
	c := r.lines[key]
	if c == nil {
		c = &contest{}
		r.lines[key] = c
	}
	c.agreed = l
	if c.contested > 0 {
		if c.quiet++; c.quiet >= quietRounds {
			c.contested = 0
		}
	}
}

// contested reports whether a line that differs is to be left alone because someone else keeps changing it.
func (r *round) contested(group string, now schemata.Line) bool {
	c := r.lines[line{group, now.Resource}]
	if r.DryRun || c == nil {
		return false
	}
	if !c.agreed.Holds(now) {
		c.contested = max(0, c.contested-c.quiet/forgiveRounds) + 1
		c.quiet = 0
		r.fail(group, keySchemata, fmt.Errorf("changed by someone else from %s to %s", textOf(c.agreed), textOf(now)))
		c.agreed = now
	} else if c.contested > r.Contest { // it stays as the other wants it
		if c.quiet++; c.quiet >= quietRounds {
			c.contested = 0
		}
	}
	if c.contested <= r.Contest {
		return false
	}
	r.fail(group, keySchemata, fmt.Errorf("%s left alone: someone else changed it %d times (--contest %d)", textOf(now), c.contested, r.Contest))
	return true
}
