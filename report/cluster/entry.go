package cluster

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"polder/lib/kube"
	"polder/lib/sloconfig"
	"polder/report/object"
	"polder/report/reconcile"
)

// entry is one node's object.
type entry struct {
	node     string
	memory   object.Memory
	since    time.Time
	lastTick time.Time // when a tick last had figures
	written  object.Written
	resync   time.Duration
	growth   object.Growth
	settled  *object.Figures // the figures of the last write whose success is known; growth waits from them on

	strategies sloconfig.InForce // the newest that ticks had
	offeredAs  []object.Dialect  // those under whose names a report may have offered something

	inCluster bool      // the cluster has the node
	goneAt    time.Time // when the node was found to be deleted; zero where it was not, or is not known ever to have been there

	observed    *seen
	isAsWritten bool   // the object has what was written
	note        string // why it differs from the ticks, as logged
}

// newEntry is the entry of a node of which nothing is known. An earlier process may have offered under Katalyst's names, which on a
// Node only a report writes; values under Koordinator's may be its manager's.
func newEntry(node string, now time.Time) *entry {
	return &entry{node: node, since: now, lastTick: now, isAsWritten: true, offeredAs: []object.Dialect{object.Katalyst}}
}

// see notes the object from a watch, which may be older than our own last write.
func (e *entry) see(x *seen, k kind, now time.Time) {
	switch {
	case e.observed == x:
		return
	case e.observed != nil && x == nil && now.Sub(e.written.At) < reconcile.FirstRestore:
		return
	case e.observed != nil && x != nil && !newer(x.version, e.observed.version):
		return
	}
	e.observed = x
	if e.written.Figures == nil || e.written.Figures.NeedsNoContent() {
		return
	}
	var o kube.Object
	if x != nil {
		o = x.object
	}
	e.isAsWritten = k.holds(o, *e.written.Figures)
}

// seeNode notes whether the cluster has the node.
func (e *entry) seeNode(has bool, now time.Time) {
	switch {
	case has:
		e.goneAt = time.Time{}
	case e.inCluster:
		e.goneAt = now
	}
	e.inCluster = has
}

// isGone reports whether the node was deleted, and its objects with it. Ticks that come nevertheless are not written, which is an error, as
// long as they come.
func (e *entry) isGone(staleAfter time.Duration, now time.Time) bool {
	return !e.goneAt.IsZero() && (!e.lastTick.After(e.goneAt) || now.Sub(e.lastTick) >= staleAfter)
}

// newer compares resource versions; where they are not numbers, every different one is newer.
func newer(a, b string) bool {
	x, err := strconv.ParseUint(a, 10, 64)
	if err != nil {
		return a != b
	}
	y, err := strconv.ParseUint(b, 10, 64)
	return err != nil || x > y
}

// next is what should be done, whether or not it can be done now.
func (e *entry) next(p *publisher, now time.Time) object.Due {
	if e.isGone(p.staleAfter, now) {
		return object.NotDue
	}
	want := p.want(e, now)
	if e.written.Figures == nil && want.Empty() {
		// Nothing was advised since the start. What an earlier process wrote stays until it is stale.
		isStillValid := want.NeedsNoContent() && now.Sub(e.since) < p.staleAfter
		if isStillValid || e.observed == nil && len(want.Taints) == 0 || e.observed != nil && p.holds(e.observed.object, want) {
			return object.NotDue
		}
	}
	return e.rules(p, want).Next(e.written, want, e.isAsWritten, now)
}

// rules are the rules by which the object is written: in Koordinator's dialect, Koordinator's own.
func (e *entry) rules(p *publisher, want object.Figures) object.Rules {
	rules := p.rules
	if p.isNode() && want.Dialect == object.Koordinator {
		return rules.Koordinator(e.strategies.Colocation(), p.given)
	}
	if e.resync > 0 {
		rules.Resync = e.resync
	}
	return rules
}

// withoutEarlyGrowth are the figures without the growth that has to wait.
func (e *entry) withoutEarlyGrowth(p *publisher, want object.Figures, now time.Time) object.Figures {
	interval := p.growInterval
	if p.isNode() && want.Dialect == object.Koordinator && !p.growGiven {
		interval = object.GrowInterval(e.strategies.Colocation())
	}
	return e.growth.LimitGrowth(e.settled, want, interval, now)
}

// otherDialects are the other dialects under whose names a report may have offered something. Without a dialect the names are Katalyst's,
// as in an object that has the same names for every policy.
func (e *entry) otherDialects(now object.Dialect) []object.Dialect {
	var otherDialects []object.Dialect
	for _, d := range e.offeredAs {
		if d != cmp.Or(now, object.Katalyst) {
			otherDialects = append(otherDialects, d)
		}
	}
	return otherDialects
}

// noteAttempt notes that a write of figures begins.
func (e *entry) noteAttempt(f object.Figures) {
	if f.Dialect != "" && !f.Empty() && !slices.Contains(e.offeredAs, f.Dialect) {
		e.offeredAs = append(e.offeredAs, f.Dialect)
	}
}

// settle notes what was written. Names that were removed are forgotten, because another program may write them later.
func (e *entry) settle(f object.Figures, now time.Time) {
	e.offeredAs = slices.DeleteFunc(e.offeredAs, func(d object.Dialect) bool {
		return slices.Contains(f.Left, d) || d == f.Dialect && f.Empty()
	})
	f.Left = nil
	e.growth.Wrote(e.settled, f, now)
	e.settled = &f
	e.written = object.Written{Figures: &f, At: now}
}

// wrote notes a write that succeeded.
func (e *entry) wrote(p *publisher, j job, after *seen, now time.Time) {
	e.settle(j.figures, now)
	e.resync = time.Duration(float64(p.rules.Resync) * (1 - rand.Float64()/4)) // so that not all nodes are written at once
	e.isAsWritten = true
	if after != nil {
		e.observed = after
	}
	e.see(p.objects[e.node], p.kind, now) // the watch may have a newer one
}

// failed notes a write that failed. The object is unknown then: a part may be written, or everything without an answer. An object that was
// deleted meanwhile is created again.
func (e *entry) failed(deleted bool) {
	e.written.Figures, e.isAsWritten = nil, true
	if deleted {
		e.observed, e.settled = nil, nil
	}
}

// published is the object's offer, as far as it is known.
func (e *entry) published(d object.Dialect, prefix string) object.Offer {
	switch {
	case e.written.Figures != nil && e.written.Figures.Dialect == d:
		return object.Offer{Reclaimed: e.written.Figures.Reclaimed, Mid: e.written.Figures.Mid}
	case e.observed != nil:
		return object.NodeOffer(e.observed.object, d, prefix)
	}
	return object.Offer{}
}
