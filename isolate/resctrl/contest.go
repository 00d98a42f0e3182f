package resctrl

import (
	"fmt"

	"polder/isolate/journal"
	"polder/lib/schemata"
)

// contest counts external changes of one line.
type contest struct {
	journal.Contest
	agreed schemata.Line // as it was read or written last
}

// agree records that a line is as desired.
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
	c.Calm()
}

// contested reports whether a line that differs must be left alone because another program keeps changing it.
func (r *round) contested(group string, now schemata.Line) bool {
	c := r.lines[line{group, now.Resource}]
	if r.DryRun || c == nil {
		return false
	}
	if c.agreed.Holds(now) { // the advice changed, or the value stays as the other program set it
		c.Calm()
	} else {
		c.Change()
		r.fail(group, keySchemata, fmt.Errorf("changed by someone else from %s to %s", textOf(c.agreed), textOf(now)))
		c.agreed = now
	}
	why := c.LeftAlone(r.Contest)
	if why == "" {
		return false
	}
	r.fail(group, keySchemata, fmt.Errorf("%s %s", textOf(now), why))
	return true
}
