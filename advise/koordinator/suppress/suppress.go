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
	"errors"
	"fmt"
	"slices"

	"polder/advise/koordinator/annotation"
	"polder/advise/koordinator/revert"
	"polder/advise/policy"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Settings are what no strategy has.
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
	// Held are the cgroups that are still there, with the keys that were ever desired of them: those that no longer are must be undone.
	Held revert.Cgroups[held, *held] `json:"held,omitempty"`

	shape  *shape          // derived from the topology, again whenever that changes
	yields map[string]bool // the cgroups whose desired quota only undoes an earlier one
}

// Yields reports whether the quota that was last desired of a pod's or container's cgroup only undoes an earlier one: it gives way
// to what others want there.
func (st *State) Yields(cgroup string) bool { return st.yields[cgroup] }

// view is what is seen at one tick. No stage changes it.
type view struct {
	sample   *tick.Sample
	strategy *sloconfig.Strategies
	*shape
	kept
	pods  []pod
	tier  *tick.Tier // kubelet's of the BestEffort pods; nil where there is none in the sample
	path  string     // the tier's cgroup, also where it is not seen this time
	above bool       // cgroups above containers may be narrowed
	// cpuManager is the policy of kubelet's CPU manager; empty where it is not known.
	cpuManager string
	ratio      float64 // of the node's CPU to the one that limits are counted in
}

// limit is what batch pods are held to together, as [State] has it.
type limit struct {
	mode, cpus    string
	quotaMilliCPU int64
}

// decision is a limit with its reasons. Where nothing could be decided the limit is the last one.
type decision struct {
	limit
	decided  bool
	confined set // the CPUs that batch pods are to be held on; empty for none
	reasons  []string
}

func (d *decision) because(format string, args ...any) {
	d.reasons = append(d.reasons, fmt.Sprintf(format, args...))
}

// Advise adds to the advice what is desired of the batch pods' cgroups, and the pools. It reports false where the machine is not
// known: then nothing is advised, and what was to be fallen back to still holds. The stages pass on what they decide: what is seen;
// the limit for all batch pods; what that and each pod's own resources make of the cgroups; what earlier ticks desired and this one does
// not; the fallback; the pools.
func (st *State) Advise(t *tick.Tick, s *sloconfig.Strategies, a *tick.Advice, settings Settings) bool {
	st.yields = nil
	v, reasons, err := st.look(t.Sample, s, settings)
	if err != nil {
		a.Reasons = append(a.Reasons, fmt.Sprintf("suppression: %v: everything stays as it is", err))
		return false
	}
	a.Reasons = append(a.Reasons, reasons...)

	now := v.suppress(limit{st.Mode, st.CPUs, st.QuotaMilliCPU})
	st.Mode, st.CPUs, st.QuotaMilliCPU = now.mode, now.cpus, now.quotaMilliCPU
	a.Reasons = append(a.Reasons, now.reasons...)

	want := &wants{}
	if !now.confined.IsEmpty() {
		a.Reasons = append(a.Reasons, v.hold(want, now.confined)...)
	}
	a.Reasons = append(a.Reasons, v.batch(want, now.decided || now.quotaMilliCPU == 0)...)
	if now.decided && now.quotaMilliCPU > 0 {
		v.divide(want, now.quotaMilliCPU, true)
	}
	v.idle(want)

	st.yields = v.undo(want, &st.Held, now.decided, t.Time)
	v.widen(want, now.limit)
	if now.decided {
		a.Reasons = append(a.Reasons, v.widenForgotten(want, now.limit)...)
	}
	want.into(&a.Cgroups)
	v.floor(now.limit).into(&a.Fallback)
	a.Pools = append(a.Pools, v.pools(now.limit)...)
	return true
}

// look is what is seen at this tick, with what is wrong in it.
func (st *State) look(s *tick.Sample, strategy *sloconfig.Strategies, settings Settings) (v *view, reasons []string, err error) {
	if s == nil || s.Topology == nil {
		return nil, nil, errors.New("no topology in the sample")
	}
	if !st.shape.IsOf(s.Topology, "", "") {
		if st.shape, err = policy.NewShape(s.Topology, "", ""); err != nil {
			return nil, nil, err
		}
	}
	v = &view{sample: s, strategy: strategy, shape: st.shape, tier: bestEffortTier(s)}
	if v.tier != nil {
		if st.Tier != v.tier.Cgroup {
			delete(st.Held, st.Tier)
		}
		st.Tier = v.tier.Cgroup
	}
	v.path = st.Tier
	if s.Kubelet != nil {
		v.cpuManager = s.Kubelet.CPUManagerPolicy
	}
	v.above = v.cpuManager == "none"
	v.pods = podsOf(s, v.tier)
	st.Given, _ = policy.ExclusiveCPUs(s, st.Given)
	var faults []error
	v.kept, faults = keptOut(v, settings, st.Given)
	if v.ratio, err = annotation.RatioOf(s.Annotations); err != nil {
		faults = append(faults, fmt.Errorf("%w; taken for 1", err))
	}
	for _, fault := range faults {
		reasons = append(reasons, fmt.Sprintf("suppression: %v", fault))
	}
	return v, reasons, nil
}

// suppress decides the batch pods' part.
func (v *view) suppress(before limit) decision {
	threshold := &v.strategy.Threshold
	if !sloconfig.IsTrue(threshold.Enable) {
		return v.unlimited(before)
	}
	b, why := v.budget()
	if why != "" {
		d := decision{limit: before}
		d.because("suppression: %s: everything stays as it is", why)
		return d
	}
	if p := threshold.CPUSuppressPolicy; p != nil && *p == sloconfig.SuppressCFSQuota {
		return v.byQuota(b, before)
	}
	return v.divideCPUs(b, before)
}

// unlimited is the decision where suppression is switched off.
func (v *view) unlimited(before limit) (d decision) {
	if policy.PodsUnknown(v.sample) { // whose CPUs are whose is not known
		d.limit = before
		if before.mode != "" {
			d.because("suppression: the cluster's pods are not known yet: everything stays as it is")
		}
		return d
	}
	if before.mode != "" {
		d.because("suppression: resource-threshold-config has enable false: batch pods get all CPUs %s, and no quota but their own", v.full())
	}
	d.decided = true
	return d
}

// idle wants the batch pods scheduled where nobody else wants to run, if the strategy sets that. The kernel keeps no weight for
// a cgroup that is idle, and refuses a new one. So only cgroups are idle whose weight kubelet does not write again: those of its
// own class BestEffort, which cannot be resized, and never a tier, whose weight it writes at each start.
func (v *view) idle(want *wants) {
	cpu := (*sloconfig.CPUQOS)(nil)
	if v.strategy.QOS.BE != nil {
		cpu = v.strategy.QOS.BE.CPU
	}
	if cpu == nil || !sloconfig.IsTrue(cpu.Enable) || cpu.SchedIdle == nil || *cpu.SchedIdle != 1 {
		return
	}
	for i := range v.pods {
		p := &v.pods[i]
		if !p.suppressed || p.own == "" || v.isTier(p.own) || !p.rule && qos.KubernetesOf(p.Pod) != qos.BestEffort {
			continue
		}
		w := want.of(p.own)
		w.CPUIdle, w.CPUWeight = new(true), nil
	}
}

// isTier reports whether a cgroup is one of kubelet's above the pods': a rule may name one.
func (v *view) isTier(cgroup string) bool {
	return slices.ContainsFunc(v.sample.Tiers, func(t tick.Tier) bool { return t.Cgroup == cgroup })
}

// pools are for the screens: what the batch pods run on, what is kept out, and the rest.
func (v *view) pools(now limit) (pools []tick.Pool) {
	if now.mode != sloconfig.SuppressCPUSet || now.cpus == "" {
		return nil
	}
	add := func(name string, of set) {
		if !of.IsEmpty() {
			pools = append(pools, tick.Pool{Name: name, CPUs: of.String()})
		}
	}
	reclaim := parse(now.cpus).Intersection(v.Online)
	reserve := v.out.Difference(v.lse).Difference(reclaim)
	add(tick.PoolReserve, reserve)
	add(tick.PoolShare, v.Online.Difference(reclaim).Difference(reserve).Difference(v.lse).Difference(v.lsr))
	add(tick.PoolReclaim, reclaim)
	for _, own := range v.owned {
		add(tick.PoolDedicatedPrefix+own.name, own.cpus)
	}
	return pools
}
