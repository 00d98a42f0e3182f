package pick

import (
	"math"
	"time"
)

// Cooldown enforces a minimum time between two events. An event can be undone, as long as no later one has happened.
type Cooldown struct {
	Last time.Time `json:"last,omitzero"`
	// Before is the time of the last event before Last. It is restored when all events at Last are undone.
	Before time.Time `json:"before,omitzero"`
	// Events counts the events at Last that were not undone. It is 0 if it is unknown, because the state file is of an earlier version or
	// Last was restored: the cooldown then stays, so that it never protects for less than its time after an event that did happen.
	Events int `json:"events,omitzero"`
}

// Begin records an event at now.
func (c *Cooldown) Begin(now time.Time) {
	if !c.Last.Equal(now) {
		c.Last, c.Before, c.Events = now, c.Last, 0
	} else if c.Events == 0 {
		return // the others at this time are not counted, so that none of them can be undone
	}
	if c.Events < math.MaxInt {
		c.Events++
	}
}

// Undo takes back one event that was recorded at this time.
func (c *Cooldown) Undo(at time.Time) {
	if !c.Last.Equal(at) || c.Events == 0 {
		return
	}
	if c.Events--; c.Events == 0 {
		c.Last, c.Before = c.Before, time.Time{}
	}
}

// fixInvalid makes a number of events that no state can have unknown.
func (c *Cooldown) fixInvalid() { c.Events = max(c.Events, 0) }

// Left returns the remaining cooldown at now, 0 if the next event may happen. If the clock was set back behind the last
// event, the cooldown starts over: the event is neither early nor blocked for longer than span.
func (c *Cooldown) Left(now time.Time, span time.Duration) time.Duration {
	if c.Last.IsZero() {
		return 0
	}
	if now.Before(c.Last) {
		c.Last = now
	}
	return max(0, span-now.Sub(c.Last))
}
