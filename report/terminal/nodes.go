package terminal

import (
	"maps"
	"time"

	"polder/report/view"
)

const (
	// maxNodes bounds the nodes that are counted, because a stream may contain ever new names: Kubernetes supports 5,000 in a cluster.
	maxNodes = 5000
	// sweepEvery is how often silent nodes are looked for.
	sweepEvery = time.Minute
)

// nodes are the nodes that have sent ticks within the last [view.ForgetAfter]. Their time is that of the ticks: it advances with each node's
// own clock, so that a node whose clock is ahead does not make others look silent.
type nodes struct {
	now   time.Time
	swept time.Time
	seen  map[string]node
}

// node is when a node's last tick came, and by how much its clock is ahead of that of the first node.
type node struct {
	last  time.Time
	ahead time.Duration
}

// add notes a tick of a node, and forgets those that have been silent for too long.
func (n *nodes) add(name string, at time.Time) {
	if n.seen == nil {
		n.seen, n.now, n.swept = map[string]node{}, at, at
	}
	x, known := n.seen[name]
	if !known {
		if len(n.seen) >= maxNodes {
			return
		}
		x.ahead = at.Sub(n.now)
	}
	if own := at.Add(-x.ahead); own.After(n.now) {
		n.now = own
	}
	x.last = n.now
	n.seen[name] = x
	if n.now.Sub(n.swept) >= sweepEvery {
		n.swept = n.now
		maps.DeleteFunc(n.seen, func(_ string, x node) bool { return n.now.Sub(x.last) > view.ForgetAfter })
	}
}

// has reports whether a node has sent a tick and is not forgotten.
func (n *nodes) has(name string) bool {
	_, known := n.seen[name]
	return known
}

// others counts the nodes besides one.
func (n *nodes) others(name string) int {
	if n.has(name) {
		return len(n.seen) - 1
	}
	return len(n.seen)
}
