// Package score measures a policy over a stream: its offer, how often that was too much, how often it changed, its squeezes and
// evictions, and the effects on services. It is pure, and keeps a few figures of a node however long the stream is.
package score

import (
	"cmp"
	"math"
	"slices"
	"time"

	"polder/lib/series"
	"polder/lib/tick"
	"polder/report/amounts"
	"polder/report/explain"
)

const (
	// movePart is the part of the machine by which an offer must change between two ticks to count as a move.
	movePart = 0.05
	// neededAfter is how long the condition of an eviction that was only decided must last so that the eviction counts as needed.
	neededAfter = time.Minute
	// longestGap is how many usual intervals may be between two ticks of which one is judged by the other. The usual one is collect's, or that
	// between the two ticks before if it is longer: a tick may come early.
	longestGap = 3
	mostNodes  = 1000
	// mostVictims bounds the evictions of a node that are tracked at a time.
	mostVictims = 1000
)

// Stream is the score of all nodes of a stream.
type Stream struct {
	Name       string
	nodes      map[string]*node
	otherTicks int // ticks of nodes beyond mostNodes
}

// mean is an average.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v *float64) {
	if v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
		m.sum += *v
		m.n++
	}
}

// node is the score of one node.
type node struct {
	policy      string
	shadow      string // the shadow policy
	first, last time.Time
	ticks       int
	leftOut     int              // ticks that are not newer than the one before them
	before      *amounts.Amounts // of the tick before
	interval    time.Duration    // between the last two ticks
	period      time.Duration    // collect's, of the last tick

	offered, free, memory, waiting, throttled, over mean
	shadowOffered                                   mean
	judged, oversold                                int
	shadowJudged, shadowOversold                    int
	compared, moves                                 int
	writes, wouldWrite                              int
	planned                                         map[tick.Write]bool // a dry run plans the same writes in every tick
	isolated                                        bool
	story                                           *explain.Story
	counted                                         *series.Node
	victims                                         map[string]*victim
	needed, notNeeded                               int
}

// victim is a pod whose eviction was decided and not carried out, so that the course without it is known.
type victim struct {
	key    conditionKey
	from   time.Time
	needed bool // it is counted
}

type conditionKey struct{ rule, scope string }

// Add adds the next tick.
func (s *Stream) Add(t *tick.Tick) {
	name := explain.Short(t.Node)
	n := s.nodes[name]
	if n == nil {
		if len(s.nodes) >= mostNodes {
			s.otherTicks++
			return
		}
		if s.nodes == nil {
			s.nodes = map[string]*node{}
		}
		n = &node{first: t.Time, story: explain.NewStory(), counted: series.NewNode("report"), victims: map[string]*victim{}}
		s.nodes[name] = n
	}
	n.add(t)
}

// Remove removes a node.
func (s *Stream) Remove(name string) { delete(s.nodes, explain.Short(name)) }

func (n *node) add(t *tick.Tick) {
	if n.ticks > 0 && !t.Time.After(n.last) {
		n.leftOut++ // twice, or out of order
		return
	}
	gap := t.Time.Sub(n.last)
	usual := max(n.interval, n.period)
	n.interval, n.period = gap, t.Sample.Interval()
	n.ticks++
	n.last = t.Time
	n.story.Add(t)
	n.counted.Add(t)
	a := amounts.Of(t)
	if t.Advice != nil {
		n.policy = explain.Short(t.Advice.Policy)
		if t.Advice.Shadow != nil {
			n.shadow = explain.Short(t.Advice.Shadow.Policy)
		}
	}
	n.offered.add(a.Offered)
	n.shadowOffered.add(a.Shadow)
	n.free.add(a.Free)
	n.memory.add(a.MemoryOffered)
	n.waiting.add(a.ServicesWaiting)
	n.throttled.add(a.ServicesThrottled)
	if n.before != nil && (usual <= 0 || n.ticks == 2 || gap <= longestGap*usual) {
		n.judge(n.before, &a)
	}
	n.before = &a
	if i := t.Isolation; i != nil {
		n.isolated = true
		if i.DryRun {
			planned := map[tick.Write]bool{}
			for _, w := range i.Writes {
				if planned[w] = true; !n.planned[w] {
					n.wouldWrite++
				}
			}
			n.planned = planned
		} else {
			n.writes += len(i.Writes)
		}
	}
	n.follow(t)
}

// judge judges an offer by the next tick: it is oversold where less was left.
func (n *node) judge(before, now *amounts.Amounts) {
	if before.Shadow != nil && now.Free != nil {
		n.shadowJudged++
		if *before.Shadow > *now.Free {
			n.shadowOversold++
		}
	}
	if before.Offered == nil {
		return
	}
	if now.Free != nil {
		n.judged++
		if over := *before.Offered - *now.Free; over > 0 {
			n.oversold++
			n.over.add(&over)
		}
	}
	if now.Offered != nil && now.Capacity != nil {
		n.compared++
		if math.Abs(*now.Offered-*before.Offered) > movePart**now.Capacity {
			n.moves++
		}
	}
}

// follow tracks the conditions for which pods would have been evicted.
func (n *node) follow(t *tick.Tick) {
	if t.Eviction == nil {
		return
	}
	met := map[conditionKey]bool{}
	for i := range t.Eviction.Pressures {
		if p := &t.Eviction.Pressures[i]; p.Met {
			met[conditionKey{explain.Short(p.Rule), explain.Short(p.Scope)}] = true
		}
	}
	for uid, v := range n.victims {
		switch {
		case !met[v.key] && !v.needed:
			n.notNeeded++
			delete(n.victims, uid)
		case !met[v.key]:
			delete(n.victims, uid)
		case !v.needed && t.Time.Sub(v.from) >= neededAfter:
			n.needed++
			v.needed = true
		}
	}
	for i := range t.Eviction.Evictions {
		x := &t.Eviction.Evictions[i]
		key := conditionKey{explain.Short(x.Rule), explain.Short(x.Scope)}
		id := explain.Short(x.UID) + "\x00" + key.rule
		if x.State == tick.StateWouldEvict && n.victims[id] == nil && len(n.victims) < mostVictims && met[key] {
			n.victims[id] = &victim{key: key, from: t.Time}
		}
	}
}

// sorted are the nodes by name.
func (s *Stream) sorted() []string {
	var all []string
	for name := range s.nodes {
		all = append(all, name)
	}
	slices.SortFunc(all, cmp.Compare)
	return all
}

// Empty reports whether there was no tick.
func (s *Stream) Empty() bool { return len(s.nodes) == 0 }
