package journal

import "fmt"

// quietRounds without an external change end a contest; forgiveRounds subtract one change: a program that rarely changes a value
// does not contest it, however long it continues.
const (
	quietRounds   = 100
	forgiveRounds = 20
)

// Contest counts how often another program has changed one value that isolate writes.
type Contest struct {
	changes int // the changes that count
	quiet   int // rounds since the last one
}

// Calm records a round without an external change.
func (c *Contest) Calm() {
	if c.quiet++; c.quiet >= quietRounds {
		c.changes = 0
	}
}

// Change records an external change.
func (c *Contest) Change() {
	c.changes = max(0, c.changes-c.quiet/forgiveRounds) + 1
	c.quiet = 0
}

// Forgive subtracts the last change.
func (c *Contest) Forgive() { c.changes = max(0, c.changes-1) }

// Changes returns the number of changes that count.
func (c *Contest) Changes() int { return c.changes }

// LeftAlone returns why the value is not written any more; empty if isolate still writes it. limit is the value of --contest.
func (c *Contest) LeftAlone(limit int) string {
	if c.changes <= limit {
		return ""
	}
	return fmt.Sprintf("left alone: someone else changed it %d times (--contest %d)", c.changes, limit)
}
