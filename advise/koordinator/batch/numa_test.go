package batch

import (
	"fmt"
	"strings"
	"testing"

	"polder/advise/koordinator/annotation"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// twoNodes gives the sample two NUMA nodes of 5 CPUs and 50 Gi.
func twoNodes(s *tick.Sample) *tick.Sample {
	s.Topology.NUMANodes = []tick.TopologyNUMA{{ID: 0, CPUs: "0-4", MemoryBytes: new(gi(50))}, {ID: 1, CPUs: "5-9", MemoryBytes: new(gi(50))}}
	return s
}

func bound(ids ...int) func(*tick.Pod) {
	return func(p *tick.Pod) {
		var list []string
		for _, id := range ids {
			list = append(list, fmt.Sprintf(`{"node":%d,"resources":{"cpu":"1"}}`, id))
		}
		p.Annotations = map[string]string{annotation.Status: `{"cpuset":"0-1","numaNodeResources":[` + strings.Join(list, ",") + `]}`}
	}
}

// The same formulas by NUMA node. Margins are 2000m and 17.5 Gi, and the system's half is 1000m less the pods' use.
func TestNUMA(t *testing.T) {
	const g = 1 << 30
	for name, c := range map[string]struct {
		pods   []tick.Pod
		sample func(*tick.Sample)
		config func(*sloconfig.Colocation)
		cpu    []int64
		memory []int64
	}{
		"no pods":                        {cpu: []int64{2000, 2000}, memory: []int64{17.5 * g, 17.5 * g}},
		"evenly, where nothing is known": {pods: []tick.Pod{onePod("a", "Burstable", 2, 2, 1, 10)}, cpu: []int64{2000, 2000}, memory: []int64{17.5 * g, 17.5 * g}},
		"on one node":                    {pods: []tick.Pod{onePod("a", "Burstable", 2, 2, 1, 10, bound(1))}, cpu: []int64{2500, 1500}, memory: []int64{22.5 * g, 12.5 * g}},
		"on both":                        {pods: []tick.Pod{onePod("a", "Burstable", 2, 2, 1, 10, bound(0, 1))}, cpu: []int64{2000, 2000}, memory: []int64{17.5 * g, 17.5 * g}},
		"named twice":                    {pods: []tick.Pod{onePod("a", "Burstable", 2, 2, 1.0015, 10, bound(1, 1))}, cpu: []int64{2500, 1499}, memory: []int64{22.5 * g, 12.5 * g}},
		"on nodes that there are not":    {pods: []tick.Pod{onePod("a", "Burstable", 2, 2, 1, 10, bound(-1, 2, 9))}, cpu: []int64{2000, 2000}, memory: []int64{17.5 * g, 17.5 * g}},
		"one of them is there":           {pods: []tick.Pod{onePod("a", "Burstable", 2, 2, 1, 10, bound(7, 0))}, cpu: []int64{1500, 2500}, memory: []int64{12.5 * g, 22.5 * g}},
		"an invalid annotation":          {pods: []tick.Pod{onePod("a", "Burstable", 2, 2, 1, 10, func(p *tick.Pod) { p.Annotations = map[string]string{annotation.Status: `{"numaNodeResources":1`} })}, cpu: []int64{2000, 2000}, memory: []int64{17.5 * g, 17.5 * g}},
		"of a batch pod":                 {pods: []tick.Pod{onePod("a", "BestEffort", -1, 0, 1, 10, bound(1))}, cpu: []int64{2500, 2500}, memory: []int64{22.5 * g, 22.5 * g}},
		"no metric: the request":         {pods: []tick.Pod{onePod("a", "Burstable", 1, 10, -1, 0, bound(1))}, cpu: []int64{2000, 1000}, memory: []int64{17.5 * g, 7.5 * g}},
		"unknown to the cluster: evenly": {pods: []tick.Pod{onePod("a", "", -1, 0, 1, 10, missing(tick.MissingCluster))}, cpu: []int64{2000, 2000}, memory: []int64{17.5 * g, 17.5 * g}},
		"halves are rounded up":          {sample: func(s *tick.Sample) { s.CPU.UsageMilliCPU = new(2001.0) }, cpu: []int64{1999, 1999}, memory: []int64{17.5 * g, 17.5 * g}},
		"reserved": {sample: func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.Reservation: `{"resources":{"cpu":"4001m"}}`}
		}, cpu: []int64{999, 999}, memory: []int64{17.5 * g, 17.5 * g}},
		"LSE":                             {pods: []tick.Pod{onePod("a", "Guaranteed", 2, 2, 1, 10, bound(0), label("koordinator.sh/qosClass", "LSE"))}, cpu: []int64{500, 2500}, memory: []int64{12.5 * g, 22.5 * g}},
		"request, of memory":              {pods: []tick.Pod{onePod("a", "Burstable", 2, 20, 1, 10, bound(0))}, config: func(c *sloconfig.Colocation) { c.MemoryCalculatePolicy = new("request") }, cpu: []int64{1500, 2500}, memory: []int64{12 * g, 32 * g}},
		"maxUsageRequest without metrics": {pods: []tick.Pod{onePod("a", "Burstable", 1, 20, -1, 0, bound(0))}, config: func(c *sloconfig.Colocation) { c.CPUCalculatePolicy = new("maxUsageRequest") }, cpu: []int64{1000, 2000}, memory: []int64{0, 17.5 * g}},
		"capped":                          {config: func(c *sloconfig.Colocation) { c.BatchCPUThresholdPercent = new(int64(10)) }, cpu: []int64{500, 500}, memory: []int64{17.5 * g, 17.5 * g}},
		"normalized":                      {sample: func(s *tick.Sample) { s.Annotations = map[string]string{annotation.Ratio: "1.2"} }, cpu: []int64{2400, 2400}, memory: []int64{17.5 * g, 17.5 * g}},
		"never less than nothing":         {pods: []tick.Pod{onePod("a", "Burstable", 20, 200, -1, 0, bound(0))}, cpu: []int64{0, 2000}, memory: []int64{0, 17.5 * g}},
		"a node of memory alone": {sample: func(s *tick.Sample) {
			s.Topology.NUMANodes = append(s.Topology.NUMANodes, tick.TopologyNUMA{ID: 2, MemoryBytes: new(gi(500))})
		}, cpu: []int64{2000, 2000}, memory: []int64{17.5 * g, 17.5 * g}},
		"one node alone is offered as the whole is": {sample: func(s *tick.Sample) {
			s.Topology.NUMANodes = []tick.TopologyNUMA{{ID: 0, CPUs: "0-9", MemoryBytes: new(gi(100))}}
		}, pods: []tick.Pod{onePod("a", "Burstable", 2, 2, 1, 10, bound(0))}, cpu: []int64{4000}, memory: []int64{35 * g}},
		"memory, capped": {config: func(c *sloconfig.Colocation) { c.BatchMemoryThresholdPercent = new(int64(8)) }, cpu: []int64{2000, 2000}, memory: []int64{4 * g, 4 * g}},
		"a margin over 100 %: less than none": {config: func(c *sloconfig.Colocation) {
			c.CPUReclaimThresholdPercent, c.MemoryReclaimThresholdPercent = new(int64(140)), new(int64(150))
		}, cpu: []int64{6000, 6000}, memory: []int64{60 * g, 60 * g}},
		"a cap and a ratio":       {sample: func(s *tick.Sample) { s.Annotations = map[string]string{annotation.Ratio: "1.33"} }, config: func(c *sloconfig.Colocation) { c.BatchCPUThresholdPercent = new(int64(10)) }, cpu: []int64{665, 665}, memory: []int64{17.5 * g, 17.5 * g}},
		"memory that is unknown":  {sample: func(s *tick.Sample) { s.Topology.NUMANodes[1].MemoryBytes = nil }},
		"an id that stands twice": {sample: func(s *tick.Sample) { s.Topology.NUMANodes[1].ID = 0 }},
		"an invalid id":           {sample: func(s *tick.Sample) { s.Topology.NUMANodes[1].ID = -1 }},
		"invalid CPUs":            {sample: func(s *tick.Sample) { s.Topology.NUMANodes[1].CPUs = "x" }},
		"too many":                {sample: func(s *tick.Sample) { s.Topology.NUMANodes = make([]tick.TopologyNUMA, maxZones+1) }},
		"none":                    {sample: func(s *tick.Sample) { s.Topology = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := twoNodes(sample(c.pods...))
			if c.sample != nil {
				c.sample(s)
			}
			st := shipped()
			if c.config != nil {
				c.config(&st.Colocation)
			}
			a := advised(s, st)
			var gotCPU, gotMemory []int64
			for i, n := range a.Reclaimed.NUMANodes {
				if n.ID != i {
					t.Errorf("id %d at %d", n.ID, i)
				}
				gotCPU, gotMemory = append(gotCPU, *n.MilliCPU), append(gotMemory, *n.MemoryBytes)
			}
			ends := redoNUMA(t, a.Reasons)
			for i := range gotCPU {
				if len(gotCPU) > 1 && (ends[fmt.Sprint("cpu ", i)] != gotCPU[i] || ends[fmt.Sprint("memory ", i)] != gotMemory[i] || len(ends) != 2*len(gotCPU)) {
					t.Errorf("by the reasons: %v; want %v %v: %q", ends, gotCPU, gotMemory, a.Reasons)
				}
			}
			if fmt.Sprint(gotCPU) != fmt.Sprint(c.cpu) || fmt.Sprint(gotMemory) != fmt.Sprint(c.memory) {
				t.Errorf("%v %v; want %v %v: %v", gotCPU, gotMemory, c.cpu, c.memory, a.Reasons)
			}
		})
	}
}

// Parts of use that belongs to no NUMA node are rounded up; nothing is lost if there are no zones.
func TestEqualPart(t *testing.T) {
	for _, c := range []struct {
		v    int64
		n    int
		want int64
	}{{10, 3, 4}, {9, 3, 3}, {1, 2, 1}, {0, 2, 0}, {7, 0, 7}, {-3, 2, -3}} {
		if got := equalPart(c.v, c.n); got != c.want {
			t.Errorf("shared(%d, %d) = %d; want %d", c.v, c.n, got, c.want)
		}
	}
}

// The reason by NUMA node names the system's term, or that its reservation is larger, and lists the terms of eight nodes; with a single
// node there is no such reason, because it would repeat the node's.
func TestTheReasonByNUMANode(t *testing.T) {
	reason := func(change func(*tick.Sample)) string {
		s := twoNodes(sample())
		change(s)
		for _, r := range advised(s, shipped()).Reasons {
			if strings.HasPrefix(r, "batch-cpu by NUMA node") {
				return r
			}
		}
		return ""
	}
	many := func(n int) func(*tick.Sample) {
		return func(s *tick.Sample) {
			s.Topology.NUMANodes = nil
			for i := range n {
				s.Topology.NUMANodes = append(s.Topology.NUMANodes, tick.TopologyNUMA{ID: i, CPUs: fmt.Sprint(i), MemoryBytes: new(gi(1))})
			}
		}
	}
	reserved := func(text string) func(*tick.Sample) {
		return func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.Reservation: `{"resources":{"cpu":"` + text + `"}}`}
		}
	}
	for _, tt := range []struct {
		name        string
		change      func(*tick.Sample)
		want, never string
	}{
		{"the system uses more", reserved("1998m"), " - system 1000m - ", "reserved"},
		{"as much is reserved", reserved("2"), " - reserved 1000m - ", "system"},
		{"eight nodes", many(8), " 7: capacity 1000m", "more"},
		{"nine", many(9), " and 1 more", " 8: capacity"},
		{"ten", many(10), " and 2 more", " 8: capacity"},
	} {
		if got := reason(tt.change); !strings.Contains(got, tt.want) || strings.Contains(got, tt.never) {
			t.Errorf("%s: %q; want %q and no %q", tt.name, got, tt.want, tt.never)
		}
	}
	if got := reason(many(1)); got != "" {
		t.Errorf("of one node alone: %q", got)
	}
}

// A ratio from 1 to 5 is valid; the reason names any other.
func TestEndsOfTheRatio(t *testing.T) {
	for text, ratio := range map[string]int64{"1": 100, "5": 500, "0.99": 100, "5.01": 100} {
		n, a := &node{}, &tick.Advice{}
		n.readRatio(map[string]string{annotation.Ratio: text}, a)
		if n.ratio != ratio || (len(a.Reasons) > 0) != strings.Contains(text, ".") {
			t.Errorf("%s: ratio %d %%, %q", text, n.ratio, a.Reasons)
		}
	}
}
