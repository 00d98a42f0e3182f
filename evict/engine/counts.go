package engine

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"polder/evict/fleet"
	"polder/evict/rule"
	"polder/lib/metrics"
)

// counts are what evict has done since it started, over all nodes. They are added to on the goroutine of the stream, and can
// be read on any.
type counts struct {
	mu        sync.Mutex
	evictions map[tally]int64
	limits    map[tally]int64
}

// tally is what is counted: for evictions by rule and outcome, for limits by rule and limit.
type tally struct {
	// Rule is the first rule that named the pod.
	Rule string
	// What is the state that an eviction came to (tick.StateCreated and so on; tick.StateWouldEvict when a pod begins to be one
	// that would be evicted), or the name of a limit that held a pod back, once a tick.
	What string
}

// count is a tally with its number.
type count struct {
	tally
	N int64
}

func (c *counts) eviction(rule, state string) { c.add(&c.evictions, tally{rule, state}) }

func (c *counts) limit(rule, limit string) { c.add(&c.limits, tally{rule, limit}) }

func (c *counts) add(to *map[tally]int64, t tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *to == nil {
		*to = map[tally]int64{}
	}
	if t.Rule != fleet.Rule && !slices.Contains(rule.Names(), t.Rule) {
		t.Rule = "other" // the state file of another version may name any
	}
	(*to)[t]++
}

// tell has the metrics tell the limits; the evictions they have from the ticks, by node.
func (c *counts) tell(m *metrics.Set) {
	labels := []string{"rule", "limit"}
	m.Counters("polder_eviction_limits_total", "Ticks in which a limit held a rule's pods back.", labels, func(put func(float64, ...string)) {
		_, limits := c.read()
		for _, l := range limits {
			put(float64(l.N), l.Rule, l.What)
		}
	})
}

// read returns the evictions by rule and outcome and the limits by rule and name, each sorted.
func (c *counts) read() (evictions, limits []count) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sorted(c.evictions), sorted(c.limits)
}

func sorted(m map[tally]int64) []count {
	var out []count
	for _, t := range slices.SortedFunc(maps.Keys(m), func(a, b tally) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.What, b.What))
	}) {
		out = append(out, count{t, m[t]})
	}
	return out
}
