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

// state is the load of the share pool.
type state int

const (
	unknown  state = iota
	idle           // below nine tenths of the threshold
	cooling        // between idle and overload
	overload       // at or above the threshold
)

func (s state) String() string { return [...]string{"unknown", "idle", "cooling", "overload"}[s] }

// longest is the longest time over which the use is averaged; it is five ticks if ticks are frequent.
const longest = 10 * time.Second

// together is the time within which values share a point: many ticks of one instant must not grow the state.
const together = 100 * time.Millisecond

// look determines the load of the share pool: its CPUs are those that no LSE or LSR pod requests, its use is all except that of those and
// of batch pods. If such a pod's use is unknown it counts as the pool's, and so does the system's.
func (r *round) look(s *tick.Sample) {
	over := longest
	if i := s.IntervalSeconds; i != nil && *i > 0 && *i < 2 {
		over = time.Duration(5 * *i * float64(time.Second))
	}
	var total, batch, reserved, used float64
	if s.Topology != nil {
		if set, err := cpus.Parse(s.Topology.CPUs); err == nil {
			total = float64(set.Size()) * 1000
		}
	}
	if total == 0 {
		r.nodeText = "how many CPUs the node has is not known: no quota is raised"
		return
	}
	r.nodeMilli = int64(total)
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
		r.state.Usage.Add(r.now, max(policy.Amount(s.CPU.UsageMilliCPU)-used-batch, 0), together, longest)
	}
	average, known := r.state.Usage.Average(r.now, over)
	if !known {
		r.nodeText = "what the node uses is not known: no quota is raised"
		return
	}
	pool, ratio := max(total-reserved, 0), 1.0
	if pool > 0 {
		ratio = average / pool
	}
	threshold := float64(valueOf(r.strategies.Burst.SharePoolThresholdPercent, 50))
	switch percent := ratio * 100; {
	case percent >= threshold:
		r.node = overload
	case percent >= threshold*0.9:
		r.node = cooling
	default:
		r.node = idle
	}
	r.nodeText = fmt.Sprintf("share pool of %.0fm - %.0fm of LSE and LSR pods = %.0fm uses %.0fm on average of %.1fs = %.1f %% (sharePoolThresholdPercent %g): %s",
		total, reserved, pool, average, over.Seconds(), ratio*100, threshold, r.node)
}

// Operations on a container's quota.
const (
	remain = iota
	up
	down
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
	if !c.quota || c.percent < 100 {
		if quota > limit {
			r.down++
		}
		return limit
	}
	most := limit
	if r.nodeMilli > limit {
		most = int64(min(float64(limit)*float64(c.percent)/100, float64(r.nodeMilli)))
	} else if r.nodeMilli == 0 {
		most = max(limit, quota) // no quota grows
	}
	do := r.operation(p, t, c, limit)
	switch {
	case r.node == overload && (do == up || do == remain):
		do = down
	case (r.node == cooling || r.node == unknown) && do == up:
		do = remain
	}
	before := quota
	switch do {
	case up:
		quota = max(int64(float64(quota)*1.2), quota+1)
	case down:
		quota = int64(float64(quota) * 0.8)
	}
	quota = max(limit, min(quota, most))
	if quota > before {
		r.up++
	} else if quota < before {
		r.down++
	}
	return quota
}

// operation returns the operation for the container, without regard to the node.
func (r *round) operation(p *tick.Pod, t *tick.Container, c config, limit int64) int {
	if !r.allowed(p, t, c, limit) {
		r.spent++
		return down
	}
	if t.ThrottledPercent != nil && *t.ThrottledPercent > 0 {
		return up
	}
	return remain
}

// config is the configuration in force for a pod.
type config struct {
	burst, quota bool  // what the policy enables
	saved        int64 // cpuBurstPercent
	percent      int64 // cfsQuotaBurstPercent
	seconds      int64 // cfsQuotaBurstPeriodSeconds
}

// Koordinator's defaults.
const defaultSaved, defaultPercent = 1000, 300

// of converts settings to a pod's configuration; an invalid policy enables nothing.
func (r *round) of(b *sloconfig.CPUBurst) config {
	c := config{
		saved:   valueOf(b.CPUBurstPercent, defaultSaved),
		percent: valueOf(b.CFSQuotaBurstPercent, defaultPercent),
		seconds: valueOf(b.CFSQuotaBurstPeriodSeconds, -1),
	}
	switch valueOf(b.Policy, sloconfig.BurstNone) {
	case sloconfig.BurstAutomatic:
		c.burst, c.quota = true, true
	case sloconfig.BurstCPU:
		c.burst = true
	case sloconfig.BurstCFSQuota:
		c.quota = true
	default:
		return config{}
	}
	return c
}

func valueOf[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// burstOf returns the burst that a container may accumulate: a percentage of its limit, and at most its quota, because the kernel accepts
// no more.
func (c config) burstOf(limit, quota int64) int64 {
	if !c.burst || limit == 0 || c.saved <= 0 {
		return 0
	}
	return int64(min(float64(limit)*float64(c.saved)/100, float64(quota), maxBurstMilliCPU))
}
