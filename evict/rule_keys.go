package main

import (
	"time"

	"polder/lib/stage"
)

// ruleKeys are the rules' own settings.
var ruleKeys = []key{
	newKey("reclaimed-threshold", "reclaimed pods may request this many times what is offered", "%v", (*stage.Flags).Float, func(s *settings) *float64 { return &s.ReclaimedThreshold }),
	newKey("reclaimed-grace-period", "grace period of the reclaimed pods that go", "%s", (*stage.Flags).Duration, func(s *settings) *time.Duration { return &s.ReclaimedGracePeriod }),
	newKey("load-lower-bound-ratio", "taint when the shared pods' load is over this many times their pool's CPUs", "%v", (*stage.Flags).Float, func(s *settings) *float64 { return &s.LoadLowerBoundRatio }),
	newKey("load-upper-bound-ratio", "evict when the shared pods' load is over this many times their pool's CPUs", "%v", (*stage.Flags).Float, func(s *settings) *float64 { return &s.LoadUpperBoundRatio }),
	newKey("load-threshold-met-percentage", "part of the ring's samples that must be over a bound, 0 to 1", "%v", (*stage.Flags).Float, func(s *settings) *float64 { return &s.LoadThresholdMetPercentage }),
	newKey("load-metric-ring-size", "samples of the load that are looked at", "%d", (*stage.Flags).Int, func(s *settings) *int { return &s.LoadMetricRingSize }),
	newKey("load-sync-period", "time between two samples of the load", "%s", (*stage.Flags).Duration, func(s *settings) *time.Duration { return &s.LoadSyncPeriod }),
	newKey("load-cooldown", "time between two evictions because of the load", "%s", (*stage.Flags).Duration, func(s *settings) *time.Duration { return &s.LoadCooldown }),
}
