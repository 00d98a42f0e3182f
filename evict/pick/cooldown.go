package pick

import "time"

// Cooldown enforces a minimum time between two events.
type Cooldown struct {
	Last time.Time `json:"last,omitzero"`
}

// Begin records the event at now.
func (c *Cooldown) Begin(now time.Time) { c.Last = now }

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
