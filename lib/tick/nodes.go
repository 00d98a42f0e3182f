package tick

import (
	"maps"
	"time"
)

// MaxNodes bounds the nodes whose state a tool keeps, because a stream may contain ever new names.
const MaxNodes = 20_000

// DropOldest makes room for one more node if there are [MaxNodes]: it drops the one with the oldest time, and of several the first by name.
func DropOldest[N any](nodes map[string]*N, timeOf func(*N) time.Time) {
	if len(nodes) < MaxNodes {
		return
	}
	oldest, oldestTime, found := "", time.Time{}, false
	for name, n := range nodes {
		lastUsed := time.Time{} // for null in a state file
		if n != nil {
			lastUsed = timeOf(n)
		}
		if !found || lastUsed.Before(oldestTime) || lastUsed.Equal(oldestTime) && name < oldest {
			oldest, oldestTime, found = name, lastUsed, true
		}
	}
	delete(nodes, oldest)
}

// NodeMetadata are a node's labels and annotations, as last known. They select the configuration that is in force.
type NodeMetadata struct {
	Labels, Annotations map[string]string
}

// Update takes those of a sample. While the Node object cannot be read they are unknown, which does not mean that it has none: the last
// known ones stay.
func (m *NodeMetadata) Update(s *Sample) {
	if s.IsNodeUnread() {
		return
	}
	update(&m.Labels, s.Labels)
	update(&m.Annotations, s.Annotations)
}

// update replaces a map by a copy of the present one, if they differ.
func update(last *map[string]string, present map[string]string) {
	if !maps.Equal(*last, present) {
		*last = maps.Clone(present)
	}
}
