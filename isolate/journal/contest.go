package journal

import "fmt"

// quietRounds without an external change end a contest, and forgiveRounds take one change off its count: who changes a value now and
// then is no contestant, however long that goes on.
const (
	quietRounds   = 100
	forgiveRounds = 20
)

// Contest counts how often another program has changed one value that isolate writes.
type Contest struct {
	changes int // those that count
	quiet   int // rounds since the last one
}

// Calm notes a round without an external change.
func (c *Contest) Calm() {
	if c.quiet++; c.quiet >= quietRounds {
		c.changes = 0
	}
}

// Change notes an external change.
func (c *Contest) Change() {
	c.changes = max(0, c.changes-c.quiet/forgiveRounds) + 1
	c.quiet = 0
}

// Forgive takes the last change off the count.
func (c *Contest) Forgive() { c.changes = max(0, c.changes-1) }

// Changes is the number of changes that count.
func (c *Contest) Changes() int { return c.changes }

// LeftAlone returns why the value is not written any more; it is empty where isolate still writes it. limit is that of --contest.
func (c *Contest) LeftAlone(limit int) string {
	if c.changes <= limit {
		return ""
	}
	return fmt.Sprintf("left alone: someone else changed it %d times (--contest %d)", c.changes, limit)
}
