package object

import (
	"testing"
	"time"
)

// publish plays an offer a second and returns how often it is written, and what was written at each second.
func publish(rules Rules, interval time.Duration, seconds int, offer func(second int) Figures) (writes int, published []Figures) {
	var w Written
	var g Growth
	for i := range seconds {
		now := noon.Add(time.Duration(i) * time.Second)
		want := g.LimitGrowth(w.Figures, offer(i), interval, now)
		if rules.Next(w, want, true, now) != NotDue {
			g.Wrote(w.Figures, want, now)
			w = Written{Figures: &want, At: now}
			writes++
		}
		published = append(published, *w.Figures)
	}
	return writes, published
}

// An offer that varies causes a write for the loss, and one for the growth after the interval; less is written at once.
func TestAnOfferThatAlternatesIsNotWrittenAtEachSwing(t *testing.T) {
	const interval = 7 * time.Minute
	const high, low = 8 << 30, 15 << 29
	rules := Rules{MinChange: 0.05, MinInterval: 10 * time.Minute, Resync: 10 * time.Minute}
	zone := func(f Figures) Figures { f.Zones = []Zone{{ID: 0, Reclaimed: f.Reclaimed}}; return f }
	for _, tt := range []struct {
		name   string
		offer  func(int) Figures
		during int // seconds
		writes int
		last   Figures
	}{
		{"memory swings for two minutes", func(s int) Figures { return of(8000, []int64{high, low}[s%2]) }, 120, 2, of(8000, low)},
		{"CPU swings", func(s int) Figures { return of([]int64{8000, 4000}[s%2], high) }, 120, 2, of(4000, high)},
		{"CPU swings against memory", func(s int) Figures { return of([]int64{8000, 4000}[s%2], []int64{low, high}[s%2]) }, 120, 3, of(4000, low)},
		{"a NUMA node swings", func(s int) Figures { return zone(of(8000, []int64{high, low}[s%2])) }, 120, 2, of(8000, low)},
		{"to nothing and back", func(s int) Figures { return of([]int64{8000, 0}[s%2], high) }, 120, 2, of(0, high)},
		{"it has grown for good", func(s int) Figures { return of(8000, []int64{high, low}[min(s%2, max(0, 10-s))]) }, 10 + 7*60, 3, of(8000, high)},
		{"the first growth", func(s int) Figures { return of([]int64{4000, 8000}[min(s, 1)], high) }, 2, 2, of(8000, high)},
		{"it shrinks at each second", func(s int) Figures { return of(8000-int64(s)*100, high) }, 50, 50, of(3100, high)},
	} {
		writes, published := publish(rules, interval, tt.during, tt.offer)
		last := published[len(published)-1]
		if writes != tt.writes || !last.Reclaimed.Equal(tt.last.Reclaimed) {
			t.Errorf("%s: %d writes, the last of %d and %d; want %d", tt.name, writes, *last.Reclaimed.MilliCPU, *last.Reclaimed.MemoryBytes, tt.writes)
		}
		for s, f := range published { // never more than the offer, except for a trifle
			offer := tt.offer(s)
			if *f.Reclaimed.MilliCPU > *offer.Reclaimed.MilliCPU || *f.Reclaimed.MemoryBytes > *offer.Reclaimed.MemoryBytes {
				t.Fatalf("%s: at second %d more is published than offered", tt.name, s)
			}
		}
	}
}

// Only growth of a varying load's amounts is delayed.
func TestGrowthIsNotHeldBack(t *testing.T) {
	low, high := of(4000, 1<<30), of(8000, 2<<30)
	moved := func() *Growth {
		var g Growth
		g.Wrote(&high, low, noon)
		return &g
	}
	for _, tt := range []struct {
		name    string
		growth  *Growth
		written *Figures
		want    Figures
		after   time.Duration
		grows   bool
	}{
		{"just after", moved(), &low, high, time.Second, false},
		{"in time", moved(), &low, high, time.Minute, true},
		{"the clock was set back", moved(), &low, high, -time.Hour, true},
		{"nothing has moved yet", &Growth{}, &low, high, time.Second, true},
		{"what is written is not known", moved(), nil, high, time.Second, true},
		{"a taint is removed", moved(), &Figures{Reclaimed: low.Reclaimed, ReducedByTaint: true}, high, time.Second, true},
		{"another dialect", moved(), &Figures{Reclaimed: low.Reclaimed, Dialect: Katalyst}, high, time.Second, true},
		{"back from withdrawn", moved(), &Figures{IsIntended: true}, high, time.Second, true},
	} {
		got := tt.growth.LimitGrowth(tt.written, tt.want, time.Minute, noon.Add(tt.after))
		if grows := got.Reclaimed.Equal(high.Reclaimed); grows != tt.grows {
			t.Errorf("%s: %d; grows %t, want %t", tt.name, *got.Reclaimed.MilliCPU, grows, tt.grows)
		}
	}
}
