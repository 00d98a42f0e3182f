package rule

import (
	"fmt"
	"math"
	"time"
)

// Settings are those of all rules. The keys in the configuration file are the flags' names.
type Settings struct {
	ReclaimedThreshold   float64       `yaml:"reclaimed-threshold"`
	ReclaimedGracePeriod time.Duration `yaml:"reclaimed-grace-period"`

	LoadLowerBoundRatio        float64       `yaml:"load-lower-bound-ratio"`
	LoadUpperBoundRatio        float64       `yaml:"load-upper-bound-ratio"`
	LoadThresholdMetPercentage float64       `yaml:"load-threshold-met-percentage"`
	LoadMetricRingSize         int           `yaml:"load-metric-ring-size"`
	LoadSyncPeriod             time.Duration `yaml:"load-sync-period"`
	LoadCooldown               time.Duration `yaml:"load-cooldown"`
}

// Defaults are the guide's.
func Defaults() Settings {
	return Settings{
		ReclaimedThreshold:   5,
		ReclaimedGracePeriod: 60 * time.Second,

		LoadLowerBoundRatio:        1,
		LoadUpperBoundRatio:        1.8,
		LoadThresholdMetPercentage: 0.8,
		LoadMetricRingSize:         10,
		LoadSyncPeriod:             30 * time.Second,
		LoadCooldown:               300 * time.Second,
	}
}

// maxRing bounds a ring: a larger one is a mistake, and each sample holds a number for every shared pod.
const maxRing = 10_000

// Check calls bad for every setting that cannot be used.
func (s *Settings) Check(bad func(key string, err error)) {
	ratio := func(key string, v, most float64) {
		if !(v > 0 && v <= most) || math.IsInf(v, 0) {
			bad(key, fmt.Errorf("%v: want a number over 0 and at most %v", v, most))
		}
	}
	ratio("reclaimed-threshold", s.ReclaimedThreshold, 1e6)
	ratio("load-lower-bound-ratio", s.LoadLowerBoundRatio, 1e6)
	ratio("load-upper-bound-ratio", s.LoadUpperBoundRatio, 1e6)
	ratio("load-threshold-met-percentage", s.LoadThresholdMetPercentage, 1)
	if s.LoadUpperBoundRatio < s.LoadLowerBoundRatio {
		bad("load-upper-bound-ratio", fmt.Errorf("%v is under load-lower-bound-ratio %v: a pod would go before the node is tainted", s.LoadUpperBoundRatio, s.LoadLowerBoundRatio))
	}
	if s.LoadMetricRingSize < 1 || s.LoadMetricRingSize > maxRing {
		bad("load-metric-ring-size", fmt.Errorf("%d: want 1 to %d", s.LoadMetricRingSize, maxRing))
	}
	for key, d := range map[string]time.Duration{"reclaimed-grace-period": s.ReclaimedGracePeriod, "load-sync-period": s.LoadSyncPeriod, "load-cooldown": s.LoadCooldown} {
		if d < 0 || d > 24*time.Hour {
			bad(key, fmt.Errorf("%s: want 0 to 24h", d))
		}
	}
}
