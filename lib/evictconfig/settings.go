// Package evictconfig is the table of evict's settings: one row for each, with its flag, default, bounds and the fields of
// Katalyst's configuration objects that set it. It is pure, and in lib because collect refuses objects that evict cannot use.
package evictconfig

import "time"

// Settings are the values. A grace period of 0 is the pod's own: no rule ends a pod without one. A hysteresis of 0 is none. What each
// setting means, its default and its bounds are in its row: see [Settings.Rows].
type Settings struct {
	Rules, DryRunRules                    []string
	PerRule, Burst, PerHour, PerNamespace int
	OptOut                                []string
	TaintTransitionPeriod                 time.Duration

	// The thresholds are multiples of what is offered; where that of CPU or memory is 0, ReclaimedThreshold holds for it.
	ReclaimedThreshold, ReclaimedCPUThreshold, ReclaimedMemoryThreshold float64
	// 0 is no soft threshold.
	ReclaimedSoftCPUThreshold, ReclaimedSoftMemoryThreshold float64
	ReclaimedNUMAEnabled                                    bool
	// ReclaimedZeroOfferEnabled takes an offer of 0 at its word.
	ReclaimedZeroOfferEnabled                bool
	ReclaimedTolerance, ReclaimedGracePeriod time.Duration
	ReclaimedHysteresis                      float64

	MemorySystemEnabled bool
	MemoryFreeMinimum   Bytes
	MemoryNUMAEnabled   bool
	// MemoryNUMAVictimMinimum is the part of a NUMA node's memory, 0 to 1, that a pod must use there to be a victim.
	MemoryNUMAVictimMinimum                             float64
	MemoryNUMABelowTimes, MemoryNUMABelowTimesReclaimed int
	// MemoryKswapdRate is in pages a second; 0 is not measured.
	MemoryKswapdRate  float64
	MemoryKswapdTimes int
	// MemoryKswapdDuration over 0 counts the time instead of the times.
	MemoryKswapdDuration time.Duration
	// MemorySyncPeriod is the time between two of the times that are counted.
	MemorySyncPeriod time.Duration
	MemoryPSIEnabled bool
	// The pressures are "some avg10", in percent.
	MemoryPSIThreshold, MemoryPSIPodThreshold                        float64
	MemoryPSIPods                                                    int
	MemoryPSIPodsMean                                                float64
	MemoryPSIDurationReclaimed, MemoryPSIDuration, MemoryPSICooldown time.Duration
	MemorySystemRanking, MemoryNUMARanking                           []string
	MemoryTolerance, MemoryCooldown                                  time.Duration
	MemoryReclaimedGracePeriod, MemoryGracePeriod                    time.Duration
	MemoryHysteresis                                                 float64

	LoadEnabled                                                          bool
	LoadLowerBoundRatio, LoadUpperBoundRatio, LoadThresholdMetPercentage float64
	LoadMetricRingSize                                                   int
	LoadSyncPeriod, LoadCooldown                                         time.Duration
	LoadHysteresis                                                       float64
	SuppressionEnabled                                                   bool
	// SuppressionMaxToleranceRate is the most that a pod tolerates, whatever its annotation contains.
	SuppressionMaxToleranceRate float64
	SuppressionMinDuration      time.Duration
	SuppressionHysteresis       float64
	// CPUGracePeriod is that of the load's and the suppression's victims.
	CPUGracePeriod time.Duration

	RSSOveruseEnabled                          bool
	RSSOveruseThreshold                        float64
	RSSOveruseTolerance, RSSOveruseGracePeriod time.Duration
	RSSOveruseHysteresis                       float64

	ServiceWaitingEnabled bool
	// ServiceWaitingThreshold is in thousandths of the time.
	ServiceWaitingThreshold                                                   float64
	ServiceWaitingDuration, ServiceWaitingCooldown, ServiceWaitingGracePeriod time.Duration
	ServiceWaitingHysteresis                                                  float64

	ServiceIOEnabled bool
	// ServiceIOThreshold is in thousandths of the time.
	ServiceIOThreshold                                         float64
	ServiceIODuration, ServiceIOCooldown, ServiceIOGracePeriod time.Duration
	ServiceIOHysteresis                                        float64
}

// Defaults are the settings with the default of each row.
func Defaults() Settings {
	var s Settings
	for _, row := range s.Rows() {
		row.reset()
	}
	return s
}

// Check calls bad with a setting's name for each setting that cannot be used. Names of rules are for the caller to check.
func (s *Settings) Check(bad func(name string, err error)) { checkRows(s.Rows(), Pairs, bad) }

// checkRows checks each row, and the pairs, which must be among the rows.
func checkRows(list []Row, pairs []Pair, bad func(name string, err error)) {
	rows := map[string]Row{}
	for _, row := range list {
		rows[row.Name] = row
		if err := row.check(); err != nil {
			bad(row.Name, err)
		}
	}
	for _, p := range pairs {
		if err := p.Check(rows[p.Lower].get(), rows[p.Upper].get(), p.Lower); err != nil {
			bad(p.Upper, err)
		}
	}
}
