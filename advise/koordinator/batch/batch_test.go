package batch

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// gi converts Gi to bytes.
func gi(n float64) float64 { return n * (1 << 30) }

// sample returns a node of 10 CPUs and 100 Gi of which kubelet reserves 500m and 1 Gi; 2 CPUs and 30 Gi are in use.
func sample(pods ...tick.Pod) *tick.Sample {
	return &tick.Sample{
		IntervalSeconds: new(1.0),
		Topology:        &tick.Topology{CPUs: "0-9"},
		Capacity:        &tick.Resources{MilliCPU: new(10000.0), MemoryBytes: new(gi(100))},
		Allocatable:     &tick.Resources{MilliCPU: new(9500.0), MemoryBytes: new(gi(99))},
		CPU:             &tick.NodeCPU{UsageMilliCPU: new(2000.0)},
		Memory:          &tick.NodeMemory{TotalBytes: new(gi(100)), FreeBytes: new(gi(50)), AvailableBytes: new(gi(70))},
		Pods:            pods,
	}
}

// onePod returns a running pod of a Kubernetes class with a request of cores and Gi, and a use of them; negative means none.
func onePod(name, kubernetes string, requestCPU, requestGi, useCPU, useGi float64, change ...func(*tick.Pod)) tick.Pod {
	p := tick.Pod{UID: "uid-" + name, Namespace: "default", Name: name, QoS: tick.QoSShared, QoSSource: tick.QoSFromKubernetes, KubernetesQOS: kubernetes, Phase: "Running", Cgroup: "/kubepods/pod" + name}
	if requestCPU >= 0 {
		p.Requests = &tick.Resources{MilliCPU: new(requestCPU * 1000), MemoryBytes: new(gi(requestGi))}
	}
	if useCPU >= 0 {
		p.UsageMilliCPU, p.Memory = new(useCPU*1000), &tick.Memory{RSSBytes: new(gi(useGi)), WorkingSetBytes: new(gi(useGi + 1)), UsageBytes: new(gi(useGi + 2))}
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func label(key, value string) func(*tick.Pod) {
	return func(p *tick.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[key] = value
	}
}

func phase(text string) func(*tick.Pod) { return func(p *tick.Pod) { p.Phase = text } }

func missing(side string) func(*tick.Pod) { return func(p *tick.Pod) { p.Missing = side } }

func shipped() *sloconfig.Strategies { s := sloconfig.Shipped(); return &s }

func strategies(change func(*sloconfig.Colocation)) *sloconfig.Strategies {
	s := shipped()
	change(&s.Colocation)
	return s
}

func at(s *tick.Sample, after time.Duration) *tick.Tick {
	return &tick.Tick{V: 1, Node: "n", Time: start.Add(after), Sample: s}
}

// advised returns a fresh state's advice for a sample.
func advised(s *tick.Sample, strategies *sloconfig.Strategies) *tick.Advice {
	a := &tick.Advice{}
	(&State{}).Advise(at(s, 0), strategies, a)
	return a
}

var terms1 = regexp.MustCompile(`^(batch-cpu|batch-memory) \(\w+\): capacity (-?\d+)(?:m| B) - margin (-?\d+)(?:m| B) \(\w+ (\d+)\) - (?:system|reserved) (\d+)(?:m| B)(?: \([^)]*\))? - high-priority pods (\d+)(?:m| B)(?: \([^)]*\))? = (-?\d+)(?:m| B)(.*)$`)

// redo recalculates the sums from the text of the reasons, as a person would, and returns the offer.
func redo(t testing.TB, reasons []string) map[string]int64 {
	t.Helper()
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ends := map[string]int64{}
	for _, reason := range reasons {
		m := terms1.FindStringSubmatch(reason)
		if m == nil {
			continue
		}
		capacity, left := number(m[2]), number(m[7])
		if margin := capacity * (100 - number(m[4])) / 100; margin != number(m[3]) {
			t.Errorf("%s: margin is %d", reason, margin)
		}
		if sum := capacity - number(m[3]) - number(m[5]) - number(m[6]); sum != left {
			t.Errorf("%s: the sum is %d", reason, sum)
		}
		for _, step := range strings.Split(m[8], "; ")[1:] {
			var n, by, rest int64
			var text string
			switch {
			case strings.HasPrefix(step, "at most"):
				var percent int64
				if _, err := fmt.Sscanf(strings.NewReplacer("m (", " (", " B (", " (").Replace(step), "at most %d (%s %d)", &n, &text, &percent); err != nil || n != capacity*percent/100 || n >= left {
					t.Errorf("%s: step %q: %v", reason, step, err)
				}
				left = n
			case strings.HasPrefix(step, "negative"):
				if left >= 0 {
					t.Errorf("%s: %d is not less than nothing", reason, left)
				}
				left = 0
			case strings.HasPrefix(step, "x "):
				if _, err := fmt.Sscanf(step, "x %d.%02d ("+annotation.Ratio+") = %dm", &n, &by, &rest); err != nil || (left*(n*100+by)+99)/100 != rest {
					t.Errorf("%s: step %q: %v", reason, step, err)
				}
				left = rest
			case strings.HasPrefix(step, "- third parties"):
				clean := strings.NewReplacer("m (", " (", " B", "").Replace(strings.TrimSuffix(step, "m"))
				if _, err := fmt.Sscanf(clean, "- third parties %d ("+annotation.ThirdParties+") = %d", &n, &rest); err != nil || max(left-n, 0) != rest {
					t.Errorf("%s: step %q (%q): %v", reason, step, clean, err)
				}
				left = rest
			default:
				t.Errorf("%s: unknown step %q", reason, step)
			}
		}
		ends[m[1]] = left
	}
	return ends
}

// Every line of the node's formula. 4000m and 35 Gi are the margins; without pods the system uses 2000m and 30 Gi.
func TestNode(t *testing.T) {
	const g = 1 << 30
	set := func(change func(*sloconfig.Colocation)) func(*sloconfig.Colocation) { return change }
	annotated := func(key, value string) func(*tick.Sample) {
		return func(s *tick.Sample) { s.Annotations = map[string]string{key: value} }
	}
	maxUsageRequest := set(func(c *sloconfig.Colocation) {
		c.CPUCalculatePolicy, c.MemoryCalculatePolicy = new("maxUsageRequest"), new("maxUsageRequest")
	})
	request := set(func(c *sloconfig.Colocation) {
		c.CPUCalculatePolicy, c.MemoryCalculatePolicy = new("request"), new("request")
	})
	for name, c := range map[string]struct {
		pods   []tick.Pod
		sample func(*tick.Sample)
		config func(*sloconfig.Colocation)
		cpu    int64
		memory int64
	}{
		"no pods: all use is the system's":                              {cpu: 4000, memory: 35 * g},
		"usage, not the request":                                        {pods: []tick.Pod{onePod("a", "Burstable", 4, 40, 1, 10)}, cpu: 4000, memory: 35 * g},
		"use beyond the node's: the system has what is kept":            {pods: []tick.Pod{onePod("a", "Burstable", 1, 1, 3, 40)}, cpu: 10000 - 4000 - 500 - 3000, memory: (100 - 35 - 1 - 40) * g},
		"a batch pod takes nothing":                                     {pods: []tick.Pod{onePod("a", "BestEffort", 0, 0, 1, 10, label("koordinator.sh/qosClass", "BE"))}, cpu: 5000, memory: 45 * g},
		"BestEffort without a label is batch":                           {pods: []tick.Pod{onePod("a", "BestEffort", -1, 0, 1, 10)}, cpu: 5000, memory: 45 * g},
		"of class free by its label, and confined":                      {pods: []tick.Pod{onePod("a", "BestEffort", 1, 1, 1, 10, label("koordinator.sh/priority-class", "koord-free"))}, cpu: 5000, memory: 45 * g},
		"of class free by its label alone, and not confined: it counts": {pods: []tick.Pod{onePod("a", "Burstable", 1, 1, 1, 10, label("koordinator.sh/priority-class", "koord-free"))}, cpu: 4000, memory: 35 * g},
		"of batch priority by its number":                               {pods: []tick.Pod{onePod("a", "Burstable", 1, 1, 1, 10, func(p *tick.Pod) { p.Priority = new(int64(5999)) })}, cpu: 5000, memory: 45 * g},
		"of mid priority it counts":                                     {pods: []tick.Pod{onePod("a", "BestEffort", 1, 1, 1, 10, label("koordinator.sh/priority-class", "koord-mid"))}, cpu: 4000, memory: 35 * g},
		"no metric: the request":                                        {pods: []tick.Pod{onePod("a", "Burstable", 2, 20, -1, 0)}, cpu: 2000, memory: 15 * g},
		"no metric of memory alone":                                     {pods: []tick.Pod{onePod("a", "Burstable", 2, 20, 1, 0, func(p *tick.Pod) { p.Memory = nil })}, cpu: 4000, memory: 15 * g},
		"no metric and no request":                                      {pods: []tick.Pod{onePod("a", "Burstable", -1, 0, -1, 0)}, cpu: 4000, memory: 35 * g},
		"pending, without a cgroup":                                     {pods: []tick.Pod{onePod("a", "Burstable", 2, 20, -1, 0, phase("Pending"), missing(tick.MissingCgroup))}, cpu: 2000, memory: 15 * g},
		"of unknown phase it counts":                                    {pods: []tick.Pod{onePod("a", "Burstable", 2, 20, -1, 0, phase("Unknown"))}, cpu: 2000, memory: 15 * g},
		"ended pods count for nothing":                                  {pods: []tick.Pod{onePod("a", "Burstable", 2, 20, -1, 0, phase("Succeeded")), onePod("b", "Burstable", 2, 20, -1, 0, phase("Failed"))}, cpu: 4000, memory: 35 * g},
		"what an ended pod still uses is the system's":                  {pods: []tick.Pod{onePod("a", "BestEffort", -1, 0, 1, 10, phase("Succeeded"))}, cpu: 4000, memory: 35 * g},
		"LSE: CPU by request, memory by use":                            {pods: []tick.Pod{onePod("a", "Guaranteed", 3, 40, 1, 10, label("koordinator.sh/qosClass", "LSE"))}, cpu: 10000 - 4000 - 1000 - 3000, memory: 35 * g},
		"LSE that uses more than its request":                           {pods: []tick.Pod{onePod("a", "Guaranteed", 1, 40, 1.5, 10, label("koordinator.sh/qosClass", "LSE"))}, cpu: 10000 - 4000 - 500 - 1500, memory: 35 * g},
		"LSE without a request: by use":                                 {pods: []tick.Pod{onePod("a", "Guaranteed", -1, 0, 1, 10, label("koordinator.sh/qosClass", "LSE"))}, cpu: 4000, memory: 35 * g},
		"LSR by use":                                                    {pods: []tick.Pod{onePod("a", "Guaranteed", 3, 40, 1, 10, label("koordinator.sh/qosClass", "LSR"))}, cpu: 4000, memory: 35 * g},
		"unknown to the cluster: its use, not its request":              {pods: []tick.Pod{onePod("a", "", 5, 50, 1, 10, missing(tick.MissingCluster))}, cpu: 4000, memory: 35 * g},
		"unknown to the cluster and of batch priority":                  {pods: []tick.Pod{onePod("a", "", 5, 50, 1, 10, missing(tick.MissingCluster), label("koordinator.sh/qosClass", "BE"))}, cpu: 5000, memory: 45 * g},

		"request: of memory alone":                   {pods: []tick.Pod{onePod("a", "Burstable", 2, 20, 1, 10)}, config: request, cpu: 4000, memory: (100 - 35 - 1 - 20) * g},
		"request: dangling pods have none":           {pods: []tick.Pod{onePod("a", "", 2, 20, 1, 10, missing(tick.MissingCluster))}, config: request, cpu: 4000, memory: (100 - 35 - 1) * g},
		"maxUsageRequest: the request is more":       {pods: []tick.Pod{onePod("a", "Burstable", 2, 20, 1, 10)}, config: maxUsageRequest, cpu: 3000, memory: 25 * g},
		"maxUsageRequest: the use is more":           {pods: []tick.Pod{onePod("a", "Burstable", 0.5, 5, 1, 10)}, config: maxUsageRequest, cpu: 4000, memory: 35 * g},
		"maxUsageRequest: no metric counts too (Q1)": {pods: []tick.Pod{onePod("a", "Burstable", 2, 20, -1, 0)}, config: maxUsageRequest, cpu: 2000, memory: 15 * g},
		"maxUsageRequest: dangling":                  {pods: []tick.Pod{onePod("a", "", 2, 20, 1, 10, missing(tick.MissingCluster))}, config: maxUsageRequest, cpu: 4000, memory: 35 * g},
		"maxUsageRequest: LSE":                       {pods: []tick.Pod{onePod("a", "Guaranteed", 1, 10, 2, 20, label("koordinator.sh/qosClass", "LSE"))}, config: maxUsageRequest, cpu: 10000 - 4000 - 500 - 2000, memory: 35 * g},
		"an invalid policy is usage":                 {pods: []tick.Pod{onePod("a", "Burstable", 4, 40, 1, 10)}, config: func(c *sloconfig.Colocation) { c.CPUCalculatePolicy, c.MemoryCalculatePolicy = new("x"), nil }, cpu: 4000, memory: 35 * g},

		"kubelet keeps more than the system uses": {sample: func(s *tick.Sample) {
			s.Allocatable = &tick.Resources{MilliCPU: new(7000.0), MemoryBytes: new(gi(60))}
		}, cpu: 3000, memory: 25 * g},
		"allocatable over capacity": {sample: func(s *tick.Sample) {
			s.Allocatable = &tick.Resources{MilliCPU: new(12000.0), MemoryBytes: new(gi(200))}
		}, cpu: 4000, memory: 35 * g},
		"reserved by annotation":             {sample: annotated(annotation.Reservation, `{"resources":{"cpu":"3","memory":"40Gi"}}`), cpu: 3000, memory: 25 * g},
		"reserved as numbers":                {sample: annotated(annotation.Reservation, `{"resources":{"cpu":3}}`), cpu: 3000, memory: 35 * g},
		"reservations are no sum":            {sample: annotated(annotation.Reservation, `{"resources":{"cpu":"1900m"}}`), cpu: 4000, memory: 35 * g},
		"reserved CPUs go before the amount": {sample: annotated(annotation.Reservation, `{"resources":{"cpu":"9","memory":"40Gi"},"reservedCPUs":"0-2","applyPolicy":"ReservedCPUsOnly"}`), cpu: 3000, memory: 25 * g},
		"invalid reserved CPUs":              {sample: annotated(annotation.Reservation, `{"reservedCPUs":"x"}`), cpu: 4000, memory: 35 * g},
		"and an amount beside them applies":  {sample: annotated(annotation.Reservation, `{"resources":{"cpu":"3"},"reservedCPUs":"x"}`), cpu: 3000, memory: 35 * g},
		"an invalid reservation":             {sample: annotated(annotation.Reservation, `{`), cpu: 4000, memory: 35 * g},
		"a reservation less than nothing":    {sample: annotated(annotation.Reservation, `{"resources":{"cpu":"-3","memory":"40Gi"}}`), cpu: 4000, memory: 25 * g},
		"reserved, and memory by request":    {sample: annotated(annotation.Reservation, `{"resources":{"memory":"40Gi"}}`), config: request, cpu: 4000, memory: 25 * g},
		"of another name":                    {sample: annotated("node.koordinator.sh/other", `{"resources":{"cpu":"9"}}`), cpu: 4000, memory: 35 * g},

		"threshold 0: all is margin": {config: func(c *sloconfig.Colocation) {
			c.CPUReclaimThresholdPercent, c.MemoryReclaimThresholdPercent = new(int64(0)), new(int64(0))
		}},
		"threshold 100": {config: func(c *sloconfig.Colocation) {
			c.CPUReclaimThresholdPercent, c.MemoryReclaimThresholdPercent = new(int64(100)), new(int64(100))
		}, cpu: 8000, memory: 70 * g},
		"threshold over 100: a negative margin": {config: func(c *sloconfig.Colocation) {
			c.CPUReclaimThresholdPercent, c.MemoryReclaimThresholdPercent = new(int64(150)), new(int64(150))
		}, cpu: 13000, memory: 120 * g},
		"thresholds that are not set": {config: func(c *sloconfig.Colocation) { *c = sloconfig.Colocation{Enable: new(true)} }, cpu: 4000, memory: 35 * g},
		"a cap": {config: func(c *sloconfig.Colocation) {
			c.BatchCPUThresholdPercent, c.BatchMemoryThresholdPercent = new(int64(20)), new(int64(10))
		}, cpu: 2000, memory: 10 * g},
		"a cap of nothing": {config: func(c *sloconfig.Colocation) {
			c.BatchCPUThresholdPercent, c.BatchMemoryThresholdPercent = new(int64(0)), new(int64(0))
		}},
		"a cap of memory over 100 % binds nothing here": {config: func(c *sloconfig.Colocation) { c.BatchMemoryThresholdPercent = new(int64(300)) }, cpu: 4000, memory: 35 * g},
		"a cap of memory over 100 %, below overcommit": {config: func(c *sloconfig.Colocation) {
			c.MemoryReclaimThresholdPercent, c.BatchMemoryThresholdPercent = new(int64(300)), new(int64(120))
		}, cpu: 4000, memory: 120 * g},
		"the margin is cut off to the unit": {sample: func(s *tick.Sample) { s.Capacity.MilliCPU, s.Allocatable = new(10001.0), nil }, config: func(c *sloconfig.Colocation) {
			c.CPUReclaimThresholdPercent = new(int64(60)) // 10001 x 40 % = 4000.4
		}, cpu: 10001 - 4000 - 2000, memory: 35 * g},
		"and at 61 % too": {sample: func(s *tick.Sample) { s.Capacity.MilliCPU, s.Allocatable = new(10001.0), nil }, config: func(c *sloconfig.Colocation) {
			c.CPUReclaimThresholdPercent = new(int64(61)) // 10001 x 39 % = 3900.39
		}, cpu: 10001 - 3900 - 2000, memory: 35 * g},
		"unknown to the cluster, and of free priority by its label alone: it counts": {pods: []tick.Pod{onePod("a", "", 5, 50, 1, 10, missing(tick.MissingCluster), label("koordinator.sh/priority-class", "koord-free"))}, cpu: 4000, memory: 35 * g},
		"a cap over 100 % binds nothing here":                                        {config: func(c *sloconfig.Colocation) { c.BatchCPUThresholdPercent = new(int64(300)) }, cpu: 4000, memory: 35 * g},
		"a cap below overcommit": {config: func(c *sloconfig.Colocation) {
			c.CPUReclaimThresholdPercent, c.BatchCPUThresholdPercent = new(int64(300)), new(int64(120))
		}, cpu: 12000, memory: 35 * g},
		"never less than nothing": {pods: []tick.Pod{onePod("a", "Burstable", 20, 200, -1, 0)}},

		"normalized":                {sample: annotated(annotation.Ratio, "1.25"), cpu: 5000, memory: 35 * g},
		"normalized, rounded up":    {sample: func(s *tick.Sample) { annotated(annotation.Ratio, "1.33")(s); s.CPU.UsageMilliCPU = new(2001.0) }, cpu: 5319, memory: 35 * g}, // 3999 x 1.33 = 5318.67
		"normalized by 1":           {sample: annotated(annotation.Ratio, "1.00"), cpu: 4000, memory: 35 * g},
		"normalized by less":        {sample: annotated(annotation.Ratio, "0.5"), cpu: 4000, memory: 35 * g},
		"normalized by too much":    {sample: annotated(annotation.Ratio, "5.01"), cpu: 4000, memory: 35 * g},
		"normalized by nonsense":    {sample: annotated(annotation.Ratio, "NaN"), cpu: 4000, memory: 35 * g},
		"normalized behind the cap": {sample: annotated(annotation.Ratio, "2"), config: func(c *sloconfig.Colocation) { c.BatchCPUThresholdPercent = new(int64(20)) }, cpu: 4000, memory: 35 * g},

		"third parties":                         {sample: annotated(annotation.ThirdParties, `{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"5Gi"}},{"name":"b","priority":"koord-batch","resources":{"koordinator.sh/batch-cpu":500}},{"name":"c","priority":"koord-mid","resources":{"kubernetes.io/batch-cpu":"9k"}},{"name":"d","priority":"koord-batch","resources":{"cpu":"9"}}]}`), cpu: 2500, memory: 30 * g},
		"third parties have more than there is": {sample: annotated(annotation.ThirdParties, `{"allocations":[{"priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"50k"}}]}`), memory: 35 * g},
		"third parties, normalized before": {sample: func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.Ratio: "1.5", annotation.ThirdParties: `{"allocations":[{"priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"1k"}}]}`}
		}, cpu: 5000, memory: 35 * g},

		"a machine without a node object":                {sample: func(s *tick.Sample) { s.Capacity, s.Allocatable = nil, nil }, cpu: 4000, memory: 35 * g},
		"working set, where anonymous pages are unknown": {pods: []tick.Pod{onePod("a", "BestEffort", -1, 0, 1, 10, func(p *tick.Pod) { p.Memory.RSSBytes = nil })}, cpu: 5000, memory: 46 * g},
		"with the page cache":                            {pods: []tick.Pod{onePod("a", "BestEffort", -1, 0, 1, 10)}, config: func(c *sloconfig.Colocation) { c.MetricMemoryCollectPolicy = new("usageWithPageCache") }, cpu: 5000, memory: (100 - 35 - (50 - 12)) * g},
		"with the page cache, its own figure":            {pods: []tick.Pod{onePod("a", "BestEffort", -1, 0, 1, 10, func(p *tick.Pod) { p.Memory.CacheBytes = new(gi(5)) })}, config: func(c *sloconfig.Colocation) { c.MetricMemoryCollectPolicy = new("usageWithPageCache") }, cpu: 5000, memory: (100 - 35 - (50 - 15)) * g},
		"with the hot page cache, which is unknown":      {pods: []tick.Pod{onePod("a", "BestEffort", -1, 0, 1, 10)}, config: func(c *sloconfig.Colocation) { c.MetricMemoryCollectPolicy = new("usageWithHotPageCache") }, cpu: 5000, memory: 45 * g},
		"negative use is none":                           {pods: []tick.Pod{onePod("a", "Burstable", 1, 1, 0, 0, func(p *tick.Pod) { p.UsageMilliCPU = new(-5e9) })}, cpu: 4000, memory: 35 * g},
	} {
		t.Run(name, func(t *testing.T) {
			s := sample(c.pods...)
			if c.sample != nil {
				c.sample(s)
			}
			st := shipped()
			if c.config != nil {
				c.config(&st.Colocation)
			}
			a := advised(s, st)
			if a.Reclaimed == nil || a.Withdrawn != "" {
				t.Fatalf("no offer: %q %v", a.Withdrawn, a.Reasons)
			}
			if got := *a.Reclaimed.MilliCPU; got != c.cpu {
				t.Errorf("batch-cpu = %d; want %d: %v", got, c.cpu, a.Reasons)
			}
			if got := *a.Reclaimed.MemoryBytes; got != c.memory {
				t.Errorf("batch-memory = %d; want %d: %v", got, c.memory, a.Reasons)
			}
			if text := strings.Join(a.Reasons, "\n"); strings.Contains(text, "kubelet -") {
				t.Errorf("less than nothing is reserved: %s", text)
			}
			if ends := redo(t, a.Reasons); ends["batch-cpu"] != c.cpu || ends["batch-memory"] != c.memory || len(ends) != 2 {
				t.Errorf("by the reasons: %v; want %d and %d: %q", ends, c.cpu, c.memory, a.Reasons)
			}
		})
	}
}

// Each component of the pods' term is named, so that not only the sum can be checked.
func TestReasonsNameThePods(t *testing.T) {
	a := advised(sample(
		onePod("a", "Burstable", 1, 1, 0.5, 2), onePod("b", "Burstable", 1, 1, 0.25, 2), onePod("c", "Burstable", 0.7, 1, -1, 0),
		onePod("d", "Guaranteed", 1, 1, 0.1, 1, label("koordinator.sh/qosClass", "LSE")), onePod("e", "", -1, 0, 0.05, 1, missing(tick.MissingCluster)),
		onePod("f", "BestEffort", -1, 0, 0.5, 1),
	), shipped())
	want := "batch-cpu (usage): capacity 10000m - margin 4000m (cpuReclaimThresholdPercent 60) - system 600m - high-priority pods 2500m (750m used by 2 + 1000m of 1 LSE + 700m requested by 1 without metric + 50m used by 1 unknown to the cluster) = 2900m"
	if a.Reasons[0] != want {
		t.Errorf("reason\n%s\nwant\n%s", a.Reasons[0], want)
	}
}

// Unknown values are omitted, and nothing is offered instead. The pods' term states the number of pods, whatever was used for their use.
func TestTheReasonCountsPods(t *testing.T) {
	pods := []tick.Pod{
		onePod("a", "Burstable", 1, 1, 1, 1), onePod("b", "Burstable", 1, 1, -1, 0), onePod("c", "Burstable", 1, 1, -1, 0),
		onePod("d", "Guaranteed", 1, 1, 1, 1, label("koordinator.sh/qosClass", "LSE")), onePod("e", "Guaranteed", 1, 1, 1, 1, label("koordinator.sh/qosClass", "LSE")),
		onePod("f", "Guaranteed", 1, 1, 1, 1, label("koordinator.sh/qosClass", "LSE")), onePod("g", "", -1, 0, 1, 1, missing(tick.MissingCluster)),
	}
	for name, want := range map[string]string{
		"maxUsageRequest": "(the larger of request and usage of 6, and 1000m used by 1 unknown to the cluster)",
		"usage":           "(1000m used by 1 + 3000m of 3 LSE + 2000m requested by 2 without metric + 1000m used by 1 unknown to the cluster)",
	} {
		st := shipped()
		st.Colocation.CPUCalculatePolicy = &name
		if a := advised(sample(pods...), st); !strings.Contains(a.Reasons[0], want) {
			t.Errorf("%s: %q; want %q", name, a.Reasons[0], want)
		}
	}
	st := shipped()
	st.Colocation.MemoryCalculatePolicy = new("request")
	if a := advised(sample(pods...), st); !strings.Contains(a.Reasons[1], " (requests of 6)") {
		t.Errorf("request: %q", a.Reasons[1])
	}
}

func TestUnknownCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		change      func(*tick.Sample)
		cpu, memory bool
	}{
		"CPU alone":          {func(s *tick.Sample) { s.Capacity.MemoryBytes = nil }, true, false},
		"memory alone":       {func(s *tick.Sample) { s.Capacity.MilliCPU = nil }, false, true},
		"allocatable of one": {func(s *tick.Sample) { s.Allocatable.MilliCPU = nil }, false, true},
		"none":               {func(s *tick.Sample) { s.Capacity = &tick.Resources{} }, false, false},
		"no topology":        {func(s *tick.Sample) { s.Capacity, s.Topology = nil, nil }, false, true},
		"the node object is not read": {func(s *tick.Sample) {
			s.Allocatable, s.Errors = nil, []tick.SourceError{{Source: "node", Error: "no"}}
		}, false, false},
		"third parties that cannot be read": {func(s *tick.Sample) { s.Annotations = map[string]string{annotation.ThirdParties: "["} }, false, false},
		"and an amount of another program": {func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.ThirdParties: `{"allocations":[{"priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"lots"}}]}`}
		}, false, false},
	} {
		s := sample()
		c.change(s)
		a := advised(s, shipped())
		if len(a.Reasons) == 0 {
			t.Errorf("%s: no reason", name)
		}
		if got := a.Reclaimed != nil && a.Reclaimed.MilliCPU != nil; got != c.cpu {
			t.Errorf("%s: batch-cpu is reported: %t; want %t: %v", name, got, c.cpu, a.Reasons)
		}
		if got := a.Reclaimed != nil && a.Reclaimed.MemoryBytes != nil; got != c.memory {
			t.Errorf("%s: batch-memory is reported: %t; want %t: %v", name, got, c.memory, a.Reasons)
		}
	}
	stale := sample()
	stale.Errors, stale.Labels = []tick.SourceError{{Source: "node", Error: "status.capacity.gpu is no amount"}}, map[string]string{"kubernetes.io/hostname": "n"}
	if a := advised(stale, shipped()); a.Reclaimed == nil {
		t.Errorf("a fault elsewhere in the node object: no offer: %v", a.Reasons)
	}
}
