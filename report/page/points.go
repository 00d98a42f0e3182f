package page

import (
	"math"
	"time"

	"polder/lib/tick"
	"polder/report/amounts"
)

// figure is one of the amounts that are drawn over time.
type figure int

const (
	capacity  figure = iota // cores
	services                // used, cores
	batch                   // used, cores
	rest                    // used, cores
	offered                 // cores
	free                    // cores that were unused or used by batch
	requested               // of the offer, cores
	pool                    // of the reclaimed pods, CPUs
	shadow                  // offered by advise's shadow policy, cores
	memory                  // used, MiB
	memoryAll               // MiB
	memoryOffered
	throttled // percent
	waiting   // percent: PSI of the CPU
	load
	offeredLow   // the least of the point's ticks
	servicesHigh // the largest
	figures
)

// names are the figures' names in the page's data.
var names = [figures]string{
	"capacity", "services", "batch", "rest", "offered", "free", "requested", "pool", "shadow", "memory", "memoryAll", "memoryOffered",
	"throttled", "waiting", "load", "offeredLow", "servicesHigh",
}

// point is the figures of one or more ticks.
type point struct {
	first time.Time
	ticks int
	value [figures]float64 // an average, but of the least and the largest; NaN where no tick has it
	count [figures]int32   // of the ticks that have it
}

// merge adds a later point's ticks.
func (p *point) merge(q *point) {
	p.ticks += q.ticks
	for f := range p.value {
		a, b := float64(p.count[f]), float64(q.count[f])
		switch {
		case b == 0:
		case a == 0:
			p.value[f] = q.value[f]
		case figure(f) == offeredLow:
			p.value[f] = min(p.value[f], q.value[f])
		case figure(f) == servicesHigh:
			p.value[f] = max(p.value[f], q.value[f])
		default:
			p.value[f] = (p.value[f]*a + q.value[f]*b) / (a + b)
		}
		p.count[f] += q.count[f]
	}
}

// pointOf is the point of one tick.
func pointOf(t *tick.Tick) *point {
	p := &point{first: t.Time, ticks: 1}
	for f := range p.value {
		p.value[f] = math.NaN()
	}
	a := amounts.Of(t)
	for _, x := range [...]struct {
		figure
		value *float64
		unit  float64
	}{
		{capacity, a.Capacity, 1},
		{services, a.Services, 1},
		{batch, a.Batch, 1},
		{rest, a.Rest, 1},
		{offered, a.Offered, 1},
		{free, a.Free, 1},
		{requested, a.Requested, 1},
		{pool, a.Pool, 1},
		{shadow, a.Shadow, 1},
		{memory, a.Memory, mebibyte},
		{memoryAll, a.MemoryAll, mebibyte},
		{memoryOffered, a.MemoryOffered, mebibyte},
		{throttled, a.Throttled, 1},
		{waiting, a.CPUStall, 1},
		{load, a.Load1, 1},
		{offeredLow, a.Offered, 1},
		{servicesHigh, a.Services, 1},
	} {
		if x.value != nil {
			p.value[x.figure], p.count[x.figure] = *x.value/x.unit, 1
		}
	}
	return p
}

const mebibyte = 1 << 20

// points are a node's figures over time, at most so many: beyond that, two neighbours become one.
type points struct {
	most int
	per  int // ticks in a point
	all  []*point
}

func (s *points) add(p *point) {
	if n := len(s.all); n > 0 && s.all[n-1].ticks < s.per {
		s.all[n-1].merge(p)
		return
	}
	s.all = append(s.all, p)
	s.limit(s.most)
}

// limit sets how many points there may be.
func (s *points) limit(most int) {
	s.most = most
	s.per = max(s.per, 1)
	for len(s.all) > most && len(s.all) > 1 {
		s.per *= 2
		half := s.all[:0]
		for _, p := range s.all {
			if n := len(half); n > 0 && half[n-1].ticks < s.per {
				half[n-1].merge(p)
			} else {
				half = append(half, p)
			}
		}
		clear(s.all[len(half):])
		s.all = half
	}
}

// before removes the points before a time, and returns how many ticks they had.
func (s *points) before(at time.Time) (ticks int) {
	for len(s.all) > 1 && s.all[1].first.Before(at) {
		ticks += s.all[0].ticks
		s.all[0] = nil
		s.all = s.all[1:]
	}
	return ticks
}
