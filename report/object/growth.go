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
	// changedAt is when an amount last changed by more than a trifle; zero where none has since the first write.
	changedAt time.Time
}

// Wrote notes that an object's figures have changed; before is nil where they are unknown.
func (g *Growth) Wrote(before *Figures, after Figures, now time.Time) {
	if before != nil && before.differs(after) {
		g.changedAt = now
	}
}

// differs reports whether an amount that both have differs by more than a trifle.
func (f Figures) differs(g Figures) bool {
	return f.Reclaimed.differs(g.Reclaimed) || f.Mid.differs(g.Mid)
}

func (a Amounts) differs(b Amounts) bool {
	differs := func(a, b *int64) bool {
		return a != nil && b != nil && math.Abs(float64(*b-*a)) >= max(minShrink*float64(*a), 1)
	}
	return differs(a.MilliCPU, b.MilliCPU) || differs(a.MemoryBytes, b.MemoryBytes)
}

// LimitGrowth is the desired state of an object with the written figures: the desired figures, but no amount larger than the written one
// until interval has passed since the last change. This holds only for amounts that exist, and not when a taint is set or removed.
func (g *Growth) LimitGrowth(written *Figures, want Figures, interval time.Duration, now time.Time) Figures {
	since := now.Sub(g.changedAt)
	if written == nil || g.changedAt.IsZero() || since >= interval || since < 0 ||
		written.ReducedByTaint != want.ReducedByTaint || written.Dialect != want.Dialect {
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
