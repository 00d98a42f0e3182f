package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/lib/tick"
)

const (
	// squeezePart is the part of the machine by which an amount must fall to count: smaller changes are the usual fluctuation.
	squeezePart = 0.05
	leastFall   = 100 // milli-CPU
	// squeezeWithin is the time in which it must fall, and for which a squeeze lasts without a lower value.
	squeezeWithin = 5 * time.Minute
	// keptSqueezes bounds the squeezes of an answer, which has the largest ones.
	keptSqueezes = 5
	// partOfFall is the part of a squeeze by which a need must have grown to be named as its cause.
	partOfFall = 0.1
)

// squeeze is a fall of the amount that reclaimed pods may use.
type squeeze struct {
	from, to      time.Time
	before, after float64 // milli-CPU
	cause         string
}

// squeezes finds them in a series of ticks, of which it keeps two at a time.
type squeezes struct {
	keep    int       // how many are remembered
	found   []squeeze // the largest, in order of time
	last    *squeeze
	total   int
	falling bool

	peak, trough           *tick.Tick
	peakValue, troughValue float64
}

// add adds the next tick and the amount in it.
func (q *squeezes) add(t *tick.Tick, milliCPU float64) {
	least := max(squeezePart*machine(t), leastFall)
	switch {
	case q.peak == nil:
		q.peak, q.peakValue = t, milliCPU
	case q.falling && milliCPU < q.troughValue:
		q.trough, q.troughValue = t, milliCPU
	case q.falling && (milliCPU >= q.troughValue+least || t.Time.Sub(q.trough.Time) > squeezeWithin):
		q.end()
		q.peak, q.peakValue = t, milliCPU
	case q.falling:
	case milliCPU >= q.peakValue || t.Time.Sub(q.peak.Time) > squeezeWithin:
		q.peak, q.peakValue = t, milliCPU
	case q.peakValue-milliCPU >= least:
		q.falling = true
		q.trough, q.troughValue = t, milliCPU
	}
}

// end closes the squeeze that has not ended, if there is one.
func (q *squeezes) end() {
	if !q.falling {
		return
	}
	q.falling = false
	s := squeeze{
		from: q.peak.Time, to: q.trough.Time, before: q.peakValue, after: q.troughValue,
		cause: cause(q.peak, q.trough, q.peakValue-q.troughValue),
	}
	q.total++
	q.last = &s
	q.found = append(q.found, s)
	if len(q.found) > q.keep {
		least := 0
		for i, x := range q.found {
			if x.before-x.after < q.found[least].before-q.found[least].after {
				least = i
			}
		}
		q.found = slices.Delete(q.found, least, least+1)
	}
}

// forget drops the squeezes that ended before a time.
func (q *squeezes) forget(before time.Time) {
	kept := len(q.found)
	q.found = slices.DeleteFunc(q.found, func(s squeeze) bool { return s.to.Before(before) })
	q.total -= kept - len(q.found)
	if len(q.found) == 0 {
		q.total = 0
	}
}

// cause names what grew between two ticks while the amount fell.
func cause(before, after *tick.Tick, fall float64) string {
	was := map[string]need{}
	for _, n := range needs(before) {
		was[n.name] = n
	}
	var grown []string
	type growth struct {
		text string
		by   float64
	}
	var all []growth
	for _, n := range needs(after) {
		old, there := was[n.name]
		by := n.milliCPU - old.milliCPU
		if by < partOfFall*fall {
			continue
		}
		text := fmt.Sprintf("%s needed %s instead of %s", n.name, coresOf(n.milliCPU), coresOf(old.milliCPU))
		switch {
		case !there:
			text = fmt.Sprintf("%s started and needed %s", n.name, coresOf(n.milliCPU))
		case old.isUnknown:
			text = fmt.Sprintf("%s needed %s, and what it needed before is unknown", n.name, coresOf(n.milliCPU))
		}
		all = append(all, growth{text, by})
	}
	if now, known := beside(after); known {
		if old, known := beside(before); known && now-old >= partOfFall*fall {
			all = append(all, growth{fmt.Sprintf("processes outside all pods used %s instead of %s", coresOf(now), coresOf(old)), now - old})
		}
	}
	slices.SortStableFunc(all, func(a, b growth) int {
		if a.by > b.by {
			return -1
		}
		return 1
	})
	for _, g := range all[:min(len(all), 3)] {
		grown = append(grown, g.text)
	}
	if len(grown) > 0 {
		return strings.Join(grown, ", and ")
	}
	if after.Advice == nil {
		return ""
	}
	for _, r := range after.Advice.Reasons {
		if before.Advice == nil || !slices.ContainsFunc(before.Advice.Reasons, func(o string) bool { return shape(o) == shape(r) }) {
			return "no service grew; advise then reported: " + plain(r)
		}
	}
	return "no service grew by as much; advise's sums are below"
}

// shape is a reason without its numbers.
func shape(reason string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, reason)
}

// describe returns the squeeze in a sentence; what is the amount that fell.
func (s squeeze) describe(what string, clock func(time.Time) string) string {
	text := fmt.Sprintf("From %s to %s %s fell from %s to %s", clock(s.from), clock(s.to), what, coresNumber(s.before), coresOf(s.after))
	if s.cause != "" {
		text += ": " + s.cause
	}
	return text + "."
}
