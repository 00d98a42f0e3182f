package rule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

const gib = float64(1 << 30)

// shortTick is a tick of a machine of 100 GiB in two NUMA nodes whose watermark is 0.1 GiB, and 0.05 GiB on a NUMA node;
// freeGiB are free, half of them on each NUMA node.
func shortTick(seconds int, freeGiB float64, pods ...tick.Pod) *tick.Tick {
	x := tickAt(seconds, pods...)
	x.Sample.CgroupVersion = 2
	x.Sample.Memory = &tick.NodeMemory{TotalBytes: new(100 * gib), FreeBytes: new(freeGiB * gib), WatermarkScaleFactor: new(10.0), KswapdStealPages: new(0.0)}
	for id := range 2 {
		x.Sample.NUMANodes = append(x.Sample.NUMANodes, tick.NUMASample{ID: id, Memory: &tick.NUMAMemory{TotalBytes: new(50 * gib), FreeBytes: new(freeGiB / 2 * gib)}})
	}
	return x
}

// podWithMemory is a pod that uses memory, all of it on NUMA node 0, and requests half of that.
func podWithMemory(name, class string, mebi float64) tick.Pod {
	bytes := mebi * (1 << 20)
	memory := &tick.Memory{UsageBytes: new(bytes), RSSBytes: new(bytes)}
	requests := &tick.Resources{MemoryBytes: new(bytes / 2), ReclaimedMemoryBytes: new(bytes / 2), ReclaimedMilliCPU: new(0.0)}
	return tick.Pod{UID: "uid-" + name, Namespace: "default", Name: name, QoS: class, Memory: memory, Containers: []tick.Container{
		{Memory: memory, NUMAMemory: []tick.NUMABytes{{ID: 0, Bytes: bytes}, {ID: 1, Bytes: 0}}, Load1: new(0.0), Requests: requests},
	}}
}

func stall(avg10 float64) *tick.Pressure {
	return &tick.Pressure{Some: &tick.PressureLine{Avg10: avg10}}
}

// part returns a finding by its part.
func part(m Measure, name string) *Finding {
	for i := range m.Findings {
		if m.Findings[i].Part == name {
			return &m.Findings[i]
		}
	}
	return nil
}

func TestFreeMemory(t *testing.T) {
	const watermark = 100 * gib * 10 / 10_000
	for _, tt := range []struct {
		name      string
		free      float64
		minimum   evictconfig.Bytes
		threshold float64
		met       bool
	}{
		{"over", watermark + 1, 0, watermark, false},
		{"at", watermark, 0, watermark, false},
		{"under", watermark - 1, 0, watermark, true},
		{"none free", 0, 0, watermark, true},
		{"a lower minimum", watermark, 1, watermark, false},
		{"over the minimum", 2 * gib, 2 << 30, 2 * gib, false},
		{"under the minimum", 2*gib - 1, 2 << 30, 2 * gib, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			s.MemoryFreeMinimum = tt.minimum
			x := shortTick(0, 10, podWithMemory("r", tick.QoSReclaimed, 10), podWithMemory("s", tick.QoSShared, 99), podWithMemory("d", tick.QoSDedicated, 99))
			x.Sample.Memory.FreeBytes = new(tt.free)
			m := memoryPressure.New().Measure(&s, x)
			f := part(m, partFree)
			want := tick.PressureFinding{Rule: memoryPressure.Name, Scope: ScopeMemory, Part: partFree, Value: tt.free, Threshold: tt.threshold, Met: tt.met, Hard: true, Below: true}
			if tt.met {
				want.Since = "2026-11-21T12:00:00Z"
			}
			if d := cmp.Diff(want, f.PressureFinding); d != "" {
				t.Errorf("finding (-want +got):\n%s", d)
			}
			if (f.Taint != nil) != tt.met || (f.Message != "") != tt.met {
				t.Errorf("met %t: taint %v, message %q", tt.met, f.Taint, f.Message)
			}
			if tt.met {
				if d := cmp.Diff([]string{"r"}, ranked(*f)); d != "" {
					t.Errorf("candidates (-want +got):\n%s", d)
				}
				if c := f.Candidates[0]; c.Releases != 10*(1<<20) || *c.GracePeriodSeconds != 1 {
					t.Errorf("candidate %+v; want it to release its memory after 1 s", c)
				}
			}
			if len(m.Errors) != 0 {
				t.Errorf("reported errors %q", m.Errors)
			}
		})
	}
}

func TestMemoryRanking(t *testing.T) {
	low, high := podWithMemory("low", tick.QoSReclaimed, 100), podWithMemory("high", tick.QoSReclaimed, 900)
	low.Priority, high.Priority = new(int64(-5)), new(int64(10))
	b, a := podWithMemory("b", tick.QoSReclaimed, 200), podWithMemory("a", tick.QoSReclaimed, 200)
	b.Priority, a.Priority = new(int64(-5)), new(int64(-5))
	unknown := tick.Pod{UID: "u", Name: "unknown", QoS: tick.QoSReclaimed, Priority: new(int64(-5))}
	ended, waiting := podWithMemory("ended", tick.QoSReclaimed, 5000), podWithMemory("waiting", tick.QoSReclaimed, 5000)
	ended.Phase, waiting.Missing = "Failed", tick.MissingCgroup
	pods := []tick.Pod{high, low, b, a, unknown, ended, waiting, podWithMemory("none", tick.QoSReclaimed, 1)}
	for _, tt := range []struct {
		ranking []string
		want    []string
	}{
		{Defaults().MemorySystemRanking, []string{"none", "unknown", "a", "b", "low", "high"}},
		{[]string{evictconfig.RankMemoryUsage}, []string{"unknown", "high", "a", "b", "low", "none"}},
		{[]string{evictconfig.RankRSS, evictconfig.RankPriority}, []string{"unknown", "high", "a", "b", "low", "none"}},
		{[]string{evictconfig.RankPriority, evictconfig.RankMemoryUsage}, []string{"none", "unknown", "a", "b", "low", "high"}},
	} {
		s := Defaults()
		s.MemorySystemRanking = tt.ranking
		f := part(memoryPressure.New().Measure(&s, shortTick(0, 0, pods...)), partFree)
		if d := cmp.Diff(tt.want, ranked(*f)); d != "" {
			t.Errorf("by %v (-want +got):\n%s", tt.ranking, d)
		}
		for _, c := range f.Candidates {
			if c.Pod.Name == "unknown" && c.Releases != f.Threshold {
				t.Errorf("a pod with unknown memory releases %v; want the whole need, %v", c.Releases, f.Threshold)
			}
		}
	}
}

func TestFreeMemoryMissing(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*tick.Sample)
		err    string
	}{
		"no memory":    {func(s *tick.Sample) { s.Memory = nil }, "memory: the sample lacks the node's memory: not measured"},
		"no free":      {func(s *tick.Sample) { s.Memory.FreeBytes = nil }, "lacks the node's free or total memory"},
		"negative":     {func(s *tick.Sample) { s.Memory.FreeBytes = new(-1.0) }, "lacks the node's free or total memory"},
		"no total":     {func(s *tick.Sample) { s.Memory.TotalBytes = nil }, "lacks the node's free or total memory"},
		"no watermark": {func(s *tick.Sample) { s.Memory.WatermarkScaleFactor = nil }, "no watermark scale factor"},
		"all of it":    {func(s *tick.Sample) { s.Memory.WatermarkScaleFactor = new(1e4) }, "no watermark scale factor"},
		"small":        {func(s *tick.Sample) { s.Memory.TotalBytes = new(gib) }, "memory-free-minimum 1Gi is all of the node's memory"},
	} {
		s := Defaults()
		s.MemoryFreeMinimum = 1 << 30
		x := shortTick(0, 0, podWithMemory("r", tick.QoSReclaimed, 10))
		tt.change(x.Sample)
		m := memoryPressure.New().Measure(&s, x)
		if f := part(m, partFree); f != nil || !strings.Contains(strings.Join(m.Errors, "\n"), tt.err) {
			t.Errorf("%s: finding %+v, errors %q; want it not measured, and %q", name, f, m.Errors, tt.err)
		}
	}
}

// measureTicks measures a tick every 5 seconds; each call changes the tick, which is short of memory on NUMA node 0.
func measureTicks(s Settings, n int, change func(i int, x *tick.Tick), pods ...tick.Pod) (m Measure) {
	w := memoryPressure.New()
	for i := range n {
		x := shortTick(5*i, 50, pods...)
		x.Sample.NUMANodes[0].Memory.FreeBytes = new(0.0)
		if change != nil {
			change(i, x)
		}
		m = w.Measure(&s, x)
	}
	return m
}

func TestNUMAMemory(t *testing.T) {
	const watermark = 50 * gib * 10 / 10_000
	small := podWithMemory("small", tick.QoSReclaimed, 51) // a thousandth of 50 GiB is 51.2 MiB
	otherNode := podWithMemory("elsewhere", tick.QoSShared, 9000)
	otherNode.Containers[0].NUMAMemory = []tick.NUMABytes{{ID: 1, Bytes: 9000 << 20}}
	pods := []tick.Pod{podWithMemory("r", tick.QoSReclaimed, 100), podWithMemory("r2", tick.QoSReclaimed, 200), small, podWithMemory("s", tick.QoSShared, 9000), podWithMemory("d", tick.QoSDedicated, 52), otherNode}
	free := func(bytes float64, at ...int) func(int, *tick.Tick) {
		return func(i int, x *tick.Tick) {
			for _, k := range at {
				if i == k {
					x.Sample.NUMANodes[0].Memory.FreeBytes = new(bytes)
				}
			}
		}
	}
	for _, tt := range []struct {
		name   string
		times  int
		change func(int, *tick.Tick)
		met    bool
		want   []string
	}{
		{"once", 1, nil, true, []string{"r2", "r"}},
		{"three times", 3, nil, true, []string{"r2", "r"}},
		{"four times", 4, nil, true, []string{"r2", "r", "s", "d"}},
		{"five times", 5, nil, true, []string{"r2", "r", "s", "d"}},
		{"under by a byte", 1, free(watermark-1, 0), true, []string{"r2", "r"}},
		{"at the watermark", 1, free(watermark, 0), false, nil},
		{"broken", 5, free(gib, 1), true, []string{"r2", "r"}},
		{"over now", 5, free(gib, 4), false, nil},
		{"over again within a period", 6, func(i int, x *tick.Tick) {
			if i == 5 {
				x.Time = start.Add(21 * time.Second)
				x.Sample.NUMANodes[0].Memory.FreeBytes = tick.Ptr(watermark)
			}
		}, false, nil},
		{"a missing time", 5, func(i int, x *tick.Tick) {
			if i == 2 {
				x.Sample.NUMANodes[0].Memory = nil
			}
		}, true, []string{"r2", "r"}},
		{"two ticks per period count once", 7, func(i int, x *tick.Tick) { x.Time = start.Add(time.Duration(i) * 2500 * time.Millisecond) }, true, []string{"r2", "r", "s", "d"}},
		{"two ticks per period, not yet", 6, func(i int, x *tick.Tick) { x.Time = start.Add(time.Duration(i) * 2500 * time.Millisecond) }, true, []string{"r2", "r"}},
		{"after a long silence", 4, func(i int, x *tick.Tick) {
			if i == 3 {
				x.Time = start.Add(time.Hour)
			}
		}, true, []string{"r2", "r"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := measureTicks(Defaults(), tt.times, tt.change, pods...)
			f := part(m, "numa0")
			if f.Met != tt.met || f.Taint != nil || !f.Hard || !f.Below || f.Threshold != watermark {
				t.Errorf("finding %+v; want met %t against %v, without a taint", f, tt.met, watermark)
			}
			if d := cmp.Diff(tt.want, ranked(*f)); d != "" {
				t.Errorf("candidates (-want +got):\n%s", d)
			}
			for _, c := range f.Candidates {
				if reclaimed := c.Pod.QoS == tick.QoSReclaimed; reclaimed != (c.GracePeriodSeconds != nil) || f.GracePeriodSeconds != nil {
					t.Errorf("%s: grace %v, the finding's %v; want 1 s for reclaimed pods and the others' own", c.Pod.Name, c.GracePeriodSeconds, f.GracePeriodSeconds)
				}
			}
			if other := part(m, "numa1"); other == nil || other.Met {
				t.Errorf("NUMA node 1: %+v; want it not met", other)
			}
		})
	}
}

func TestNUMAMemoryTimesAreSettings(t *testing.T) {
	s := Defaults()
	s.MemoryNUMABelowTimes, s.MemoryNUMABelowTimesReclaimed = 3, 2
	pods := []tick.Pod{podWithMemory("r", tick.QoSReclaimed, 100), podWithMemory("s", tick.QoSShared, 9000)}
	for times, want := range map[int][]string{1: nil, 2: {"r"}, 3: {"r", "s"}} {
		if d := cmp.Diff(want, ranked(*part(measureTicks(s, times, nil, pods...), "numa0"))); d != "" {
			t.Errorf("%d times (-want +got):\n%s", times, d)
		}
	}
}

func TestNUMAMemoryMissing(t *testing.T) {
	withoutNUMAMemory := podWithMemory("blind", tick.QoSReclaimed, 9000)
	withoutNUMAMemory.Containers[0].NUMAMemory = nil
	m := measureTicks(Defaults(), 1, nil, withoutNUMAMemory, podWithMemory("r", tick.QoSReclaimed, 100))
	if d := cmp.Diff([]string{"r"}, ranked(*part(m, "numa0"))); d != "" {
		t.Errorf("candidates (-want +got):\n%s", d)
	}
	if !strings.Contains(fmt.Sprint(m.Errors), "memory (numa0): the memory of 1 pods there is unknown, they are not evicted: blind") {
		t.Errorf("reported errors %q; want the pod named", m.Errors)
	}
	for name, tt := range map[string]struct {
		change func(*tick.Sample)
		err    string
	}{
		"no nodes":     {func(s *tick.Sample) { s.NUMANodes = nil }, "memory (numa): the sample has no NUMA nodes"},
		"no watermark": {func(s *tick.Sample) { s.Memory.WatermarkScaleFactor = nil }, "memory (numa): the sample has no watermark scale factor"},
		"no memory":    {func(s *tick.Sample) { s.NUMANodes[0].Memory = nil }, "memory (numa0): the sample lacks the free or total memory"},
	} {
		m := measureTicks(Defaults(), 1, func(_ int, x *tick.Tick) { tt.change(x.Sample) }, withoutNUMAMemory)
		if part(m, "numa0") != nil || !strings.Contains(fmt.Sprint(m.Errors), tt.err) {
			t.Errorf("%s: %+v; want NUMA node 0 not measured, and %q", name, m, tt.err)
		}
	}
	// A node with only CPUs cannot be short of memory; on a machine of one node all of a pod's memory is there.
	m = measureTicks(Defaults(), 1, func(_ int, x *tick.Tick) { x.Sample.NUMANodes[0].Memory.TotalBytes = new(0.0) })
	if part(m, "numa0") != nil || len(m.Errors) != 0 {
		t.Errorf("a node without memory: %+v", m)
	}
	m = measureTicks(Defaults(), 1, func(_ int, x *tick.Tick) { x.Sample.NUMANodes = x.Sample.NUMANodes[:1] }, withoutNUMAMemory)
	if d := cmp.Diff([]string{"blind"}, ranked(*part(m, "numa0"))); d != "" {
		t.Errorf("on a machine with one NUMA node (-want +got):\n%s", d)
	}
}
