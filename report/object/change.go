package object

import (
	"math"
	"slices"
	"time"

	"polder/lib/tick"
)

// Equal reports whether two nodes' amounts are the same.
func (a Amounts) Equal(b Amounts) bool {
	return equal(a.MilliCPU, b.MilliCPU) && equal(a.MemoryBytes, b.MemoryBytes)
}

// sameParts reports whether the same of the two amounts are known.
func (a Amounts) sameParts(b Amounts) bool {
	return (a.MilliCPU == nil) == (b.MilliCPU == nil) && (a.MemoryBytes == nil) == (b.MemoryBytes == nil)
}

func equal(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// step is how much a figure has moved.
type step int

const (
	unchanged    step = iota
	slightlyMore      // it waits until a write is due
	slightlyLess      // slightly less: it waits a moment
	urgent            // it is written now
)

// minShrink is the share by which an amount may shrink without being urgent, because memory in use changes all the time.
const minShrink = 0.01

// step is how far b is from a. Less is urgent, because pods may be bound to an amount that no longer exists; more is urgent if it is
// at least the share (0.05) more. An amount that appears or disappears is always urgent.
func (a Amounts) step(b Amounts, r Rules) step {
	return max(r.step(a.MilliCPU, b.MilliCPU), r.step(a.MemoryBytes, b.MemoryBytes))
}

func (r Rules) step(a, b *int64) step {
	switch share := r.MinChange; {
	case a == nil || b == nil:
		if a == b {
			return unchanged
		}
		return urgent
	case *b == *a:
		return unchanged
	case r.Symmetric && math.Abs(float64(*b-*a)) > share*float64(*a):
		return urgent
	case r.Symmetric && *b < *a:
		return slightlyLess
	case r.Symmetric:
		return slightlyMore
	case *b < *a && float64(*a-*b) < minShrink*float64(*a):
		return slightlyLess
	case *b > *a && float64(*b-*a) < share*float64(*a):
		return slightlyMore
	}
	return urgent
}

// Equal reports whether objects of f and g would be the same. Unknown taints stay as they are.
func (f Figures) Equal(g Figures) bool {
	return f.Reclaimed.Equal(g.Reclaimed) && f.Mid.Equal(g.Mid) && (f.Dialect == "" || f.Dialect == g.Dialect) && f.sameShape(g) && f.sameTaints(g) &&
		slices.EqualFunc(f.Zones, g.Zones, func(a, b Zone) bool { return a.Reclaimed.Equal(b.Reclaimed) })
}

// step is how far it is from f to g.
func (f Figures) step(g Figures, r Rules) step {
	// Without a dialect all names were removed.
	if f.Dialect != "" && f.Dialect != g.Dialect || !g.removesDialectsOf(f) || !f.sameShape(g) || !f.sameTaints(g) {
		return urgent
	}
	s := max(f.Reclaimed.step(g.Reclaimed, r), f.Mid.step(g.Mid, r))
	// A taint that is set or removed, and each pod that ends while it is set: the scheduler would fill the gap.
	if s != unchanged && f.ReducedByTaint != g.ReducedByTaint || s == slightlyLess && g.ReducedByTaint {
		s = urgent
	}
	for i := range f.Zones {
		a, b := f.Zones[i].Reclaimed, g.Zones[i].Reclaimed
		zone := a.step(b, r)
		if a.sameParts(b) { // free memory moves between the zones all the time: only the node's sum is urgent
			zone = min(zone, slightlyLess)
		}
		s = max(s, zone)
	}
	return s
}

// sameShape reports whether f and g have the same NUMA nodes and the same pods.
func (f Figures) sameShape(g Figures) bool {
	return slices.EqualFunc(f.Zones, g.Zones, func(a, b Zone) bool {
		return a.ID == b.ID && a.Socket == b.Socket && a.CPUs == b.CPUs && equal(a.Bytes, b.Bytes)
	}) && slices.EqualFunc(f.Consumers, g.Consumers, func(a, b Consumer) bool {
		return a.Name == b.Name && a.Requests.Equal(b.Requests) && slices.Equal(a.Zones, b.Zones)
	})
}

func (f Figures) sameTaints(g Figures) bool {
	within := func(a, b []tick.Taint) bool {
		return !slices.ContainsFunc(a, func(t tick.Taint) bool { return !slices.Contains(b, t) })
	}
	return g.Taints == nil || f.Taints != nil && within(f.Taints, g.Taints) && within(g.Taints, f.Taints)
}

// Rules decide when an object is written.
type Rules struct {
	// MinChange is the share (0.05) by which an amount has to grow to be written at once.
	MinChange float64
	// Symmetric is Koordinator's rule: a change in either direction is urgent if and only if it is over MinChange.
	Symmetric bool
	// MinInterval is how old the last write must be before an amount that is slightly less is written.
	MinInterval time.Duration
	// Resync is after how long an object is written even without a change; 0 is never.
	Resync time.Duration
}

// Written is what was written to an object last: Figures is nil where that was before this process, if ever.
type Written struct {
	Figures *Figures
	At      time.Time
}

// Due is what must be done.
type Due int

// What must be done: nothing; a write because the figures have changed, because it is time for one, or because of an external
// change.
const (
	NotDue Due = iota
	FiguresChanged
	ResyncDue
	ChangedExternally
)

// Next decides whether an object with these desired figures is written now; isAsWritten reports whether it has what was
// written last.
func (r Rules) Next(w Written, want Figures, isAsWritten bool, now time.Time) Due {
	if w.Figures == nil {
		return FiguresChanged
	}
	if !isAsWritten && !w.Figures.NeedsNoContent() {
		return ChangedExternally
	}
	age := now.Sub(w.At)
	switch s := w.Figures.step(want, r); {
	case s == urgent, s == slightlyLess && age >= r.MinInterval:
		return FiguresChanged
	case r.Resync > 0 && (age > r.Resync || age == r.Resync && !r.Symmetric) && (!want.Empty() || len(want.Taints) > 0):
		return ResyncDue
	}
	return NotDue
}

// Holds reports whether have has everything that want has: other keys and other elements of lists are not ours.
// Quantities are compared by their amounts.
func Holds(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for k, w := range want {
			if v, ok := h[k]; !ok || !Holds(v, w) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		if !ok || len(h) < len(want) {
			return false
		}
		for _, w := range want {
			if !slices.ContainsFunc(h, func(v any) bool { return Holds(v, w) }) {
				return false
			}
		}
		return true
	case string:
		return have == want || sameAmount(have, want)
	}
	return have == want
}
