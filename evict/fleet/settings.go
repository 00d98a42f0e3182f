package fleet

import (
	"fmt"
	"time"
)

// Settings are those of the centre. The keys in the configuration file are the flags' names.
type Settings struct {
	// TaintAfter and EvictAfter are how long a node's agent must not have been ready.
	TaintAfter time.Duration `yaml:"taint-after"`
	EvictAfter time.Duration `yaml:"evict-after"`
	// NodesPerMinute bounds the nodes whose pods are evicted.
	NodesPerMinute int `yaml:"nodes-per-minute"`
}

// Defaults are the guide's times and Katalyst's rate, a node in 10 seconds.
func Defaults() Settings {
	return Settings{TaintAfter: 10 * time.Minute, EvictAfter: 20 * time.Minute, NodesPerMinute: 6}
}

const (
	// longestAfter bounds the times: over it, it is a mistake.
	longestAfter = 7 * 24 * time.Hour
	// mostPerMinute is ten nodes a second: more is no limit.
	mostPerMinute = 600
)

// Check calls bad for every setting that cannot be used.
func (s *Settings) Check(bad func(key string, err error)) {
	after := func(key string, d time.Duration) {
		if d <= 0 || d > longestAfter {
			bad(key, fmt.Errorf("%s: want a time span over 0 and at most %s", d, longestAfter))
		}
	}
	after("taint-after", s.TaintAfter)
	after("evict-after", s.EvictAfter)
	if s.EvictAfter < s.TaintAfter {
		bad("evict-after", fmt.Errorf("%s is under taint-after %s: pods would go before the node is closed to their like", s.EvictAfter, s.TaintAfter))
	}
	if s.NodesPerMinute < 1 || s.NodesPerMinute > mostPerMinute {
		bad("nodes-per-minute", fmt.Errorf("%d: want 1 to %d", s.NodesPerMinute, mostPerMinute))
	}
}

// pause is the time between the evictions of two nodes.
func (s *Settings) pause() time.Duration {
	return (time.Minute + time.Duration(s.NodesPerMinute) - 1) / time.Duration(max(s.NodesPerMinute, 1))
}

// Doc is the rule's manual.
const Doc = `
Where a node's agent has not been ready for taint-after, or no pod of it is there, the node's CustomNodeResource should have
the taint node.kubernetes.io/unschedulable:NoScheduleForReclaimedTasks, until the agent is ready again. After evict-after
the node's reclaimed pods go, all of them, with their own grace periods, at most nodes-per-minute nodes a minute: nodes that
had no turn yet before others, then those that have been without an agent for longest.
Nothing new is done to any node while the agents of more than 2 nodes and of over 20 % of them are not ready, or of all:
that is the network or the centre. Nor to a node of which it is not known how it is. What holds then stays.
`
