package object

import (
	"maps"
	"slices"

	"polder/lib/tick"
)

// Dialect is whose names a Node's extended resources bear: the policy's that offers them. Empty where no tick has told.
type Dialect string

// The dialects, as advice.policy names them.
const (
	Katalyst    Dialect = "katalyst"
	Koordinator Dialect = "koordinator"
)

// Prefixes of Koordinator's resources: those of today, for which a pod may limit more than it requests, and those of its first
// release, for which the API server wants both the same.
const (
	Prefix    = "kubernetes.io"
	OldPrefix = "koordinator.sh"
)

// nameSet is what a dialect's resources are called; the names of mid resources are empty where it has none.
type nameSet struct{ milliCPU, memory, midMilliCPU, midMemory string }

// names are those of the dialect, of which Koordinator's have the prefix.
func (d Dialect) names(prefix string) nameSet {
	if d == Koordinator {
		return nameSet{prefix + "/batch-cpu", prefix + "/batch-memory", prefix + "/mid-cpu", prefix + "/mid-memory"}
	}
	return nameSet{milliCPU: ReclaimedMilliCPU, memory: ReclaimedMemory}
}

// dialectOf is the dialect of a policy: any but Koordinator's offers under Katalyst's names.
func dialectOf(policy string) Dialect {
	if policy == string(Koordinator) {
		return Koordinator
	}
	return Katalyst
}

// Resources are a Node's extended resources that a report writes: nil is one that shall not be there. Names that are not in
// it are others'.
type Resources map[string]*int64

// Resources are those that a Node should have. Where no dialect was ever heard of, and there is nothing to offer, it is every
// name that a report may have written before.
func (f Figures) Resources(prefix string) Resources {
	r := Resources{}
	none := f.Left
	switch {
	case f.Dialect != "":
	case f.Empty():
		none = []Dialect{Katalyst, Koordinator}
	default:
		f.Dialect = Katalyst
	}
	for _, d := range none {
		r.set(d.names(prefix), Amounts{}, Amounts{})
	}
	if f.Dialect != "" {
		r.set(f.Dialect.names(prefix), f.Reclaimed, f.Mid)
	}
	return r
}

func (r Resources) set(n nameSet, reclaimed, mid Amounts) {
	r[n.milliCPU], r[n.memory] = reclaimed.MilliCPU, reclaimed.MemoryBytes
	if n.midMilliCPU != "" {
		r[n.midMilliCPU], r[n.midMemory] = mid.MilliCPU, mid.MemoryBytes
	}
}

// Nothing are all names of both dialects, of whichever prefix, and none of them there.
func Nothing() Resources {
	r := Figures{}.Resources(Prefix)
	maps.Copy(r, Figures{}.Resources(OldPrefix))
	return r
}

// takeOffer takes what an advice contains about the offer.
func (f *Figures) takeOffer(a *tick.Advice) {
	f.Dialect = dialectOf(a.Policy)
	if a.Withdrawn != "" {
		f.Gone = a.Withdrawn
		return
	}
	if a.Reclaimed != nil {
		f.Reclaimed = Amounts{floor(a.Reclaimed.MilliCPU), floor(a.Reclaimed.MemoryBytes)}
	}
	if a.Mid != nil {
		f.Mid = Amounts{floor(a.Mid.MilliCPU), floor(a.Mid.MemoryBytes)}
	}
}

// Speaks reports whether the tick has something about the offer.
func (f Figures) Speaks() bool { return !f.Empty() || f.Gone != "" }

// leaves reports whether the dialects that f leaves are among those of g.
func (f Figures) leaves(g Figures) bool {
	return !slices.ContainsFunc(f.Left, func(d Dialect) bool { return !slices.Contains(g.Left, d) })
}
