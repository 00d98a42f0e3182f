package view

import (
	"maps"
	"time"
)

const (
	// forgetAfter is how long a node is remembered after its last tick, while others' ticks come. It is longer than a reboot or an upgrade
	// of a node takes, and short enough that nodes that were deleted do not add up where an autoscaler creates new ones all day.
	forgetAfter = time.Hour
	// largestStep bounds by how much one tick moves the common time. A larger step is that of one clock, or a pause of the whole stream, and
	// makes no other node silent.
	largestStep = forgetAfter / 2
	// sweepEvery is how often silent nodes are looked for.
	sweepEvery = time.Minute
	// maxNodes bounds the nodes, because a stream may contain ever new names: Kubernetes supports 5,000 in a cluster.
	maxNodes = 5000
)

// Nodes are the nodes of a stream that have sent ticks within the last hour. Their time is that of the ticks: it advances with each node's
// own clock, but for the steps of a clock, so that a node whose clock is ahead, or is set, does not make others look silent.
type Nodes struct {
	now   time.Time
	swept time.Time
	seen  map[string]nodeTime
}

// nodeTime is when a node's last tick came, and by how much its clock is ahead of the common time.
type nodeTime struct {
	last  time.Time
	ahead time.Duration
}

// Add notes a tick of a node. It reports whether nodes were forgotten.
func (n *Nodes) Add(name string, at time.Time) (forgotten bool) {
	if n.seen == nil {
		n.seen, n.now, n.swept = map[string]nodeTime{}, at, at
	}
	x, known := n.seen[name]
	if !known {
		if len(n.seen) >= maxNodes {
			return false
		}
		x.ahead = at.Sub(n.now)
	}
	switch step := at.Add(-x.ahead).Sub(n.now); {
	case step.Abs() >= largestStep:
		x.ahead += step
	case step > 0:
		n.now = n.now.Add(step)
	}
	x.last = n.now
	n.seen[name] = x
	if n.now.Sub(n.swept) < sweepEvery {
		return false
	}
	n.swept = n.now
	before := len(n.seen)
	maps.DeleteFunc(n.seen, func(_ string, x nodeTime) bool { return n.now.Sub(x.last) > forgetAfter })
	return len(n.seen) < before
}

// Has reports whether a node has sent a tick and is not forgotten.
func (n *Nodes) Has(name string) bool {
	_, known := n.seen[name]
	return known
}

// Others counts the nodes besides one.
func (n *Nodes) Others(name string) int {
	if n.Has(name) {
		return len(n.seen) - 1
	}
	return len(n.seen)
}
