package burst

import (
	"fmt"
	"math"
	"time"

	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// loadState is the load of the share pool.
type loadState int

const (
	unknown  loadState = iota
	idle               // below nine tenths of the threshold
	cooling            // between idle and overload
	overload           // at or above the threshold
)

func (s loadState) String() string { return [...]string{"unknown", "idle", "cooling", "overload"}[s] }

// maxWindow is the longest time over which the use is averaged; it is five ticks if ticks are frequent.
const maxWindow = 10 * time.Second

// mergeWithin is the time within which values share a point: many ticks of one instant must not grow the state.
const mergeWithin = 100 * time.Millisecond

// measureLoad determines the load of the share pool: its CPUs are those that no LSE or LSR pod requests, its use is all except that of
// those and of batch pods. If such a pod's use is unknown it counts as the pool's, and so does the system's.
func (r *round) measureLoad(s *tick.Sample) {
	window := maxWindow
	if i := s.IntervalSeconds; i != nil && *i > 0 && *i < 2 {
		window = time.Duration(5 * *i * float64(time.Second))
	}
	var total, batch, reserved, used float64
	if s.Topology != nil {
		if set, err := cpus.Parse(s.Topology.CPUs); err == nil {
			total = float64(set.Size()) * 1000
		}
	}
	if total == 0 {
		r.loadText = "the node's number of CPUs is unknown: no quota is raised"
		return
	}
	r.nodeMilliCPU = int64(total)
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Ended() {
			continue
		}
		switch qos.Koordinator(p) {
		case qos.LSE, qos.LSR:
			if p.Requests != nil {
				reserved += policy.Amount(p.Requests.MilliCPU)
			}
			used += policy.Amount(p.UsageMilliCPU)
		case qos.BE:
			batch += policy.Amount(p.UsageMilliCPU)
		}
	}
	if s.CPU != nil && s.CPU.UsageMilliCPU != nil && !math.IsNaN(*s.CPU.UsageMilliCPU) {
		r.state.Usage.Add(r.now, max(policy.Amount(s.CPU.UsageMilliCPU)-used-batch, 0), mergeWithin, maxWindow)
	}
	average, isKnown := r.state.Usage.Average(r.now, window)
	if !isKnown {
		r.loadText = "the node's use is unknown: no quota is raised"
		return
	}
	pool, ratio := max(total-reserved, 0), 1.0
	if pool > 0 {
		ratio = average / pool
	}
	threshold := float64(valueOf(r.strategies.Burst.SharePoolThresholdPercent, 50))
	switch percent := ratio * 100; {
	case percent >= threshold:
		r.load = overload
	case percent >= threshold*0.9:
		r.load = cooling
	default:
		r.load = idle
	}
	r.loadText = fmt.Sprintf("share pool of %.0fm - %.0fm of LSE and LSR pods = %.0fm uses %.0fm on average of %.1fs = %.1f %% (sharePoolThresholdPercent %g): %s",
		total, reserved, pool, average, window.Seconds(), ratio*100, threshold, r.load)
}

// Operations on a container's quota.
const (
	opKeep = iota
	opRaise
	opLower
)

// scale returns a container's quota: its limit, or more if it is throttled while the node is idle, up to a percentage of the limit, and at
// most the node's CPUs.
func (r *round) scale(p *tick.Pod, t *tick.Container, c config, limit int64) int64 {
	if limit == 0 {
		return 0
	}
	quota := limit
	if h := r.state.Cgroups[t.Cgroup]; h != nil && h.MilliCPU > 0 {
		quota = max(h.MilliCPU, limit) // the limit may have changed
	}
	if !c.quotaEnabled || c.quotaPercent < 100 {
		if quota > limit {
			r.lowered++
		}
		return limit
	}
	maximum := limit
	if r.nodeMilliCPU > limit {
		maximum = int64(min(float64(limit)*float64(c.quotaPercent)/100, float64(r.nodeMilliCPU)))
	} else if r.nodeMilliCPU == 0 {
		maximum = max(limit, quota) // no quota grows
	}
	operation := r.operation(p, t, c, limit)
	switch {
	case r.load == overload && (operation == opRaise || operation == opKeep):
		operation = opLower
	case (r.load == cooling || r.load == unknown) && operation == opRaise:
		operation = opKeep
	}
	previous := quota
	switch operation {
	case opRaise:
		quota = max(int64(float64(quota)*1.2), quota+1)
	case opLower:
		quota = int64(float64(quota) * 0.8)
	}
	quota = max(limit, min(quota, maximum))
	if quota > previous {
		r.raised++
	} else if quota < previous {
		r.lowered++
	}
	return quota
}

// operation returns the operation for the container, without regard to the node.
func (r *round) operation(p *tick.Pod, t *tick.Container, c config, limit int64) int {
	if !r.mayExceedLimit(p, t, c, limit) {
		r.withoutTokens++
		return opLower
	}
	if t.ThrottledPercent != nil && *t.ThrottledPercent > 0 {
		return opRaise
	}
	return opKeep
}

// config is the configuration in force for a pod.
type config struct {
	burstEnabled, quotaEnabled bool  // what the policy enables
	burstPercent               int64 // cpuBurstPercent
	quotaPercent               int64 // cfsQuotaBurstPercent
	periodSeconds              int64 // cfsQuotaBurstPeriodSeconds
}

// Koordinator's defaults.
const defaultBurstPercent, defaultQuotaPercent = 1000, 300

// configOf converts settings to a pod's configuration; an invalid policy enables nothing.
func (r *round) configOf(b *sloconfig.CPUBurst) config {
	c := config{
		burstPercent:  valueOf(b.CPUBurstPercent, defaultBurstPercent),
		quotaPercent:  valueOf(b.CFSQuotaBurstPercent, defaultQuotaPercent),
		periodSeconds: valueOf(b.CFSQuotaBurstPeriodSeconds, -1),
	}
	switch valueOf(b.Policy, sloconfig.BurstNone) {
	case sloconfig.BurstAutomatic:
		c.burstEnabled, c.quotaEnabled = true, true
	case sloconfig.BurstCPU:
		c.burstEnabled = true
	case sloconfig.BurstCFSQuota:
		c.quotaEnabled = true
	default:
		return config{}
	}
	return c
}

func valueOf[T any](p *T, defaultValue T) T {
	if p == nil {
		return defaultValue
	}
	return *p
}

// burstOf returns the burst that a container may accumulate: a percentage of its limit, and at most its quota, because the kernel accepts
// no more.
func (c config) burstOf(limit, quota int64) int64 {
	if !c.burstEnabled || limit == 0 || c.burstPercent <= 0 {
		return 0
	}
	return int64(min(float64(limit)*float64(c.burstPercent)/100, float64(quota), maxBurstMilliCPU))
}
