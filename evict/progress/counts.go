package progress

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"polder/lib/metrics"
)

// counts is what evict has done since it started, over all nodes. The goroutine of the stream adds to it, and any goroutine
// may read it.
type counts struct {
	rules []string // names of the rules; any other is counted as "other"

	mu        sync.Mutex
	evictions map[Tally]int64
	limits    map[Tally]int64
}

// Tally is the key of a count: evictions by rule and outcome, limits by rule and limit.
type Tally struct {
	// Rule is the first rule that named the pod.
	Rule string
	// Outcome is the state that an eviction reached (tick.StateCreated and so on; tick.StateWouldEvict when a pod begins to be one
	// that would be evicted), or the name of a limit that excluded a pod, once per tick.
	Outcome string
}

// Count is a tally with its count.
type Count struct {
	Tally
	N int64
}

func (c *counts) eviction(rule, state string) { c.add(&c.evictions, Tally{rule, state}) }

func (c *counts) limit(rule, limit string) { c.add(&c.limits, Tally{rule, limit}) }

func (c *counts) add(to *map[Tally]int64, t Tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *to == nil {
		*to = map[Tally]int64{}
	}
	if !slices.Contains(c.rules, t.Rule) {
		t.Rule = "other" // the state file of another version may contain any name
	}
	(*to)[t]++
}

// registerMetrics exposes the limits as metrics; the metrics of evictions come from the ticks, by node.
func (c *counts) registerMetrics(m *metrics.Set) {
	labels := []string{"rule", "limit"}
	m.Counters("polder_eviction_limits_total", "Ticks in which a limit prevented evictions of a rule.", labels, func(add func(float64, ...string)) {
		_, limits := c.read()
		for _, l := range limits {
			add(float64(l.N), l.Rule, l.Outcome)
		}
	})
}

// Counts returns the evictions by rule and outcome and the limits by rule and name, each sorted.
func (w *Tracker) Counts() (evictions, limits []Count) { return w.counts.read() }

// read returns the evictions by rule and outcome and the limits by rule and name, each sorted.
func (c *counts) read() (evictions, limits []Count) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sorted(c.evictions), sorted(c.limits)
}

func sorted(m map[Tally]int64) []Count {
	var out []Count
	for _, t := range slices.SortedFunc(maps.Keys(m), func(a, b Tally) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Outcome, b.Outcome))
	}) {
		out = append(out, Count{t, m[t]})
	}
	return out
}
