package sloconfig

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fieldCase is a field with its default, and values that are valid and, after the |, invalid.
type fieldCase struct{ key, field, fallback, values string }

// fieldCases are all fields: TestFieldsAreAll counts them.
func fieldCases() []fieldCase {
	const (
		percents = "0 1 60 100 101 100000|-1 100001 9223372036854775807 9223372036854775808 1.5 60.0 6e1 \"60\" true [] {}"
		hundred  = "0 1 99 100|-1 101 9223372036854775807 0.5 \"10\" true"
		over0    = "1 60 100000000|0 -1 100000001 9223372036854775807 1.5 \"60\" true"
		flag     = "0 1|-1 2 true \"1\""
		// A number is a percentage, a text bits per second.
		bandwidth = `0 30 100 "50M" "10G"|-1 101 1.5 1e9 "" "-5M" "x" "2P" true [] {}`
		boolean   = "true false|0 1 \"true\" []"
	)
	list := []fieldCase{
		{KeyColocation, "enable", "false", boolean},
		{KeyColocation, "metricAggregateDurationSeconds", "300", over0},
		{KeyColocation, "metricReportIntervalSeconds", "60", over0},
		{KeyColocation, "metricAggregatePolicy.durations", `["5m","10m","30m"]`, `["1m"] ["1h30m","24h"]|["0s"] ["-5m"] ["5"] ["25h"] [300] "5m" {} ["1m","2m","3m","4m","5m","6m","7m","8m","9m","10m","11m"]`},
		{KeyColocation, "metricMemoryCollectPolicy", `"usageWithoutPageCache"`, `"usageWithHotPageCache" "usageWithPageCache" "usageWithoutPageCache"|"" "rss" 3`},
		{KeyColocation, "cpuReclaimThresholdPercent", "60", percents},
		{KeyColocation, "cpuCalculatePolicy", `"usage"`, `"usage" "maxUsageRequest"|"Usage" "limit" 1`},
		{KeyColocation, "memoryReclaimThresholdPercent", "65", percents},
		{KeyColocation, "memoryCalculatePolicy", `"usage"`, `"usage" "request" "maxUsageRequest"|"limit" null1`},
		{KeyColocation, "degradeTimeMinutes", "15", "1 15 1000000|0 -1 1000001 0.5 \"15\""},
		{KeyColocation, "updateTimeThresholdSeconds", "300", over0},
		{KeyColocation, "resourceDiffThreshold", "0.1", `0.1 1 0.0001|0 -0.1 1e400 NaN "0.1" true`},
		{KeyColocation, "midCPUThresholdPercent", "100", hundred},
		{KeyColocation, "midMemoryThresholdPercent", "100", hundred},
		{KeyColocation, "midUnallocatedPercent", "0", hundred},
		{KeyColocation, "midReclaimMode", `""`, `"" "static"|"Static" "dynamic" 1`},
		{KeyColocation, "midStaticCPUReservedPercent", "0", "0 50 100|-1 100001 0.5"},
		{KeyColocation, "midStaticMemoryReservedPercent", "0", "0 50 100|-1 100001 0.5"},
		{KeyColocation, "batchCPUThresholdPercent", "", percents},
		{KeyColocation, "batchMemoryThresholdPercent", "", percents},

		{KeyThreshold, "enable", "false", boolean},
		{KeyThreshold, "cpuSuppressThresholdPercent", "65", hundred},
		{KeyThreshold, "cpuSuppressMinPercent", "", hundred},
		{KeyThreshold, "cpuSuppressPolicy", `"cpuset"`, `"cpuset" "cfsQuota"|"cfsquota" "auto" 1`},
		{KeyThreshold, "memoryEvictThresholdPercent", "70", hundred},
		{KeyThreshold, "memoryEvictLowerPercent", "", "0 68 69|-1 70 71 101"}, // below the default threshold
		{KeyThreshold, "memoryAllocatableEvictThresholdPercent", "", percents},
		{KeyThreshold, "memoryAllocatableEvictLowerPercent", "", percents},
		{KeyThreshold, "cpuEvictBESatisfactionUpperPercent", "", hundred},
		{KeyThreshold, "cpuEvictBESatisfactionLowerPercent", "", hundred},
		{KeyThreshold, "cpuEvictBEUsageThresholdPercent", "90", hundred},
		{KeyThreshold, "cpuEvictTimeWindowSeconds", "", over0},
		{KeyThreshold, "cpuEvictThresholdPercent", "", hundred},
		{KeyThreshold, "cpuEvictLowerPercent", "", hundred},
		{KeyThreshold, "cpuAllocatableEvictThresholdPercent", "", percents},
		{KeyThreshold, "cpuAllocatableEvictLowerPercent", "", percents},
		{KeyThreshold, "cpuEvictPolicy", `"evictByRealLimit"`, `"evictByRealLimit" "evictByAllocatable"|"evict"`},
		{KeyThreshold, "evictEnabledPriorityThreshold", "", "0 -5 5999 2147483647|2147483648 1.5 \"5999\""},
		{KeyThreshold, "allocatableEvictPriorityThreshold", "", "0 5999 7999|-1 8000 9000"},

		{KeyBurst, "policy", `"none"`, `"none" "cpuBurstOnly" "cfsQuotaBurstOnly" "auto"|"Auto" "cpuBurst" true`},
		{KeyBurst, "cpuBurstPercent", "1000", "1 1000 10000|0 -1 10001"},
		{KeyBurst, "cfsQuotaBurstPercent", "300", "100 300 100000|99 0 -1 100001"},
		{KeyBurst, "cfsQuotaBurstPeriodSeconds", "-1", "-1 0 1800|-2 100000001 0.5"},
		{KeyBurst, "sharePoolThresholdPercent", "50", hundred},

		{KeySystem, "totalNetworkBandwidth", "", `"10G" "0" "1000000000"|"" "-1" "2P" "x" true [] {}`},
		{KeyQOS, "cgroupRoot.blkioQOS.enable", "", boolean},
		{KeyQOS, "cgroupRoot.blkioQOS.blocks", "", `[{"name":"/dev/sdb","type":"device","ioCfg":{"readLatency":3000,"readLatencyPercent":0,"enableUserModel":true,"modelReadBPS":1}}]|` +
			`[{"ioCfg":{"readLatency":0}}] [{"ioCfg":{"writeLatency":60000001}}] [{"ioCfg":{"writeLatencyPercent":101}}] [{"ioCfg":{"modelWriteBPS":0}}] ` +
			`[{"ioCfg":{"modelReadSeqIOPS":0}}] [{"ioCfg":{"modelWriteSeqIOPS":-1}}] [{"ioCfg":{"modelReadRandIOPS":1.5}}] [{"ioCfg":{"modelWriteRandIOPS":1073741825}}] [{"ioCfg":{"enableUserModel":1}}]`},
		{KeyQOS, "policies.netQOSPolicy", "", `"tc" "terway-qos" ""|"TC" "cni" 1`},
	}
	for _, c := range []struct{ name, ratio, scale, adjust, end, start string }{
		{"lsrClass", "95", "20", "-25", "100", "0 99|-1 100 101"},
		{"lsClass", "95", "20", "-25", "100", "0 99|-1 100 101"},
		{"beClass", "95", "20", "50", "30", "0 29|-1 30 100 101"}, // below the default end
		{"systemClass", "0", "50", "0", "100", "0 99|-1 100 101"},
	} {
		for _, f := range []fieldCase{
			{"cpuQOS", "enable", "false", boolean},
			{"cpuQOS", "schedIdle", "0", flag},
			{"memoryQOS", "enable", "false", boolean},
			{"memoryQOS", "minLimitPercent", "0", hundred},
			{"memoryQOS", "lowLimitPercent", "0", hundred},
			{"memoryQOS", "throttlingPercent", "0", hundred},
			{"memoryQOS", "wmarkRatio", c.ratio, hundred},
			{"memoryQOS", "wmarkScalePermill", c.scale, "1 1000|0 1001"},
			{"memoryQOS", "wmarkMinAdj", c.adjust, "-25 0 50|-26 51"},
			{"memoryQOS", "priorityEnable", "0", flag},
			{"memoryQOS", "priority", "0", "0 12|-1 13"},
			{"memoryQOS", "oomKillGroup", "0", flag},
			{"resctrlQOS", "enable", "false", boolean},
			{"resctrlQOS", "catRangeStartPercent", "0", c.start},
			{"resctrlQOS", "catRangeEndPercent", c.end, "1 100|0 -1 101"},
			{"resctrlQOS", "mbaPercent", "100", "1 100|0 101"},
			{"blkioQOS", "enable", "", boolean},
			{"blkioQOS", "blocks", "", `[{"name":"/dev/sdb","type":"device","ioCfg":{"readIOPS":0,"writeBPS":1048576,"ioWeightPercent":100}}]|` +
				`[{"ioCfg":{"readIOPS":-1}}] [{"ioCfg":{"writeIOPS":1073741825}}] [{"ioCfg":{"ioWeightPercent":0}}] [{"ioCfg":{"readBPS":1.5}}] {} "sdb"`},
			{"networkQOS", "enable", "", boolean},
			{"networkQOS", "egressRequest", "", bandwidth},
			{"networkQOS", "egressLimit", "", bandwidth},
			{"networkQOS", "ingressRequest", "", bandwidth},
			{"networkQOS", "ingressLimit", "", bandwidth},
		} {
			list = append(list, fieldCase{KeyQOS, c.name + "." + f.key + "." + f.field, f.fallback, f.values})
		}
	}
	return list
}

// Every field is tested with its default, valid values, and invalid values.
func TestFields(t *testing.T) {
	for _, c := range fieldCases() {
		path := partOf[c.key] + "." + c.field
		s, problems := resolved(t, nil, nil, nil)
		if got := at(t, s, path); got != c.fallback || problems != "" {
			t.Errorf("%s: default %s, %s; want %s", path, got, problems, c.fallback)
		}
		document := func(value string) string {
			names := strings.Split(c.field, ".")
			for i := len(names) - 1; i > 0; i-- {
				value = fmt.Sprintf("{%q:%s}", names[i], value)
			}
			return in(c.key, fmt.Sprintf("%q:%s", names[0], value))
		}
		good, bad, _ := strings.Cut(c.values, "|")
		for value := range strings.FieldsSeq(good) {
			s, problems := resolved(t, data(c.key, document(value)), nil, nil)
			if got := at(t, s, path); got != value || problems != "" {
				t.Errorf("%s: %s is %s, %s", path, value, got, problems)
			}
			if s, problems := resolved(t, data(c.key, upper(document(value))), nil, nil); at(t, s, path) != value || problems != "" {
				t.Errorf("%s in capitals: %s is %s, %s", path, value, at(t, s, path), problems)
			}
		}
		for value := range strings.FieldsSeq(bad) {
			s, problems := resolved(t, data(c.key, document(value)), nil, nil)
			last := c.field[strings.LastIndex(c.field, ".")+1:]
			syntax := value == "NaN" || value == "null1"
			if got := at(t, s, path); got != c.fallback || !strings.HasPrefix(problems, c.key+": ") || !strings.Contains(problems, "want ") && !syntax ||
				!strings.Contains(problems, last) && !syntax || !strings.HasSuffix(problems, "no earlier one was valid: the defaults apply, with nothing enabled") {
				t.Errorf("%s: %s is taken as %s; problems %q", path, value, got, problems)
			}
		}
		// A null means no value.
		if s, problems := resolved(t, data(c.key, document("null")), nil, nil); at(t, s, path) != c.fallback || problems != "" {
			t.Errorf("%s: null is %s, %s", path, at(t, s, path), problems)
		}
	}
}

// upper returns the names in capitals, and the values unchanged.
func upper(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if end := strings.Index(text[i:], `":`); end >= 0 {
			start := strings.LastIndexByte(text[i:i+end], '"')
			b.WriteString(text[i:i+start] + strings.ToUpper(text[i+start:i+end]))
			i += end
			b.WriteString(`":`)
			i += 2
			continue
		}
		b.WriteString(text[i:])
		break
	}
	return b.String()
}

// Every field of every part must have a case above.
func TestFieldsAreAll(t *testing.T) {
	var want, got []string
	for key, part := range map[string]reflect.Type{
		KeyColocation: reflect.TypeFor[Colocation](), KeyThreshold: reflect.TypeFor[Threshold](), KeyBurst: reflect.TypeFor[CPUBurst](), KeyQOS: reflect.TypeFor[ResourceQOS](),
		KeySystem: reflect.TypeFor[System](),
	} {
		want = append(want, leaves(part, key+": ")...)
	}
	for _, c := range fieldCases() {
		got = append(got, c.key+": "+c.field)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fieldCases has not each field once (-fields +cases):\n%s", diff)
	}
}

// leaves returns the paths of a type's fields that have no fields of their own.
func leaves(t reflect.Type, path string) (paths []string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return []string{strings.TrimSuffix(path, ".")}
	}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		paths = append(paths, leaves(field.Type, path+name+".")...)
	}
	return paths
}
