package rule

import (
	"polder/lib/evictconfig"
	"polder/lib/sloconfig"
)

// Settings are evict's settings together with the strategies in force on the node.
type Settings struct {
	evictconfig.Settings
	// Strategies are Koordinator's for the node, nil if there are none: its rules have no other settings.
	Strategies *sloconfig.Strategies
}
