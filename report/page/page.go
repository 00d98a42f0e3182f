// Package page makes one self-contained HTML page of a recording: use and offer over time, the map of the cores over time,
// squeezes, evictions and failures in sentences, advise's reasons at each time, and the pods. It is pure: its input is ticks and its
// output text. Its memory and the page are bounded for any recording: in a longer one neighbouring ticks become one point, which the
// page notes.
package page

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"polder/lib/cpus"
	"polder/lib/tick"
	"polder/report/explain"
	"polder/report/score"
)

// Bounds of a page, for all nodes together: a day of ticks of 10 seconds is drawn tick by tick.
const (
	mostNodes    = 32
	mostPoints   = 8640
	reasonsBytes = 1600 << 10
	coresBytes   = 300 << 10
	mostPods     = 400
	// fewestPods is the least number of pods of each of many nodes.
	fewestPods  = 30
	podValues   = 120_000
	placesBytes = 200 << 10
	// fewestPoints is the least number of points of each of many nodes.
	fewestPoints = 360
	// reasonsOfATick bounds the reasons of a tick that are kept.
	reasonsOfATick = 40
)

// Recording collects ticks one after the other.
type Recording struct {
	// Inserted names the sections that the recording lacks and that were decided for this page.
	Inserted []string
	// Keep is how much of the past is kept, 0 for all of it.
	Keep time.Duration

	nodes      map[string]*node
	score      score.Stream
	otherTicks int // ticks of nodes beyond mostNodes
}

// node is what is remembered of one node.
type node struct {
	first, last  time.Time
	begun        time.Time // the first tick's, whether or not it is kept
	ticks        int
	outOfOrder   int
	setBack      setBack
	policy       string
	shadowPolicy string
	dryRun       bool

	points  points
	reasons changes[*sentences]
	cores   changes[[]tick.Pool]
	pods    pods
	story   *explain.Story
	known   map[string]bool // the patterns of reasons so far
	cpus    []cpu
	online  string
}

// sentences are advise's reasons: as they were read, and with their figures in cores and GiB, which are computed when first needed.
type sentences struct{ raw, plain []string }

func (s *sentences) text() []string {
	if s.plain == nil {
		for _, text := range s.raw {
			s.plain = append(s.plain, explain.Plain(text))
		}
	}
	return s.plain
}

// cpu is a CPU of the map of the cores: its core is a column, its NUMA node a block.
type cpu struct{ id, core, numa int }

// Add adds the next tick.
func (r *Recording) Add(t *tick.Tick) {
	n := r.nodes[t.Node]
	if n != nil && r.Keep > 0 && n.setBack.by(t.Time, n.last) {
		r.remove(t.Node) // what it was before has other times
		n = nil
	}
	if n == nil {
		if n = r.begin(t); n == nil {
			r.otherTicks++
			return
		}
	}
	if r.Keep > 0 { // before the tick is added: what is kept has room for it after a pause of any length
		n.forget(t.Time.Add(-r.Keep))
	}
	n.add(t)
	r.score.Add(t)
}

// begin adds a tick's node, in the place of one whose last tick is too old to be kept; it returns nil where there are too many.
func (r *Recording) begin(t *tick.Tick) *node {
	if len(r.nodes) >= mostNodes && r.Keep > 0 {
		for name, old := range r.nodes {
			if t.Time.Sub(old.last) > r.Keep {
				r.remove(name)
			}
		}
	}
	if len(r.nodes) >= mostNodes {
		return nil
	}
	n := &node{first: t.Time, begun: t.Time, story: explain.NewStory(), known: map[string]bool{}, pods: pods{all: map[string]*pod{}}}
	if r.nodes == nil {
		r.nodes = map[string]*node{}
	}
	r.nodes[strings.Clone(t.Node)] = n
	for _, other := range r.nodes {
		other.share(len(r.nodes))
	}
	return n
}

func (r *Recording) remove(name string) {
	delete(r.nodes, name)
	r.score.Remove(name)
}

// setBackTicks is how many ticks in a row, one newer than the other, show that the clock was set back, and not that one tick came late.
const setBackTicks = 5

// setBack counts such ticks.
type setBack struct {
	ticks int
	last  time.Time
}

// by notes the time of the next tick, after the newest one so far. It reports whether the clock was set back.
func (s *setBack) by(at, newest time.Time) bool {
	if !at.Before(newest) || at.Before(s.last) {
		s.ticks = 0
	}
	if s.last = at; at.Before(newest) {
		s.ticks++
	}
	return s.ticks >= setBackTicks
}

// share sets the node's part of the bounds of a page with so many nodes.
func (n *node) share(nodes int) {
	n.points.limit(max(mostPoints/nodes, fewestPoints))
	n.reasons.limit(reasonsBytes / nodes)
	n.cores.limit(coresBytes / nodes)
	n.pods.most = max(mostPods/nodes, fewestPods)
	n.pods.values = podValues / nodes
	n.pods.bytes = placesBytes / nodes
}

func (n *node) add(t *tick.Tick) {
	if n.ticks > 0 && !t.Time.After(n.last) {
		n.outOfOrder++ // or twice
		return
	}
	n.ticks++
	n.last = t.Time
	n.points.add(pointOf(t))
	n.pods.add(t)
	n.story.Add(t)
	if t.Sample != nil && t.Sample.Topology != nil {
		n.takeTopology(t.Sample.Topology)
	}
	n.dryRun = t.Isolation != nil && t.Isolation.DryRun
	if t.Advice == nil {
		return
	}
	n.policy = explain.Short(t.Advice.Policy)
	if t.Advice.Shadow != nil {
		n.shadowPolicy = explain.Short(t.Advice.Shadow.Policy)
	}
	if old, known := n.cores.last(); !known || !slices.Equal(old, t.Advice.Pools) {
		all, size := poolsOf(t.Advice)
		n.cores.add(t.Time, all, size)
	}
	if old, known := n.reasons.last(); !known || !sameReasons(old.raw, t.Advice.Reasons) {
		all, size := n.reasonsOf(t.Advice)
		n.reasons.add(t.Time, &sentences{raw: all}, size)
	}
}

// mostPools bounds the pools of a tick that are kept, and longestList the length of their CPU lists.
const (
	mostPools   = 100
	longestList = 4000
)

func poolsOf(a *tick.Advice) (all []tick.Pool, size int) {
	for _, p := range a.Pools[:min(len(a.Pools), mostPools)] {
		list := p.CPUs
		set, err := cpus.Parse(list)
		if err != nil || len(list) > longestList {
			continue
		}
		list = set.String()
		all = append(all, tick.Pool{Name: explain.Short(p.Name), CPUs: strings.Clone(list)})
		size += 8 + len(list)
		if p.Name != tick.PoolShare && p.Name != tick.PoolReclaim {
			size += len(p.Name)
		}
	}
	return all, size + 16
}

func sameReasons(old, now []string) bool {
	now = now[:min(len(now), reasonsOfATick)]
	return slices.EqualFunc(old, now, func(a, b string) bool { return a == b || a == explain.Short(b) })
}

// mostPatterns bounds the sentences without their numbers that are remembered as known.
const mostPatterns = 2000

func (n *node) reasonsOf(a *tick.Advice) (all []string, size int) {
	for _, x := range a.Reasons[:min(len(a.Reasons), reasonsOfATick)] {
		text := explain.Short(x)
		all = append(all, text)
		size += 8 + 2*digits(text)
		pattern := patterns{index: map[string]int{}}
		pattern.add(text)
		if n.known[pattern.list[0]] {
			continue // the page has its pattern once
		}
		size += len(text)
		if len(n.known) < mostPatterns {
			n.known[pattern.list[0]] = true
		}
	}
	return all, size + 16
}

func digits(text string) (n int) {
	for i := range len(text) {
		if '0' <= text[i] && text[i] <= '9' {
			n++
		}
	}
	return n
}

// takeTopology sorts the machine's CPUs for the map: by NUMA node, and the hyperthreads of a core side by side.
func (n *node) takeTopology(t *tick.Topology) {
	if n.online == t.CPUs {
		return
	}
	n.online = strings.Clone(t.CPUs)
	online, err := cpus.Parse(t.CPUs)
	if err != nil || online.Size() > 4096 {
		n.cpus = nil
		return
	}
	coreOf, numaOf := map[int]int{}, map[int]int{}
	for _, list := range t.Cores {
		if set, err := cpus.Parse(list); err == nil && !set.IsEmpty() {
			for _, id := range set.List() {
				coreOf[id] = set.List()[0]
			}
		}
	}
	for _, m := range t.NUMANodes {
		if set, err := cpus.Parse(m.CPUs); err == nil {
			for _, id := range set.UnsortedList() {
				numaOf[id] = m.ID
			}
		}
	}
	n.cpus = nil
	for _, id := range online.List() {
		core, known := coreOf[id]
		if !known {
			core = id
		}
		n.cpus = append(n.cpus, cpu{id, core, numaOf[id]})
	}
	slices.SortFunc(n.cpus, func(a, b cpu) int {
		return cmp.Or(cmp.Compare(a.numa, b.numa), cmp.Compare(a.core, b.core), cmp.Compare(a.id, b.id))
	})
}

// forget removes everything that is older than a time.
func (n *node) forget(before time.Time) {
	n.ticks -= n.points.before(before)
	n.reasons.before(before)
	n.cores.before(before)
	n.story.Forget(before)
	n.pods.forget(before)
	if len(n.points.all) > 0 {
		n.first = n.points.all[0].first
	}
}

// Nodes is the number of nodes.
func (r *Recording) Nodes() int { return len(r.nodes) }

// rounded is a number with at most two digits after the point, or five in total.
func rounded(v float64) float64 {
	switch size := math.Abs(v); {
	case size >= 1000:
		return math.Round(v)
	case size >= 100:
		return math.Round(v*10) / 10
	}
	return math.Round(v*100) / 100
}
