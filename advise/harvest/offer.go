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
	// Since is when the offer was last too large, or rose; Least is the smallest possible offer since then.
	Since time.Time `json:"since,omitzero"`
	Least float64   `json:"least"`
	// Fell is when it last fell.
	Fell  time.Time `json:"fell,omitzero"`
	Known bool      `json:"known,omitempty"`
}

// follow moves the offer towards the possible offer, at the services' current use, and returns what bounds the move.
func (o *offer) follow(now time.Time, can, use float64, s Settings) (bound string) {
	if o.Since.After(now) || o.Fell.After(now) { // the clock was set back
		o.Since, o.Fell = now, now
	}
	o.Part = min(max(o.Part, 0), 1) // a state file may contain any value
	room := 1 - use - o.Part
	switch {
	case !o.Known:
		*o = offer{Part: can, Since: now, Least: 1, Known: true}
	case can < o.Part:
		switch {
		case room < minHeadroom:
			o.Part, o.Fell = can, now
		case o.Part-can <= deadBand:
		case now.Sub(o.Fell) < minute:
			bound = "; it falls by a step a minute while the services have room"
		default:
			down := max(can, o.Part-s.Step)
			if down > can {
				bound = fmt.Sprintf("; it falls by steps of %s while the services have room", percent(s.Step))
			}
			o.Part, o.Fell = down, now
		}
		o.Since, o.Least = now, 1
	default:
		o.Least = min(o.Least, can)
		held := s.Hold - now.Sub(o.Since)
		if held <= 0 {
			if o.Least > o.Part+deadBand {
				o.Part = min(o.Least, o.Part+s.Step)
			}
			o.Since, o.Least, held = now, 1, s.Hold
		}
		if can > o.Part+deadBand {
			bound = fmt.Sprintf("; it may rise by %s in %.0fs", percent(min(can-o.Part, s.Step)), math.Ceil(held.Seconds()))
		}
	}
	return bound
}

func percent(part float64) string { return fmt.Sprintf("%.3g %%", 100*part) }
