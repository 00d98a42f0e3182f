package customconfig

// sections are the parts of spec.config that are evict's, by kind.
var sections = map[Kind]string{Eviction: "evictionPluginsConfig", AdminQoS: "evictionConfig"}

// reclaimed are the resources of the reclaimed pods as the guide's release names them: CPU, memory. Later releases have
// the prefix "resource." before them.
var reclaimed = []string{"katalyst.kubewharf.io/reclaimed_millicpu", "katalyst.kubewharf.io/reclaimed_memory"}

// systemRankings and numaRankings are the measures of a ranking, measures all that evict knows; notRanked are some that Katalyst
// knows, and evict does not.
var (
	systemRankings = []string{"qos.pod", "priority.pod", "mem.usage.container", "mem.rss.container"}
	numaRankings   = append(systemRankings[:len(systemRankings):len(systemRankings)], "mem.total.numa.container")
	notRanked      = []string{"native.qos.pod", "owner.pod"}
	measures       = itself(numaRankings)
)

func itself(names []string) map[string]string {
	m := map[string]string{}
	for _, name := range names {
		m[name] = name
	}
	return m
}

// plugins are the names in dryRun, of the guide's release and of later ones, with evict's rule that does the same, or more.
var plugins = map[string]string{
	"*": "*",
	"reclaimed-resource-pressure-eviction-plugin":      "reclaimed-resource-pressure-eviction-plugin",
	"reclaimed-numa-resource-pressure-eviction-plugin": "reclaimed-resource-pressure-eviction-plugin",
	"memory-pressure-eviction-plugin":                  "memory-pressure-eviction-plugin",
	"system-memory-pressure-eviction-plugin":           "memory-pressure-eviction-plugin",
	"numa-memory-pressure-eviction-plugin":             "memory-pressure-eviction-plugin",
	"cpu-pressure-eviction-plugin":                     "cpu-pressure-eviction-plugin",
	"cpu-pressure-load-plugin":                         "cpu-pressure-eviction-plugin",
	"cpu-pressure-suppression-plugin":                  "cpu-pressure-eviction-plugin",
	"rss-overuse-eviction-plugin":                      "rss-overuse-eviction-plugin",
}

// field is one that evict has settings for.
type field struct {
	path     string   // in the section
	settings []string // the names of evict's flags; of a map by resource those for CPU and for memory
	// read is nil for a map of factors by resource.
	read func(any) (any, error)
	// rename gives the members of a list evict's names; those that it lacks are left out.
	rename map[string]string
}

func one(path, setting string, read func(any) (any, error)) field {
	return field{path: path, settings: []string{setting}, read: read}
}

func ranked(path, setting string, allowed []string) field {
	return field{path: path, settings: []string{setting}, read: ranking(allowed), rename: measures}
}

// known are the fields of each kind.
var known = map[Kind][]field{
	// The guide's.
	Eviction: {
		{path: "reclaimedResourcesEvictionPluginConfig.evictionThreshold", settings: []string{"reclaimed-cpu-threshold", "reclaimed-memory-threshold"}},
		one("memoryEvictionPluginConfig.enableNumaLevelDetection", "memory-numa-enabled", truth),
		one("memoryEvictionPluginConfig.enableSystemLevelDetection", "memory-system-enabled", truth),
		one("memoryEvictionPluginConfig.numaFreeBelowWatermarkTimesThreshold", "memory-numa-below-times", count),
		one("memoryEvictionPluginConfig.systemKswapdRateThreshold", "memory-kswapd-rate", rate),
		one("memoryEvictionPluginConfig.systemKswapdRateExceedTimesThreshold", "memory-kswapd-times", count),
		ranked("memoryEvictionPluginConfig.numaEvictionRankingMetrics", "memory-numa-ranking", numaRankings),
		ranked("memoryEvictionPluginConfig.systemEvictionRankingMetrics", "memory-system-ranking", systemRankings),
		one("memoryEvictionPluginConfig.enableRssOveruseDetection", "rss-overuse-enabled", truth),
		one("memoryEvictionPluginConfig.rssOveruseRateThreshold", "rss-overuse-threshold", factor),
		// One for all pods: later releases have one for the reclaimed ones beside it.
		{path: "memoryEvictionPluginConfig.gracePeriod", settings: []string{"memory-grace-period", "memory-reclaimed-grace-period"}, read: grace},
	},
	AdminQoS: {
		{path: "dryRun", settings: []string{"dry-run-rules"}, read: names, rename: plugins},

		{path: "reclaimedResourcesEvictionConfig.evictionThreshold", settings: []string{"reclaimed-cpu-threshold", "reclaimed-memory-threshold"}},
		{path: "reclaimedResourcesEvictionConfig.softEvictionThreshold", settings: []string{"reclaimed-soft-cpu-threshold", "reclaimed-soft-memory-threshold"}},
		one("reclaimedResourcesEvictionConfig.gracePeriod", "reclaimed-grace-period", grace),
		one("reclaimedResourcesEvictionConfig.thresholdMetToleranceDuration", "reclaimed-tolerance", seconds),

		one("memoryPressureEvictionConfig.enableNumaLevelEviction", "memory-numa-enabled", truth),
		one("memoryPressureEvictionConfig.enableSystemLevelEviction", "memory-system-enabled", truth),
		one("memoryPressureEvictionConfig.numaVictimMinimumUtilizationThreshold", "memory-numa-victim-minimum", part),
		one("memoryPressureEvictionConfig.numaFreeBelowWatermarkTimesThreshold", "memory-numa-below-times", count),
		one("memoryPressureEvictionConfig.numaFreeBelowWatermarkTimesReclaimedThreshold", "memory-numa-below-times-reclaimed", count),
		one("memoryPressureEvictionConfig.systemFreeMemoryThresholdMinimum", "memory-free-minimum", bytes),
		one("memoryPressureEvictionConfig.systemKswapdRateThreshold", "memory-kswapd-rate", rate),
		one("memoryPressureEvictionConfig.systemKswapdRateExceedDurationThreshold", "memory-kswapd-duration", seconds),
		ranked("memoryPressureEvictionConfig.numaEvictionRankingMetrics", "memory-numa-ranking", numaRankings),
		ranked("memoryPressureEvictionConfig.systemEvictionRankingMetrics", "memory-system-ranking", systemRankings),
		one("memoryPressureEvictionConfig.gracePeriod", "memory-grace-period", grace),
		one("memoryPressureEvictionConfig.reclaimedGracePeriod", "memory-reclaimed-grace-period", grace),
		one("memoryPressureEvictionConfig.enableRSSOveruseEviction", "rss-overuse-enabled", truth),
		one("memoryPressureEvictionConfig.rssOveruseRateThreshold", "rss-overuse-threshold", factor),

		one("cpuPressureEvictionConfig.enableLoadEviction", "load-enabled", truth),
		one("cpuPressureEvictionConfig.loadUpperBoundRatio", "load-upper-bound-ratio", factor),
		one("cpuPressureEvictionConfig.loadLowerBoundRatio", "load-lower-bound-ratio", factor),
		one("cpuPressureEvictionConfig.loadThresholdMetPercentage", "load-threshold-met-percentage", share),
		one("cpuPressureEvictionConfig.loadMetricRingSize", "load-metric-ring-size", ring),
		one("cpuPressureEvictionConfig.loadEvictionCoolDownTime", "load-cooldown", span),
		one("cpuPressureEvictionConfig.enableSuppressionEviction", "suppression-enabled", truth),
		one("cpuPressureEvictionConfig.maxSuppressionToleranceRate", "suppression-max-tolerance-rate", factor),
		one("cpuPressureEvictionConfig.minSuppressionToleranceDuration", "suppression-min-duration", span),
		one("cpuPressureEvictionConfig.gracePeriod", "cpu-grace-period", grace),
	},
}

// Field is one that evict has settings for, with their names.
type Field struct {
	Path     string // from spec.config on
	Settings []string
}

// Fields are those of a kind.
func Fields(kind Kind) []Field {
	list := make([]Field, len(known[kind]))
	for i, f := range known[kind] {
		list[i] = Field{sections[kind] + "." + f.path, f.settings}
	}
	return list
}
