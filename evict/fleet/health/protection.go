package health

import (
	"fmt"

	"polder/lib/tick"
)

// Katalyst's bounds: so many nodes do not fail independently; the cause is the network or Polder itself.
const (
	toleratedNodes = 2
	toleratedShare = 0.2
)

// Protection returns why no new action may start on any node of the fleet; empty if there is no reason. It depends only on
// the totals of one instant. A node in unknown state counts as failed.
func Protection(f *tick.Fleet) string {
	failed := f.Nodes - f.Ready
	switch {
	case f.Nodes < 0 || f.Ready < 0 || f.NotReady < 0 || f.Unknown < 0 || f.Ready > f.Nodes || f.NotReady > f.Nodes ||
		f.Unknown != failed-f.NotReady:
		return fmt.Sprintf("the fleet's totals do not add up (%d nodes, %d ready, %d not ready, %d unknown)", f.Nodes, f.Ready, f.NotReady, f.Unknown)
	case f.Nodes > 0 && f.Ready == 0:
		return fmt.Sprintf("none of %d nodes is known to have a ready agent: the cause is the network or the fleet controller, not the nodes", f.Nodes)
	case failed > toleratedNodes && float64(failed) > toleratedShare*float64(f.Nodes):
		return fmt.Sprintf("the agents of %d of %d nodes are not ready, over %.0f %%: the cause is the network or the fleet controller, not the nodes", failed, f.Nodes, 100*toleratedShare)
	}
	return ""
}
