package rule

import (
	"time"

	"polder/lib/sloconfig"
)

// Settings are those of all rules. The keys in the configuration file are the flags' names. A grace period of 0 is the
// pod's own: no rule ends a pod without one. A hysteresis of 0 is none.
type Settings struct {
	// The thresholds are multiples of what is offered; where that of CPU or memory is 0, ReclaimedThreshold holds for it.
	ReclaimedThreshold       float64 `yaml:"reclaimed-threshold"`
	ReclaimedCPUThreshold    float64 `yaml:"reclaimed-cpu-threshold"`
	ReclaimedMemoryThreshold float64 `yaml:"reclaimed-memory-threshold"`
	// 0 is no soft threshold.
	ReclaimedSoftCPUThreshold    float64 `yaml:"reclaimed-soft-cpu-threshold"`
	ReclaimedSoftMemoryThreshold float64 `yaml:"reclaimed-soft-memory-threshold"`
	ReclaimedNUMAEnabled         bool    `yaml:"reclaimed-numa-enabled"`
	// ReclaimedZeroOfferEnabled takes an offer of 0 at its word.
	ReclaimedZeroOfferEnabled bool          `yaml:"reclaimed-zero-offer-enabled"`
	ReclaimedTolerance        time.Duration `yaml:"reclaimed-tolerance"`
	ReclaimedGracePeriod      time.Duration `yaml:"reclaimed-grace-period"`
	ReclaimedHysteresis       float64       `yaml:"reclaimed-hysteresis"`

	MemorySystemEnabled bool  `yaml:"memory-system-enabled"`
	MemoryFreeMinimum   Bytes `yaml:"memory-free-minimum"`
	MemoryNUMAEnabled   bool  `yaml:"memory-numa-enabled"`
	// MemoryNUMAVictimMinimum is the part of a NUMA node's memory, 0 to 1, that a pod must use there to be a victim.
	MemoryNUMAVictimMinimum       float64 `yaml:"memory-numa-victim-minimum"`
	MemoryNUMABelowTimes          int     `yaml:"memory-numa-below-times"`
	MemoryNUMABelowTimesReclaimed int     `yaml:"memory-numa-below-times-reclaimed"`
	// MemoryKswapdRate is in pages a second; 0 is not measured.
	MemoryKswapdRate  float64 `yaml:"memory-kswapd-rate"`
	MemoryKswapdTimes int     `yaml:"memory-kswapd-times"`
	// MemoryKswapdDuration over 0 counts the time instead of the times.
	MemoryKswapdDuration time.Duration `yaml:"memory-kswapd-duration"`
	// MemorySyncPeriod is the time between two of the times that are counted.
	MemorySyncPeriod time.Duration `yaml:"memory-sync-period"`
	MemoryPSIEnabled bool          `yaml:"memory-psi-enabled"`
	// The pressures are "some avg10", in percent.
	MemoryPSIThreshold         float64       `yaml:"memory-psi-threshold"`
	MemoryPSIPodThreshold      float64       `yaml:"memory-psi-pod-threshold"`
	MemoryPSIPods              int           `yaml:"memory-psi-pods"`
	MemoryPSIPodsMean          float64       `yaml:"memory-psi-pods-mean"`
	MemoryPSIDurationReclaimed time.Duration `yaml:"memory-psi-duration-reclaimed"`
	MemoryPSIDuration          time.Duration `yaml:"memory-psi-duration"`
	MemoryPSICooldown          time.Duration `yaml:"memory-psi-cooldown"`
	MemorySystemRanking        []string      `yaml:"memory-system-ranking"`
	MemoryNUMARanking          []string      `yaml:"memory-numa-ranking"`
	MemoryTolerance            time.Duration `yaml:"memory-tolerance"`
	MemoryCooldown             time.Duration `yaml:"memory-cooldown"`
	MemoryReclaimedGracePeriod time.Duration `yaml:"memory-reclaimed-grace-period"`
	MemoryGracePeriod          time.Duration `yaml:"memory-grace-period"`
	MemoryHysteresis           float64       `yaml:"memory-hysteresis"`

	LoadEnabled                bool          `yaml:"load-enabled"`
	LoadLowerBoundRatio        float64       `yaml:"load-lower-bound-ratio"`
	LoadUpperBoundRatio        float64       `yaml:"load-upper-bound-ratio"`
	LoadThresholdMetPercentage float64       `yaml:"load-threshold-met-percentage"`
	LoadMetricRingSize         int           `yaml:"load-metric-ring-size"`
	LoadSyncPeriod             time.Duration `yaml:"load-sync-period"`
	LoadCooldown               time.Duration `yaml:"load-cooldown"`
	LoadHysteresis             float64       `yaml:"load-hysteresis"`
	SuppressionEnabled         bool          `yaml:"suppression-enabled"`
	// SuppressionMaxToleranceRate is the most that a pod tolerates, whatever its annotation says.
	SuppressionMaxToleranceRate float64       `yaml:"suppression-max-tolerance-rate"`
	SuppressionMinDuration      time.Duration `yaml:"suppression-min-duration"`
	SuppressionHysteresis       float64       `yaml:"suppression-hysteresis"`
	// CPUGracePeriod is that of the load's and the suppression's victims.
	CPUGracePeriod time.Duration `yaml:"cpu-grace-period"`

	RSSOveruseEnabled     bool          `yaml:"rss-overuse-enabled"`
	RSSOveruseThreshold   float64       `yaml:"rss-overuse-threshold"`
	RSSOveruseTolerance   time.Duration `yaml:"rss-overuse-tolerance"`
	RSSOveruseGracePeriod time.Duration `yaml:"rss-overuse-grace-period"`
	RSSOveruseHysteresis  float64       `yaml:"rss-overuse-hysteresis"`

	// Strategies are Koordinator's for the node, nil where there are none: its rules have no other settings.
	Strategies *sloconfig.Strategies `yaml:"-"`
}

// Defaults are the guide's, and today's Katalyst's for what the guide does not have. Only the tolerance of the reclaimed resources
// is longer than theirs, which is 0: an offer that falls for one tick must not cost a pod.
func Defaults() Settings {
	return Settings{
		ReclaimedThreshold:   5,
		ReclaimedNUMAEnabled: true,
		ReclaimedTolerance:   30 * time.Second,
		ReclaimedGracePeriod: 60 * time.Second,

		MemorySystemEnabled:           true,
		MemoryNUMAEnabled:             true,
		MemoryNUMAVictimMinimum:       0.001,
		MemoryNUMABelowTimes:          4,
		MemoryNUMABelowTimesReclaimed: 1,
		MemoryKswapdRate:              2000,
		MemoryKswapdTimes:             4,
		MemorySyncPeriod:              5 * time.Second,
		MemoryPSIEnabled:              true,
		MemoryPSIThreshold:            15,
		MemoryPSIPodThreshold:         1,
		MemoryPSIPods:                 3,
		MemoryPSIPodsMean:             4,
		MemoryPSIDurationReclaimed:    15 * time.Second,
		MemoryPSIDuration:             45 * time.Second,
		MemoryPSICooldown:             35 * time.Second,
		MemorySystemRanking:           []string{RankQoS, RankPriority, RankMemoryUsage},
		MemoryNUMARanking:             []string{RankQoS, RankPriority, RankNUMAMemory},
		MemoryReclaimedGracePeriod:    time.Second,

		LoadEnabled:                 true,
		LoadLowerBoundRatio:         1,
		LoadUpperBoundRatio:         1.8,
		LoadThresholdMetPercentage:  0.8,
		LoadMetricRingSize:          10,
		LoadSyncPeriod:              30 * time.Second,
		LoadCooldown:                300 * time.Second,
		SuppressionEnabled:          true,
		SuppressionMaxToleranceRate: 5,
		SuppressionMinDuration:      300 * time.Second,

		RSSOveruseThreshold: 1.05,
	}
}
