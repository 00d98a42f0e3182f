// Package suppress holds batch pods to what the services leave of the CPUs, as Koordinator's CPU suppression does, and gives
// batch pods' own cgroups the values of their batch requests and limits (pkg/koordlet/qosmanager/plugins/cpusuppress and
// runtimehooks/hooks/batchresource of its repository):
//
//	budget = capacity * threshold % - use of pods that are not BE - max(use of no pod, what the node reserves)
//
// The policy cpuset turns the budget into a list of CPUs, cfsQuota into a quota. A tick is a step: down at once, up by a tenth
// of the machine at most.
package suppress

import (
	"fmt"
	"slices"

	"polder/advise/policy"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Settings are what no strategy says.
type Settings struct {
	// ReservedCPUs is a list of CPUs that belong to no pool (the system's own), beside those of the node's annotation.
	ReservedCPUs string
}

// State is what is remembered of one node, in the form of the state file.
type State struct {
	// Mode is the policy in force, CPUs the list or QuotaMilliCPU the quota that it has come to; the quota is in force in the
	// mode cpuset, too, where no CPU could be had.
	Mode          string `json:"mode,omitempty"`
	CPUs          string `json:"cpus,omitempty"`
	QuotaMilliCPU int64  `json:"quotaMilliCPU,omitempty"`
	// Given are the CPUs that kubelet gave away, as far as was last known, and Tier its cgroup of BestEffort pods.
	Given string `json:"given,omitempty"`
	Tier  string `json:"tier,omitempty"`
	// Held says which keys were ever wanted of a cgroup that is still there: those that no longer are must be undone.
	Held map[string]keys `json:"held,omitempty"`

	shape  *shape          // derived from the topology, made anew when that changes
	yields map[string]bool // the cgroups whose wanted quota only undoes an earlier one
}

// Yields reports whether the quota that was last wanted of a pod's or container's cgroup only undoes an earlier one: it gives way
// to what others want there.
func (st *State) Yields(cgroup string) bool { return st.yields[cgroup] }

// call is one tick's decision on the way.
type call struct {
	st       *State
	sample   *tick.Sample
	strategy *sloconfig.Strategies
	a        *tick.Advice
	settings Settings
	*shape
	kept
	pods  []pod
	tier  *tick.Tier // kubelet's of the BestEffort pods; nil where there is none
	above bool       // cgroups above containers may be narrowed
	// policy is kubelet's CPU manager's; empty where it is not known.
	policy string
	ratio  float64 // of the node's CPU to the one that limits are counted in
	want   wants
}

// Advise adds to the advice what is wanted of the batch pods' cgroups, and the pools. It reports false where the machine is not
// known: then nothing is said, and what was to be fallen back to still holds.
func (st *State) Advise(t *tick.Tick, s *sloconfig.Strategies, a *tick.Advice, settings Settings) bool {
	clear(st.yields)
	if t.Sample == nil || t.Sample.Topology == nil {
		a.Reasons = append(a.Reasons, "suppression: no topology in the sample: everything stays as it is")
		return false
	}
	c := &call{st: st, sample: t.Sample, strategy: s, a: a, settings: settings}
	if err := st.see(t.Sample.Topology); err != nil {
		a.Reasons = append(a.Reasons, fmt.Sprintf("suppression: %v: everything stays as it is", err))
		return false
	}
	c.shape = st.shape
	c.enroll()
	c.keepOut()
	c.ratio = c.normalization()

	decided := c.suppress()
	c.batch(decided)
	if st.QuotaMilliCPU > 0 && decided {
		c.divide(st.QuotaMilliCPU)
	}
	c.idle()
	c.undo(decided)
	c.want.into(&a.Cgroups)
	c.floor()
	c.pools()
	return true
}

// suppress decides the batch pods' part, and reports false where it cannot and everything stays as it is.
func (c *call) suppress() bool {
	threshold := &c.strategy.Threshold
	if threshold.Enable == nil || !*threshold.Enable {
		if policy.PodsUnknown(c.sample) { // whose CPUs are whose is not known
			if c.st.Mode != "" {
				c.say("suppression: the cluster's pods are not known yet: everything stays as it is")
			}
			return false
		}
		if c.st.Mode != "" {
			c.say("suppression: resource-threshold-config has enable false: batch pods get all CPUs %s, and no quota but their own", c.full())
		}
		c.st.Mode, c.st.CPUs, c.st.QuotaMilliCPU = "", "", 0
		return true
	}
	b, why := c.budget()
	if why != "" {
		c.say("suppression: %s: everything stays as it is", why)
		return false
	}
	if p := threshold.CPUSuppressPolicy; p != nil && *p == sloconfig.SuppressCFSQuota {
		c.byQuota(b)
	} else {
		c.divideCPUs(b)
	}
	return true
}

func (c *call) say(format string, args ...any) {
	c.a.Reasons = append(c.a.Reasons, fmt.Sprintf(format, args...))
}

// idle wants the batch pods scheduled where nobody else wants to run, if the strategy says so. The kernel keeps no weight for
// a cgroup that is idle, and refuses to be told one. So only cgroups are idle whose weight kubelet does not write again: those of its
// own class BestEffort, which cannot be resized, and never a tier, whose weight it writes at each start.
func (c *call) idle() {
	cpu := (*sloconfig.CPUQOS)(nil)
	if c.strategy.QOS.BE != nil {
		cpu = c.strategy.QOS.BE.CPU
	}
	if cpu == nil || cpu.Enable == nil || !*cpu.Enable || cpu.SchedIdle == nil || *cpu.SchedIdle != 1 {
		return
	}
	for i := range c.pods {
		p := &c.pods[i]
		if !p.held || p.own == "" || c.isTier(p.own) || !p.rule && qos.KubernetesOf(p.Pod) != qos.BestEffort {
			continue
		}
		w := c.want.of(p.own)
		w.CPUIdle, w.CPUWeight = new(true), nil
	}
}

// isTier reports whether a cgroup is one of kubelet's above the pods': a rule may name one.
func (c *call) isTier(cgroup string) bool {
	return slices.ContainsFunc(c.sample.Tiers, func(t tick.Tier) bool { return t.Cgroup == cgroup })
}

// pools are for the screens: what the batch pods run on, what is kept out, and the rest.
func (c *call) pools() {
	if c.st.Mode != sloconfig.SuppressCPUSet || c.st.CPUs == "" {
		return
	}
	add := func(name string, of set) {
		if !of.IsEmpty() {
			c.a.Pools = append(c.a.Pools, tick.Pool{Name: name, CPUs: of.String()})
		}
	}
	reclaim := parse(c.st.CPUs).Intersection(c.Online)
	reserve := c.out.Difference(c.lse).Difference(reclaim)
	add(tick.PoolReserve, reserve)
	add(tick.PoolShare, c.Online.Difference(reclaim).Difference(reserve).Difference(c.lse).Difference(c.lsr))
	add(tick.PoolReclaim, reclaim)
	for _, own := range c.owned {
		add(tick.PoolDedicatedPrefix+own.name, own.cpus)
	}
}
