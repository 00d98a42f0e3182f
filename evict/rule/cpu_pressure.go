package rule

import (
	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// cpuPressure is "Load Eviction" of Katalyst's guide, together with the CPU shortage of reclaimed pods.
var cpuPressure = &Rule{
	Name: "cpu-pressure-eviction-plugin",
	Doc: `a shared pool has more runnable threads than CPUs, or reclaimed pods get too little CPU
Load. Each shared pool is measured by itself: "share" and the pools that pods name with cpuset_pool. Every load-sync-period the rule takes
a sample of the sum of its pods' load1 (runnable threads), and of the bounds at that time: the pool's CPUs times load-lower-bound-ratio
(soft: the node gets the taint CPUPressure:NoSchedule) and times load-upper-bound-ratio (hard: a pod is evicted, too). A bound is met if
load-threshold-met-percentage of the last load-metric-ring-size samples exceed it; missing samples count as not over the bound. The victim
is the pod of that pool with the largest sum of its own load over those samples. Its grace period is cpu-grace-period, and the cooldown
is load-cooldown. No pod is evicted while the present load is below the bound. A machine that is too small for pools has no pool "share":
then the size is the machine's CPUs less the offer to reclaimed pods. Containers with exclusive CPUs from kubelet do not count as load of a
pool.

Suppression. The ratio is the reclaimed pods' CPU requests, in whole cores, divided by the CPUs of the pool "reclaim" (without pools:
by the offered cores). A pod tolerates suppression-max-tolerance-rate, or less if its annotation
katalyst.kubewharf.io/cpu_enhancement has a lower suppression_tolerance_rate. A pod that is over its rate without a break for longer
than suppression-min-duration is evicted when no hard finding needs a victim, one pod at a time: the largest request first, then the
lowest priority. Each eviction lowers the ratio for the remaining pods, which may then be below their rates. If a pod exceeds
suppression-max-tolerance-rate by itself, its request does not count for the others, because their end would not be enough.`,
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
	Suppressed conditions `json:"suppressed,omitempty"`
}

func (w *cpuWindow) Measure(s *Settings, t *tick.Tick) Measure {
	var m Measure
	if s.LoadEnabled {
		w.measureLoad(&m, s, t)
	} else {
		w.Pools = nil
	}
	if s.SuppressionEnabled {
		w.measureSuppression(&m, s, t)
	} else {
		w.Suppressed = nil
	}
	return m
}
