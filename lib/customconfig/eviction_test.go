package customconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/evictconfig"

	"github.com/google/go-cmp/cmp"
)

// evictionOf reads the section with these fields.
func evictionOf(t testing.TB, kind Kind, section string) *EvictionValues {
	t.Helper()
	var o Object
	if err := json.Unmarshal([]byte(fmt.Sprintf(`{%q:%s}`, sections[kind.Name], section)), &o); err != nil {
		t.Fatalf("%s: %v", section, err)
	}
	return EvictionOf(kind, o)
}

// Every field of the table has a value, an invalid value, and the setting that it sets.
func TestEvictionFields(t *testing.T) {
	type want map[string]any
	const cpu, memory = "katalyst.kubewharf.io/reclaimed_millicpu", "katalyst.kubewharf.io/reclaimed_memory"
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for _, c := range []struct {
		kind  Kind
		field string
		good  string
		want  want
		bad   []string
	}{
		{
			Eviction, "reclaimedResourcesEvictionPluginConfig.evictionThreshold", `{"` + cpu + `":10,"` + memory + `":7.5}`,
			want{"reclaimed-cpu-threshold": 10.0, "reclaimed-memory-threshold": 7.5},
			[]string{`{"` + cpu + `":0}`, `{"` + cpu + `":-1}`, `{"` + memory + `":"x"}`, `{"` + memory + `":1e7}`, `5`, `[5]`},
		},
		{Eviction, "memoryEvictionPluginConfig.enableNumaLevelDetection", `false`, want{"memory-numa-enabled": false}, []string{`"no"`, `0`}},
		{Eviction, "memoryEvictionPluginConfig.enableSystemLevelDetection", `false`, want{"memory-system-enabled": false}, []string{`"no"`}},
		{Eviction, "memoryEvictionPluginConfig.numaFreeBelowWatermarkTimesThreshold", `3`, want{"memory-numa-below-times": 3}, []string{`0`, `1.5`, `-1`, `1e9`}},
		{Eviction, "memoryEvictionPluginConfig.systemKswapdRateThreshold", `2000`, want{"memory-kswapd-rate": 2000.0}, []string{`-1`, `1e12`, `"2000"`}},
		{Eviction, "memoryEvictionPluginConfig.systemKswapdRateExceedTimesThreshold", `1`, want{"memory-kswapd-times": 1}, []string{`0`, `true`}},
		{Eviction, "memoryEvictionPluginConfig.numaEvictionRankingMetrics", `["priority.pod","mem.total.numa.container"]`, want{"memory-numa-ranking": []string{"priority.pod", "mem.total.numa.container"}}, []string{`[]`, `["age"]`, `["qos.pod","qos.pod"]`, `"qos.pod"`, `[1]`}},
		{Eviction, "memoryEvictionPluginConfig.systemEvictionRankingMetrics", `["mem.usage.container"]`, want{"memory-system-ranking": []string{"mem.usage.container"}}, []string{`["mem.total.numa.container"]`}},
		{Eviction, "memoryEvictionPluginConfig.enableRssOveruseDetection", `true`, want{"rss-overuse-enabled": true}, []string{`1`}},
		{Eviction, "memoryEvictionPluginConfig.rssOveruseRateThreshold", `1.2`, want{"rss-overuse-threshold": 1.2}, []string{`0`, `"1.2"`}},
		{Eviction, "memoryEvictionPluginConfig.gracePeriod", `30`, want{"memory-grace-period": seconds(30), "memory-reclaimed-grace-period": seconds(30)}, []string{`-2`, `1e6`, `"30s"`}},
		{Eviction, "memoryEvictionPluginConfig.gracePeriod", `-1`, want{"memory-grace-period": seconds(0), "memory-reclaimed-grace-period": seconds(0)}, nil},

		{
			AdminQoS, "dryRun", `["cpu-pressure-load-plugin","cpu-pressure-suppression-plugin","memory-pressure-eviction-plugin"]`,
			want{"dry-run-rules": []string{"cpu-pressure-eviction-plugin", "memory-pressure-eviction-plugin"}},
			[]string{`"x"`, `[1]`, `[""]`},
		},
		{AdminQoS, "dryRun", `["*"]`, want{"dry-run-rules": []string{"*"}}, nil},
		{AdminQoS, "dryRun", `[]`, want{"dry-run-rules": []string{}}, nil},
		{AdminQoS, "reclaimedResourcesEvictionConfig.evictionThreshold", `{"resource.` + cpu + `":10}`, want{"reclaimed-cpu-threshold": 10.0}, []string{`{"resource.` + cpu + `":0}`}},
		{AdminQoS, "reclaimedResourcesEvictionConfig.softEvictionThreshold", `{"resource.` + cpu + `":1.5,"resource.` + memory + `":1.2}`, want{"reclaimed-soft-cpu-threshold": 1.5, "reclaimed-soft-memory-threshold": 1.2}, []string{`3`}},
		{AdminQoS, "reclaimedResourcesEvictionConfig.gracePeriod", `15`, want{"reclaimed-grace-period": seconds(15)}, []string{`1.5`}},
		{AdminQoS, "reclaimedResourcesEvictionConfig.thresholdMetToleranceDuration", `20`, want{"reclaimed-tolerance": seconds(20)}, []string{`-1`, `"20s"`}},
		{AdminQoS, "memoryPressureEvictionConfig.enableNumaLevelEviction", `false`, want{"memory-numa-enabled": false}, []string{`"x"`}},
		{AdminQoS, "memoryPressureEvictionConfig.enableSystemLevelEviction", `false`, want{"memory-system-enabled": false}, []string{`"x"`}},
		{AdminQoS, "memoryPressureEvictionConfig.numaVictimMinimumUtilizationThreshold", `0.002`, want{"memory-numa-victim-minimum": 0.002}, []string{`2`, `-0.1`}},
		{AdminQoS, "memoryPressureEvictionConfig.numaFreeBelowWatermarkTimesThreshold", `12`, want{"memory-numa-below-times": 12}, []string{`0`}},
		{AdminQoS, "memoryPressureEvictionConfig.numaFreeBelowWatermarkTimesReclaimedThreshold", `6`, want{"memory-numa-below-times-reclaimed": 6}, []string{`0`}},
		{AdminQoS, "memoryPressureEvictionConfig.systemFreeMemoryThresholdMinimum", `"2Gi"`, want{"memory-free-minimum": evictconfig.Bytes(2 << 30)}, []string{`"lots"`, `-5`, `{}`}},
		{AdminQoS, "memoryPressureEvictionConfig.systemFreeMemoryThresholdMinimum", `1048576`, want{"memory-free-minimum": evictconfig.Bytes(1 << 20)}, nil},
		{AdminQoS, "memoryPressureEvictionConfig.systemKswapdRateThreshold", `0`, want{"memory-kswapd-rate": 0.0}, []string{`-1`}},
		{AdminQoS, "memoryPressureEvictionConfig.systemKswapdRateExceedDurationThreshold", `120`, want{"memory-kswapd-duration": seconds(120)}, []string{`-1`}},
		{AdminQoS, "memoryPressureEvictionConfig.numaEvictionRankingMetrics", `["qos.pod"]`, want{"memory-numa-ranking": []string{"qos.pod"}}, []string{`[]`}},
		{AdminQoS, "memoryPressureEvictionConfig.systemEvictionRankingMetrics", `["qos.pod"]`, want{"memory-system-ranking": []string{"qos.pod"}}, []string{`[]`}},
		{AdminQoS, "memoryPressureEvictionConfig.gracePeriod", `40`, want{"memory-grace-period": seconds(40)}, []string{`-2`}},
		{AdminQoS, "memoryPressureEvictionConfig.reclaimedGracePeriod", `2`, want{"memory-reclaimed-grace-period": seconds(2)}, []string{`-2`}},
		{AdminQoS, "memoryPressureEvictionConfig.enableRSSOveruseEviction", `true`, want{"rss-overuse-enabled": true}, []string{`"x"`}},
		{AdminQoS, "memoryPressureEvictionConfig.rssOveruseRateThreshold", `1.05`, want{"rss-overuse-threshold": 1.05}, []string{`0`}},
		{AdminQoS, "cpuPressureEvictionConfig.enableLoadEviction", `false`, want{"load-enabled": false}, []string{`"x"`}},
		{AdminQoS, "cpuPressureEvictionConfig.loadUpperBoundRatio", `2.5`, want{"load-upper-bound-ratio": 2.5}, []string{`0`, `"x"`}},
		{AdminQoS, "cpuPressureEvictionConfig.loadLowerBoundRatio", `1.5`, want{"load-lower-bound-ratio": 1.5}, []string{`0`}},
		{AdminQoS, "cpuPressureEvictionConfig.loadThresholdMetPercentage", `0.5`, want{"load-threshold-met-percentage": 0.5}, []string{`80`, `0`}},
		{AdminQoS, "cpuPressureEvictionConfig.loadMetricRingSize", `20`, want{"load-metric-ring-size": 20}, []string{`0`, `10001`}},
		{AdminQoS, "cpuPressureEvictionConfig.loadEvictionCoolDownTime", `"10m"`, want{"load-cooldown": seconds(600)}, []string{`"soon"`, `"-1s"`, `"25h"`, `1.5`}},
		{AdminQoS, "cpuPressureEvictionConfig.loadEvictionCoolDownTime", `1000000000`, want{"load-cooldown": seconds(1)}, nil},
		{AdminQoS, "cpuPressureEvictionConfig.enableSuppressionEviction", `true`, want{"suppression-enabled": true}, []string{`"x"`}},
		{AdminQoS, "cpuPressureEvictionConfig.maxSuppressionToleranceRate", `3`, want{"suppression-max-tolerance-rate": 3.0}, []string{`0`}},
		{AdminQoS, "cpuPressureEvictionConfig.minSuppressionToleranceDuration", `"5m"`, want{"suppression-min-duration": seconds(300)}, []string{`true`}},
		{AdminQoS, "cpuPressureEvictionConfig.gracePeriod", `-1`, want{"cpu-grace-period": seconds(0)}, []string{`-2`}},
	} {
		section := func(value string) string {
			for _, key := range slices.Backward(strings.Split(c.field, ".")) {
				value = fmt.Sprintf(`{%q:%s}`, key, value)
			}
			return value
		}
		got := evictionOf(t, c.kind, section(c.good))
		values := want{}
		for _, v := range got.Values {
			values[v.Setting] = v.V
			if path := strings.Join(v.Path, "."); !strings.HasPrefix(path, sections[c.kind.Name]+"."+c.field) {
				t.Errorf("%s: the value's path is %s", c.field, path)
			}
		}
		if diff := cmp.Diff(c.want, values); diff != "" || len(got.Errs) > 0 || len(got.Unused) > 0 {
			t.Errorf("%s %s: %v %v %s", c.field, c.good, got.Errs, got.Unused, diff)
		}
		for _, bad := range c.bad {
			if got := evictionOf(t, c.kind, section(bad)); len(got.Errs) != 1 || !strings.Contains(got.Errs[0].Error(), c.field) {
				t.Errorf("%s %s: errors %v, values %v; want one with its path", c.field, bad, got.Errs, got.Values)
			}
		}
		if got := evictionOf(t, c.kind, section("null")); len(got.Errs)+len(got.Values)+len(got.Unused) > 0 {
			t.Errorf("%s null: %+v; want nothing", c.field, got)
		}
		tested[c.kind.Name+" "+c.field] = true
	}
	for _, kind := range Kinds {
		for _, f := range Fields(kind) {
			if _, path, _ := strings.Cut(f.Path, "."); !tested[kind.Name+" "+path] {
				t.Errorf("%s %s is not tested", kind.Name, path)
			}
		}
	}
}

var tested = map[string]bool{}

// Fields for which evict has no setting are reported, and values that are set twice must be equal.
func TestEvictionUnused(t *testing.T) {
	for _, c := range []struct {
		kind    Kind
		section string
		unused  []string
		values  int
		err     string
	}{
		{
			Eviction, `{"reclaimedResourcesEvictionPluginConfig":{"evictionThreshold":{"cpu":1,"katalyst.kubewharf.io/reclaimed_millicpu":5}},"networkEvictionPluginConfig":{"x":1}}`,
			[]string{"evictionPluginsConfig.networkEvictionPluginConfig", "evictionPluginsConfig.reclaimedResourcesEvictionPluginConfig.evictionThreshold.cpu"},
			1, "",
		},
		{
			AdminQoS, `{"rootfsPressureEvictionConfig":{"x":1},"cpuPressureEvictionConfig":{"numaCPUPressureEvictionConfig":{}}}`,
			[]string{"evictionConfig.cpuPressureEvictionConfig.numaCPUPressureEvictionConfig", "evictionConfig.rootfsPressureEvictionConfig"},
			0, "",
		},
		{
			AdminQoS, `{"memoryPressureEvictionConfig":{"systemEvictionRankingMetrics":["qos.pod","native.qos.pod","owner.pod"]}}`,
			[]string{"evictionConfig.memoryPressureEvictionConfig.systemEvictionRankingMetrics.native.qos.pod", "evictionConfig.memoryPressureEvictionConfig.systemEvictionRankingMetrics.owner.pod"},
			1, "",
		},
		{AdminQoS, `{"dryRun":["network-eviction-plugin"]}`, []string{"evictionConfig.dryRun.network-eviction-plugin"}, 0, ""},
		{
			AdminQoS, `{"reclaimedResourcesEvictionConfig":{"evictionThreshold":{"resource.katalyst.kubewharf.io/reclaimed_memory":5,"katalyst.kubewharf.io/reclaimed_memory":6}}}`,
			nil, 2, "resource.katalyst.kubewharf.io/reclaimed_memory: 5, and",
		},
		{AdminQoS, `{"reclaimedResourcesEvictionConfig":{"evictionThreshold":{"resource.katalyst.kubewharf.io/reclaimed_memory":5,"katalyst.kubewharf.io/reclaimed_memory":5}}}`, nil, 2, ""},
		{AdminQoS, `{"cpuPressureEvictionConfig":{"loadLowerBoundRatio":2,"loadUpperBoundRatio":1.5}}`, nil, 2, "loadUpperBoundRatio: 1.5 is under loadLowerBoundRatio 2"},
		{AdminQoS, `{"cpuPressureEvictionConfig":[1]}`, nil, 0, "evictionConfig.cpuPressureEvictionConfig: want an object"},
		{AdminQoS, `[]`, nil, 0, "evictionConfig: want an object"},
	} {
		got := evictionOf(t, c.kind, c.section)
		if diff := cmp.Diff(c.unused, got.Unused); diff != "" {
			t.Errorf("%s: %s", c.section, diff)
		}
		if len(got.Values) != c.values {
			t.Errorf("%s: values %v; want %d", c.section, got.Values, c.values)
		}
		if c.err == "" && len(got.Errs) > 0 || c.err != "" && (len(got.Errs) != 1 || !strings.Contains(got.Errs[0].Error(), c.err)) {
			t.Errorf("%s: errors %v; want %q", c.section, got.Errs, c.err)
		}
	}
	long := `{` + strings.Repeat(`"x":{},`, 1) + `"y` + strings.Repeat("z", 5000) + `":1}`
	if got := evictionOf(t, AdminQoS, long); len(got.Unused) != 2 || len(got.Unused[1]) > maxPathLength+4 {
		t.Errorf("a long name: %d, %v", len(got.Unused), got.Unused)
	}
}
