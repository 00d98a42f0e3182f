package harvest

import (
	"fmt"
	"math"
	"time"
)

const (
	// deadBand is how much too large an offer may be before it falls: less is no reason to move.
	deadBand = 0.005
	// minHeadroom is the room that the services must have left for the offer to fall by steps instead of at once.
	minHeadroom = 0.01
)

// offer is what was promised: it falls by steps while the services have room, at once where they have not, and rises late and by steps.
type offer struct {
	Part float64 `json:"part"`
	// Since is when the offer was too large last, or rose; Least is the least that could be offered since then.
	Since time.Time `json:"since,omitzero"`
	Least float64   `json:"least"`
	// Fell is when it fell last.
	Fell  time.Time `json:"fell,omitzero"`
	Known bool      `json:"known,omitempty"`
}

// follow moves the offer towards what can be offered, where the services use a part now, and returns what keeps it from there.
func (o *offer) follow(now time.Time, can, use float64, s Settings) (bound string) {
	if o.Since.After(now) || o.Fell.After(now) { // the clock was set back
		o.Since, o.Fell = now, now
	}
	o.Part = min(max(o.Part, 0), 1) // a state file may contain anything
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
