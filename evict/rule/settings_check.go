package rule

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"polder/lib/quantity"
)

// Bytes is an amount of memory, written in bytes or as Kubernetes writes it ("2Gi").
type Bytes int64

// UnmarshalText reads a configuration file's value.
func (b *Bytes) UnmarshalText(text []byte) error { return b.Set(string(text)) }

// Set reads a flag's value.
func (b *Bytes) Set(text string) error {
	v, err := quantity.Whole(text)
	if err != nil {
		return err
	}
	if v < 0 {
		return fmt.Errorf("%s: memory cannot be negative", text)
	}
	*b = Bytes(v)
	return nil
}

// String is the shortest form that says the same.
func (b Bytes) String() string {
	for i, unit := range []string{"Ti", "Gi", "Mi", "Ki"} {
		if factor := Bytes(1) << (40 - 10*i); b > 0 && b%factor == 0 {
			return fmt.Sprintf("%d%s", b/factor, unit)
		}
	}
	return fmt.Sprintf("%d", int64(b))
}

// Measures by which the victims of memory pressure are ranked, as Katalyst names them.
const (
	RankQoS         = "qos.pod"                  // reclaimed pods before others
	RankPriority    = "priority.pod"             // the lower priority first
	RankMemoryUsage = "mem.usage.container"      // the larger use first
	RankRSS         = "mem.rss.container"        // the larger resident set first
	RankNUMAMemory  = "mem.total.numa.container" // the larger use on the NUMA node first
)

var (
	systemRankings = []string{RankQoS, RankPriority, RankMemoryUsage, RankRSS}
	numaRankings   = append(slices.Clone(systemRankings), RankNUMAMemory)
)

const (
	// maxRing bounds a ring: a larger one is a mistake, and each sample holds a number for every shared pod.
	maxRing = 10_000
	// maxTimes bounds a count, maxRatio a multiple.
	maxTimes = 1_000_000
	maxRatio = 1e6
)

// Check calls bad for every setting that cannot be used.
func (s *Settings) Check(bad func(key string, err error)) {
	s.checkRatios(bad)
	within := func(key string, v, least, most int) {
		if v < least || v > most {
			bad(key, fmt.Errorf("%d: want %d to %d", v, least, most))
		}
	}
	within("memory-numa-below-times", s.MemoryNUMABelowTimes, 1, maxTimes)
	within("memory-numa-below-times-reclaimed", s.MemoryNUMABelowTimesReclaimed, 1, maxTimes)
	within("memory-kswapd-times", s.MemoryKswapdTimes, 1, maxTimes)
	within("memory-psi-pods", s.MemoryPSIPods, 1, maxTimes)
	within("load-metric-ring-size", s.LoadMetricRingSize, 1, maxRing)
	if s.MemoryFreeMinimum < 0 {
		bad("memory-free-minimum", fmt.Errorf("%d: memory cannot be negative", s.MemoryFreeMinimum))
	}
	checkRanking("memory-system-ranking", s.MemorySystemRanking, systemRankings, bad)
	checkRanking("memory-numa-ranking", s.MemoryNUMARanking, numaRankings, bad)
	s.checkSpans(bad)
}

func (s *Settings) checkRatios(bad func(key string, err error)) {
	ratio := func(key string, v, most float64) {
		if !(v > 0 && v <= most) {
			bad(key, fmt.Errorf("%v: want a number over 0 and at most %v", v, most))
		}
	}
	orNone := func(key string, v, most float64) {
		if !(v >= 0 && v <= most) {
			bad(key, fmt.Errorf("%v: want a number of 0 to %v", v, most))
		}
	}
	ratio("reclaimed-threshold", s.ReclaimedThreshold, maxRatio)
	orNone("reclaimed-cpu-threshold", s.ReclaimedCPUThreshold, maxRatio)
	orNone("reclaimed-memory-threshold", s.ReclaimedMemoryThreshold, maxRatio)
	orNone("reclaimed-soft-cpu-threshold", s.ReclaimedSoftCPUThreshold, maxRatio)
	orNone("reclaimed-soft-memory-threshold", s.ReclaimedSoftMemoryThreshold, maxRatio)
	orNone("memory-numa-victim-minimum", s.MemoryNUMAVictimMinimum, 1)
	orNone("memory-kswapd-rate", s.MemoryKswapdRate, math.MaxInt32)
	ratio("memory-psi-threshold", s.MemoryPSIThreshold, 100)
	orNone("memory-psi-pod-threshold", s.MemoryPSIPodThreshold, 100)
	orNone("memory-psi-pods-mean", s.MemoryPSIPodsMean, 100)
	ratio("load-lower-bound-ratio", s.LoadLowerBoundRatio, maxRatio)
	ratio("load-upper-bound-ratio", s.LoadUpperBoundRatio, maxRatio)
	ratio("load-threshold-met-percentage", s.LoadThresholdMetPercentage, 1)
	if s.LoadUpperBoundRatio < s.LoadLowerBoundRatio {
		bad("load-upper-bound-ratio", fmt.Errorf("%v is under load-lower-bound-ratio %v: a pod would go before the node is tainted", s.LoadUpperBoundRatio, s.LoadLowerBoundRatio))
	}
	ratio("suppression-max-tolerance-rate", s.SuppressionMaxToleranceRate, maxRatio)
	ratio("rss-overuse-threshold", s.RSSOveruseThreshold, maxRatio)
	for _, h := range []struct {
		key string
		v   float64
	}{
		{"reclaimed-hysteresis", s.ReclaimedHysteresis}, {"memory-hysteresis", s.MemoryHysteresis}, {"load-hysteresis", s.LoadHysteresis},
		{"suppression-hysteresis", s.SuppressionHysteresis}, {"rss-overuse-hysteresis", s.RSSOveruseHysteresis},
	} {
		if !(h.v >= 0 && h.v < 1) {
			bad(h.key, fmt.Errorf("%v: want a part of the threshold, 0 and less than 1", h.v))
		}
	}
}

func checkRanking(key string, names, known []string, bad func(key string, err error)) {
	for i, n := range names {
		switch {
		case !slices.Contains(known, n):
			bad(key, fmt.Errorf("%q: want some of %s", n, strings.Join(known, ", ")))
			return
		case slices.Contains(names[:i], n):
			bad(key, fmt.Errorf("%q stands twice", n))
			return
		}
	}
	if len(names) == 0 {
		bad(key, fmt.Errorf("empty: want some of %s", strings.Join(known, ", ")))
	}
}

// longest is the longest time span that is no mistake.
const longest = 24 * time.Hour

func (s *Settings) checkSpans(bad func(key string, err error)) {
	for _, d := range []struct {
		key string
		v   time.Duration
	}{
		{"reclaimed-tolerance", s.ReclaimedTolerance},
		{"reclaimed-grace-period", s.ReclaimedGracePeriod},
		{"memory-kswapd-duration", s.MemoryKswapdDuration},
		{"memory-sync-period", s.MemorySyncPeriod},
		{"memory-psi-duration-reclaimed", s.MemoryPSIDurationReclaimed},
		{"memory-psi-duration", s.MemoryPSIDuration},
		{"memory-psi-cooldown", s.MemoryPSICooldown},
		{"memory-tolerance", s.MemoryTolerance},
		{"memory-cooldown", s.MemoryCooldown},
		{"memory-reclaimed-grace-period", s.MemoryReclaimedGracePeriod},
		{"memory-grace-period", s.MemoryGracePeriod},
		{"load-sync-period", s.LoadSyncPeriod},
		{"load-cooldown", s.LoadCooldown},
		{"suppression-min-duration", s.SuppressionMinDuration},
		{"cpu-grace-period", s.CPUGracePeriod},
		{"rss-overuse-tolerance", s.RSSOveruseTolerance},
		{"rss-overuse-grace-period", s.RSSOveruseGracePeriod},
	} {
		if d.v < 0 || d.v > longest {
			bad(d.key, fmt.Errorf("%s: want 0 to 24h", d.v))
		}
	}
}
