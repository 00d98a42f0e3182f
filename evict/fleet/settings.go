package fleet

import (
	"polder/lib/evictconfig"
	"time"
)

// Settings are those of the fleet controller.
type Settings = evictconfig.Fleet

// pauseOf is the time between the evictions of two nodes.
func pauseOf(s Settings) time.Duration {
	return (time.Minute + time.Duration(s.NodesPerMinute) - 1) / time.Duration(max(s.NodesPerMinute, 1))
}

// Doc is the rule's manual.
const Doc = `
Where a node's agent has not been ready for taint-after, or no pod of it is there, the node's CustomNodeResource should have
the taint node.kubernetes.io/unschedulable:NoScheduleForReclaimedTasks, until the agent is ready again. After evict-after
the node's reclaimed pods go, all of them, with their own grace periods, at most nodes-per-minute nodes a minute: nodes that
had no turn yet before others, then those that have been without an agent for longest.
Nothing new is done to any node while the agents of more than 2 nodes and of over 20 % of them are not ready, or of all:
that is the network or the fleet controller. Nor to a node of which it is not known how it is. What holds then stays.
`
