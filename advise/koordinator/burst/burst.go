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
	Usage window.Trail `json:"usage"`
	// Cgroups are the pods' and containers' cgroups that have had more than their limit.
	Cgroups revert.Cgroups[held, *held] `json:"cgroups,omitempty"`
	// Buckets are the tokens of the containers whose quota may grow for a limited time, by cgroup.
	Buckets map[string]*bucket `json:"buckets,omitempty"`
}

// held is what was advised for one cgroup.
type held struct {
	// MilliCPU is a container's quota; 0 if that is its limit.
	MilliCPU int64 `json:"milliCPU,omitempty"`
	// Quota and Burst report whether the key has had another value than that of the pod's spec and the kernel.
	Quota bool `json:"quota,omitempty"`
	Burst bool `json:"burst,omitempty"`
	revert.Last
}

// Advise adds the quotas and bursts of the pods that are neither LSE, LSR nor BE, and of their containers.
func (st *State) Advise(t *tick.Tick, s *sloconfig.Strategies, a *tick.Advice) {
	r := round{state: st, strategies: s, advice: a, now: t.Time}
	if t.Sample == nil {
		if len(st.Cgroups) > 0 || r.of(&s.Burst) != (config{}) {
			a.Reasons = append(a.Reasons, "CPU burst: no sample: every quota and burst stays as it is")
		}
		return
	}
	configs := make([]config, len(t.Sample.Pods))
	scaling := false
	for i := range t.Sample.Pods {
		configs[i] = r.config(&t.Sample.Pods[i])
		scaling = scaling || configs[i].quota
	}
	if scaling {
		r.look(t.Sample)
	} else {
		st.Usage = window.Trail{}
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

	node      state
	nodeText  string
	nodeMilli int64 // of all CPUs; 0 if unknown
	wrong     []string

	bursting, up, down, above, spent int
}

// burstable reports whether a pod's CPU may burst at all, according to its label.
func burstable(p *tick.Pod) bool {
	switch qos.Koordinator(p) {
	case qos.LSE, qos.LSR, qos.BE:
		return false
	}
	return true
}

func active(p *tick.Pod) bool { return p.Missing == "" && !p.Ended() }

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
		r.state.Cgroups.Keep(p, r.now)
		return
	}
	if !active(p) || c == (config{}) && len(r.state.Cgroups.Of(p)) == 0 {
		return
	}
	alone := false
	var more, bursts int64
	for i := range p.Containers {
		t := &p.Containers[i]
		if t.Cgroup == "" {
			continue
		}
		limit := limitOf(t.Limits)
		if t.Cgroup == p.Cgroup {
			alone = true
			if t.Limits == nil { // not a pod of Kubernetes
				limit = limitOf(p.Limits)
			}
		}
		quota := r.scale(p, t, c, limit)
		burst := c.burstOf(limit, quota)
		more += quota - limit
		bursts += burst
		r.want(t.Cgroup, p, limit, quota, burst)
	}
	if limit := limitOf(p.Limits); p.Cgroup != "" && !alone {
		quota := min(limit+more, maxMilliCPU)
		if limit == 0 {
			quota = 0
		}
		r.want(p.Cgroup, p, limit, quota, min(bursts, quota))
	}
	if bursts > 0 {
		r.bursting++
	}
}

// want advises a quota other than the limit and a burst, or reverts them if they were advised before.
func (r *round) want(cgroup string, p *tick.Pod, limit, quota, burst int64) {
	if r.state.Cgroups[cgroup] == nil && quota == limit && burst == 0 {
		return
	}
	h := r.state.Cgroups.Remember(cgroup)
	h.MilliCPU = 0
	if quota != limit {
		h.MilliCPU, h.Quota, h.At = quota, true, r.now
		r.above++
	}
	if burst > 0 {
		h.Burst, h.At = true, r.now
	}
	c := tick.Cgroup{Cgroup: cgroup}
	if h.Quota && limit > 0 && qos.Koordinator(p) != qos.BE { // a batch pod's quota comes from its batch requests
		c.CPUMaxMilliCPU = &quota
		r.advice.Fallback = append(r.advice.Fallback, tick.Cgroup{Cgroup: cgroup, CPUMaxMilliCPU: &limit})
	}
	if h.Burst {
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
		add("%s", r.nodeText)
	}
	if scaling || r.above > 0 || r.bursting > 0 {
		add("%s may save up, %s over the limit; %s up, %d down, %d without tokens", phrase.Count(r.bursting, "pod"), phrase.Count(r.above, "cgroup"), phrase.Count(r.up, "quota"), r.down, r.spent)
	}
	const most = 3
	for _, w := range r.wrong[:min(len(r.wrong), most)] {
		add("%s", w)
	}
	if more := len(r.wrong) - most; more > 0 {
		add("annotations of %s more are invalid", phrase.Count(more, "pod"))
	}
}

// forget removes the cgroups that have long had only their limit.
func (st *State) forget(now time.Time) {
	st.Cgroups.Forget(now)
	for name, b := range st.Buckets {
		if b != nil && b.At.After(now) {
			b.At = now
		}
		if b == nil || now.Sub(b.At) > min(max(2*b.period(), revert.For), 24*time.Hour) {
			delete(st.Buckets, name)
		}
	}
}
