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

	strategies sloconfig.InForce // the newest that ticks had
	tried      []object.Dialect  // those under whose names a report may have offered something

	have   *seen
	intact bool   // the object has what was written
	note   string // why it differs from the ticks, as logged
}

// newEntry is the entry of a node of which nothing is known. An earlier process may have offered under Katalyst's names, which on a
// Node only a report writes; values under Koordinator's may be its manager's.
func newEntry(node string, now time.Time) *entry {
	return &entry{node: node, since: now, lastTick: now, intact: true, tried: []object.Dialect{object.Katalyst}}
}

// see notes the object from a watch, which may be older than our own last write.
func (e *entry) see(x *seen, k kind, now time.Time) {
	switch {
	case e.have == x:
		return
	case e.have != nil && x == nil && now.Sub(e.written.At) < reconcile.FirstRestore:
		return
	case e.have != nil && x != nil && !newer(x.version, e.have.version):
		return
	}
	e.have = x
	if e.written.Figures == nil || e.written.Figures.Silent() {
		return
	}
	var o kube.Object
	if x != nil {
		o = x.object
	}
	e.intact = k.holds(o, *e.written.Figures)
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
	want := p.want(e, now)
	if e.written.Figures == nil && want.Empty() {
		// Nothing was advised since the start. What an earlier process wrote stays until it is stale.
		stillGood := want.Silent() && now.Sub(e.since) < p.staleAfter
		if stillGood || e.have == nil && len(want.Taints) == 0 || e.have != nil && p.holds(e.have.object, want) {
			return object.NotDue
		}
	}
	return e.rules(p, want).Next(e.written, want, e.intact, now)
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

// damped are the figures without the growth that has to wait.
func (e *entry) damped(p *publisher, want object.Figures, now time.Time) object.Figures {
	interval := p.growInterval
	if p.isNode() && want.Dialect == object.Koordinator && !p.growGiven {
		interval = object.GrowInterval(e.strategies.Colocation())
	}
	return e.growth.Damp(e.written.Figures, want, interval, now)
}

// left are the other dialects under whose names a report may have offered something. Without a dialect the names are Katalyst's, as
// in an object that has the same names for every policy.
func (e *entry) left(now object.Dialect) []object.Dialect {
	var left []object.Dialect
	for _, d := range e.tried {
		if d != cmp.Or(now, object.Katalyst) {
			left = append(left, d)
		}
	}
	return left
}

// try notes that a write of figures begins.
func (e *entry) try(f object.Figures) {
	if f.Dialect != "" && !f.Empty() && !slices.Contains(e.tried, f.Dialect) {
		e.tried = append(e.tried, f.Dialect)
	}
}

// settle notes what was written. Names that were removed are forgotten, because another program may write them later.
func (e *entry) settle(f object.Figures, now time.Time) {
	e.tried = slices.DeleteFunc(e.tried, func(d object.Dialect) bool { return slices.Contains(f.Left, d) || d == f.Dialect && f.Empty() })
	f.Left = nil
	e.growth.Wrote(e.written.Figures, f, now)
	e.written = object.Written{Figures: &f, At: now}
}

// wrote notes a write that succeeded.
func (e *entry) wrote(p *publisher, j job, after *seen, now time.Time) {
	e.settle(j.figures, now)
	e.resync = time.Duration(float64(p.rules.Resync) * (1 - rand.Float64()/4)) // so that not all nodes are written at once
	e.intact = true
	if after != nil {
		e.have = after
	}
	e.see(p.objects[e.node], p.kind, now) // the watch may have a newer one
}

// failed notes a write that failed. The object is unknown then: a part may be written, or everything without an answer. An object that was
// deleted meanwhile is created again.
func (e *entry) failed(deleted bool) {
	e.written.Figures, e.intact = nil, true
	if deleted {
		e.have = nil
	}
}

// published is the object's offer, as far as it is known.
func (e *entry) published(d object.Dialect, prefix string) object.Amounts {
	switch {
	case e.written.Figures != nil && e.written.Figures.Dialect == d:
		return e.written.Figures.Reclaimed
	case e.have != nil:
		return object.NodeAmounts(e.have.object, d, prefix)
	}
	return object.Amounts{}
}
