package sloconfig

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// data is a ConfigMap with one key.
func data(key, text string) map[string]string { return map[string]string{key: text} }

// resolved is what a ConfigMap says to a node.
func resolved(t testing.TB, in, labels, annotations map[string]string) (*Strategies, string) {
	t.Helper()
	s, errs := Memory{}.Settle("ns/name", in).Resolve(labels, annotations)
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return s, strings.Join(all, "\n")
}

// in is a document with a cluster's strategy.
func in(key, fields string) string {
	if key == KeyColocation {
		return "{" + fields + "}"
	}
	return `{"clusterStrategy":{` + fields + `}}`
}

// at is the value of a field, by its names in JSON, as JSON.
func at(t testing.TB, s *Strategies, path string) string {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(path, ".") {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		raw = m[name]
	}
	return string(raw)
}

// partOf is where a key's strategy is in the result.
var partOf = map[string]string{KeyColocation: "colocation", KeyThreshold: "resourceThreshold", KeyQOS: "resourceQOS", KeyBurst: "cpuBurst"}

// Every field: its default, values that it takes, and values that it does not.
func TestFields(t *testing.T) {
	const (
		dontKnow = "want "
		percents = "0 1 60 100 101 100000|-1 100001 9223372036854775807 9223372036854775808 1.5 60.0 6e1 \"60\" true [] {}"
		hundred  = "0 1 99 100|-1 101 9223372036854775807 0.5 \"10\" true"
		over0    = "1 60 100000000|0 -1 100000001 9223372036854775807 1.5 \"60\" true"
		flag     = "0 1|-1 2 true \"1\""
		boolean  = "true false|0 1 \"true\" []"
	)
	for _, c := range []struct{ key, field, fallback, values string }{
		{KeyColocation, "enable", "false", boolean},
		{KeyColocation, "metricAggregateDurationSeconds", "300", over0},
		{KeyColocation, "metricReportIntervalSeconds", "60", over0},
		{KeyColocation, "metricAggregatePolicy", `{"durations":["5m","10m","30m"]}`, `{"durations":["1m"]} {"durations":["1h30m","24h"]}|{"durations":["0s"]} {"durations":["-5m"]} {"durations":["5"]} {"durations":["25h"]} {"durations":[300]} {"durations":"5m"} [] {"durations":["1m","2m","3m","4m","5m","6m","7m","8m","9m","10m","11m"]}`},
		{KeyColocation, "metricMemoryCollectPolicy", `"usageWithoutPageCache"`, `"usageWithHotPageCache" "usageWithPageCache" "usageWithoutPageCache"|"" "rss" 3`},
		{KeyColocation, "cpuReclaimThresholdPercent", "60", percents},
		{KeyColocation, "cpuCalculatePolicy", `"usage"`, `"usage" "maxUsageRequest"|"" "Usage" "limit" 1`},
		{KeyColocation, "memoryReclaimThresholdPercent", "65", percents},
		{KeyColocation, "memoryCalculatePolicy", `"usage"`, `"usage" "request" "maxUsageRequest"|"" "limit" null1`},
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
		{KeyThreshold, "cpuSuppressPolicy", `"cpuset"`, `"cpuset" "cfsQuota"|"" "cfsquota" "auto" 1`},
		{KeyThreshold, "memoryEvictThresholdPercent", "70", hundred},
		{KeyThreshold, "memoryEvictLowerPercent", "", "0 68 69|-1 70 71 101"}, // under the default threshold
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
		{KeyThreshold, "cpuEvictPolicy", `"evictByRealLimit"`, `"evictByRealLimit" "evictByAllocatable"|"" "evict"`},
		{KeyThreshold, "evictEnabledPriorityThreshold", "", "0 -5 5999 2147483647|2147483648 1.5 \"5999\""},
		{KeyThreshold, "allocatableEvictPriorityThreshold", "", "0 5999 7999|-1 8000 9000"},

		{KeyBurst, "policy", `"none"`, `"none" "cpuBurstOnly" "cfsQuotaBurstOnly" "auto"|"" "Auto" "cpuBurst" true`},
		{KeyBurst, "cpuBurstPercent", "1000", "1 1000 10000|0 -1 10001"},
		{KeyBurst, "cfsQuotaBurstPercent", "300", "100 300 100000|99 0 -1 100001"},
		{KeyBurst, "cfsQuotaBurstPeriodSeconds", "-1", "-1 0 1800|-2 100000001 0.5"},
		{KeyBurst, "sharePoolThresholdPercent", "50", hundred},

		{KeyQOS, "lsrClass.memoryQOS.wmarkMinAdj", "-25", "-25 0 50|-26 51"},
		{KeyQOS, "lsClass.memoryQOS.wmarkRatio", "95", hundred},
		{KeyQOS, "lsClass.memoryQOS.wmarkScalePermill", "20", "1 1000|0 1001"},
		{KeyQOS, "systemClass.memoryQOS.wmarkRatio", "0", hundred},
		{KeyQOS, "systemClass.memoryQOS.wmarkScalePermill", "50", "1 1000|0 1001"},
		{KeyQOS, "systemClass.memoryQOS.wmarkMinAdj", "0", "-25 50|-26 51"},
		{KeyQOS, "beClass.memoryQOS.wmarkMinAdj", "50", "-25 50|-26 51"},
		{KeyQOS, "beClass.memoryQOS.minLimitPercent", "0", hundred},
		{KeyQOS, "beClass.memoryQOS.lowLimitPercent", "0", hundred},
		{KeyQOS, "beClass.memoryQOS.throttlingPercent", "0", hundred},
		{KeyQOS, "beClass.memoryQOS.priorityEnable", "0", flag},
		{KeyQOS, "beClass.memoryQOS.priority", "0", "0 12|-1 13"},
		{KeyQOS, "beClass.memoryQOS.oomKillGroup", "0", flag},
		{KeyQOS, "beClass.memoryQOS.enable", "false", boolean},
		{KeyQOS, "beClass.cpuQOS.enable", "false", boolean},
		{KeyQOS, "beClass.cpuQOS.schedIdle", "0", flag},
		{KeyQOS, "beClass.resctrlQOS.enable", "false", boolean},
		{KeyQOS, "beClass.resctrlQOS.catRangeStartPercent", "0", "0 29|-1 30 100 101"}, // under the default end
		{KeyQOS, "beClass.resctrlQOS.catRangeEndPercent", "30", "1 100|0 -1 101"},
		{KeyQOS, "lsClass.resctrlQOS.catRangeEndPercent", "100", "1 100|0 -1 101"},
		{KeyQOS, "beClass.resctrlQOS.mbaPercent", "100", "1 100|0 101"},
	} {
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
		for _, value := range strings.Fields(good) {
			s, problems := resolved(t, data(c.key, document(value)), nil, nil)
			if got := at(t, s, path); got != value || problems != "" {
				t.Errorf("%s: %s is %s, %s", path, value, got, problems)
			}
			if s, problems := resolved(t, data(c.key, upper(document(value))), nil, nil); at(t, s, path) != value || problems != "" {
				t.Errorf("%s in capitals: %s is %s, %s", path, value, at(t, s, path), problems)
			}
		}
		for _, value := range strings.Fields(bad) {
			s, problems := resolved(t, data(c.key, document(value)), nil, nil)
			last := c.field[strings.LastIndex(c.field, ".")+1:]
			syntax := value == "NaN" || value == "null1"
			if got := at(t, s, path); got != c.fallback || !strings.HasPrefix(problems, c.key+": ") || !strings.Contains(problems, dontKnow) && !syntax ||
				!strings.Contains(problems, last) && !syntax || !strings.HasSuffix(problems, "none before it was good: the defaults hold, with nothing enabled") {
				t.Errorf("%s: %s is taken as %s; problems %q", path, value, got, problems)
			}
		}
		// A null is nothing.
		if s, problems := resolved(t, data(c.key, document("null")), nil, nil); at(t, s, path) != c.fallback || problems != "" {
			t.Errorf("%s: null is %s, %s", path, at(t, s, path), problems)
		}
	}
}

// upper has the names in capitals, and the values as they are.
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

// All fields are in the table above.
func TestFieldsAreAll(t *testing.T) {
	for key, want := range map[string]int{KeyColocation: 20, KeyThreshold: 19, KeyBurst: 5, KeyQOS: 4} {
		got := map[string]int{
			KeyColocation: reflect.TypeFor[Colocation]().NumField(), KeyThreshold: reflect.TypeFor[Threshold]().NumField(),
			KeyBurst: reflect.TypeFor[CPUBurst]().NumField(), KeyQOS: reflect.TypeFor[ResourceQOS]().NumField(),
		}[key]
		if got != want {
			t.Errorf("%s has %d fields: put the new ones into TestFields, and %d here", key, got, want)
		}
	}
}

// Pairs of thresholds.
func TestPairs(t *testing.T) {
	for _, c := range []struct{ key, fields, want string }{
		{KeyThreshold, `"memoryEvictThresholdPercent":80,"memoryEvictLowerPercent":79`, ""},
		{KeyThreshold, `"memoryEvictThresholdPercent":80,"memoryEvictLowerPercent":80`, "clusterStrategy.memoryEvictLowerPercent: 80: want less than memoryEvictThresholdPercent, which is 80"},
		{KeyThreshold, `"memoryEvictLowerPercent":75`, "memoryEvictLowerPercent: 75: want less than memoryEvictThresholdPercent, which is 70"},
		{KeyThreshold, `"memoryEvictThresholdPercent":0`, ""},
		{KeyThreshold, `"cpuEvictBESatisfactionLowerPercent":60,"cpuEvictBESatisfactionUpperPercent":80`, ""},
		{KeyThreshold, `"cpuEvictBESatisfactionLowerPercent":60,"cpuEvictBESatisfactionUpperPercent":60`, ""},
		{KeyThreshold, `"cpuEvictBESatisfactionLowerPercent":80,"cpuEvictBESatisfactionUpperPercent":60`, "cpuEvictBESatisfactionLowerPercent: 80: want at most cpuEvictBESatisfactionUpperPercent, which is 60"},
		{KeyThreshold, `"cpuEvictThresholdPercent":70,"cpuEvictLowerPercent":70`, "cpuEvictLowerPercent: 70: want less than"},
		{KeyThreshold, `"cpuEvictThresholdPercent":70,"cpuEvictLowerPercent":50`, ""},
		{KeyThreshold, `"cpuAllocatableEvictThresholdPercent":200,"cpuAllocatableEvictLowerPercent":150`, ""},
		{KeyThreshold, `"cpuAllocatableEvictThresholdPercent":100,"cpuAllocatableEvictLowerPercent":150`, "cpuAllocatableEvictLowerPercent: 150: want less than"},
		{KeyThreshold, `"memoryAllocatableEvictThresholdPercent":100,"memoryAllocatableEvictLowerPercent":100`, "memoryAllocatableEvictLowerPercent: 100: want less than"},
		{KeyQOS, `"beClass":{"resctrlQOS":{"catRangeStartPercent":40}}`, "clusterStrategy.beClass.resctrlQOS.catRangeStartPercent: 40: want less than catRangeEndPercent, which is 30"},
		{KeyQOS, `"beClass":{"resctrlQOS":{"catRangeStartPercent":40,"catRangeEndPercent":60}}`, ""},
	} {
		_, problems := resolved(t, data(c.key, in(c.key, c.fields)), nil, nil)
		if c.want == "" && problems != "" || !strings.Contains(problems, c.want) {
			t.Errorf("%s: problems %q; want %q", c.fields, problems, c.want)
		}
	}
}

// What holds and is said all the same.
func TestDoubts(t *testing.T) {
	for _, c := range []struct{ fields, field, value, want string }{
		{`"cpuCalculatePolicy":"request"`, "cpuCalculatePolicy", `"usage"`, `cpuCalculatePolicy: "request" is for memory alone: usage holds`},
		{`"resourceDiffThreshold":2`, "resourceDiffThreshold", "2", "resourceDiffThreshold: 2 is over 1"},
		{`"midStaticCPUReservedPercent":150`, "midStaticCPUReservedPercent", "150", "midStaticCPUReservedPercent: 150 is over 100"},
		{`"midStaticMemoryReservedPercent":150`, "midStaticMemoryReservedPercent", "150", "midStaticMemoryReservedPercent: 150 is over 100"},
		{`"enable":true,"Enable":false`, "enable", "false", "enable: it stands twice: the last one counts"},
		{`"degradeTimeMinutes":1,"degradeTimeMinutes":2`, "degradeTimeMinutes", "2", "degradeTimeMinutes: it stands twice"},
	} {
		s, problems := resolved(t, data(KeyColocation, in(KeyColocation, c.fields)), nil, nil)
		if got := at(t, s, "colocation."+c.field); got != c.value || !strings.HasPrefix(problems, KeyColocation+": "+c.want) {
			t.Errorf("%s: %s, problems %q; want %s and %q", c.fields, got, problems, c.value, c.want)
		}
		// An entry inherits it, and it is said once.
		entry := `{` + c.fields + `,"nodeConfigs":[{"nodeSelector":{}}]}`
		if _, problems := resolved(t, data(KeyColocation, entry), nil, nil); strings.Count(problems, "\n") != 0 {
			t.Errorf("with an entry: %s", problems)
		}
	}
	s, problems := resolved(t, data(KeyColocation, `{"nodeConfigs":[{"nodeSelector":{},"cpuCalculatePolicy":"request"}]}`), nil, nil)
	if *s.Colocation.CPUCalculatePolicy != CalculateUsage || !strings.Contains(problems, "nodeConfigs[0].cpuCalculatePolicy") {
		t.Errorf("%s: %s", *s.Colocation.CPUCalculatePolicy, problems)
	}
}

// Documents that are none.
func TestDocuments(t *testing.T) {
	const none = "none before it was good"
	for _, c := range []struct{ key, text, want string }{
		{KeyThreshold, "", ""},
		{KeyThreshold, " \n\t", ""},
		{KeyThreshold, "{}", ""},
		{KeyThreshold, "null", ""},
		{KeyThreshold, `{"clusterStrategy":null,"nodeStrategies":null}`, ""},
		{KeyThreshold, `{"nodeStrategies":[null]}`, "nodeStrategies[0]: it has no nodeSelector: it is for no node"},
		{KeyThreshold, "[]", none},
		{KeyThreshold, "3", "got number: want an object: " + none},
		{KeyThreshold, "enable: true", "it is no JSON: invalid character 'e'"},
		{KeyThreshold, `{"clusterStrategy":{"enable":true}`, "it is no JSON: unexpected end of JSON input: " + none},
		{KeyThreshold, `{} {}`, "it is no JSON: "},
		{KeyThreshold, `{"clusterStrategy":[]}`, "clusterStrategy: got array: want an object"},
		{KeyThreshold, `{"nodeStrategies":{}}`, "nodeStrategies: got object: want a list"},
		{KeyColocation, `{"nodeConfigs":3}`, "nodeConfigs: got number: want a list"},
		{KeyColocation, strings.Repeat("[", 20_000), "it is no JSON"},
		{KeyColocation, `{"enable":true,"x":"` + strings.Repeat("x", maxDocument) + `"}`, "bytes: want 524288 at most"},
		{KeyColocation, `{"nodeConfigs":[` + strings.Repeat(`{},`, maxEntries) + `{}]}`, "nodeConfigs: 1001 entries: want 1000 at most"},
	} {
		s, problems := resolved(t, data(c.key, c.text), nil, nil)
		if c.want == "" && problems != "" || !strings.Contains(problems, c.want) {
			t.Errorf("%.50s: %q; want %q", c.text, problems, c.want)
		}
		defaults := Defaults()
		defaults.From, defaults.ColocationDisabled = "ns/name", true
		if diff := cmp.Diff(&defaults, s); diff != "" {
			t.Errorf("%.50s is not the defaults: %s", c.text, diff)
		}
	}
}

// What is read is what is written, and hostile ticks are refused.
func TestRead(t *testing.T) {
	s, _ := resolved(t, guides[1].data, nil, nil)
	raw, err := tick.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Read(Over(tick.Raw(`{"katalyst":{"a":1}}`), raw))
	if diff := cmp.Diff(s, back); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	for text, want := range map[string]string{
		"":                     ErrNone.Error(),
		"null":                 ErrNone.Error(),
		"{}":                   ErrNone.Error(),
		`{"koordinator":null}`: ErrNone.Error(),
		`{"katalyst":{}}`:      ErrNone.Error(),
		"3":                    "sample.config",
		`{"koordinator":3}`:    "sample.config.koordinator: want strategies as collect writes them",
		`{"koordinator":{"colocation":{"degradeTimeMinutes":9223372036854775807}}}`:                    "colocation.degradeTimeMinutes: 9223372036854775807: want 1 to 1000000",
		`{"koordinator":{"resourceThreshold":{"cpuSuppressThresholdPercent":-1}}}`:                     "resourceThreshold.cpuSuppressThresholdPercent: -1",
		`{"koordinator":{"cpuBurst":{"policy":"x"}}}`:                                                  "cpuBurst.policy",
		`{"koordinator":{"resourceQOS":{"lsClass":{"memoryQOS":{"priority":99}}}}}`:                    "resourceQOS.lsClass.memoryQOS.priority",
		`{"koordinator":{"colocation":{"enable":null},"resourceQOS":null,"cpuBurst":{"policy":null}}}`: "",
		`{"koordinator":{"resourceQOS":{"lsClass":null,"beClass":{"cpuQOS":null}}}}`:                   "",
		`{"koordinator":{}}`: "",
	} {
		s, err := Read(tick.Raw(text))
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v; want %q", text, err, want)
		case want == "":
			defaults := Defaults()
			defaults.From = ""
			if s != nil && s.From == "defaults" {
				s.From = ""
			}
			if diff := cmp.Diff(&defaults, s); err != nil || diff != "" {
				t.Errorf("%s: %v, %s; want the defaults", text, err, diff)
			}
		}
	}
}
