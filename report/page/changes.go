package page

import "time"

// change is a state that begins at a time.
type change[T any] struct {
	at    time.Time
	state T
	size  int // bytes on the page, about
}

// changes are states over time, within a number of bytes: when they exceed that, states that lasted shorter than a spacing are
// left out, and the spacing doubles as often as needed.
type changes[T any] struct {
	most    int // bytes
	spacing time.Duration
	all     []change[T]
	size    int
}

// add notes a state that differs from the one before.
func (c *changes[T]) add(at time.Time, state T, size int) {
	c.append(change[T]{at, state, size})
	c.limit(c.most)
}

// append adds a state; of those within the same spacing the last one stays, because it holds from then on.
func (c *changes[T]) append(next change[T]) {
	if n := len(c.all); n > 0 && c.spacing > 0 && c.all[n-1].at.Truncate(c.spacing).Equal(next.at.Truncate(c.spacing)) {
		c.size -= c.all[n-1].size
		c.all = c.all[:n-1]
	}
	c.all = append(c.all, next)
	c.size += next.size
}

// limit sets the largest number of bytes, and leaves out states that exceed it.
func (c *changes[T]) limit(most int) {
	c.most = most
	for c.size > most && len(c.all) > 1 {
		c.spacing = max(2*c.spacing, time.Second)
		all := c.all
		c.all, c.size = all[:0], 0
		for _, x := range all {
			c.append(x)
		}
		clear(all[len(c.all):])
	}
}

// before removes the states that ended before a time.
func (c *changes[T]) before(at time.Time) {
	for len(c.all) > 1 && c.all[1].at.Before(at) {
		c.size -= c.all[0].size
		var none change[T]
		c.all[0] = none
		c.all = c.all[1:]
	}
}

// last is the state that holds now, false where there is none.
func (c *changes[T]) last() (state T, found bool) {
	if len(c.all) == 0 {
		return state, false
	}
	return c.all[len(c.all)-1].state, true
}
