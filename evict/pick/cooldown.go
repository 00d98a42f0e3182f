package pick

import "time"

// Cooldown keeps a span between two events.
type Cooldown struct {
	Last time.Time `json:"last,omitzero"`
}

// Strike notes the event at now.
func (c *Cooldown) Strike(now time.Time) { c.Last = now }

// Left is how much of the cooldown is left at now, 0 where the next event may happen. If the clock was set back
// behind the last event, the cooldown starts over: the event neither comes early nor is it blocked for longer than span.
func (c *Cooldown) Left(now time.Time, span time.Duration) time.Duration {
	if c.Last.IsZero() {
		return 0
	}
	if now.Before(c.Last) {
		c.Last = now
	}
	return max(0, span-now.Sub(c.Last))
}
