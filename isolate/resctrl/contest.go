package resctrl

import (
	"fmt"

	"polder/isolate/journal"
	"polder/lib/schemata"
)

// contest counts external changes of one line.
type contest struct {
	journal.Contest
	expected schemata.Line // as it was read or written last
}

// expect records that a line is as desired.
func (r *round) expect(group string, l schemata.Line) {
	if r.DryRun {
		return
	}
	key := lineKey{group, l.Resource}
	c := r.contests[key]
	if c == nil {
		c = &contest{}
		r.contests[key] = c
	}
	c.expected = l
	c.RecordUnchanged()
}

// isContested reports whether a line that differs is left to another program that keeps changing it.
func (r *round) isContested(group string, current schemata.Line) bool {
	c := r.contests[lineKey{group, current.Resource}]
	if r.DryRun || c == nil {
		return false
	}
	known := current.Select(c.expected) // nothing is known of a domain that is named for the first time
	if c.expected.Contains(known) {     // the advice changed, or the value stays as the other program set it
		c.RecordUnchanged()
	} else {
		c.RecordChange()
		r.fail(group, keySchemata, fmt.Errorf("changed externally from %s to %s", textOf(c.expected.Select(known)), textOf(known)))
		c.expected = current
	}
	reason := c.YieldReason(r.Contest)
	if reason == "" {
		return false
	}
	r.fail(group, keySchemata, fmt.Errorf("%s %s", textOf(current), reason))
	return true
}
