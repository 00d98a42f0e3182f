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
	node    string
	memory  object.Memory
	since   time.Time
	heard   time.Time // when a tick last had figures
	written object.Written
	resync  time.Duration
	growth  object.Growth

	strategies sloconfig.InForce // the newest that ticks had
	tried      []object.Dialect  // under whose names something may be offered that is a report's

	have   *seen
	intact bool   // have has what was written
	note   string // why it is not what the ticks contain, as it was logged
}

// newEntry is a node's of which nothing is known. A process before this one may have offered under Katalyst's names, which on a
// Node nobody but a report writes; Koordinator's may be its manager's.
func newEntry(node string, now time.Time) *entry {
	return &entry{node: node, since: now, heard: now, intact: true, tried: []object.Dialect{object.Katalyst}}
}

// see takes the object as a watch has it, which may be behind our own last write.
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

// newer compares resource versions; where they are no numbers, every other one is newer.
func newer(a, b string) bool {
	x, err := strconv.ParseUint(a, 10, 64)
	if err != nil {
		return a != b
	}
	y, err := strconv.ParseUint(b, 10, 64)
	return err != nil || x > y
}

// next is what there is to do, whether or not it can be done now.
func (e *entry) next(p *publisher, now time.Time) object.Due {
	want := p.want(e, now)
	if e.written.Figures == nil && want.Empty() {
		// Nothing was advised since the start. What a process before this one wrote stays for the time that it is good.
		stillGood := want.Silent() && now.Sub(e.since) < p.staleAfter
		if stillGood || e.have == nil && len(want.Taints) == 0 || e.have != nil && p.holds(e.have.object, want) {
			return object.NotDue
		}
	}
	return e.rules(p, want).Next(e.written, want, e.intact, now)
}

// rules are those by which the object is written: in Koordinator's dialect, Koordinator's own.
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

// damped are the figures without the growth whose time has not come.
func (e *entry) damped(p *publisher, want object.Figures, now time.Time) object.Figures {
	interval := p.growInterval
	if p.isNode() && want.Dialect == object.Koordinator && !p.growGiven {
		interval = object.GrowInterval(e.strategies.Colocation())
	}
	return e.growth.Damp(e.written.Figures, want, interval, now)
}

// left are the dialects but one under whose names a report may have offered something. Without one the names are Katalyst's, as
// in an object that has the same for every policy.
func (e *entry) left(now object.Dialect) []object.Dialect {
	var left []object.Dialect
	for _, d := range e.tried {
		if d != cmp.Or(now, object.Katalyst) {
			left = append(left, d)
		}
	}
	return left
}

// try notes that figures are about to be written.
func (e *entry) try(f object.Figures) {
	if f.Dialect != "" && !f.Empty() && !slices.Contains(e.tried, f.Dialect) {
		e.tried = append(e.tried, f.Dialect)
	}
}

// settle notes what is written now. What is left behind is forgotten: it may come back as somebody else's.
func (e *entry) settle(f object.Figures, now time.Time) {
	e.tried = slices.DeleteFunc(e.tried, func(d object.Dialect) bool { return slices.Contains(f.Left, d) || d == f.Dialect && f.Empty() })
	f.Left = nil
	e.growth.Wrote(e.written.Figures, f, now)
	e.written = object.Written{Figures: &f, At: now}
}

// wrote notes a write that succeeded.
func (e *entry) wrote(p *publisher, j job, after *seen, now time.Time) {
	e.settle(j.figures, now)
	e.resync = time.Duration(float64(p.rules.Resync) * (1 - rand.Float64()/4)) // not all nodes at once
	e.intact = true
	if after != nil {
		e.have = after
	}
	e.see(p.objects[e.node], p.kind, now) // what came meanwhile
}

// failed notes one that did not. What the object holds now is not known: a part may be written, or all without an answer; one that was
// deleted meanwhile is created again.
func (e *entry) failed(deleted bool) {
	e.written.Figures, e.intact = nil, true
	if deleted {
		e.have = nil
	}
}

// published is what the object offers, as far as is known.
func (e *entry) published(d object.Dialect, prefix string) object.Amounts {
	switch {
	case e.written.Figures != nil && e.written.Figures.Dialect == d:
		return e.written.Figures.Reclaimed
	case e.have != nil:
		return object.NodeAmounts(e.have.object, d, prefix)
	}
	return object.Amounts{}
}
