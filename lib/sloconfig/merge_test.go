package sloconfig

import (
	"fmt"
	"strings"
	"testing"
)

// guides are the ConfigMaps of Koordinator's guides.
var guides = []struct {
	name string
	data map[string]string
}{
	{"memory eviction", map[string]string{
		KeyColocation: "{\n  \"enable\": true\n}\n",
		KeyThreshold:  "{\n  \"clusterStrategy\": {\n    \"enable\": true,\n    \"memoryEvictThresholdPercent\": 70\n  }\n}\n",
	}},
	{"CPU satisfaction", map[string]string{
		KeyThreshold: `{
  "clusterStrategy": {
    "enable": true,
    "cpuEvictBESatisfactionLowerPercent": 60,
    "cpuEvictBESatisfactionUpperPercent": 80,
    "cpuEvictBEUsageThresholdPercent": 90,
    "CPUEvictTimeWindowSeconds": 60
  }
}
`,
	}},
	{"suppression off", map[string]string{KeyThreshold: "{\n  \"clusterStrategy\": {\n    \"enable\": false\n  }\n}\n"}},
}

func TestGuides(t *testing.T) {
	for i, want := range []map[string]string{
		{"colocation.enable": "true", "colocation.cpuReclaimThresholdPercent": "60", "resourceThreshold.enable": "true", "resourceThreshold.memoryEvictThresholdPercent": "70"},
		{
			"colocation.enable": "false", "resourceThreshold.enable": "true", "resourceThreshold.cpuEvictBESatisfactionLowerPercent": "60", "resourceThreshold.cpuEvictBESatisfactionUpperPercent": "80",
			"resourceThreshold.cpuEvictBEUsageThresholdPercent": "90", "resourceThreshold.cpuEvictTimeWindowSeconds": "60", "resourceThreshold.memoryEvictThresholdPercent": "70",
		},
		{"resourceThreshold.enable": "false", "resourceThreshold.cpuSuppressPolicy": `"cpuset"`},
	} {
		s, problems := resolved(t, guides[i].data, nil, nil)
		if problems != "" || s.From != "ns/name" {
			t.Errorf("%s: from %s, %s", guides[i].name, s.From, problems)
		}
		for path, value := range want {
			if got := at(t, s, path); got != value {
				t.Errorf("%s: %s is %s; want %s", guides[i].name, path, got, value)
			}
		}
		if c := (LastValid{}).Parse("x", guides[i].data); len(c.Unsupported) > 0 {
			t.Errorf("%s: unsupported %q", guides[i].name, c.Unsupported)
		}
	}
}

// Each step of the order overrides the previous one, and settings that it does not contain stay.
func TestOrder(t *testing.T) {
	config := data(KeyColocation, `{"enable":true,"cpuReclaimThresholdPercent":50,"memoryReclaimThresholdPercent":51,"degradeTimeMinutes":5,"metricAggregatePolicy":{"durations":["1m","2m"]},
		"nodeConfigs":[
			{"name":"gpu","nodeSelector":{"matchLabels":{"pool":"gpu"}},"cpuReclaimThresholdPercent":40,"metricAggregatePolicy":{"durations":["3m"]}},
			{"name":"big","nodeSelector":{"matchExpressions":[{"key":"size","operator":"In","values":["l","xl"]}]},"cpuReclaimThresholdPercent":30,"degradeTimeMinutes":7},
			{"name":"none","cpuReclaimThresholdPercent":1}]}`)
	const annotation = AnnotationColocation
	for _, c := range []struct {
		name                string
		labels, annotations map[string]string
		cpu, memory, degrade, durations,
		entry, problem string
	}{
		{name: "the cluster", cpu: "50", memory: "51", degrade: "5", durations: `["1m","2m"]`},
		{name: "an entry", labels: map[string]string{"pool": "gpu"}, cpu: "40", memory: "51", degrade: "5", durations: `["3m"]`, entry: "gpu"},
		{name: "by an expression", labels: map[string]string{"size": "xl"}, cpu: "30", memory: "51", degrade: "7", durations: `["1m","2m"]`, entry: "big"},
		{
			name: "the first of two", labels: map[string]string{"pool": "gpu", "size": "l"}, cpu: "40", memory: "51", degrade: "5", durations: `["3m"]`, entry: "gpu",
			problem: `colocation-config: the node is selected by nodeConfigs[0] ("gpu") and by nodeConfigs[1] ("big"): the first one applies`,
		},
		{
			name: "the annotation over it", labels: map[string]string{"pool": "gpu"}, annotations: map[string]string{annotation: `{"CpuReclaimThresholdPercent":20,"memoryReclaimThresholdPercent":21}`},
			cpu: "20", memory: "21", degrade: "5", durations: `["3m"]`, entry: "gpu",
		},
		{
			name: "a label over that", labels: map[string]string{"node.koordinator.sh/cpu-reclaim-ratio": "0.7"}, annotations: map[string]string{annotation: `{"cpuReclaimThresholdPercent":20}`},
			cpu: "70", memory: "51", degrade: "5", durations: `["1m","2m"]`,
		},
		{
			name: "both labels", labels: map[string]string{"node.koordinator.sh/cpu-reclaim-ratio": "1.5", "node.koordinator.sh/memory-reclaim-ratio": "0"},
			cpu: "150", memory: "0", degrade: "5", durations: `["1m","2m"]`,
		},
		{
			name: "no annotation at all", annotations: map[string]string{annotation: `{"cpuReclaimThresholdPercent":20`}, cpu: "50", memory: "51", degrade: "5", durations: `["1m","2m"]`,
			problem: "annotation node.koordinator.sh/colocation-strategy: it is not JSON: unexpected end of JSON input: it is left out",
		},
		{
			name: "an empty annotation", annotations: map[string]string{annotation: ""}, cpu: "50", memory: "51", degrade: "5", durations: `["1m","2m"]`,
			problem: "it is not JSON",
		},
		{
			name: "an annotation out of bounds", annotations: map[string]string{annotation: `{"cpuReclaimThresholdPercent":20,"degradeTimeMinutes":0}`}, cpu: "50", memory: "51", degrade: "5", durations: `["1m","2m"]`,
			problem: "annotation node.koordinator.sh/colocation-strategy: degradeTimeMinutes: 0: want 1 to 1000000: it is left out",
		},
		{
			name: "of a wrong type", annotations: map[string]string{annotation: `{"degradeTimeMinutes":"9"}`}, cpu: "50", memory: "51", degrade: "5", durations: `["1m","2m"]`,
			problem: "degradeTimeMinutes: got string: want a whole number: it is left out",
		},
		{
			name: "with an unknown field", annotations: map[string]string{annotation: `{"degradeTimeMinutes":9,"degradeMinutes":9}`}, cpu: "50", memory: "51", degrade: "9", durations: `["1m","2m"]`,
			problem: "degradeMinutes: unknown key",
		},
	} {
		s, problems := resolved(t, config, c.labels, c.annotations)
		got := fmt.Sprint(at(t, s, "colocation.cpuReclaimThresholdPercent"), " ", at(t, s, "colocation.memoryReclaimThresholdPercent"), " ",
			at(t, s, "colocation.degradeTimeMinutes"), " ", at(t, s, "colocation.metricAggregatePolicy.durations"), " ", s.Entries[KeyColocation])
		if want := fmt.Sprint(c.cpu, " ", c.memory, " ", c.degrade, " ", c.durations, " ", c.entry); got != want {
			t.Errorf("%s: %s; want %s", c.name, got, want)
		}
		none := `colocation-config: nodeConfigs[2]: it has no nodeSelector: it is for no node`
		if rest, ok := strings.CutPrefix(problems, none); !ok || (c.problem == "") != (rest == "") || !strings.Contains(rest, c.problem) {
			t.Errorf("%s: problems %q; want %q", c.name, problems, c.problem)
		}
	}
}

// Selectors are Kubernetes'; one that cannot be read selects no node.
func TestSelectors(t *testing.T) {
	for _, c := range []struct {
		selector string
		labels   map[string]string
		matches  bool
		problem  string
	}{
		{"null", map[string]string{"a": "1"}, false, "it has no nodeSelector: it is for no node"},
		{"{}", nil, true, ""},
		{"{}", map[string]string{"a": "1"}, true, ""},
		{`{"matchLabels":{}}`, nil, true, ""},
		{`{"matchLabels":{"a":"1","b":"2"}}`, map[string]string{"a": "1", "b": "2"}, true, ""},
		{`{"matchLabels":{"a":"1","b":"2"}}`, map[string]string{"a": "1"}, false, ""},
		{`{"matchLabels":{"a":""}}`, map[string]string{"a": ""}, true, ""},
		{`{"matchLabels":{"a":""}}`, nil, false, ""},
		{`{"MatchLabels":{"a":"1"}}`, map[string]string{"a": "1"}, true, ""},
		{`{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}`, map[string]string{"a": "2"}, true, ""},
		{`{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}`, nil, true, ""},
		{`{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]}]}`, map[string]string{"a": "1"}, false, ""},
		{`{"matchExpressions":[{"key":"a","operator":"Exists"}]}`, map[string]string{"a": "9"}, true, ""},
		{`{"matchExpressions":[{"key":"a","operator":"Exists"}]}`, nil, false, ""},
		{`{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}`, nil, true, ""},
		{`{"matchLabels":{"a":"1"},"matchExpressions":[{"key":"b","operator":"Exists"}]}`, map[string]string{"a": "1"}, false, ""},
		{`{"matchLabel":{"a":"1"}}`, map[string]string{"a": "1"}, false, "nodeSelector.matchLabel: unknown key: want matchLabels and matchExpressions"},
		{`{"a":"1"}`, map[string]string{"a": "1"}, false, "nodeSelector.a: unknown key"},
		{`{"matchLabels":{"a":1}}`, map[string]string{"a": "1"}, false, "nodeSelector.matchLabels"},
		{`{"matchLabels":{"a b":"1"}}`, map[string]string{"a b": "1"}, false, "nodeSelector.matchLabels: key: Invalid value"},
		{`{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}`, map[string]string{"a": "2"}, false, `nodeSelector.matchExpressions[0]: operator "Gt": want In, NotIn, Exists or DoesNotExist`},
		{`{"matchExpressions":[{"key":"a","operator":"In"}]}`, map[string]string{"a": "2"}, false, "nodeSelector.matchExpressions[0]: values: Invalid value"},
		{`"a=1"`, map[string]string{"a": "1"}, false, "nodeSelector: got string: want an object"},
	} {
		s, problems := resolved(t, data(KeyThreshold, `{"nodeStrategies":[{"nodeSelector":`+c.selector+`,"enable":true}]}`), c.labels, nil)
		if *s.Threshold.Enable != c.matches || (s.Entries[KeyThreshold] == "nodeStrategies[0]") != c.matches {
			t.Errorf("%s on %v: matches %v (%v); want %v", c.selector, c.labels, *s.Threshold.Enable, s.Entries, c.matches)
		}
		if c.problem == "" && problems != "" || !strings.Contains(problems, c.problem) {
			t.Errorf("%s: problems %q; want %q", c.selector, problems, c.problem)
		}
	}
}

// However many unknown keys come before it, an unknown key in a selector is found.
func TestUnknownKeyOfSelectorAfterManyOthers(t *testing.T) {
	var before strings.Builder
	for i := range 2 * maxListed {
		fmt.Fprintf(&before, `"x%d":1,`, i)
	}
	text := `{` + before.String() + `"nodeStrategies":[{"nodeSelector":{"matchLabel":{"a":"1"}},"enable":true}]}`
	s, problems := resolved(t, data(KeyThreshold, text), nil, nil)
	if *s.Threshold.Enable || !strings.Contains(problems, "nodeSelector.matchLabel: unknown key") {
		t.Errorf("enabled %t, problems %q", *s.Threshold.Enable, problems)
	}
}

// Instead of an invalid entry the cluster's strategy is in force, and no later entry.
func TestInvalidEntries(t *testing.T) {
	for _, c := range []struct{ entry, problem string }{
		{`"cpuSuppressThresholdPercent":101`, "nodeStrategies[0].cpuSuppressThresholdPercent: 101: want 0 to 100"},
		{`"cpuSuppressThresholdPercent":"40"`, "nodeStrategies[0].cpuSuppressThresholdPercent: got string: want a whole number"},
		{`"memoryEvictLowerPercent":90`, "nodeStrategies[0].memoryEvictLowerPercent: 90: want less than memoryEvictThresholdPercent, which is 80"}, // the cluster's
		{`"enable":1`, "nodeStrategies[0].enable: got number: want true or false"},
	} {
		text := `{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":50,"memoryEvictThresholdPercent":80},"nodeStrategies":[
			{"name":"bad","nodeSelector":{"matchLabels":{"pool":"a"}},` + c.entry + `},
			{"name":"all","nodeSelector":{"matchLabels":{"pool":"b"}},"cpuSuppressThresholdPercent":30}]}`
		for pool, want := range map[string]int64{"a": 50, "b": 30, "c": 50} {
			s, problems := resolved(t, data(KeyThreshold, text), map[string]string{"pool": pool}, nil)
			if *s.Threshold.CPUSuppressThresholdPercent != want || (s.Entries[KeyThreshold] == "all") != (pool == "b") {
				t.Errorf("%s: pool %s has %d by %v; want %d", c.entry, pool, *s.Threshold.CPUSuppressThresholdPercent, s.Entries, want)
			}
			if problems != "resource-threshold-config: "+c.problem+": the cluster's strategy applies instead" {
				t.Errorf("%s: %s", c.entry, problems)
			}
		}
	}
	// The same in a nested object: settings that a class does not contain stay the cluster's.
	s, problems := resolved(t, data(KeyQOS, `{"clusterStrategy":{"beClass":{"memoryQOS":{"enable":true,"throttlingPercent":80}}},
		"nodeStrategies":[{"nodeSelector":{},"beClass":{"memoryQOS":{"lowLimitPercent":10}}}]}`), nil, nil)
	if m := s.QOS.BE.Memory; !*m.Enable || *m.ThrottlingPercent != 80 || *m.LowLimitPercent != 10 || *m.WmarkMinAdj != 50 || problems != "" {
		t.Errorf("%+v %s", m, problems)
	}
}

// The last valid document of each key stays, separately, until the key is valid again or removed.
func TestLastGood(t *testing.T) {
	m := LastValid{}
	step := func(name, threshold, burst, wantThreshold, wantBurst, problem string) {
		t.Helper()
		s, errs := m.Parse("x", map[string]string{KeyThreshold: threshold, KeyBurst: burst}).Resolve(nil, nil)
		if got := at(t, s, "resourceThreshold.cpuSuppressThresholdPercent"); got != wantThreshold {
			t.Errorf("%s: threshold %s; want %s", name, got, wantThreshold)
		}
		if got := at(t, s, "cpuBurst.policy"); got != `"`+wantBurst+`"` {
			t.Errorf("%s: burst %s; want %s", name, got, wantBurst)
		}
		if got := fmt.Sprint(errs); got != "["+problem+"]" {
			t.Errorf("%s: problems %s; want %s", name, got, problem)
		}
	}
	const auto = `{"clusterStrategy":{"policy":"auto"}}`
	of := func(v string) string { return `{"clusterStrategy":{"cpuSuppressThresholdPercent":` + v + `}}` }
	const bad = "resource-threshold-config: clusterStrategy.cpuSuppressThresholdPercent: 101: want 0 to 100: "
	step("bad from the start", of("101"), auto, "65", "auto", bad+"no earlier one was valid: the defaults apply, with nothing enabled")
	step("good", of("50"), auto, "50", "auto", "")
	step("bad", of("101"), `{"clusterStrategy":{"policy":"none"}}`, "50", "none", bad+"the last valid one stays in force")
	step("no JSON", of("101")+"}", auto, "50", "auto", "resource-threshold-config: it is not JSON: invalid character '}' after top-level value: the last valid one stays in force")
	step("bad burst beside a good one", of("40"), `{"clusterStrategy":{"policy":"x"}}`, "40", "auto", `cpu-burst-config: clusterStrategy.policy: "x": want none, cpuBurstOnly, cfsQuotaBurstOnly, auto: the last valid one stays in force`)
	step("empty is good", "{}", auto, "65", "auto", "")
	step("bad after empty", of("101"), auto, "65", "auto", bad+"the last valid one stays in force")
	step("gone", "", "", "65", "none", "")
	step("bad after it was gone", of("101"), "", "65", "none", bad+"no earlier one was valid: the defaults apply, with nothing enabled")
	step("good again", of("30"), "", "30", "none", "")
	if len(m) != 1 || m[KeyThreshold] != of("30") {
		t.Errorf("memory %v", m)
	}
	// An earlier run remembered a document that is invalid for this one.
	m[KeyThreshold] = of("102")
	step("a bad memory", of("101"), "", "65", "none", bad+"no earlier one was valid: the defaults apply, with nothing enabled")
}

// The cluster's switch overrides the nodes' own.
func TestColocationDisabled(t *testing.T) {
	for _, c := range []struct {
		name, text       string
		annotations      map[string]string
		enable, disabled bool
	}{
		{"on", `{"enable":true}`, nil, true, false},
		{"an entry on, the cluster off", `{"enable":false,"nodeConfigs":[{"nodeSelector":{},"enable":true}]}`, nil, false, true},
		{"an entry on, the cluster silent", `{"nodeConfigs":[{"nodeSelector":{},"enable":true}]}`, nil, false, true},
		{"an entry off", `{"enable":true,"nodeConfigs":[{"nodeSelector":{},"enable":false}]}`, nil, false, false},
		{"the annotation on", `{"enable":false}`, map[string]string{AnnotationColocation: `{"enable":true}`}, false, true},
		{"the annotation off", `{"enable":true}`, map[string]string{AnnotationColocation: `{"enable":false}`}, false, false},
		{"the annotation on over an entry off", `{"enable":true,"nodeConfigs":[{"nodeSelector":{},"enable":false}]}`, map[string]string{AnnotationColocation: `{"enable":true}`}, true, false},
		{"nothing", ``, map[string]string{AnnotationColocation: `{"enable":true}`}, false, true},
	} {
		s, _ := resolved(t, data(KeyColocation, c.text), nil, c.annotations)
		if *s.Colocation.Enable != c.enable || s.ColocationDisabled != c.disabled {
			t.Errorf("%s: enable %v, disabled %v; want %v, %v", c.name, *s.Colocation.Enable, s.ColocationDisabled, c.enable, c.disabled)
		}
	}
	// That applies only to colocation.
	s, _ := resolved(t, data(KeyThreshold, `{"clusterStrategy":{"enable":false},"nodeStrategies":[{"nodeSelector":{},"enable":true}]}`), nil, nil)
	if !*s.Threshold.Enable {
		t.Error("a node entry does not turn the thresholds on")
	}
}

func TestRatios(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "0.65": 65, "0.29": 29, "0.57": 57, "0.999": 99, "1": 100, "1.2": 120, "1000": 100_000, "-0": 0} {
		for _, r := range ratios {
			s, problems := resolved(t, nil, map[string]string{r.label: text}, nil)
			if got := **r.of(&s.Colocation); got != want || problems != "" {
				t.Errorf("%s %q is %d, %s; want %d", r.label, text, got, problems, want)
			}
		}
	}
	for _, text := range []string{"", "-0.1", "NaN", "Inf", "-Inf", "1e9", "1000.1", "65%", "half", " 0.5"} {
		for _, r := range ratios {
			defaults := Defaults()
			s, problems := resolved(t, nil, map[string]string{r.label: text}, nil)
			if got, want := **r.of(&s.Colocation), **r.of(&defaults.Colocation); got != want || !strings.Contains(problems, "label "+r.label+": ") || !strings.Contains(problems, "it is left out") {
				t.Errorf("%s %q is %d, %q; want the default", r.label, text, got, problems)
			}
		}
	}
}

// A node's own rate of its uplink replaces that of the ConfigMap, and an invalid one does not.
func TestBandwidthOfNode(t *testing.T) {
	config := data(KeySystem, `{"clusterStrategy":{"totalNetworkBandwidth":"10G"},
		"nodeStrategies":[{"nodeSelector":{"matchLabels":{"nic":"25"}},"totalNetworkBandwidth":"25G"}]}`)
	const invalid = "annotation node.koordinator.sh/network-bandwidth: "
	for _, c := range []struct {
		annotation, cluster, entry, none, problem string
	}{
		{"99M", `"99M"`, `"99M"`, `"99M"`, ""},
		{"1000000000", `"1000000000"`, `"1000000000"`, `"1000000000"`, ""},
		{"-", `"10G"`, `"25G"`, "", invalid + `"-": want bits per second, such as 50M, and at most 1P: it is left out`},
		{"", `"10G"`, `"25G"`, "", invalid + `"": want bits per second`},
	} {
		annotations := map[string]string{AnnotationBandwidth: c.annotation}
		for _, on := range []struct {
			name         string
			data, labels map[string]string
			want         string
		}{
			{"the cluster's", config, nil, c.cluster},
			{"an entry", config, map[string]string{"nic": "25"}, c.entry},
			{"nothing", nil, nil, c.none},
		} {
			s, problems := resolved(t, on.data, on.labels, annotations)
			got := at(t, s, "system.totalNetworkBandwidth")
			if got != on.want || (c.problem == "") != (problems == "") || !strings.Contains(problems, c.problem) {
				t.Errorf("annotation %q over %s: %s, problems %q; want %s and %q", c.annotation, on.name, got, problems, on.want, c.problem)
			}
		}
	}
}

// The result for one node is not shared with another.
func TestResolvedIsOwn(t *testing.T) {
	c := LastValid{}.Parse("x", data(KeyColocation, `{"enable":true,"metricAggregatePolicy":{"durations":["1m"]}}`))
	a, _ := c.Resolve(nil, nil)
	*a.Colocation.Enable, a.Colocation.MetricAggregatePolicy.Durations[0] = false, "9m"
	*a.QOS.BE.Memory.WmarkRatio = 1
	if b, _ := c.Resolve(nil, nil); !*b.Colocation.Enable || b.Colocation.MetricAggregatePolicy.Durations[0] != "1m" || *b.QOS.BE.Memory.WmarkRatio != 95 {
		t.Errorf("%+v", b.Colocation)
	}
}

func FuzzSettle(f *testing.F) {
	for _, g := range guides {
		f.Add(g.data[KeyColocation], g.data[KeyThreshold], "", "", "0.5", "{}")
	}
	f.Add(`{"nodeConfigs":[{"name":"a","nodeSelector":{"matchExpressions":[{"key":"pool","operator":"In","values":["a"]}]},"ENABLE":true}]}`, `{"clusterStrategy":null}`,
		`{"clusterStrategy":{"beClass":{"memoryQOS":{"enable":true}}},"nodeStrategies":[{"nodeSelector":{},"beClass":null}]}`, `{"clusterStrategy":{"policy":"auto"}}`, "NaN", `{"enable":true}`)
	f.Add("[", "{}{}", `{"a":[[{"b":[`, "3", "-1", `{"degradeTimeMinutes":1e400}`)
	f.Fuzz(func(t *testing.T, colocation, threshold, qos, burst, ratio, annotation string) {
		m := LastValid{}
		in := map[string]string{KeyColocation: colocation, KeyThreshold: threshold, KeyQOS: qos, KeyBurst: burst, "other": ratio}
		labels := map[string]string{"pool": "a", "node.koordinator.sh/cpu-reclaim-ratio": ratio}
		annotations := map[string]string{AnnotationColocation: annotation}
		c := m.Parse("x", in)
		s, errs := c.Resolve(labels, annotations)
		if err := s.check(); err != nil {
			t.Fatalf("out of bounds: %v", err)
		}
		if len(errs) > 100 || len(c.Unsupported) > 5*maxListed {
			t.Fatalf("%d errors, %d unsupported", len(errs), len(c.Unsupported))
		}
		// The tools read the resolved strategies.
		at := func(key string, line int) string { return fmt.Sprintf("x.yaml:%d", line) }
		file, err := FileOf("x.yaml", in, at)
		if err == nil && strings.Contains(fmt.Sprint(file.Problems), "in force") {
			t.Fatalf("a file with %v is taken", file.Problems)
		}
		var local Local
		raw, _ := local.InForce(file, labels, annotations)
		if err == nil {
			back, err := Read(Overlay(nil, raw))
			if err != nil {
				t.Fatalf("%v: %s", err, raw)
			}
			if back.From != "x.yaml" {
				t.Fatalf("from %q", back.From)
			}
		} else if !strings.HasPrefix(err.Error(), "x.yaml:") {
			t.Fatalf("an error without a place: %v", err)
		}
	})
}

// A list of a node's entry replaces the cluster's completely.
func TestBlocksAreReplaced(t *testing.T) {
	s, problems := resolved(t, data(KeyQOS, `{"clusterStrategy":{"beClass":{"blkioQOS":{"enable":true,"blocks":[{"name":"/dev/sda","type":"device","ioCfg":{"readIOPS":5}},{"name":"/dev/sdb","type":"device"}]}}},
		"nodeStrategies":[{"nodeSelector":{},"beClass":{"blkioQOS":{"blocks":[{"name":"/dev/sdc","ioCfg":{"writeIOPS":7}}]}}}]}`), nil, nil)
	if got, want := at(t, s, "resourceQOS.beClass.blkioQOS"), `{"enable":true,"blocks":[{"name":"/dev/sdc","ioCfg":{"writeIOPS":7}}]}`; got != want || problems != "" {
		t.Errorf("blkioQOS %s, %s; want %s", got, problems, want)
	}
}
