package sloconfig

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// data returns a ConfigMap with one key.
func data(key, text string) map[string]string { return map[string]string{key: text} }

// resolved returns a ConfigMap resolved for a node.
func resolved(t testing.TB, in, labels, annotations map[string]string) (*Strategies, string) {
	t.Helper()
	s, errs := LastValid{}.Parse("ns/name", in).Resolve(labels, annotations)
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return s, strings.Join(all, "\n")
}

// in returns a document with a cluster's strategy.
func in(key, fields string) string {
	if key == KeyColocation {
		return "{" + fields + "}"
	}
	return `{"clusterStrategy":{` + fields + `}}`
}

// at returns the value of a field, by its names in JSON, as JSON.
func at(t testing.TB, s *Strategies, path string) string {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(path, ".") {
		if len(raw) == 0 { // a part without defaults
			return ""
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		raw = m[name]
	}
	return string(raw)
}

// partOf returns the position of a key's strategy in the result.
var partOf = map[string]string{KeyColocation: "colocation", KeyThreshold: "resourceThreshold", KeyQOS: "resourceQOS", KeyBurst: "cpuBurst", KeySystem: "system"}

// These are the pairs of thresholds.
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

// Doubtful values are in force and reported.
func TestDoubts(t *testing.T) {
	for _, c := range []struct{ fields, field, value, want string }{
		{`"cpuCalculatePolicy":"request"`, "cpuCalculatePolicy", `"usage"`, `cpuCalculatePolicy: "request" applies only to memory: usage is used`},
		{`"resourceDiffThreshold":2`, "resourceDiffThreshold", "2", "resourceDiffThreshold: 2 is over 1"},
		{`"midStaticCPUReservedPercent":150`, "midStaticCPUReservedPercent", "150", "midStaticCPUReservedPercent: 150 is over 100"},
		{`"midStaticMemoryReservedPercent":150`, "midStaticMemoryReservedPercent", "150", "midStaticMemoryReservedPercent: 150 is over 100"},
		{`"enable":true,"Enable":false`, "enable", "false", "enable: it occurs twice: the last one applies"},
		{`"degradeTimeMinutes":1,"degradeTimeMinutes":2`, "degradeTimeMinutes", "2", "degradeTimeMinutes: it occurs twice"},
	} {
		s, problems := resolved(t, data(KeyColocation, in(KeyColocation, c.fields)), nil, nil)
		if got := at(t, s, "colocation."+c.field); got != c.value || !strings.HasPrefix(problems, KeyColocation+": "+c.want) {
			t.Errorf("%s: %s, problems %q; want %s and %q", c.fields, got, problems, c.value, c.want)
		}
		// An entry inherits it, and it is reported once.
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

// An empty policy is not set, as in Koordinator, so that an earlier step's stays. Those of colocation-config mean usage.
func TestEmptyPolicies(t *testing.T) {
	for _, c := range []struct{ key, field, other, want, kept string }{
		{KeyThreshold, "cpuSuppressPolicy", SuppressCFSQuota, SuppressCPUSet, SuppressCFSQuota},
		{KeyThreshold, "cpuEvictPolicy", EvictByAllocatable, EvictByRealLimit, EvictByAllocatable},
		{KeyBurst, "policy", BurstAutomatic, BurstNone, BurstAutomatic},
		{KeyColocation, "cpuCalculatePolicy", CalculateMaxUsageRequest, CalculateUsage, CalculateUsage},
		{KeyColocation, "memoryCalculatePolicy", CalculateRequest, CalculateUsage, CalculateUsage},
	} {
		empty, other := `"`+c.field+`":""`, `"`+c.field+`":"`+c.other+`"`
		entry := `{"clusterStrategy":{` + other + `},"nodeStrategies":[{"nodeSelector":{},` + empty + `}]}`
		if c.key == KeyColocation {
			entry = `{` + other + `,"nodeConfigs":[{"nodeSelector":{},` + empty + `}]}`
		}
		for text, want := range map[string]string{in(c.key, empty): c.want, entry: c.kept} {
			s, problems := resolved(t, data(c.key, text), nil, nil)
			if got := at(t, s, partOf[c.key]+"."+c.field); got != `"`+want+`"` || problems != "" {
				t.Errorf("%s: %s, problems %q; want %s", text, got, problems, want)
			}
		}
	}
	annotations := map[string]string{AnnotationColocation: `{"cpuCalculatePolicy":""}`}
	s, problems := resolved(t, data(KeyColocation, `{"cpuCalculatePolicy":"maxUsageRequest"}`), nil, annotations)
	if *s.Colocation.CPUCalculatePolicy != CalculateUsage || problems != "" {
		t.Errorf("in the annotation: %s, problems %q", *s.Colocation.CPUCalculatePolicy, problems)
	}
}

// These documents are invalid.
func TestDocuments(t *testing.T) {
	const none = "no earlier one was valid"
	for _, c := range []struct{ key, text, want string }{
		{KeyThreshold, "", ""},
		{KeyThreshold, " \n\t", ""},
		{KeyThreshold, "{}", ""},
		{KeyThreshold, "null", ""},
		{KeyThreshold, `{"clusterStrategy":null,"nodeStrategies":null}`, ""},
		{KeyThreshold, `{"nodeStrategies":[null]}`, "nodeStrategies[0]: it has no nodeSelector: it is for no node"},
		{KeyThreshold, "[]", none},
		{KeyThreshold, "3", "got number: want an object: " + none},
		{KeyThreshold, "enable: true", "it is not JSON: invalid character 'e'"},
		{KeyThreshold, `{"clusterStrategy":{"enable":true}`, "it is not JSON: unexpected end of JSON input: " + none},
		{KeyThreshold, `{} {}`, "it is not JSON: "},
		{KeyThreshold, `{"clusterStrategy":[]}`, "clusterStrategy: got array: want an object"},
		{KeyThreshold, `{"nodeStrategies":{}}`, "nodeStrategies: got object: want a list"},
		{KeyColocation, `{"metricAggregatePolicy":[]}`, "metricAggregatePolicy: got array: want an object: " + none},
		{KeyColocation, `{"nodeConfigs":3}`, "nodeConfigs: got number: want a list"},
		{KeyColocation, strings.Repeat("[", 20_000), "it is not JSON"},
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

// Strategies that are written can be read again, and hostile ticks are rejected.
func TestRead(t *testing.T) {
	s, _ := resolved(t, guides[1].data, nil, nil)
	raw, err := tick.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Read(Overlay(tick.Raw(`{"katalyst":{"a":1}}`), raw))
	if diff := cmp.Diff(s, back); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	for text, want := range map[string]string{
		"":                     ErrNotConfigured.Error(),
		"null":                 ErrNotConfigured.Error(),
		"{}":                   ErrNotConfigured.Error(),
		`{"koordinator":null}`: ErrNotConfigured.Error(),
		`{"katalyst":{}}`:      ErrNotConfigured.Error(),
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
