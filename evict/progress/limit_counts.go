package progress

import (
	"sync"

	"polder/evict/pick"
	"polder/lib/metrics"
)

// limitCounts has, for each limit, the number of ticks in which it excluded pods, over all nodes since evict started. The goroutine of the
// stream adds to it, and any goroutine may read it. Evictions are counted by package lib/series, from the ticks, by node.
type limitCounts struct {
	mu    sync.Mutex
	ticks map[pick.ReachedLimit]int64
}

func (c *limitCounts) add(l pick.ReachedLimit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ticks == nil {
		c.ticks = map[pick.ReachedLimit]int64{}
	}
	c.ticks[l]++
}

// registerMetrics exposes the counts as metrics.
func (c *limitCounts) registerMetrics(m *metrics.Set) {
	labels := []string{"rule", "limit"}
	m.Counters("polder_eviction_limits_total", "Ticks in which a limit prevented evictions of a rule.", labels,
		func(add func(float64, ...string)) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for l, n := range c.ticks {
				add(float64(n), l.Rule, l.Limit)
			}
		})
}
