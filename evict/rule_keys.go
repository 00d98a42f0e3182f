package main

import (
	"strings"
	"time"

	"polder/evict/rule"
	"polder/lib/stage"
)

// ruleKeys are the rules' own settings.
var ruleKeys = []key{
	ratioKey("reclaimed-threshold", "reclaimed pods may request this many times what is offered", func(s *settings) *float64 { return &s.ReclaimedThreshold }),
	ratioKey("reclaimed-cpu-threshold", "the same for CPU alone (0: as reclaimed-threshold)", func(s *settings) *float64 { return &s.ReclaimedCPUThreshold }),
	ratioKey("reclaimed-memory-threshold", "the same for memory alone (0: as reclaimed-threshold)", func(s *settings) *float64 { return &s.ReclaimedMemoryThreshold }),
	ratioKey("reclaimed-soft-cpu-threshold", "over this many times the CPU offered, a reclaimed pod goes when no other has to (0: off)", func(s *settings) *float64 { return &s.ReclaimedSoftCPUThreshold }),
	ratioKey("reclaimed-soft-memory-threshold", "over this many times the memory offered, a reclaimed pod goes when no other has to (0: off)", func(s *settings) *float64 { return &s.ReclaimedSoftMemoryThreshold }),
	onOffKey("reclaimed-numa-enabled", "compare requests and offer on each NUMA node too, for the reclaimed pods bound to one", func(s *settings) *bool { return &s.ReclaimedNUMAEnabled }),
	onOffKey("reclaimed-zero-offer-enabled", "take an offer of 0 at its word, and evict for it; otherwise it counts as withdrawn, and nobody goes for it", func(s *settings) *bool { return &s.ReclaimedZeroOfferEnabled }),
	spanKey("reclaimed-tolerance", "how long a reclaimed threshold must have been met before a pod goes", func(s *settings) *time.Duration { return &s.ReclaimedTolerance }),
	spanKey("reclaimed-grace-period", "grace period of the reclaimed pods that go (0: the pod's own)", func(s *settings) *time.Duration { return &s.ReclaimedGracePeriod }),
	hysteresisKey("reclaimed-hysteresis", func(s *settings) *float64 { return &s.ReclaimedHysteresis }),

	onOffKey("memory-system-enabled", "measure the node's free memory", func(s *settings) *bool { return &s.MemorySystemEnabled }),
	newKey("memory-free-minimum", "free memory (2Gi) under which reclaimed pods go even where the kernel's watermark is lower", "%s", bytesFlag, func(s *settings) *rule.Bytes { return &s.MemoryFreeMinimum }),
	onOffKey("memory-numa-enabled", "measure each NUMA node's free memory", func(s *settings) *bool { return &s.MemoryNUMAEnabled }),
	ratioKey("memory-numa-victim-minimum", "part of a NUMA node's memory that a pod must use there to be a victim, 0 to 1", func(s *settings) *float64 { return &s.MemoryNUMAVictimMinimum }),
	countKey("memory-numa-below-times", "any pod goes after a NUMA node was found below its watermark so many times in a row", func(s *settings) *int { return &s.MemoryNUMABelowTimes }),
	countKey("memory-numa-below-times-reclaimed", "a reclaimed pod goes after so many times", func(s *settings) *int { return &s.MemoryNUMABelowTimesReclaimed }),
	ratioKey("memory-kswapd-rate", "pages a second that kswapd may reclaim (0: not measured)", func(s *settings) *float64 { return &s.MemoryKswapdRate }),
	countKey("memory-kswapd-times", "a pod goes after kswapd was found at that rate so many times in a row", func(s *settings) *int { return &s.MemoryKswapdTimes }),
	spanKey("memory-kswapd-duration", "a pod goes after kswapd was at that rate for so long, instead of so many times (0: times)", func(s *settings) *time.Duration { return &s.MemoryKswapdDuration }),
	spanKey("memory-sync-period", "time between two of the times that are counted", func(s *settings) *time.Duration { return &s.MemorySyncPeriod }),
	onOffKey("memory-psi-enabled", "measure the memory pressure (PSI) of node and pods, on cgroup v2", func(s *settings) *bool { return &s.MemoryPSIEnabled }),
	ratioKey("memory-psi-threshold", "some avg10 of the node's memory pressure, in percent, at which it is met", func(s *settings) *float64 { return &s.MemoryPSIThreshold }),
	ratioKey("memory-psi-pod-threshold", "some avg10 over which a shared or dedicated pod counts as pressed, in percent", func(s *settings) *float64 { return &s.MemoryPSIPodThreshold }),
	countKey("memory-psi-pods", "so many pods must be pressed", func(s *settings) *int { return &s.MemoryPSIPods }),
	ratioKey("memory-psi-pods-mean", "mean some avg10 that the pressed pods must have, in percent", func(s *settings) *float64 { return &s.MemoryPSIPodsMean }),
	spanKey("memory-psi-duration-reclaimed", "how long the pressure must have lasted before a reclaimed pod goes", func(s *settings) *time.Duration { return &s.MemoryPSIDurationReclaimed }),
	spanKey("memory-psi-duration", "how long the pressure must have lasted before any pod goes", func(s *settings) *time.Duration { return &s.MemoryPSIDuration }),
	spanKey("memory-psi-cooldown", "time between an eviction because of memory and one because of its pressure (PSI)", func(s *settings) *time.Duration { return &s.MemoryPSICooldown }),
	newKey("memory-system-ranking", "who goes first (comma-separated; default qos.pod,priority.pod,mem.usage.container)", "%v", words, func(s *settings) *[]string { return &s.MemorySystemRanking }),
	newKey("memory-numa-ranking", "who goes first where a NUMA node is short (default qos.pod,priority.pod,mem.total.numa.container)", "%v", words, func(s *settings) *[]string { return &s.MemoryNUMARanking }),
	spanKey("memory-tolerance", "how long too little memory must have been free before a pod goes", func(s *settings) *time.Duration { return &s.MemoryTolerance }),
	spanKey("memory-cooldown", "time between two evictions because of memory", func(s *settings) *time.Duration { return &s.MemoryCooldown }),
	spanKey("memory-reclaimed-grace-period", "grace period of the reclaimed pods that go because of memory (0: the pod's own)", func(s *settings) *time.Duration { return &s.MemoryReclaimedGracePeriod }),
	spanKey("memory-grace-period", "grace period of the other pods that go because of memory (0: the pod's own)", func(s *settings) *time.Duration { return &s.MemoryGracePeriod }),
	hysteresisKey("memory-hysteresis", func(s *settings) *float64 { return &s.MemoryHysteresis }),

	onOffKey("load-enabled", "measure the shared pools' load", func(s *settings) *bool { return &s.LoadEnabled }),
	ratioKey("load-lower-bound-ratio", "taint when a shared pool's load is over this many times its CPUs", func(s *settings) *float64 { return &s.LoadLowerBoundRatio }),
	ratioKey("load-upper-bound-ratio", "evict when a shared pool's load is over this many times its CPUs", func(s *settings) *float64 { return &s.LoadUpperBoundRatio }),
	ratioKey("load-threshold-met-percentage", "part of the ring's samples that must be over a bound, 0 to 1", func(s *settings) *float64 { return &s.LoadThresholdMetPercentage }),
	countKey("load-metric-ring-size", "samples of the load that are looked at", func(s *settings) *int { return &s.LoadMetricRingSize }),
	spanKey("load-sync-period", "time between two samples of the load", func(s *settings) *time.Duration { return &s.LoadSyncPeriod }),
	spanKey("load-cooldown", "time between two evictions because of the load", func(s *settings) *time.Duration { return &s.LoadCooldown }),
	hysteresisKey("load-hysteresis", func(s *settings) *float64 { return &s.LoadHysteresis }),
	onOffKey("suppression-enabled", "measure how much less CPU the reclaimed pods have than they asked for", func(s *settings) *bool { return &s.SuppressionEnabled }),
	ratioKey("suppression-max-tolerance-rate", "a pod tolerates requests of at most this many times the reclaimed pool, whatever its annotation says", func(s *settings) *float64 { return &s.SuppressionMaxToleranceRate }),
	spanKey("suppression-min-duration", "how long a pod must have been suppressed before it goes", func(s *settings) *time.Duration { return &s.SuppressionMinDuration }),
	hysteresisKey("suppression-hysteresis", func(s *settings) *float64 { return &s.SuppressionHysteresis }),
	spanKey("cpu-grace-period", "grace period of the pods that go because of load or suppression (0: the pod's own)", func(s *settings) *time.Duration { return &s.CPUGracePeriod }),

	onOffKey("rss-overuse-enabled", "measure the pods' resident memory against their requests", func(s *settings) *bool { return &s.RSSOveruseEnabled }),
	ratioKey("rss-overuse-threshold", "a pod's resident memory may be this many times its request, unless its annotation says otherwise", func(s *settings) *float64 { return &s.RSSOveruseThreshold }),
	spanKey("rss-overuse-tolerance", "how long a pod must have used too much before it goes", func(s *settings) *time.Duration { return &s.RSSOveruseTolerance }),
	spanKey("rss-overuse-grace-period", "grace period of the pods that go because of it (0: the pod's own)", func(s *settings) *time.Duration { return &s.RSSOveruseGracePeriod }),
	hysteresisKey("rss-overuse-hysteresis", func(s *settings) *float64 { return &s.RSSOveruseHysteresis }),
}

func ratioKey(name, usage string, field func(*settings) *float64) key {
	return newKey(name, usage, "%v", (*stage.Flags).Float, field)
}

func countKey(name, usage string, field func(*settings) *int) key {
	return newKey(name, usage, "%d", (*stage.Flags).Int, field)
}

func spanKey(name, usage string, field func(*settings) *time.Duration) key {
	return newKey(name, usage, "%s", (*stage.Flags).Duration, field)
}

func onOffKey(name, usage string, field func(*settings) *bool) key {
	return newKey(name, usage, "%t", (*stage.Flags).OnOff, field)
}

// hysteresisKey is the part of a rule's thresholds by which a value must have come back before they are no longer met.
func hysteresisKey(name string, field func(*settings) *float64) key {
	rules := strings.TrimSuffix(name, "-hysteresis")
	return ratioKey(name, "once met, the thresholds of "+rules+"-* stay met until the value is back by this part of them, 0 to 1", field)
}

func bytesFlag(f *stage.Flags, into *rule.Bytes, name string, value rule.Bytes, usage string) {
	f.Value(into, name, value.String(), usage)
}
