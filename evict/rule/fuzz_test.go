package rule

import (
	"math"
	"testing"
	"time"

	"polder/lib/tick"
)

// FuzzMeasure lets every rule measure arbitrary samples, with arbitrary advice and after an arbitrary state file: every
// resulting number is valid, only existing pods are named, and the state can be encoded again.
func FuzzMeasure(f *testing.F) {
	for _, seed := range [][3]string{
		{`{}`, `{}`, `{}`},
		{
			`{"cgroupVersion":2,"memory":{"totalBytes":1e9,"freeBytes":1,"watermarkScaleFactor":10,"kswapdStealPages":5,"kswapdStealPerSecond":9e3,"pressure":{"some":{"avg10":50}}},
			 "numaNodes":[{"id":0,"memory":{"totalBytes":1e9,"freeBytes":0}},{"id":0},{"id":-1,"memory":{"totalBytes":1e308,"freeBytes":1e-308}}],"topology":{"cpus":"0-7","numaNodes":[{"id":0,"cpus":"0-3"},{"id":1,"cpus":"4-7"}]},
			 "pods":[{"uid":"r","name":"r","qos":"reclaimed","priority":-9223372036854775808,"annotations":{"katalyst.kubewharf.io/pod_evict_score":"1e999","katalyst.kubewharf.io/numa_bind_result":"0","katalyst.kubewharf.io/cpu_enhancement":"{\"suppression_tolerance_rate\":\"1e-300\"}"},
			  "requests":{"reclaimedMilliCPU":1e308,"reclaimedMemoryBytes":1e17},"memory":{"usageBytes":1e308},"containers":[{"requests":{"reclaimedMemoryBytes":1},"memory":{"rssBytes":1e18},"numaMemory":[{"id":0,"bytes":1e300}]}]},
			  {"uid":"s","name":"s","qos":"shared","memoryPressure":{"some":{"avg10":99}},"annotations":{"katalyst.kubewharf.io/cpu_enhancement":"{\"cpuset_pool\":\"batch\"}","katalyst.kubewharf.io/memory_enhancement":"{\"rss_overuse_threshold\":\"5e-324\"}"},"containers":[{"load1":1e18,"requests":{"memoryBytes":1},"memory":{"rssBytes":1e18}},{"load1":1e308}]},
			  {"uid":"s","qos":"shared","memoryPressure":{"some":{"avg10":1e9}}},{"uid":"","qos":"dedicated","memoryPressure":{}}]}`,
			`{"policy":"x","reclaimed":{"milliCPU":1,"memoryBytes":-9223372036854775808,"numaNodes":[{"id":0,"milliCPU":9223372036854775807}]},"pools":[{"name":"share","cpus":"0"},{"name":"share","cpus":"0"},{"name":"batch","cpus":"1"},{"name":"reclaim","cpus":"7"},{"name":"","cpus":"x"}]}`,
			`{"pools":{"share":null,"batch":{"ring":{"samples":[{"at":"2026-11-21T11:59:00Z","value":{"load":1e308,"lower":1e308,"upper":-1e308,"pods":{"s":1e308,"s2":-1}}}],"last":"2026-11-21T11:59:00Z"},"soft":{"start":"0001-01-01T00:00:00Z"}}},
			 "suppressed":{"r":null,"s":{"start":"2026-11-21T11:00:00Z","last":"2026-11-21T11:59:59Z"}},"kswapd":{"pages":1e308,"at":"2026-11-21T11:59:50Z","rate":1e308,"known":true,"times":-5},"numa":{"0":null,"-1":{"times":9223372036854775807}},
			 "zones":{"zone0|katalyst.kubewharf.io/reclaimed_millicpu":null},"over":{"r":null},"free":{"start":"9999-12-31T23:59:59Z"}}`,
		},
		{`{"memory":{"totalBytes":-1,"freeBytes":-1,"watermarkScaleFactor":1e308},"pods":[{"qos":"reclaimed","requests":{"reclaimedMilliCPU":-1}}]}`, `{"reclaimed":{},"pools":[{"name":"reclaim"}]}`, `{"kswapd":{"known":true,"rate":-1}}`},
		{
			`{"intervalSeconds":5,"cpu":{"usageMilliCPU":9900},"memory":{"totalBytes":1e11,"availableBytes":1e9},"capacity":{"milliCPU":10000,"memoryBytes":1e11},"allocatable":{"milliCPU":1,"memoryBytes":1e-300,"reclaimedMilliCPU":1e-300,"reclaimedMemoryBytes":5e-324,"midMilliCPU":0},
			 "tiers":[{"name":"besteffort","cpusetCPUs":"0-1","cpuMaxMilliCPU":-9223372036854775808,"usageMilliCPU":2000},{"name":"besteffort"}],
			 "pods":[{"uid":"b","name":"b","qos":"reclaimed","labels":{"koordinator.sh/qosClass":"BE","koordinator.sh/eviction-enabled":"true"},"annotations":{"koordinator.sh/eviction-policy":"[null]","koordinator.sh/eviction-priority":"2147483647"},"priority":-9223372036854775808,"koordinatorPriority":9223372036854775807,"usageMilliCPU":1e308,
			   "requests":{"reclaimedMilliCPU":1e18,"reclaimedMemoryBytes":1e18},"memory":{"rssBytes":1e18},"containers":[{"cpusetCPUs":"0"},{"cpusetCPUs":"0-8191"}]},
			  {"uid":"c","name":"c","qos":"reclaimed","labels":{"koordinator.sh/qosClass":"BE","koordinator.sh/eviction-enabled":"true"},"requests":{"reclaimedMilliCPU":5e-324},"phase":"Pending","missing":"cgroup"},
			  {"uid":"d","qos":"shared","labels":{"koordinator.sh/priority-class":"koord-mid","koordinator.sh/eviction-enabled":"true"},"requests":{"midMilliCPU":1e18},"terminating":true}]}`,
			`{"policy":"koordinator","withdrawn":"x"}`,
			`{"watched":{"start":"2026-11-21T11:00:00Z","last":"2026-11-21T11:59:59Z"},"policy":"evictByRealLimit","usage":{"points":[{"at":"2026-11-21T11:59:59Z","sum":1e308,"n":-1},{"at":"2026-11-21T11:59:59Z","sum":1e308,"n":9223372036854775807},{"at":"9999-01-01T00:00:00Z","sum":-1e308,"n":0}]},"request":{"points":[{"at":"2026-11-21T11:59:59Z","sum":1e308,"n":1},{"at":"2026-11-21T11:59:59Z","sum":1e308,"n":1}]},"limit":{"points":null},"over":{"kubernetes.io/batch-cpu":null}}`,
		},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, sample, advice, before string) {
		x := &tick.Tick{V: 1, Node: "n", Sample: new(tick.Sample), Advice: new(tick.Advice)}
		if tick.Unmarshal([]byte(sample), x.Sample) != nil || tick.Unmarshal([]byte(advice), x.Advice) != nil || x.Sample == nil {
			return
		}
		all := *strategy(every)
		all.ServiceWaiting.Enabled, all.ServiceWaiting.Threshold = true, 1
		all.ServiceIO.Enabled, all.ServiceIO.Threshold, all.ServiceIO.Hysteresis = true, 1, 0.5
		all.ServiceMemory.Enabled, all.ServiceMemory.Threshold, all.ServiceMemory.Hysteresis = true, 1, 0.5
		all.RSSOveruseEnabled, all.ReclaimedSoftCPUThreshold, all.MemoryPSIPods, all.SuppressionMinDuration, all.MemoryKswapdTimes = true, 1.5, 1, time.Second, 1
		all.ReclaimedHysteresis, all.MemoryHysteresis, all.LoadHysteresis, all.SuppressionHysteresis, all.RSSOveruseHysteresis = 0.5, 0.5, 0.5, 0.5, 0.5
		for _, r := range All {
			w := r.New()
			if tick.Unmarshal([]byte(before), w) != nil {
				w = r.New()
			}
			for _, seconds := range []int{0, 30, 90, 10} {
				x.Time = at(seconds)
				m := w.Measure(&all, x)
				for i := range m.Findings {
					checkFinding(t, x, &m.Findings[i])
				}
				if _, err := tick.Marshal(w); err != nil {
					t.Fatalf("%s: the window cannot be encoded: %v", r.Name, err)
				}
			}
		}
	})
}

func checkFinding(t *testing.T, x *tick.Tick, f *Finding) {
	t.Helper()
	number := func(what string, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("%s of %+v is %v", what, f.PressureFinding, v)
		}
	}
	number("value", f.Value)
	number("threshold", f.Threshold)
	if f.GracePeriodSeconds != nil && *f.GracePeriodSeconds < 1 {
		t.Errorf("%+v kills pods without a grace period", f.PressureFinding)
	}
	if !f.Met && (len(f.Candidates) > 0 || f.Taint != nil) {
		t.Errorf("%+v is not met, but names %v and %v", f.PressureFinding, f.Candidates, f.Taint)
	}
	if since, err := time.Parse(time.RFC3339Nano, f.Since); f.Since != "" && (err != nil || since.After(x.Time)) {
		t.Errorf("%+v: since %q at %s", f.PressureFinding, f.Since, x.Time)
	}
	for _, c := range f.Candidates {
		number("released", c.Releases)
		if c.Releases < 0 {
			t.Errorf("%+v: %s releases %v", f.PressureFinding, c.Pod.Name, c.Releases)
		}
		for _, r := range c.Rank {
			number("rank", r)
		}
		there := false
		for i := range x.Sample.Pods {
			there = there || c.Pod == &x.Sample.Pods[i]
		}
		if !there || c.Pod.Ended() {
			t.Errorf("%+v names %s, which is missing or has ended", f.PressureFinding, c.Pod.Name)
		}
	}
}
