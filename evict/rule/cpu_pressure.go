package rule

import (
	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// cpuPressure is "Load Eviction" of Katalyst's guide, together with the CPU shortage of reclaimed pods.
var cpuPressure = &Rule{
	Name: "cpu-pressure-eviction-plugin",
	Doc: `a shared pool has more runnable threads than CPUs; reclaimed pods get too little
Load. Each shared pool, "share" and those that pods name with cpuset_pool, is measured by itself. Every load-sync-period a
sample is taken of its pods' summed load1 (runnable threads), together with the bounds that hold then: the pool's CPUs
times load-lower-bound-ratio (soft: the node is tainted CPUPressure:NoSchedule) and times load-upper-bound-ratio (hard: a
pod is evicted as well). A bound is met where it was exceeded in load-threshold-met-percentage of the last load-metric-ring-size
samples; samples that are still missing count as not over. The pod of that pool with the largest sum of its own load over
those samples is evicted, with cpu-grace-period, and then none for load-cooldown. None is evicted while the present load is under
the bound. A machine too small for pools has no pool "share": its size is then the machine's CPUs less what is offered to
reclaimed pods, which are limited to that by quota. Containers to which kubelet gave CPUs of their own load no pool.

Suppression. The reclaimed pods' CPU requests, in whole cores, are divided by the CPUs of the pool "reclaim" (without pools:
by the cores offered). A pod tolerates suppression-max-tolerance-rate, or less where its annotation
katalyst.kubewharf.io/cpu_enhancement has a suppression_tolerance_rate. A pod with a higher rate without a break for longer
than suppression-min-duration is evicted when no other pod has to be, one at a time: the largest request first, then the lowest
priority. Each eviction makes the rate smaller for the remaining pods, which may then stay.`,
	Scopes: []string{ScopeLoad1, ScopeSuppression},
	Rows:   (*evictconfig.Settings).CPURows,
	New:    func() Window { return &cpuWindow{} },
}

// Scopes of CPU pressure.
const (
	// ScopeLoad1 is the containers' load, averaged over a minute: runnable threads.
	ScopeLoad1 = "cpu.load.1min.container"
	// ScopeSuppression is the reclaimed pods' requests divided by their pool's CPUs: a ratio.
	ScopeSuppression = "cpu.suppression"
)

// taintCPUPressure keeps new pods off the node.
var taintCPUPressure = tick.Taint{Key: "node.katalyst.kubewharf.io/CPUPressure", Effect: "NoSchedule"}

type cpuWindow struct {
	Pools map[string]*poolLoad `json:"pools,omitempty"`
	// Suppressed are the reclaimed pods that are suppressed more than they tolerate, by UID.
	Suppressed map[string]*level `json:"suppressed,omitempty"`
}

func (w *cpuWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	if s.LoadEnabled {
		w.load(&m, s, t)
	} else {
		w.Pools = nil
	}
	if s.SuppressionEnabled {
		w.suppression(&m, s, t)
	} else {
		w.Suppressed = nil
	}
	return m
}
