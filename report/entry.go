package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"polder/lib/kube"
	"polder/lib/tick"
	"polder/report/object"
)

// Pauses after a write that failed: doubled each time, so that a server that comes back is not kept waiting and a thousand
// agents do not fall upon it at once; up to a longer one where somebody has to do something first.
const (
	firstPause    = 500 * time.Millisecond
	longestPause  = 8 * time.Second
	hopelessPause = 30 * time.Second
)

// Pauses before what somebody else undid is put back: doubled where it goes on. The first one leaves a process that has
// just been told to stop the time to do so, when report --withdraw ran before.
const (
	firstRestore   = 2 * time.Second
	longestRestore = time.Minute
	calm           = 5 * time.Minute // after which the pause is the first one again
)

// jittered is a time span, up to a quarter shorter or longer.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.75 + rand.Float64()/2))
}

// entry is one node's object.
type entry struct {
	node    string
	memory  object.Memory
	since   time.Time
	heard   time.Time // when a tick last had figures
	written object.Written
	resync  time.Duration
	growth  object.Growth

	strategies object.Strategies // the newest that ticks had
	tried      []object.Dialect  // under whose names something may be offered that is a report's

	have     *seen
	intact   bool // have has what was written
	undone   int  // how often it was put back
	undoneAt time.Time

	busy, queued bool
	failures     int // in a row, and whether they were of the hopeless kind
	vain         bool
	retryAt      time.Time // not before, after a failure
	restoreAt    time.Time // not before, where it is not intact
	err          error     // why what is due is not written

	note    string // why it is not what the ticks say, as it was logged
	news    bool   // a write succeeded that no tick has said yet
	changed bool   // and it wrote something new
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
	case e.have != nil && x == nil && now.Sub(e.written.At) < firstRestore:
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
	was := e.intact
	if e.intact = k.holds(o, *e.written.Figures); was && !e.intact {
		if now.Sub(e.undoneAt) > calm {
			e.undone = 0
		}
		e.restoreAt, e.undoneAt = now.Add(min(firstRestore<<e.undone, longestRestore)), now
		e.undone = min(e.undone+1, 10)
	}
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
		// Nothing was said since the start. What a process before this one wrote stays for the time that it is good.
		if want.Silent() && now.Sub(e.since) < p.staleAfter || e.have == nil && len(want.Taints) == 0 || e.have != nil && p.holds(e.have.object, want) {
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

// paused reports whether a write that is due has to wait.
func (e *entry) paused(now time.Time) bool {
	return now.Before(e.retryAt) || !e.intact && now.Before(e.restoreAt)
}

// wrote notes a write that succeeded.
func (e *entry) wrote(p *publisher, j job, after *seen, now time.Time) {
	e.changed = e.changed && e.news || e.written.Figures == nil || !e.written.Figures.Equal(j.figures)
	e.news = true
	e.settle(j.figures, now)
	e.resync = time.Duration(float64(p.rules.Resync) * (1 - rand.Float64()/4)) // not all nodes at once
	e.intact, e.restoreAt = true, time.Time{}
	e.calm()
	if after != nil {
		e.have = after
	}
	e.see(p.objects[e.node], p.kind, now) // what came meanwhile
}

// failed notes one that did not. What the object holds now is not known: a part may be written, or all without an answer.
func (e *entry) failed(err error, now time.Time) {
	e.written.Figures, e.intact = nil, true
	longest, vain := longestPause, hopeless(err)
	if vain != e.vain { // an API server that has just started forbids everything for a second or two
		e.vain, e.failures = vain, 0
	}
	if vain {
		longest = hopelessPause
	}
	pause := min(firstPause<<e.failures, longest)
	e.failures = min(e.failures+1, 10)
	e.retryAt = now.Add(max(jittered(pause), kube.RetryAfter(err)))
}

// calm forgets failures.
func (e *entry) calm() { e.err, e.failures, e.retryAt = nil, 0, time.Time{} }

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

// say is what a tick says of the object.
func (e *entry) say(p *publisher, now time.Time) tick.Target {
	t := e.state(p, now)
	t.Note = e.note
	return t
}

func (e *entry) state(p *publisher, now time.Time) tick.Target {
	moved := func() bool { return e.next(p, now) == object.Moved }
	switch {
	case e.err != nil:
		return said(p.target, tick.TargetFailed, moved(), e.err)
	case e.news:
		e.news = false
		return said(p.target, tick.TargetWritten, e.changed, nil)
	case e.busy || e.queued || e.next(p, now) != object.NotDue:
		return said(p.target, tick.TargetPending, moved(), nil)
	}
	return said(p.target, tick.TargetUnchanged, false, nil)
}

func said(target, state string, changed bool, err error) tick.Target {
	t := tick.Target{Target: target, State: state, Changed: changed}
	if err != nil {
		t.Error = err.Error()
	}
	return t
}
