// Package burst is Koordinator's CPU burst: containers may accumulate unused quota (cpu.max.burst), and the quota of throttled containers
// grows while the node is idle, as in koordlet (qosmanager/plugins/cpuburst of its repository). It is pure.
//
// Nothing is advised for a cgroup that never had more than its limit. A cgroup that had more is reverted to its limit when that is no
// longer desired, for some time; after that nothing is advised for it.
package burst

import (
	"fmt"
	"time"

	"polder/advise/koordinator/revert"
	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/phrase"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
	"polder/lib/window"
)

// Bounds of valid input and of advice: the largest machine's, and what isolate accepts.
const (
	maxMilliCPU      = (cpus.MaxID + 1) * 1000
	maxBurstMilliCPU = 100 * maxMilliCPU
)

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// Usage is the share pool's use, in milli-CPU.
	Usage window.Samples `json:"usage"`
	// Cgroups are the pods' and containers' cgroups that have had more than their limit.
	Cgroups revert.Cgroups[advised, *advised] `json:"cgroups,omitempty"`
	// Buckets are the tokens of the containers whose quota may grow for a limited time, by cgroup.
	Buckets map[string]*bucket `json:"buckets,omitempty"`
}

// advised is what was advised for one cgroup.
type advised struct {
	// MilliCPU is a container's quota; 0 if that is its limit.
	MilliCPU int64 `json:"milliCPU,omitempty"`
	// QuotaWasChanged and BurstWasChanged report whether the key has had another value than that of the pod's spec and the kernel.
	QuotaWasChanged bool `json:"quota,omitempty"`
	BurstWasChanged bool `json:"burst,omitempty"`
	revert.Last
}

// Advise adds the quotas and bursts of the pods that are neither LSE, LSR nor BE, and of their containers.
func (st *State) Advise(t *tick.Tick, s *sloconfig.Strategies, a *tick.Advice) {
	r := round{state: st, strategies: s, advice: a, now: t.Time}
	if t.Sample == nil {
		if len(st.Cgroups) > 0 || r.configOf(&s.Burst) != (config{}) {
			a.Reasons = append(a.Reasons, "CPU burst: no sample: all quotas and bursts stay unchanged")
		}
		return
	}
	configs := make([]config, len(t.Sample.Pods))
	scaling := false
	for i := range t.Sample.Pods {
		configs[i] = r.config(&t.Sample.Pods[i])
		scaling = scaling || configs[i].quotaEnabled
	}
	if scaling {
		r.measureLoad(t.Sample)
	} else {
		st.Usage = window.Samples{}
	}
	for i := range t.Sample.Pods {
		r.pod(&t.Sample.Pods[i], configs[i])
	}
	r.explain(scaling)
	st.forget(t.Time)
}

// round is the work of one tick.
type round struct {
	state      *State
	strategies *sloconfig.Strategies
	advice     *tick.Advice
	now        time.Time

	load         loadState
	loadText     string
	nodeMilliCPU int64 // of all CPUs; 0 if unknown
	invalid      []string

	burstingPods, raised, lowered, aboveLimit, withoutTokens int
}

// isBurstable reports whether a pod's CPU may burst at all, according to its label.
func isBurstable(p *tick.Pod) bool {
	switch qos.Koordinator(p) {
	case qos.LSE, qos.LSR, qos.BE:
		return false
	}
	return true
}

func isActive(p *tick.Pod) bool { return p.Missing == "" && !p.Ended() }

// limitOf returns a CPU limit in milli-CPU; 0 if there is none.
func limitOf(r *tick.Resources) int64 {
	if r == nil {
		return 0
	}
	return int64(min(policy.Amount(r.MilliCPU), maxMilliCPU))
}

// pod adds the values of one pod and its containers. The pod's quota changes by the sum of its containers' changes; a pod without a limit
// has no quota, and gets none.
func (r *round) pod(p *tick.Pod, c config) {
	if p.Missing == tick.MissingCluster {
		r.state.Cgroups.KeepPod(p, r.now)
		return
	}
	if !isActive(p) || c == (config{}) && len(r.state.Cgroups.EntriesOf(p)) == 0 {
		return
	}
	sharesPodCgroup := false
	var growth, bursts int64
	for i := range p.Containers {
		t := &p.Containers[i]
		if t.Cgroup == "" {
			continue
		}
		limit := limitOf(t.Limits)
		if t.Cgroup == p.Cgroup {
			sharesPodCgroup = true
			if t.Limits == nil { // not a pod of Kubernetes
				limit = limitOf(p.Limits)
			}
		}
		quota := r.scale(p, t, c, limit)
		burst := c.burstOf(limit, quota)
		growth += quota - limit
		bursts += burst
		r.advise(t.Cgroup, p, limit, quota, burst)
	}
	if limit := limitOf(p.Limits); p.Cgroup != "" && !sharesPodCgroup {
		quota := min(limit+growth, maxMilliCPU)
		if limit == 0 {
			quota = 0
		}
		r.advise(p.Cgroup, p, limit, quota, min(bursts, quota))
	}
	if bursts > 0 {
		r.burstingPods++
	}
}

// advise advises a quota other than the limit and a burst, or reverts them if they were advised before.
func (r *round) advise(cgroup string, p *tick.Pod, limit, quota, burst int64) {
	if r.state.Cgroups[cgroup] == nil && quota == limit && burst == 0 {
		return
	}
	h := r.state.Cgroups.Entry(cgroup)
	h.MilliCPU = 0
	if quota != limit {
		h.MilliCPU, h.QuotaWasChanged, h.At = quota, true, r.now
		r.aboveLimit++
	}
	if burst > 0 {
		h.BurstWasChanged, h.At = true, r.now
	}
	c := tick.Cgroup{Cgroup: cgroup}
	if h.QuotaWasChanged && limit > 0 && qos.Koordinator(p) != qos.BE { // a batch pod's quota comes from its batch requests
		c.CPUMaxMilliCPU = &quota
		r.advice.Fallback = append(r.advice.Fallback, tick.Cgroup{Cgroup: cgroup, CPUMaxMilliCPU: &limit})
	}
	if h.BurstWasChanged {
		c.CPUBurstMilliCPU = &burst
	}
	if c.CPUMaxMilliCPU != nil || c.CPUBurstMilliCPU != nil {
		r.advice.Cgroups = append(r.advice.Cgroups, c)
	}
}

// explain adds reasons for what was found and decided.
func (r *round) explain(scaling bool) {
	add := func(format string, a ...any) {
		r.advice.Reasons = append(r.advice.Reasons, "CPU burst: "+fmt.Sprintf(format, a...))
	}
	if scaling {
		add("%s", r.loadText)
	}
	if scaling || r.aboveLimit > 0 || r.burstingPods > 0 {
		add("%s may burst, %s over the limit; %s raised, %d lowered, %d without tokens", phrase.Count(r.burstingPods, "pod"), phrase.Count(r.aboveLimit, "cgroup"), phrase.Count(r.raised, "quota"), r.lowered, r.withoutTokens)
	}
	const maxListed = 3
	for _, w := range r.invalid[:min(len(r.invalid), maxListed)] {
		add("%s", w)
	}
	if more := len(r.invalid) - maxListed; more > 0 {
		add("invalid annotations of other pods: %d", more)
	}
}

// forget removes the cgroups that have long had only their limit.
func (st *State) forget(now time.Time) {
	st.Cgroups.RemoveExpired(now)
	for name, b := range st.Buckets {
		if b != nil && b.At.After(now) {
			b.At = now
		}
		if b == nil || now.Sub(b.At) > min(b.maxAbsence(), 24*time.Hour) {
			delete(st.Buckets, name)
		}
	}
}
