package journal

import "fmt"

// resetRounds without an external change end a contest; decayRounds subtract one change: a program that rarely changes a value
// does not contest it, however long it continues.
const (
	resetRounds = 100
	decayRounds = 20
)

// Contest counts how often another program has changed one value that isolate writes.
type Contest struct {
	changes   int // the changes that count
	unchanged int // rounds since the last one
}

// RecordUnchanged records a round without an external change.
func (c *Contest) RecordUnchanged() {
	if c.unchanged++; c.unchanged >= resetRounds {
		c.changes = 0
	}
}

// RecordChange records an external change.
func (c *Contest) RecordChange() {
	c.changes = max(0, c.changes-c.unchanged/decayRounds) + 1
	c.unchanged = 0
}

// Discount subtracts the last change.
func (c *Contest) Discount() { c.changes = max(0, c.changes-1) }

// YieldReason returns why the value is not written any more; empty if isolate still writes it. limit is the value of --contest.
func (c *Contest) YieldReason(limit int) string {
	if c.changes <= limit {
		return ""
	}
	return fmt.Sprintf("left to the other writer: changed externally %d times (--contest %d)", c.changes, limit)
}
