package rule

import (
	"polder/lib/evictconfig"
	"polder/lib/sloconfig"
)

// Settings are evict's, with what is in force on the node beside them.
type Settings struct {
	evictconfig.Settings
	// Strategies are Koordinator's for the node, nil where there are none: its rules have no other settings.
	Strategies *sloconfig.Strategies
}

// Defaults are the settings that nobody has set.
func Defaults() Settings { return Settings{Settings: evictconfig.Defaults()} }
