package rule

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// pressures is a tick that meets every rule of the node's own settings, with a rate of kswapd in each sample.
func pressures(seconds int) *tick.Tick {
	x := busyTick(seconds)
	x.Sample.Memory.KswapdStealPages, x.Sample.Memory.KswapdStealPerSecond = nil, new(5000.0)
	for i := range x.Sample.Pods {
		x.Sample.Pods[i].CPUWaitPermille, x.Sample.Pods[i].UsageMilliCPU = new(900.0), new(1000.0)
	}
	return x
}

// usedByBatch is a tick that meets every rule of Koordinator's strategy.
func usedByBatch(seconds int) *tick.Tick {
	return koordTick(seconds, 9500, 95, bePod("a", requestBatch(4500, 45), usage(2000, 45), enabledPod))
}

// boundToOneNode is a tick at which a pod that is bound to NUMA node 1 requests more than that node's part of the offer.
func boundToOneNode(seconds int) *tick.Tick {
	p := reclaimedPod("bound", 9000)
	p.Annotations = map[string]string{annotationNUMABinding: "1"}
	x := tickAt(seconds, p)
	x.Sample.Topology.NUMANodes = []tick.TopologyNUMA{{ID: 0, CPUs: "0-23"}, {ID: 1, CPUs: "24-47"}}
	x.Advice.Reclaimed.NUMANodes = []tick.ReclaimedNUMA{{ID: 1, MilliCPU: new(int64(1000)), MemoryBytes: new(int64(1 << 20))}}
	return x
}

// A pressure lasts only while it is measured: after a tick without one of its inputs, or with the rule off, it begins anew. Otherwise a
// pod would be evicted sooner than the time or the number of samples requires.
func TestPressureBeginsAnewAfterABreak(t *testing.T) {
	numaParts := []string{"numa0", "numa1"}
	zone := []string{"zone1|" + ScopeReclaimedMilliCPU}
	noMemory := func(_ *Settings, x *tick.Tick) { x.Sample.Memory = nil }
	noAllocatable := func(_ *Settings, x *tick.Tick) { x.Sample.Allocatable = nil }
	off := func(s *Settings, _ *tick.Tick) { s.Strategies = nil }
	for _, tt := range []struct {
		name  string
		rule  *Rule
		ticks func(seconds int) *tick.Tick
		parts []string // the parts or scopes that are met, and break
		lose  func(*Settings, *tick.Tick)
	}{
		{"no memory", memoryPressure, pressures, []string{partFree, partKswapd, "numa0", "numa1", partPSI}, noMemory},
		{"no free memory", memoryPressure, pressures, []string{partFree}, func(_ *Settings, x *tick.Tick) {
			x.Sample.Memory.FreeBytes = nil
		}},
		{"free memory off", memoryPressure, pressures, []string{partFree}, func(s *Settings, _ *tick.Tick) {
			s.MemorySystemEnabled = false
		}},
		{"no watermark", memoryPressure, pressures, numaParts, func(_ *Settings, x *tick.Tick) {
			x.Sample.Memory.WatermarkScaleFactor = nil
		}},
		{"NUMA off", memoryPressure, pressures, numaParts, func(s *Settings, _ *tick.Tick) { s.MemoryNUMAEnabled = false }},
		{"no rate of kswapd", memoryPressure, pressures, []string{partKswapd}, func(_ *Settings, x *tick.Tick) {
			x.Sample.Memory.KswapdStealPerSecond = nil
		}},
		{"only kswapd's first counter", memoryPressure, pressures, []string{partKswapd}, func(_ *Settings, x *tick.Tick) {
			x.Sample.Memory.KswapdStealPages, x.Sample.Memory.KswapdStealPerSecond = new(1e6), nil
		}},
		{"kswapd off", memoryPressure, pressures, []string{partKswapd}, func(s *Settings, _ *tick.Tick) { s.MemoryKswapdRate = 0 }},
		{"no stalls", memoryPressure, pressures, []string{partPSI}, func(_ *Settings, x *tick.Tick) { x.Sample.Memory.Pressure = nil }},
		{"stalls off", memoryPressure, pressures, []string{partPSI}, func(s *Settings, _ *tick.Tick) { s.MemoryPSIEnabled = false }},
		{"no load", cpuPressure, pressures, []string{tick.PoolShare}, func(_ *Settings, x *tick.Tick) {
			for i := range x.Sample.Pods {
				x.Sample.Pods[i].Containers = nil
			}
		}},
		{"no pools", cpuPressure, pressures, []string{tick.PoolShare}, func(_ *Settings, x *tick.Tick) {
			x.Advice.Pools, x.Sample.Topology = nil, nil
		}},
		{"no advice", cpuPressure, pressures, []string{tick.PoolShare, tick.PoolReclaim}, func(_ *Settings, x *tick.Tick) { x.Advice = nil }},
		{"load off", cpuPressure, pressures, []string{tick.PoolShare}, func(s *Settings, _ *tick.Tick) { s.LoadEnabled = false }},
		{"suppression off", cpuPressure, pressures, []string{tick.PoolReclaim}, func(s *Settings, _ *tick.Tick) {
			s.SuppressionEnabled = false
		}},
		{"no offer", reclaimedPressure, pressures, []string{ScopeReclaimedMilliCPU, ScopeReclaimedMemory}, func(_ *Settings, x *tick.Tick) {
			x.Advice.Reclaimed = nil
		}},
		{"no offer of NUMA nodes", reclaimedPressure, boundToOneNode, zone, func(_ *Settings, x *tick.Tick) {
			x.Advice.Reclaimed.NUMANodes = nil
		}},
		{"NUMA nodes off", reclaimedPressure, boundToOneNode, zone, func(s *Settings, _ *tick.Tick) { s.ReclaimedNUMAEnabled = false }},
		{"off", rssOveruse, pressures, []string{ScopeRSS}, func(s *Settings, _ *tick.Tick) { s.RSSOveruseEnabled = false }},
		{"no waiting", serviceWaiting, pressures, serviceWaiting.Scopes, func(_ *Settings, x *tick.Tick) {
			for i := range x.Sample.Pods {
				x.Sample.Pods[i].CPUWaitPermille = nil
			}
		}},
		{"off", serviceWaiting, pressures, serviceWaiting.Scopes, func(s *Settings, _ *tick.Tick) { s.ServiceWaiting.Enabled = false }},
		{"no memory", beMemoryEvict, usedByBatch, []string{ScopeMemoryUsed}, noMemory},
		{"off", beMemoryEvict, usedByBatch, []string{ScopeMemoryUsed}, off},
		{"no memory", memoryEvict, usedByBatch, []string{ScopeMemoryUsed}, noMemory},
		{"off", memoryEvict, usedByBatch, []string{ScopeMemoryUsed}, off},
		{"no CPU use", cpuEvict, usedByBatch, []string{ScopeCPUUsed}, func(_ *Settings, x *tick.Tick) { x.Sample.CPU = nil }},
		{"off", cpuEvict, usedByBatch, []string{ScopeCPUUsed}, off},
		{"no CPU use", beCPUEvict, usedByBatch, []string{ScopeBESatisfaction}, func(_ *Settings, x *tick.Tick) {
			x.Sample.Tiers[0].UsageMilliCPU = nil
		}},
		{"off", beCPUEvict, usedByBatch, []string{ScopeBESatisfaction}, off},
		{"nothing allocatable", memoryAllocatableEvict, usedByBatch, []string{resourceBatchMemory.name}, noAllocatable},
		{"off", memoryAllocatableEvict, usedByBatch, []string{resourceBatchMemory.name}, off},
		{"nothing allocatable", cpuAllocatableEvict, usedByBatch, []string{resourceBatchCPU.name}, noAllocatable},
		{"off", cpuAllocatableEvict, usedByBatch, []string{resourceBatchCPU.name}, off},
	} {
		t.Run(tt.rule.Name+", "+tt.name, func(t *testing.T) {
			w := tt.rule.New()
			const before, lost, again = 1, 2, 3 // the ticks
			for i := range again + 1 {
				s := *strategy(every)
				s.LoadMetricRingSize, s.LoadThresholdMetPercentage = 1, 1
				s.MemoryPSIPods, s.MemoryKswapdTimes, s.MemoryNUMABelowTimesReclaimed = 1, 1, 1
				s.RSSOveruseEnabled, s.RSSOveruseTolerance, s.SuppressionMinDuration = true, 0, 0
				s.ServiceWaiting.Enabled, s.ReclaimedSoftCPUThreshold, s.ReclaimedNUMAEnabled = true, 1, true
				x := tt.ticks(30 * i)
				if i == lost {
					tt.lose(&s, x)
				}
				m := w.Measure(&s, x)
				for _, name := range tt.parts {
					isMet := false
					for _, f := range m.Findings {
						if !f.Met || f.Part != name && f.Scope != name {
							continue
						}
						isMet = true
						if i == again && f.Since != formatTime(x.Time) {
							t.Errorf("%s is met since %s; want %s", f.About(), f.Since, formatTime(x.Time))
						}
					}
					if i == before && !isMet || i == lost && isMet {
						t.Errorf("tick %d: %s is met: %t", i, name, isMet)
					}
				}
			}
		})
	}
}

// The settings of memory and CPU pressure hold for each of their parts: when a pod may be evicted, how long until the next one, and the
// time that it has to end.
func TestPartsHaveTheirRulesTimes(t *testing.T) {
	for _, tt := range []struct {
		rule  *Rule
		parts []string
		want  Finding
	}{
		{
			memoryPressure,
			[]string{partFree, partKswapd, "numa0", partPSI},
			Finding{Tolerance: 41 * time.Second, Cooldown: 42 * time.Second, GracePeriodSeconds: new(int64(43))},
		},
		{cpuPressure, []string{tick.PoolShare}, Finding{Cooldown: 44 * time.Second, GracePeriodSeconds: new(int64(45))}},
	} {
		s := Defaults()
		s.MemoryTolerance, s.MemoryCooldown, s.MemoryGracePeriod = 41*time.Second, 42*time.Second, 43*time.Second
		s.LoadCooldown, s.CPUGracePeriod = 44*time.Second, 45*time.Second
		s.MemoryPSIPods, s.MemoryKswapdTimes, s.LoadMetricRingSize = 1, 1, 1
		m := tt.rule.New().Measure(&s, pressures(0))
		for _, name := range tt.parts {
			i := slices.IndexFunc(m.Findings, func(f Finding) bool { return f.Part == name && f.Hard })
			if i < 0 {
				t.Fatalf("no hard finding of %s in %+v", name, m.Findings)
			}
			f := m.Findings[i]
			got := Finding{Tolerance: f.Tolerance, Cooldown: f.Cooldown, GracePeriodSeconds: f.GracePeriodSeconds}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", f.About(), d)
			}
		}
	}
}
