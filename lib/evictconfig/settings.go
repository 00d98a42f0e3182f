// Package evictconfig is the table of evict's settings: one row for each, with its flag, default, bounds and the fields of
// Katalyst's configuration objects that set it. It is pure, and in lib because collect rejects objects that evict cannot use.
package evictconfig

import "time"

// Settings are the values. A grace period of 0 means the pod's own: no rule evicts a pod without one. A hysteresis of 0 means none.
// The row of each setting contains its meaning, default and bounds: see [Settings.Rows].
type Settings struct {
	Rules, DryRunRules                    []string
	PerRule, Burst, PerHour, PerNamespace int
	OptOut                                []string
	TaintTransitionPeriod                 time.Duration

	// The thresholds are multiples of the offer; if that of CPU or memory is 0, ReclaimedThreshold applies to it.
	ReclaimedThreshold, ReclaimedCPUThreshold, ReclaimedMemoryThreshold float64
	// 0 means no soft threshold.
	ReclaimedSoftCPUThreshold, ReclaimedSoftMemoryThreshold float64
	ReclaimedNUMAEnabled                                    bool
	// ReclaimedZeroOfferEnabled uses an offer of 0 as it is.
	ReclaimedZeroOfferEnabled                bool
	ReclaimedTolerance, ReclaimedGracePeriod time.Duration
	ReclaimedHysteresis                      float64

	MemorySystemEnabled bool
	MemoryFreeMinimum   Bytes
	MemoryNUMAEnabled   bool
	// MemoryNUMAVictimMinimum is the part of a NUMA node's memory, 0 to 1, that a pod must use there to be a victim.
	MemoryNUMAVictimMinimum                             float64
	MemoryNUMABelowTimes, MemoryNUMABelowTimesReclaimed int
	// MemoryKswapdRate is in pages per second; 0 disables the measurement.
	MemoryKswapdRate  float64
	MemoryKswapdTimes int
	// MemoryKswapdDuration over 0 counts the duration instead of the times.
	MemoryKswapdDuration time.Duration
	// MemorySyncPeriod is the time between two counted times.
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
	// SuppressionMaxToleranceRate is the upper bound of a pod's tolerance, whatever its annotation contains.
	SuppressionMaxToleranceRate float64
	SuppressionMinDuration      time.Duration
	SuppressionHysteresis       float64
	// CPUGracePeriod applies to the victims of load and suppression.
	CPUGracePeriod time.Duration

	RSSOveruseEnabled                          bool
	RSSOveruseThreshold                        float64
	RSSOveruseTolerance, RSSOveruseGracePeriod time.Duration
	RSSOveruseHysteresis                       float64

	// ServiceWaiting is for CPUs, ServiceIO for disks and ServiceMemory for memory.
	ServiceWaiting, ServiceIO, ServiceMemory Waiting
}

// Waiting are the settings of a rule for services that wait for a resource.
type Waiting struct {
	Enabled bool
	// Threshold is in thousandths of the time.
	Threshold                       float64
	Duration, Cooldown, GracePeriod time.Duration
	Hysteresis                      float64
}

// Defaults returns the settings with the default of each row.
func Defaults() Settings {
	var s Settings
	for _, row := range s.Rows() {
		row.reset()
	}
	return s
}

// Check calls bad with a setting's name for each invalid setting. The caller must check the names of rules.
func (s *Settings) Check(addError func(name string, err error)) { checkRows(s.Rows(), Pairs, addError) }

// checkRows checks each row, and the pairs, which must be among the rows.
func checkRows(list []Row, pairs []Pair, addError func(name string, err error)) {
	rows := map[string]Row{}
	for _, row := range list {
		rows[row.Name] = row
		if err := row.check(); err != nil {
			addError(row.Name, err)
		}
	}
	for _, p := range pairs {
		if err := p.Check(rows[p.Lower].get(), rows[p.Upper].get(), p.Lower); err != nil {
			addError(p.Upper, err)
		}
	}
}
