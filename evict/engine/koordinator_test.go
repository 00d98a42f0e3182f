package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"polder/evict/pick"
	"polder/evict/rule"
	"polder/evict/settings"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// all is a strategy that enables all of Koordinator's rules.
const all = `{"enable":true,"memoryEvictThresholdPercent":70,"cpuEvictBESatisfactionLowerPercent":60,"cpuEvictBESatisfactionUpperPercent":80,"cpuEvictThresholdPercent":70,` +
	`"evictEnabledPriorityThreshold":9999,"memoryAllocatableEvictThresholdPercent":100,"memoryAllocatableEvictLowerPercent":90,` +
	`"cpuAllocatableEvictThresholdPercent":100,"cpuAllocatableEvictLowerPercent":90,"allocatableEvictPriorityThreshold":7999}`

func configOf(threshold string) tick.Raw {
	return tick.Raw(`{"koordinator":{"from":"koordinator-system/slo-controller-config","resourceThreshold":` + threshold + `}}`)
}

// These are the strategies in force, tick by tick.
func TestStrategiesInForce(t *testing.T) {
	unread := []tick.SourceError{{Source: "config", Error: "no answer"}}
	type step struct {
		name   string
		config string
		errors []tick.SourceError
		want   string // the threshold of memory, "-" if there is no strategy
		err    string
	}
	of := func(percent int) string {
		return string(configOf(fmt.Sprintf(`{"memoryEvictThresholdPercent":%d}`, percent)))
	}
	for _, steps := range [][]step{
		{
			{"none", ``, nil, "-", ""},
			{"null", `null`, nil, "-", ""},
			{"only Katalyst's", `{"katalyst":{}}`, nil, "-", ""},
			{"Koordinator's is null", `{"koordinator":null}`, nil, "-", ""},
			{"unknown at first", ``, unread, "-", ""},
			{"read", of(60), nil, "60", ""},
			{"the same", of(60), nil, "60", ""},
			{"unknown now", ``, unread, "60", ""},
			{"only Katalyst's, and Koordinator's is unknown", `{"katalyst":{}}`, unread, "60", ""},
			{"changed", of(50), unread, "50", ""},
			{"no strategies", `{"koordinator":[]}`, nil, "50", "sample.config.koordinator: want strategies as collect writes them"},
			{"no JSON", `{"koordinator":`, nil, "50", "sample.config: "},
			{"known again", of(40), nil, "40", ""},
			{"removed", ``, nil, "-", ""},
			{"and unknown", ``, unread, "-", ""},
		},
		{{"read", of(60), nil, "60", ""}, {"unknown", ``, unread, "60", ""}, {"known to be absent", ``, nil, "-", ""}},
		{{"a default", `{"koordinator":{}}`, nil, "70", ""}},
		{{"no strategies at first", `{"koordinator":7}`, nil, "-", "sample.config.koordinator: want strategies as collect writes them"}},
	} {
		var k settings.Strategies
		for _, x := range steps {
			got, errs := k.Read(&settings.Settings{}, &tick.Tick{Sample: &tick.Sample{Config: tick.Raw(x.config), Errors: x.errors}})
			threshold := "-"
			if got != nil {
				threshold = fmt.Sprint(*got.Threshold.MemoryEvictThresholdPercent)
			}
			if text := strings.Join(errs, "; "); threshold != x.want || (x.err == "") != (text == "") || !strings.Contains(text, x.err) {
				t.Errorf("%s: %s, errors %q; want %s, %q", x.name, threshold, text, x.want, x.err)
			}
		}
	}
}

// The same text is parsed once.
func TestStrategiesAreReadOnce(t *testing.T) {
	var k settings.Strategies
	x := func() *tick.Tick { return &tick.Tick{Sample: &tick.Sample{Config: configOf(all)}} }
	first, _ := k.Read(&settings.Settings{}, x())
	if again, _ := k.Read(&settings.Settings{}, x()); again != first {
		t.Error("equal bytes were read twice")
	}
	if n := testing.AllocsPerRun(100, func() { k.Read(&settings.Settings{}, x()) }); n > 5 {
		t.Errorf("%v allocations for a strategy that has not changed", n)
	}
}

// A file replaces the tick's strategies, by the tick's node labels.
func TestStrategiesOfFile(t *testing.T) {
	file, err := sloconfig.FileOf("slo.yaml", map[string]string{sloconfig.KeyThreshold: `{"clusterStrategy":{"enable":true,"memoryEvictThresholdPercent":80},
		"nodeStrategies":[{"name":"small","nodeSelector":{"matchLabels":{"size":"small"}},"memoryEvictThresholdPercent":50}]}`},
		func(key string, line int) string { return fmt.Sprintf("slo.yaml:%d", line) })
	if err != nil {
		t.Fatal(err)
	}
	var k settings.Strategies
	in := func(s *settings.Settings, labels map[string]string, errors []tick.SourceError) string {
		sample := &tick.Sample{Config: configOf(`{"memoryEvictThresholdPercent":60}`), Labels: labels, Errors: errors}
		got, errs := k.Read(s, &tick.Tick{Sample: sample})
		if len(errs) > 0 {
			t.Errorf("reported errors %v", errs)
		}
		return fmt.Sprint(*got.Threshold.MemoryEvictThresholdPercent, " ", settings.StrategySource(got))
	}
	unread := []tick.SourceError{{Source: "node", Error: "no answer"}}
	for _, tt := range []struct {
		settings *settings.Settings
		labels   map[string]string
		errors   []tick.SourceError
		want     string
	}{
		{&settings.Settings{SLO: file}, nil, nil, "80 resource-threshold-config of slo.yaml"},
		{&settings.Settings{SLO: file}, map[string]string{"size": "small"}, nil, "50 resource-threshold-config of slo.yaml, node entry small"},
		{&settings.Settings{SLO: file}, nil, unread, "50 resource-threshold-config of slo.yaml, node entry small"},
		{&settings.Settings{}, nil, nil, "60 resource-threshold-config of koordinator-system/slo-controller-config"},
		{&settings.Settings{SLO: file}, nil, nil, "80 resource-threshold-config of slo.yaml"},
	} {
		if got := in(tt.settings, tt.labels, tt.errors); got != tt.want {
			t.Errorf("%s; want %s", got, tt.want)
		}
	}
}

// machine is a node whose use and pods change at random.
type machine struct {
	pods    []tick.Pod
	created int
	at      time.Time
	// forward is the sum of the clock's forward steps: setting it back subtracts nothing.
	forward time.Duration
}

func (m *machine) addPods(t *rapid.T) {
	pick := func(what string, values ...string) string { return rapid.SampledFrom(values).Draw(t, what) }
	optional := func(what string, maxValue int) *float64 {
		if rapid.IntRange(0, 4).Draw(t, "has "+what) == 0 {
			return nil
		}
		return new(float64(rapid.IntRange(0, maxValue).Draw(t, what)))
	}
	for range rapid.IntRange(0, 4).Draw(t, "new pods") {
		m.created++
		p := tick.Pod{
			UID: fmt.Sprintf("u%d", m.created), Namespace: "default", Name: fmt.Sprintf("p%d", m.created), QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKoordinator,
			Labels: map[string]string{}, Annotations: map[string]string{}, KubernetesQOS: qos.BestEffort, Requests: &tick.Resources{}, Memory: &tick.Memory{},
		}
		if class := pick("class", qos.BE, qos.BE, qos.LS, qos.System, ""); class != "" {
			p.Labels[qos.KoordinatorClass] = class
			if class != qos.BE {
				p.QoS = map[string]string{qos.LS: tick.QoSShared, qos.System: tick.QoSSystem}[class]
			}
		}
		if rapid.Bool().Draw(t, "enabled") {
			p.Labels[qos.EvictionEnabled] = pick("enabled label", "true", "true", "false", "1")
		}
		if rapid.IntRange(0, 3).Draw(t, "has a policy") == 0 {
			p.Annotations[qos.EvictionPolicy] = pick("policy", `[]`, `["BEMemoryEvict"]`, `["CPUEvict","BECPUEvict"]`, `x`)
		}
		if rapid.Bool().Draw(t, "has a priority") {
			p.Priority = new(rapid.SampledFrom([]int64{0, 3000, 5000, 5999, 7500, 9000, 2_000_000_000}).Draw(t, "priority"))
		}
		p.Requests.ReclaimedMilliCPU, p.Requests.ReclaimedMemoryBytes = optional("batch-cpu", 6000), optional("batch-memory", 50)
		p.Requests.MidMilliCPU, p.Requests.MilliCPU = optional("mid-cpu", 3000), optional("cpu", 3000)
		p.UsageMilliCPU, p.Memory.RSSBytes = optional("use of CPU", 4000), optional("use of memory", 40)
		p.Containers = []tick.Container{{CPUSetCPUs: pick("cpus", "", "0", "0-1", "0-3", "0-9")}}
		m.pods = append(m.pods, p)
	}
	for i := range m.pods {
		p := &m.pods[i]
		if rapid.IntRange(0, 9).Draw(t, "changes") == 0 {
			p.Phase = pick("phase", "Running", "Pending", "Succeeded", "Failed")
			p.Terminating = rapid.Bool().Draw(t, "terminating")
		}
	}
	m.pods = slices.DeleteFunc(m.pods, func(p tick.Pod) bool { return p.Terminating && rapid.Bool().Draw(t, "is removed") })
}

func (m *machine) tick(t *rapid.T) *tick.Tick {
	step := time.Duration(rapid.SampledFrom([]int{1, 5, 5, 5, 30, 600, 0, -40}).Draw(t, "step")) * time.Second
	m.at = m.at.Add(step)
	m.forward += max(0, step)
	m.addPods(t)
	optional := func(what string, minReleased, maxValue int) *float64 {
		if rapid.IntRange(0, 9).Draw(t, "has "+what) == 0 {
			return nil
		}
		return new(float64(rapid.IntRange(minReleased, maxValue).Draw(t, what)))
	}
	x := &tick.Tick{V: 1, Node: "n", Time: m.at, Sample: &tick.Sample{
		IntervalSeconds: optional("interval", 0, 10), Pods: slices.Clone(m.pods),
		CPU:      &tick.NodeCPU{UsageMilliCPU: optional("use of the node's CPU", 0, 12_000)},
		Memory:   &tick.NodeMemory{TotalBytes: new(100.0), AvailableBytes: optional("available memory", 0, 60)},
		Capacity: &tick.Resources{MilliCPU: new(10_000.0), MemoryBytes: new(100.0)},
		Allocatable: &tick.Resources{
			MilliCPU: new(10_000.0), MemoryBytes: new(100.0), ReclaimedMilliCPU: optional("allocatable batch-cpu", -1, 4000),
			ReclaimedMemoryBytes: optional("allocatable batch-memory", 0, 50), MidMilliCPU: optional("allocatable mid-cpu", 0, 2000),
		},
	}}
	if rapid.Bool().Draw(t, "has kubelet's tier") {
		x.Sample.Tiers = []tick.Tier{{Name: tick.TierBestEffort, CPUSetCPUs: rapid.SampledFrom([]string{"", "0-1", "0-4"}).Draw(t, "its CPUs"), UsageMilliCPU: optional("its use", 0, 5000)}}
	}
	return x
}

// TestKoordinatorProperties plays any sequence of ticks: no pod is evicted that has ended, terminates, or is not permitted; none
// while the strategy is off; none within the cooldown; at most one more than needed; and limits hold.
func TestKoordinatorProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := settings.Default()
		s.From = map[string]string{pick.LimitPerRule: settings.FromDefault}
		s.Burst = rapid.IntRange(-1, 4).Draw(t, "burst")
		n := &node{}
		n.init("n")
		m := &machine{at: noon}
		requested := map[string]time.Duration{} // by cooldown, in terms of forward
		for range rapid.IntRange(1, 25).Draw(t, "ticks") {
			x := m.tick(t)
			x.Sample.Config = map[string]tick.Raw{"on": configOf(all), "off": configOf(`{"enable":false}`), "none": nil}[rapid.SampledFrom([]string{"on", "on", "on", "off", "none"}).Draw(t, "strategy")]
			koordinator, _ := n.Strategies.Read(&s, x)
			on := koordinator != nil && *koordinator.Threshold.Enable
			n.Observe(x.Time, x.Sample, pick.PodsOf(x.Sample))
			findings, _ := n.measure(&s, koordinator, x)
			findings = slices.DeleteFunc(findings, func(f rule.Finding) bool { return !rule.IsKoordinator(f.Rule) })
			if !on && len(findings) > 0 {
				t.Fatalf("the strategy is off, and there are findings: %+v", findings)
			}
			round := pick.Choose(x.Time, findings, s.Limits(), &n.State)
			if s.Burst >= 0 && len(round.Victims) > s.Burst {
				t.Fatalf("%d are evicted; the limit is %d", len(round.Victims), s.Burst)
			}
			for _, v := range round.Victims {
				checkVictim(t, v)
			}
			for i := range findings {
				checkCovered(t, &findings[i], round)
			}
			for _, v := range round.Victims {
				for _, r := range v.Cooldowns {
					cooldown := map[string]time.Duration{"koordinator memory": 4 * time.Second, "koordinator cpu": 20 * time.Second}[r]
					if last, ok := requested[r]; ok && m.forward-last < cooldown {
						t.Fatalf("%s is evicted %s after the last one, in the cooldown of %s", v.Pod.Name, m.forward-last, r)
					}
				}
			}
			for _, v := range round.Victims {
				n.RecordRequest(v, x.Time)
				for _, r := range v.Cooldowns {
					requested[r] = m.forward
				}
				for i := range m.pods { // the API server has granted it
					if m.pods[i].UID == v.Pod.UID {
						m.pods[i].Terminating = rapid.Bool().Draw(t, "terminates at once")
					}
				}
			}
		}
	})
}

func checkVictim(t *rapid.T, v pick.Victim) {
	p := v.Pod
	if p.Terminating || p.Phase == "Succeeded" || p.Phase == "Failed" || p.QoS == tick.QoSSystem || !qos.MayEvict(p, v.Eviction.Rule) || p.Priority != nil && *p.Priority >= 2_000_000_000 {
		t.Fatalf("%+v is evicted for %s", p, v.Eviction.Rule)
	}
	switch v.Eviction.Rule {
	case "BEMemoryEvict", "BECPUEvict":
		if p.Labels[qos.KoordinatorClass] != qos.BE && p.Labels[qos.KoordinatorClass] != "" {
			t.Fatalf("%+v is evicted for %s", p, v.Eviction.Rule)
		}
	default:
		if p.Labels[qos.EvictionEnabled] != "true" || strings.Contains(v.Eviction.Rule, "Allocatable") && qos.PriorityNumber(p) > 7999 {
			t.Fatalf("%+v is evicted for %s", p, v.Eviction.Rule)
		}
	}
}

// checkCovered checks that without the last victim of a finding, its need would not be covered.
func checkCovered(t *rapid.T, f *rule.Finding, round pick.Round) {
	sum, last := 0.0, 0.0
	for _, v := range round.Victims {
		if v.Eviction.Rule != f.Rule || v.Eviction.Scope != f.Scope {
			continue
		}
		for _, c := range f.Candidates {
			if c.Pod == v.Pod {
				last = c.Releases
				sum += last
			}
		}
	}
	if sum > 0 && (!f.Met || f.WhyWait != "" || sum-last >= f.Need) {
		t.Fatalf("%v are evicted for %+v, and %v releases enough without the last one, %v", round.Victims, f.PressureFinding, sum, last)
	}
}
