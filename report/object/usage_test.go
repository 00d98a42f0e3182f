package object

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Aggregates exist over each time of which half is covered; older samples are forgotten.
func TestNodeMetricAggregates(t *testing.T) {
	c := defaults()
	c.MetricAggregateDurationSeconds = new(int64(1)) // the floor is a minute
	c.MetricAggregatePolicy = &sloconfig.MetricAggregatePolicy{Durations: []string{"2m", "5m", "no time", "-1m", "48h", "10m"}}
	var u Usage
	now := noon
	for i := 1; i <= 201; i++ { // 1 m to 201 m, in 200 seconds
		now = noon.Add(time.Duration(i) * time.Second)
		u.Take(measuredTick(time.Duration(i)*time.Second, float64(i), float64(1000*i), measuredPod("d", "p", float64(i)/2, 500*float64(i))), c)
	}
	s := u.Status(now)
	for path, want := range map[string]string{
		"nodeUsage resources cpu":      "171m", // of 141 to 201
		"nodeUsage resources memory":   "171000",
		"systemUsage resources cpu":    "85m",
		"systemUsage resources memory": "85500",
	} {
		if got := in(s, append([]string{"nodeMetric"}, strings.Fields(path)...)...); got != want {
			t.Errorf("%s: %s; want %s", path, got, want)
		}
	}
	if got, want := podNames(s), "d/p LS koord-prod 85m"; got != want {
		t.Errorf("pods: %s; want %s", got, want)
	}
	list, _ := at(s, "nodeMetric", "aggregatedNodeUsages").([]any)
	var got []string
	for _, v := range list {
		a, _ := v.(map[string]any)
		words := []string{fmt.Sprint(a["duration"])}
		for _, k := range []string{"avg", "p50", "p90", "p95", "p99"} {
			words = append(words, in(a, "usage", k, "resources", "cpu")+"/"+in(a, "usage", k, "resources", "memory"))
		}
		got = append(got, strings.Join(words, " "))
	}
	want := []string{
		"2m0s 141m/141000 140m/140000 188m/188000 194m/194000 199m/199000", // 121 samples, 81 to 201: the median is the 60th
		"5m0s 101m/101000 100m/100000 180m/180000 190m/190000 198m/198000",
		"10m0s -/- -/- -/- -/- -/-",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("aggregates (-want +got):\n%s", d)
	}
	// Just half of ten minutes.
	for i := 202; i <= 301; i++ {
		u.Take(measuredTick(time.Duration(i)*time.Second, 1, 1000), c)
		list, _ := at(u.Status(noon.Add(time.Duration(i)*time.Second)), "nodeMetric", "aggregatedNodeUsages").([]any)
		usage, _ := list[2].(map[string]any)["usage"].(map[string]any)
		if covered := len(usage) > 0; covered != (i == 301) {
			t.Errorf("%d s of samples: ten minutes give %v", i-1, usage)
		}
	}
}

func TestNodeMetricNUMA(t *testing.T) {
	f := tick.Ptr[float64]
	numa := func(c sloconfig.Colocation, nodes ...[]tick.NUMASample) string {
		var u Usage
		for i, n := range nodes {
			in := measuredTick(time.Duration(i)*time.Second, 1, 1)
			in.Sample.NUMANodes = n
			u.Take(in, c)
		}
		text, _ := json.Marshal(at(u.Status(noon.Add(time.Duration(len(nodes)-1)*time.Second)), "nodeMetric", "numaUsages"))
		return string(text)
	}
	two := []tick.NUMASample{{ID: 1, UsageMilliCPU: f(20)}, {ID: 0, UsageMilliCPU: f(10), Memory: &tick.NUMAMemory{TotalBytes: f(100), FreeBytes: f(40)}}}
	cached := defaults()
	cached.MetricMemoryCollectPolicy = tick.Ptr(sloconfig.UsageWithPageCache)
	for _, tt := range []struct {
		name, got, want string
	}{
		{"none", numa(defaults(), nil), `null`},
		{"what is free is not what could be", numa(defaults(), two), `[{"nodeUsage":{"resources":{"cpu":"10m"}},"numaNodeID":0},{"nodeUsage":{"resources":{"cpu":"20m"}},"numaNodeID":1}]`},
		{"with the page cache", numa(cached, two), `[{"nodeUsage":{"resources":{"cpu":"10m","memory":"60"}},"numaNodeID":0},{"nodeUsage":{"resources":{"cpu":"20m"}},"numaNodeID":1}]`},
		{"one is gone", numa(defaults(), two, two[:1]), `[{"nodeUsage":{"resources":{"cpu":"20m"}},"numaNodeID":1}]`},
		{"nothing known", numa(defaults(), []tick.NUMASample{{ID: 0}}), `null`},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, tt.got, tt.want)
		}
	}
}

// Figures that became unknown are removed, and another program's prediction stays.
func TestNodeMetricPatch(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status string
		want   string
	}{
		{"nothing", `{"updateTime":"t"}`, `{"status":{"nodeMetric":{"aggregatedNodeUsages":null,"aggregatedSystemUsages":null,"nodeUsage":null,"numaUsages":null,"systemUsage":null},"podsMetric":null,"updateTime":"t"}}`},
		{
			"some", `{"updateTime":"t","podsMetric":[1],"nodeMetric":{"nodeUsage":{"resources":{"cpu":"1"}},"systemUsage":{"resources":{"cpu":"1","memory":"2"}},"numaUsages":[]}}`,
			`{"status":{"nodeMetric":{"aggregatedNodeUsages":null,"aggregatedSystemUsages":null,"nodeUsage":{"resources":{"cpu":"1","memory":null}},"numaUsages":[],"systemUsage":{"resources":{"cpu":"1","memory":"2"}}},"podsMetric":[1],"updateTime":"t"}}`,
		},
	} {
		status := decode(t, tt.status)
		got, err := json.Marshal(NodeMetricPatch(status))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
		if d := cmp.Diff(decode(t, tt.status), status); d != "" {
			t.Errorf("%s: the status itself is changed:\n%s", tt.name, d)
		}
	}
}

// The memory of a node with 250 pods, a tick a second.
func TestNodeMetricMemoryOfItsOwn(t *testing.T) {
	var pods []tick.Pod
	for i := range 250 {
		pods = append(pods, measuredPod("default", fmt.Sprint("pod-", i), float64(i), 1e6))
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	before := heap()
	var u Usage
	for i := range 1900 {
		u.Take(measuredTick(time.Duration(i)*time.Second, 1000, 1e9, pods...), defaults())
	}
	used := heap() - before
	t.Logf("%.1f MiB for 250 pods", used)
	if used > 3 {
		t.Errorf("%.1f MiB for 250 pods; want at most 3", used)
	}
	if s := u.Status(noon.Add(1899 * time.Second)); len(s) != 3 {
		t.Errorf("%d parts", len(s))
	}
}

// Each sample of the system's use is zero at least, so that pods that seem to use more than the node in one do not lower another.
func TestNodeMetricSystemSamples(t *testing.T) {
	var u Usage
	u.Take(measuredTick(0, 100, 5000, measuredPod("d", "p", 300, 9000)), defaults())
	u.Take(measuredTick(time.Second, 500, 9000, measuredPod("d", "p", 300, 5000)), defaults())
	s := u.Status(noon.Add(time.Second))
	if cpu, memory := in(s, "nodeMetric", "systemUsage", "resources", "cpu"), in(s, "nodeMetric", "systemUsage", "resources", "memory"); cpu != "100m" || memory != "2000" {
		t.Errorf("%s %s; want 100m 2000", cpu, memory)
	}
}

// Aggregates need both figures for half of their time.
func TestNodeMetricCoverage(t *testing.T) {
	c := defaults()
	c.MetricAggregatePolicy = &sloconfig.MetricAggregatePolicy{Durations: []string{"2m"}}
	for lacks, take := range map[string]func(*tick.Sample){
		"":       func(*tick.Sample) {},
		"cpu":    func(s *tick.Sample) { s.CPU = nil },
		"memory": func(s *tick.Sample) { s.Memory = nil },
	} {
		var u Usage
		for i := range 101 {
			in := measuredTick(time.Duration(i)*time.Second, 100, 1000)
			if i <= 50 { // 50 seconds are left
				take(in.Sample)
			}
			u.Take(in, c)
		}
		list, _ := at(u.Status(noon.Add(100*time.Second)), "nodeMetric", "aggregatedNodeUsages").([]any)
		usage, _ := list[0].(map[string]any)["usage"].(map[string]any)
		if (len(usage) == 5) != (lacks == "") {
			t.Errorf("without %q for a while: %v", lacks, usage)
		}
	}
}
