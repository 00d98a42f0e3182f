package series

import "time"

// clock measures the time between the ticks of a node, which may be repeated or out of order, and whose clock may be set.
type clock struct {
	last, latest time.Time
}

// since returns the time since the previous tick, and whether this is the first one. A tick that is earlier than the previous one has a
// negative time. After such ticks, the first one that is later than all before counts from the latest of these: what is before has counted.
func (c *clock) since(now time.Time) (span time.Duration, isFirst bool) {
	isFirst = c.last.IsZero()
	from := c.last
	if now.After(c.latest) {
		from, c.latest = c.latest, now
	}
	c.last = now
	return now.Sub(from), isFirst
}
