package object

import (
	"math"
	"slices"
	"time"

	"polder/lib/sloconfig"
)

// Growth holds back what has grown since an object's amounts moved last, either way. Less is written at once, and so it is not undone
// at once: a load that wanders costs a write a loss, and not one a swing.
type Growth struct {
	// moved is when an amount became another one by more than a trifle; zero where none has since the first write.
	moved time.Time
}

// Wrote notes that an object that had the figures before, nil where they are not known, has others now.
func (g *Growth) Wrote(before *Figures, after Figures, now time.Time) {
	if before != nil && before.moves(after) {
		g.moved = now
	}
}

// moves reports whether an amount that both know is another one by more than a trifle.
func (f Figures) moves(g Figures) bool { return f.Reclaimed.moves(g.Reclaimed) || f.Mid.moves(g.Mid) }

func (a Amounts) moves(b Amounts) bool {
	moves := func(a, b *int64) bool {
		return a != nil && b != nil && math.Abs(float64(*b-*a)) >= max(trifle*float64(*a), 1)
	}
	return moves(a.MilliCPU, b.MilliCPU) || moves(a.MemoryBytes, b.MemoryBytes)
}

// Damp is what an object that has the written figures should hold: what is desired, and of no amount more than there is as long as less
// than interval has passed since it moved. A taint that is set or removed is no load that wanders, and what is not there yet is new.
func (g *Growth) Damp(written *Figures, want Figures, interval time.Duration, now time.Time) Figures {
	since := now.Sub(g.moved)
	if written == nil || g.moved.IsZero() || since >= interval || since < 0 || written.Held != want.Held || written.Dialect != want.Dialect {
		return want
	}
	want.Reclaimed = want.Reclaimed.atMost(written.Reclaimed)
	want.Mid = want.Mid.atMost(written.Mid)
	want.Zones = slices.Clone(want.Zones)
	for i := range want.Zones {
		z := &want.Zones[i]
		if at := slices.IndexFunc(written.Zones, func(x Zone) bool { return x.ID == z.ID }); at >= 0 {
			z.Reclaimed = z.Reclaimed.atMost(written.Zones[at].Reclaimed)
		}
	}
	return want
}

// atMost is no more than b of what b knows.
func (a Amounts) atMost(b Amounts) Amounts {
	limit := func(v, most *int64) *int64 {
		if v == nil || most == nil || *v <= *most {
			return v
		}
		return most
	}
	return Amounts{limit(a.MilliCPU, b.MilliCPU), limit(a.MemoryBytes, b.MemoryBytes)}
}

// GrowInterval is Koordinator's time after which what has changed is published, however little: growth waits no longer.
func GrowInterval(c sloconfig.Colocation) time.Duration {
	return seconds(c.UpdateTimeThresholdSeconds, sloconfig.Defaults().Colocation.UpdateTimeThresholdSeconds, 1)
}
