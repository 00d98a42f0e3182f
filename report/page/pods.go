package page

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"polder/lib/tick"
	"polder/lib/usage"
	"polder/report/explain"
	"polder/report/view"
)

// pod is one pod's data of the whole recording.
type pod struct {
	name, class string
	first, last time.Time
	// seconds is the CPU time that it used, by its rates; peak its largest use in cores.
	seconds, peak float64
	evicted       string // the last state of its eviction
	// use are its cores in each stretch of the recording from the stretch with number from on; NaN where it is unknown.
	from  int
	use   []float32
	count int // of the values in the last stretch
	where changes[string]
}

// pods are the pods of a node. The stretches over which their use is averaged grow with the recording.
type pods struct {
	most   int // pods
	values int // in all pods' use
	bytes  int // of all pods' places

	all     map[string]*pod // by UID
	more    int             // pods that are not kept
	start   time.Time
	stretch time.Duration
}

func (s *pods) add(t *tick.Tick) {
	if t.Sample == nil {
		return
	}
	if s.start.IsZero() {
		s.start, s.stretch = t.Time, interval(t)
	}
	where := view.Places(t)
	for i := range t.Sample.Pods {
		p := &t.Sample.Pods[i]
		x := s.find(p, t.Time)
		if x == nil {
			continue
		}
		x.class = explain.Short(p.QoS)
		if p.UsageMilliCPU != nil && math.Abs(*p.UsageMilliCPU) <= usage.MaxMilliCPU {
			s.takeUse(x, t, *p.UsageMilliCPU/1000)
		}
		x.last = t.Time
		place := explain.Short(where(p))
		if old, known := x.where.last(); !known || old != place {
			x.where.most = s.bytes / max(len(s.all), 50)
			x.where.add(t.Time, place, len(place)+16)
		}
	}
	if e := t.Eviction; e != nil {
		for i := range e.Evictions {
			if x := s.all[explain.Short(e.Evictions[i].UID)]; x != nil {
				x.evicted = view.StateWord(e.Evictions[i].State)
			}
		}
	}
	s.limit()
}

// interval is the time between two ticks, a second where it is unknown.
func interval(t *tick.Tick) time.Duration {
	for _, v := range []*float64{t.Sample.PeriodSeconds, t.Sample.IntervalSeconds} {
		if v != nil && *v >= 1 && *v < 86400 {
			return time.Duration(*v * float64(time.Second)).Round(time.Second)
		}
	}
	return time.Second
}

// find is the pod's record; nil where there are too many pods that used more.
func (s *pods) find(p *tick.Pod, at time.Time) *pod {
	key := explain.Short(p.UID)
	if x := s.all[key]; x != nil {
		return x
	}
	if len(s.all) >= s.most {
		s.more++
		var least string
		for uid, x := range s.all {
			if x.last.Before(at) && (least == "" || x.seconds < s.all[least].seconds) {
				least = uid
			}
		}
		if least == "" {
			return nil
		}
		delete(s.all, least)
	}
	name := p.Name
	if p.Namespace != "" {
		name = p.Namespace + "/" + p.Name
	}
	x := &pod{name: explain.Short(name), first: at, last: at, from: -1}
	s.all[key] = x
	return x
}

func (s *pods) takeUse(x *pod, t *tick.Tick, cores float64) {
	if interval := t.Sample.IntervalSeconds; interval != nil && *interval > 0 && *interval < tick.MaxIntervalSeconds {
		x.seconds += cores * *interval
	}
	x.peak = max(x.peak, cores)
	slot := int(t.Time.Sub(s.start) / s.stretch)
	if x.from < 0 {
		x.from = slot
	}
	for slot-x.from > s.values { // after a long pause
		s.double()
		slot = int(t.Time.Sub(s.start) / s.stretch)
	}
	if slot < x.from { // a clock that was set back
		return
	}
	for len(x.use) <= slot-x.from {
		x.use, x.count = append(x.use, float32(math.NaN())), 0
	}
	i := slot - x.from
	if i != len(x.use)-1 {
		return
	}
	if x.count == 0 {
		x.use[i] = 0
	}
	x.use[i] += (float32(cores) - x.use[i]) / float32(x.count+1)
	x.count++
}

// forget removes the pods that were last seen before a time, and what the others did before it, which would take the room of the rest.
func (s *pods) forget(before time.Time) {
	maps.DeleteFunc(s.all, func(_ string, p *pod) bool { return p.last.Before(before) })
	for _, x := range s.all {
		x.where.before(before)
		if old := min(int(before.Sub(s.start)/s.stretch)-x.from, len(x.use)-1); x.from >= 0 && old > 0 {
			x.use, x.from = x.use[old:], x.from+old
		}
	}
}

// limit doubles the stretches until all values fit.
func (s *pods) limit() {
	for s.number() > s.values {
		s.double()
	}
}

// double makes each stretch twice as long.
func (s *pods) double() {
	s.stretch *= 2
	for _, x := range s.all {
		x.halve()
	}
}

func (s *pods) number() (n int) {
	for _, x := range s.all {
		n += len(x.use)
	}
	return n
}

// halve merges pairs of stretches.
func (x *pod) halve() {
	if x.from < 0 {
		return
	}
	use := x.use
	if x.from%2 == 1 {
		use = append([]float32{float32(math.NaN())}, use...)
	}
	x.from /= 2
	half := make([]float32, 0, len(use)/2+1)
	for i := 0; i < len(use); i += 2 {
		v := use[i]
		if i+1 < len(use) {
			switch w := use[i+1]; {
			case v != v:
				v = w
			case w == w:
				v = (v + w) / 2
			}
		}
		half = append(half, v)
	}
	x.use = half
}

// sorted are the pods, those that used most first.
func (s *pods) sorted() []*pod {
	all := make([]*pod, 0, len(s.all))
	for _, x := range s.all {
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.name, b.name), a.first.Compare(b.first))
	})
	return all
}
