package rule

import (
	"testing"

	"polder/lib/tick"
)

// While the list of pods is stale, a pod without a cgroup may have ended: no other pod is evicted for what it requests. While the list is
// current such a pod only has not started yet. A pod with a cgroup always counts.
func TestRequestsOfPodsThatMayHaveEnded(t *testing.T) {
	koordinator := strategy(every)
	katalyst := Defaults()
	katalyst.LoadEnabled = false
	for _, tt := range []struct {
		name  string
		rule  *Rule
		s     *Settings
		ticks func(seconds int, pods ...tick.Pod) *tick.Tick
		pod   func(name string) tick.Pod
	}{
		{"more than the offer", reclaimedPressure, &katalyst, tickAt, func(name string) tick.Pod { return reclaimedPod(name, 15_000) }},
		{"suppression", cpuPressure, &katalyst, tickAt, func(name string) tick.Pod { return reclaimedPod(name, 15_000) }},
		{"more memory than is allocatable", memoryAllocatableEvict, koordinator, busyBatch, batchPod},
		{"more CPU than is allocatable", cpuAllocatableEvict, koordinator, busyBatch, batchPod},
		{"satisfaction", beCPUEvict, koordinator, busyBatch, batchPod},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, c := range []struct {
				isStale, hasCgroup, met bool
			}{{false, false, true}, {true, false, false}, {true, true, true}} {
				running, other := tt.pod("running"), tt.pod("other")
				if !c.hasCgroup {
					other.Missing, other.Cgroup, other.UsageMilliCPU = tick.MissingCgroup, "", nil
				}
				w := tt.rule.New()
				met, candidates := false, map[string]bool{}
				for seconds := 0; seconds <= 600; seconds += 5 {
					x := tt.ticks(seconds, running, other)
					if c.isStale {
						x.Sample.Errors = []tick.SourceError{{Source: "pods", Error: "the pod list is stale"}}
					}
					for _, f := range w.Measure(tt.s, x).Findings {
						met = met || f.Met
						for _, c := range f.Candidates {
							candidates[c.Pod.Name] = true
						}
					}
				}
				if met != c.met || candidates["other"] != c.met {
					t.Errorf("stale %t, cgroup %t: met %t, candidates %v; want the other pod to count: %t",
						c.isStale, c.hasCgroup, met, candidates, c.met)
				}
			}
		})
	}
}

// busyBatch is a tick at which batch pods use the two CPUs that they have.
func busyBatch(seconds int, pods ...tick.Pod) *tick.Tick {
	return koordTick(seconds, 3000, 50, pods...)
}

// batchPod requests less than the node offers, and two of them more.
func batchPod(name string) tick.Pod {
	return bePod(name, requestBatch(2500, 25), usage(2000, 25), enabledPod)
}
