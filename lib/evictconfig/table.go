package evictconfig

import (
	"math"
	"slices"
	"time"

	"polder/lib/tick"
)

// Unlimited as a limit of pods means no limit.
const Unlimited = -1

// OptOut is the annotation that protects a pod, unless the setting opt-out names others.
const OptOut = tick.AnnotationEvict + "=false"

// Rows returns all settings of s, in the order of the manual. The defaults are those of the guide, or the present Katalyst's for
// settings that the guide does not have. Only the tolerance of the reclaimed resources is longer than theirs, which is 0: an offer that
// falls for one tick must not cause an eviction.
func (s *Settings) Rows() []Row {
	return slices.Concat(s.EngineRows(), s.ReclaimedRows(), s.MemoryRows(), s.CPURows(), s.RSSRows(), s.WaitingRows(), s.ServiceIORows(),
		s.ServiceMemoryRows())
}

// EngineRows returns the settings of the choice among candidates, for all rules.
func (s *Settings) EngineRows() []Row {
	return []Row{
		texts("rules", &s.Rules, nil, names, "measure only these rules (comma-separated names; default all)"),
		texts("dry-run-rules", &s.DryRunRules, nil, names,
			"put these rules in dry run (comma-separated names, * is all)", known(adminQoS("dryRun"), plugins)),
		count("per-rule", &s.PerRule, 1, pods, "evict at most this many pods at one tick for one rule (-1 is no limit)"),
		count("burst", &s.Burst, 3, pods, "evict at most this many pods at one tick (-1 is no limit)"),
		count("per-hour", &s.PerHour, 60, pods,
			"evict at most this many pods of the node in an hour, and half of them for soft findings (-1 is no limit)"),
		count("per-namespace", &s.PerNamespace, Unlimited, pods,
			"evict at most this many pods of one namespace in an hour, and half of them for soft findings (-1 is no limit)"),
		optOut(&s.OptOut),
		span("taint-transition-period", &s.TaintTransitionPeriod, 5*time.Minute, notNegative,
			"keep a taint this long after the last tick that required it"),
	}
}

// ReclaimedRows returns the rows of the rule reclaimed-resource-pressure-eviction-plugin.
func (s *Settings) ReclaimedRows() []Row {
	const guide, today = "reclaimedResourcesEvictionPluginConfig.", "reclaimedResourcesEvictionConfig."
	const milliCPU, memory = "reclaimed_millicpu", "reclaimed_memory"
	return []Row{
		number("reclaimed-threshold", &s.ReclaimedThreshold, 5, positive(MaxRatio), "reclaimed pods may request this many times the offer"),
		number("reclaimed-cpu-threshold", &s.ReclaimedCPUThreshold, 0, notBelowZero(MaxRatio),
			"reclaimed pods may request this many times the offer of CPU (0: as reclaimed-threshold)",
			of(milliCPU, eviction(guide+"evictionThreshold")), of(milliCPU, adminQoS(today+"evictionThreshold"))).replacedBy("reclaimed-threshold"),
		number("reclaimed-memory-threshold", &s.ReclaimedMemoryThreshold, 0, notBelowZero(MaxRatio),
			"reclaimed pods may request this many times the offer of memory (0: as reclaimed-threshold)",
			of(memory, eviction(guide+"evictionThreshold")), of(memory, adminQoS(today+"evictionThreshold"))).replacedBy("reclaimed-threshold"),
		number("reclaimed-soft-cpu-threshold", &s.ReclaimedSoftCPUThreshold, 0, notBelowZero(MaxRatio),
			"over this many times the CPU offer, evict a reclaimed pod if no other is (0: off)",
			of(milliCPU, adminQoS(today+"softEvictionThreshold"))),
		number("reclaimed-soft-memory-threshold", &s.ReclaimedSoftMemoryThreshold, 0, notBelowZero(MaxRatio),
			"over this many times the memory offer, evict a reclaimed pod if no other is (0: off)",
			of(memory, adminQoS(today+"softEvictionThreshold"))),
		onOff("reclaimed-numa-enabled", &s.ReclaimedNUMAEnabled, true,
			"compare requests and offer on each NUMA node too, for the reclaimed pods bound to one"),
		onOff("reclaimed-zero-offer-enabled", &s.ReclaimedZeroOfferEnabled, false,
			"evict for an offer of 0, too; otherwise it counts as withdrawn, and no pod is evicted for it"),
		span("reclaimed-tolerance", &s.ReclaimedTolerance, 30*time.Second, upToDay,
			"how long a reclaimed threshold must have been met before a pod is evicted", adminQoS(today+"thresholdMetToleranceDuration")),
		grace("reclaimed-grace-period", &s.ReclaimedGracePeriod, 60*time.Second, "grace period of reclaimed pods (0: the pod's own)",
			adminQoS(today+"gracePeriod")),
		hysteresis("reclaimed", &s.ReclaimedHysteresis),
	}
}

// MemoryRows returns the rows of the rule memory-pressure-eviction-plugin.
func (s *Settings) MemoryRows() []Row {
	return slices.Concat(s.freeMemoryRows(), s.memoryPSIRows(), s.memoryVictimRows())
}

const (
	guideMemory = "memoryEvictionPluginConfig."
	todayMemory = "memoryPressureEvictionConfig."
)

// freeMemoryRows returns the rows of the free memory, of the node and of its NUMA nodes, and of kswapd.
func (s *Settings) freeMemoryRows() []Row {
	return []Row{
		onOff("memory-system-enabled", &s.MemorySystemEnabled, true, "measure the node's free memory",
			eviction(guideMemory+"enableSystemLevelDetection"), adminQoS(todayMemory+"enableSystemLevelEviction")),
		amount("memory-free-minimum", &s.MemoryFreeMinimum,
			"free memory (2Gi) below which reclaimed pods are evicted, even above the watermark",
			adminQoS(todayMemory+"systemFreeMemoryThresholdMinimum")),
		onOff("memory-numa-enabled", &s.MemoryNUMAEnabled, true, "measure each NUMA node's free memory",
			eviction(guideMemory+"enableNumaLevelDetection"), adminQoS(todayMemory+"enableNumaLevelEviction")),
		number("memory-numa-victim-minimum", &s.MemoryNUMAVictimMinimum, 0.001, notBelowZero(1),
			"part of a NUMA node's memory that a pod must use there to be a victim, 0 to 1",
			adminQoS(todayMemory+"numaVictimMinimumUtilizationThreshold")),
		count("memory-numa-below-times", &s.MemoryNUMABelowTimes, 4, from1(MaxTimes),
			"evict any pod after a NUMA node was below its watermark this many times in a row",
			eviction(guideMemory+"numaFreeBelowWatermarkTimesThreshold"), adminQoS(todayMemory+"numaFreeBelowWatermarkTimesThreshold")),
		count("memory-numa-below-times-reclaimed", &s.MemoryNUMABelowTimesReclaimed, 1, from1(MaxTimes),
			"evict a reclaimed pod after a NUMA node was below its watermark this many times in a row",
			adminQoS(todayMemory+"numaFreeBelowWatermarkTimesReclaimedThreshold")),
		number("memory-kswapd-rate", &s.MemoryKswapdRate, 2000, notBelowZero(math.MaxInt32),
			"pages a second that kswapd may reclaim (0: not measured)",
			eviction(guideMemory+"systemKswapdRateThreshold"), adminQoS(todayMemory+"systemKswapdRateThreshold")),
		count("memory-kswapd-times", &s.MemoryKswapdTimes, 4, from1(MaxTimes),
			"evict after kswapd was at that rate this many times in a row", eviction(guideMemory+"systemKswapdRateExceedTimesThreshold")),
		span("memory-kswapd-duration", &s.MemoryKswapdDuration, 0, upToDay,
			"evict after kswapd was at that rate for this long, not this many times (0: times)",
			adminQoS(todayMemory+"systemKswapdRateExceedDurationThreshold")).replacedBy("memory-kswapd-times"),
		span("memory-sync-period", &s.MemorySyncPeriod, 5*time.Second, upToDay, "time between two counted measurements"),
	}
}

// memoryPSIRows returns the rows of memory pressure (PSI).
func (s *Settings) memoryPSIRows() []Row {
	return []Row{
		onOff("memory-psi-enabled", &s.MemoryPSIEnabled, true, "measure the memory pressure (PSI) of node and pods, on cgroup v2"),
		number("memory-psi-threshold", &s.MemoryPSIThreshold, 15, positive(100),
			"some avg10 over which the node is under memory pressure, in percent"),
		number("memory-psi-pod-threshold", &s.MemoryPSIPodThreshold, 1, notBelowZero(100),
			"some avg10 over which a shared or dedicated pod is under pressure, in percent"),
		count("memory-psi-pods", &s.MemoryPSIPods, 3, from1(MaxTimes), "this many pods must be under pressure"),
		number("memory-psi-pods-mean", &s.MemoryPSIPodsMean, 4, notBelowZero(100), "mean some avg10 of the pods under pressure, in percent"),
		span("memory-psi-duration-reclaimed", &s.MemoryPSIDurationReclaimed, 15*time.Second, upToDay,
			"how long the pressure must have lasted before a reclaimed pod is evicted"),
		span("memory-psi-duration", &s.MemoryPSIDuration, 45*time.Second, upToDay, "how long the pressure must have lasted before any pod is evicted"),
		span("memory-psi-cooldown", &s.MemoryPSICooldown, 35*time.Second, upToDay,
			"time between an eviction because of memory and one because of its pressure (PSI)"),
	}
}

// memoryVictimRows returns the rows that define which pods are evicted because of memory, and when.
func (s *Settings) memoryVictimRows() []Row {
	system := []string{RankQoS, RankPriority, RankMemoryUsage, RankRSS}
	numa := append(slices.Clone(system), RankNUMAMemory)
	return []Row{
		texts("memory-system-ranking", &s.MemorySystemRanking, []string{RankQoS, RankPriority, RankMemoryUsage}, someOf(system),
			"ranking of candidates (comma-separated; default %s)",
			ranked(eviction(guideMemory+"systemEvictionRankingMetrics"), system),
			ranked(adminQoS(todayMemory+"systemEvictionRankingMetrics"), system)),
		texts("memory-numa-ranking", &s.MemoryNUMARanking, []string{RankQoS, RankPriority, RankNUMAMemory}, someOf(numa),
			"ranking of candidates if a NUMA node is short (default %s)",
			ranked(eviction(guideMemory+"numaEvictionRankingMetrics"), numa), ranked(adminQoS(todayMemory+"numaEvictionRankingMetrics"), numa)),
		span("memory-tolerance", &s.MemoryTolerance, 0, upToDay, "how long free memory must have been too low before a pod is evicted"),
		span("memory-cooldown", &s.MemoryCooldown, 0, upToDay, "time between two evictions because of memory"),
		// The guide's kind has one field for both grace periods.
		grace("memory-reclaimed-grace-period", &s.MemoryReclaimedGracePeriod, time.Second,
			"grace period of reclaimed pods evicted because of memory (0: the pod's own)",
			eviction(guideMemory+"gracePeriod"), adminQoS(todayMemory+"reclaimedGracePeriod")),
		grace("memory-grace-period", &s.MemoryGracePeriod, 0, "grace period of other pods evicted because of memory (0: the pod's own)",
			eviction(guideMemory+"gracePeriod"), adminQoS(todayMemory+"gracePeriod")),
		hysteresis("memory", &s.MemoryHysteresis),
	}
}

// CPURows returns the rows of the rule cpu-pressure-eviction-plugin.
func (s *Settings) CPURows() []Row {
	const today = "cpuPressureEvictionConfig."
	return []Row{
		onOff("load-enabled", &s.LoadEnabled, true, "measure the shared pools' load", adminQoS(today+"enableLoadEviction")),
		number("load-lower-bound-ratio", &s.LoadLowerBoundRatio, 1, positive(MaxRatio),
			"taint when a shared pool's load is over this many times its CPUs", adminQoS(today+"loadLowerBoundRatio")),
		number("load-upper-bound-ratio", &s.LoadUpperBoundRatio, 1.8, positive(MaxRatio),
			"evict when a shared pool's load is over this many times its CPUs", adminQoS(today+"loadUpperBoundRatio")),
		number("load-threshold-met-percentage", &s.LoadThresholdMetPercentage, 0.8, positive(1),
			"part of the samples that must be over a bound, 0 to 1", adminQoS(today+"loadThresholdMetPercentage")),
		count("load-metric-ring-size", &s.LoadMetricRingSize, 10, from1(maxSamples), "number of samples of the load",
			adminQoS(today+"loadMetricRingSize")),
		span("load-sync-period", &s.LoadSyncPeriod, 30*time.Second, upToDay, "time between two samples of the load"),
		span("load-cooldown", &s.LoadCooldown, 300*time.Second, upToDay, "time between two evictions because of the load",
			toString(adminQoS(today+"loadEvictionCoolDownTime"))),
		hysteresis("load", &s.LoadHysteresis),
		onOff("suppression-enabled", &s.SuppressionEnabled, true, "measure how much less CPU the reclaimed pods have than they request",
			adminQoS(today+"enableSuppressionEviction")),
		number("suppression-max-tolerance-rate", &s.SuppressionMaxToleranceRate, 5, positive(MaxRatio),
			"a pod tolerates requests of at most this many times the reclaimed pool, regardless of its annotation",
			adminQoS(today+"maxSuppressionToleranceRate")),
		span("suppression-min-duration", &s.SuppressionMinDuration, 300*time.Second, upToDay,
			"how long a pod must have been suppressed before it is evicted", toString(adminQoS(today+"minSuppressionToleranceDuration"))),
		hysteresis("suppression", &s.SuppressionHysteresis),
		grace("cpu-grace-period", &s.CPUGracePeriod, 0, "grace period of pods evicted because of load or suppression (0: the pod's own)",
			adminQoS(today+"gracePeriod")),
	}
}

// RSSRows returns the rows of the rule rss-overuse-eviction-plugin.
func (s *Settings) RSSRows() []Row {
	return []Row{
		onOff("rss-overuse-enabled", &s.RSSOveruseEnabled, false, "measure the pods' resident memory against their requests",
			eviction(guideMemory+"enableRssOveruseDetection"), adminQoS(todayMemory+"enableRSSOveruseEviction")),
		number("rss-overuse-threshold", &s.RSSOveruseThreshold, 1.05, positive(MaxRatio),
			"a pod's resident memory may be this many times its request, unless its annotation sets another number",
			eviction(guideMemory+"rssOveruseRateThreshold"), adminQoS(todayMemory+"rssOveruseRateThreshold")),
		span("rss-overuse-tolerance", &s.RSSOveruseTolerance, 0, upToDay, "how long a pod must have used too much before it is evicted"),
		grace("rss-overuse-grace-period", &s.RSSOveruseGracePeriod, 0,
			"grace period of pods evicted because of their resident memory (0: the pod's own)"),
		hysteresis("rss-overuse", &s.RSSOveruseHysteresis),
	}
}

// WaitingRows returns the rows of the rule service-waiting.
func (s *Settings) WaitingRows() []Row {
	return s.ServiceWaiting.rows("service-waiting", "a CPU", MaxRatio)
}

// ServiceIORows returns the rows of the rule service-io-waiting.
func (s *Settings) ServiceIORows() []Row { return s.ServiceIO.rows("service-io", "disks", 1000) }

// ServiceMemoryRows returns the rows of the rule service-memory-waiting.
func (s *Settings) ServiceMemoryRows() []Row {
	return s.ServiceMemory.rows("service-memory", "memory", 1000)
}

// rows returns the settings of one of these rules, whose names begin with a prefix. most is the largest threshold.
func (w *Waiting) rows(prefix, resource string, most float64) []Row {
	return []Row{
		onOff(prefix+"-enabled", &w.Enabled, false, "measure how long services wait for "+resource),
		number(prefix+"-threshold", &w.Threshold, 200, positive(most),
			"a service may wait for "+resource+" for this many thousandths of the time"),
		span(prefix+"-duration", &w.Duration, time.Minute, upToDay,
			"how long a service must have waited too long for "+resource),
		span(prefix+"-cooldown", &w.Cooldown, 2*time.Minute, upToDay,
			"time between two evictions because services wait for "+resource),
		grace(prefix+"-grace-period", &w.GracePeriod, 0, "grace period of pods evicted because of it (0: the pod's own)"),
		hysteresis(prefix, &w.Hysteresis),
	}
}

// optOut returns the setting that the rules and the fleet controller share.
func optOut(into *[]string) Row {
	return texts("opt-out", into, []string{OptOut}, names, "never evict pods with this annotation (default %s)")
}
