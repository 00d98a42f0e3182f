package object

import (
	"math"
	"slices"
	"time"

	"polder/lib/sloconfig"
)

// Growth delays growth after the last change of an object's amounts, either way. A loss is written at once, and its reversal is not, so
// that a varying load causes a write for a loss, and not at each change.
type Growth struct {
	// moved is when an amount last changed by more than a trifle; zero where none has since the first write.
	moved time.Time
}

// Wrote notes that an object's figures have changed; before is nil where they are unknown.
func (g *Growth) Wrote(before *Figures, after Figures, now time.Time) {
	if before != nil && before.moves(after) {
		g.moved = now
	}
}

// moves reports whether an amount that both have differs by more than a trifle.
func (f Figures) moves(g Figures) bool { return f.Reclaimed.moves(g.Reclaimed) || f.Mid.moves(g.Mid) }

func (a Amounts) moves(b Amounts) bool {
	moves := func(a, b *int64) bool {
		return a != nil && b != nil && math.Abs(float64(*b-*a)) >= max(trifle*float64(*a), 1)
	}
	return moves(a.MilliCPU, b.MilliCPU) || moves(a.MemoryBytes, b.MemoryBytes)
}

// Damp is the desired state of an object with the written figures: the desired figures, but no amount larger than the written one until
// interval has passed since the last change. This holds only for amounts that exist, and not when a taint is set or removed.
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

// atMost bounds a by the amounts that b has.
func (a Amounts) atMost(b Amounts) Amounts {
	limit := func(v, most *int64) *int64 {
		if v == nil || most == nil || *v <= *most {
			return v
		}
		return most
	}
	return Amounts{limit(a.MilliCPU, b.MilliCPU), limit(a.MemoryBytes, b.MemoryBytes)}
}

// GrowInterval is Koordinator's time after which any change is published: growth waits no longer.
func GrowInterval(c sloconfig.Colocation) time.Duration {
	return seconds(c.UpdateTimeThresholdSeconds, sloconfig.Defaults().Colocation.UpdateTimeThresholdSeconds, 1)
}
