package health

import (
	"time"

	"polder/lib/evictconfig"
)

// Settings are the fleet controller's settings.
type Settings = evictconfig.Fleet

// pauseBetweenNodes returns the time between the evictions from two nodes.
func pauseBetweenNodes(s Settings) time.Duration {
	return (time.Minute + time.Duration(s.NodesPerMinute) - 1) / time.Duration(max(s.NodesPerMinute, 1))
}
