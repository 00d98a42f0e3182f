package object

import (
	"maps"
	"slices"

	"polder/lib/tick"
)

// Dialect is that of the names of a Node's extended resources, which follows from the policy. It is empty until a tick has a policy.
type Dialect string

// The dialects, as advice.policy names them.
const (
	Katalyst    Dialect = "katalyst"
	Koordinator Dialect = "koordinator"
)

// Prefixes of Koordinator's resources: the present one, with which a pod's limit may exceed its request, and that of its first
// release, with which the API server requires both to be equal.
const (
	Prefix    = "kubernetes.io"
	OldPrefix = "koordinator.sh"
)

// nameSet has the names of a dialect's resources; those of mid resources are empty where it has none.
type nameSet struct{ milliCPU, memory, midMilliCPU, midMemory string }

// names are the dialect's names; Koordinator's have the prefix.
func (d Dialect) names(prefix string) nameSet {
	if d == Koordinator {
		return nameSet{prefix + "/batch-cpu", prefix + "/batch-memory", prefix + "/mid-cpu", prefix + "/mid-memory"}
	}
	return nameSet{milliCPU: ReclaimedMilliCPU, memory: ReclaimedMemory}
}

// dialectOf is the dialect of a policy: all but Koordinator's offer under Katalyst's names.
func dialectOf(policy string) Dialect {
	if policy == string(Koordinator) {
		return Koordinator
	}
	return Katalyst
}

// Resources are a Node's extended resources that a report writes: nil is one that shall be absent. Other names belong to other
// programs.
type Resources map[string]*int64

// Resources are the desired ones of a Node. Where no dialect was ever known, and there is nothing to offer, they are every
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

// Nothing are all names of both dialects, of either prefix, all absent.
func Nothing() Resources {
	r := Figures{}.Resources(Prefix)
	maps.Copy(r, Figures{}.Resources(OldPrefix))
	return r
}

// takeOffer notes the offer of an advice.
func (f *Figures) takeOffer(a *tick.Advice) {
	f.Dialect = dialectOf(a.Policy)
	if a.Withdrawn != "" {
		f.WithdrawnReason = a.Withdrawn
		return
	}
	if a.Reclaimed != nil {
		f.Reclaimed = Amounts{floor(a.Reclaimed.MilliCPU), floor(a.Reclaimed.MemoryBytes)}
	}
	if a.Mid != nil {
		f.Mid = Amounts{floor(a.Mid.MilliCPU), floor(a.Mid.MemoryBytes)}
	}
}

// HasOffer reports whether the tick has something about the offer.
func (f Figures) HasOffer() bool { return !f.Empty() || f.WithdrawnReason != "" }

// removesDialectsOf reports whether the dialects that f removes are among those of g.
func (f Figures) removesDialectsOf(g Figures) bool {
	return !slices.ContainsFunc(f.Left, func(d Dialect) bool { return !slices.Contains(g.Left, d) })
}
