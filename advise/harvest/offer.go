package harvest

import (
	"fmt"
	"math"
	"time"
)

const (
	// deadBand is by how much an offer may be too large before it falls: smaller differences are ignored.
	deadBand = 0.005
	// minHeadroom is the headroom that the services must have for the offer to fall in steps instead of at once.
	minHeadroom = 0.01
)

// offer is the current offer: it falls in steps while the services have headroom, else at once, and rises after a delay in steps.
type offer struct {
	Part float64 `json:"part"`
	// Since is when the offer was last too large, or rose; MinPossible is the smallest possible offer since then.
	Since       time.Time `json:"since,omitzero"`
	MinPossible float64   `json:"least"`
	// FellAt is when it last fell.
	FellAt time.Time `json:"fell,omitzero"`
	Known  bool      `json:"known,omitempty"`
}

// convert makes the offer and the smallest possible one parts of another capacity: the same amount is offered, and what was not possible to
// offer is the same amount too.
func (o *offer) convert(factor float64) {
	o.Part = min(o.Part*factor, 1)
	o.MinPossible = max(1-(1-o.MinPossible)*factor, 0)
}

// follow moves the offer towards the possible offer, at the services' current use, and returns what bounds the move.
func (o *offer) follow(now time.Time, possible, use float64, s Settings) (boundText string) {
	if o.Since.After(now) || o.FellAt.After(now) { // the clock was set back
		o.Since, o.FellAt = now, now
	}
	o.Part = min(max(o.Part, 0), 1) // a state file may contain any value
	headroom := 1 - use - o.Part
	switch {
	case !o.Known:
		*o = offer{Part: possible, Since: now, MinPossible: 1, Known: true}
	case possible < o.Part:
		switch {
		case headroom < minHeadroom:
			o.Part, o.FellAt = possible, now
		case o.Part-possible <= deadBand:
		case now.Sub(o.FellAt) < minute:
			boundText = "; it falls by a step a minute while the services have headroom"
		default:
			lowered := max(possible, o.Part-s.Step)
			if lowered > possible {
				boundText = fmt.Sprintf("; it falls by steps of %s while the services have headroom", percent(s.Step))
			}
			o.Part, o.FellAt = lowered, now
		}
		o.Since, o.MinPossible = now, 1
	default:
		o.MinPossible = min(o.MinPossible, possible)
		remaining := s.Hold - now.Sub(o.Since)
		if remaining <= 0 {
			if o.MinPossible > o.Part+deadBand {
				o.Part = min(o.MinPossible, o.Part+s.Step)
			}
			o.Since, o.MinPossible, remaining = now, 1, s.Hold
		}
		if possible > o.Part+deadBand {
			boundText = fmt.Sprintf("; it may rise by %s in %.0fs", percent(min(possible-o.Part, s.Step)), math.Ceil(remaining.Seconds()))
		}
	}
	return boundText
}

func percent(part float64) string { return fmt.Sprintf("%.3g %%", 100*part) }
