// Package suppress confines batch pods to the CPU that services leave, like Koordinator's CPU suppression, and sets batch pods' own cgroups
// according to their batch requests and limits (pkg/koordlet/qosmanager/plugins/cpusuppress and runtimehooks/hooks/batchresource of its
// repository):
//
//	budget = capacity * threshold % - use of pods that are not BE - max(use outside of pods, the node's reservation)
//
// The policy cpuset converts the budget to a list of CPUs, cfsQuota to a quota. A tick makes one step: down immediately, up by at most a
// tenth of the machine.
package suppress

import (
	"errors"
	"fmt"
	"time"

	"polder/advise/koordinator/annotation"
	"polder/advise/koordinator/revert"
	"polder/advise/policy"
	"polder/lib/clip"
	"polder/lib/kubepods"
	"polder/lib/phrase"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Settings are the settings that no strategy contains.
type Settings struct {
	// ReservedCPUs is a list of CPUs that belong to no pool (the system's own), in addition to those of the node's annotation.
	ReservedCPUs string
}

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// Mode is the policy in force, CPUs its current list and QuotaMilliCPU its current quota; the quota is also in force in mode cpuset if no
	// CPU was available.
	Mode          string `json:"mode,omitempty"`
	CPUs          string `json:"cpus,omitempty"`
	QuotaMilliCPU int64  `json:"quotaMilliCPU,omitempty"`
	policy.ExclusiveCPUs
	// Tier is kubelet's cgroup of BestEffort pods, as last known.
	Tier string `json:"tier,omitempty"`
	// Advised are the existing cgroups with the keys that were ever desired of them: keys that are no longer desired must be undone.
	Advised revert.Cgroups[advised, *advised] `json:"held,omitempty"`

	shape        *shape          // derived from the topology; rebuilt when that changes
	undoneQuotas map[string]bool // the cgroups whose desired quota only undoes an earlier one
	outside      policy.OutsideUse
}

// OnlyUndoesQuota reports whether the last desired quota of a pod's or container's cgroup only undoes an earlier one: other desired values
// there take precedence.
func (st *State) OnlyUndoesQuota(cgroup string) bool { return st.undoneQuotas[cgroup] }

// view is the input of one tick. No stage changes it.
type view struct {
	now      time.Time
	outside  policy.OutsideUse // of the last tick
	sample   *tick.Sample
	strategy *sloconfig.Strategies
	*shape
	exclusions
	pods          []pod
	tier          *tick.Tier // kubelet's of the BestEffort pods; nil if there is none in the sample
	tierPath      string     // the tier's cgroup, also if it is missing in this sample
	mayNarrowTier bool       // cgroups above containers may be narrowed
	// cpuManager is the policy of kubelet's CPU manager; empty if unknown.
	cpuManager string
	ratio      float64 // of the node's CPU to the one that limits are counted in
}

// limit is the total limit of batch pods, as in [State].
type limit struct {
	mode, cpus    string
	quotaMilliCPU int64
}

// decision is a limit with its reasons. If no decision was possible the limit is the last one.
type decision struct {
	limit
	isDecided bool
	confined  set // the CPUs to pin batch pods to; empty for none
	outside   policy.OutsideUse
	reasons   []string
}

func (d *decision) addReason(format string, args ...any) {
	d.reasons = append(d.reasons, fmt.Sprintf(format, args...))
}

// Advise adds the desired values of the batch pods' cgroups, and the pools. It reports false if the machine is unknown: then nothing is
// advised, and the last fallback stays. Each stage passes its result on: the input; the limit for all batch pods; the cgroups' values from
// that and from each pod's own resources; the reverts of what earlier ticks desired and this one does not; the fallback; the pools.
func (st *State) Advise(t *tick.Tick, s *sloconfig.Strategies, a *tick.Advice, settings Settings) bool {
	st.undoneQuotas = nil
	v, reasons, err := st.newView(t, s, settings)
	if err != nil {
		a.Reasons = append(a.Reasons, fmt.Sprintf("suppression: %v: everything stays unchanged", err))
		return false
	}
	a.Reasons = append(a.Reasons, reasons...)

	decided := v.suppress(limit{st.Mode, st.CPUs, st.QuotaMilliCPU})
	st.Mode, st.CPUs, st.QuotaMilliCPU, st.outside = decided.mode, decided.cpus, decided.quotaMilliCPU, decided.outside
	a.Reasons = append(a.Reasons, decided.reasons...)

	desired := &desiredState{}
	if !decided.confined.IsEmpty() {
		a.Reasons = append(a.Reasons, v.pin(desired, decided.confined)...)
	}
	a.Reasons = append(a.Reasons, v.adviseBatch(desired, decided.isDecided || decided.quotaMilliCPU == 0)...)
	if decided.isDecided && decided.quotaMilliCPU > 0 {
		v.divideQuota(desired, decided.quotaMilliCPU)
		v.limitBelowLikeKubelet(desired)
	}
	a.Reasons = append(a.Reasons, v.adviseIdle(desired)...)

	st.undoneQuotas = v.undo(desired, &st.Advised, decided.isDecided, t.Time)
	v.widenTier(desired, decided.limit)
	if decided.isDecided {
		a.Reasons = append(a.Reasons, v.widenUnowned(desired, decided.limit)...)
	}
	desired.appendTo(&a.Cgroups)
	v.fallback(decided.limit).appendTo(&a.Fallback)
	a.Pools = append(a.Pools, v.pools(decided.limit)...)
	return true
}

// newView returns the input of this tick, with the errors in it.
func (st *State) newView(t *tick.Tick, strategy *sloconfig.Strategies, settings Settings) (v *view, reasons []string, err error) {
	s := t.Sample
	if s == nil || s.Topology == nil {
		return nil, nil, errors.New("no topology in the sample")
	}
	if !st.shape.IsOf(s.Topology, "", "") {
		if st.shape, err = policy.NewShape(s.Topology, "", ""); err != nil {
			return nil, nil, err
		}
	}
	unreadText, err := st.ExclusiveCPUs.Observe(s)
	if err != nil {
		return nil, nil, err
	}
	v = &view{now: t.Time, outside: st.outside, sample: s, strategy: strategy, shape: st.shape, tier: s.Tier(tick.TierBestEffort)}
	if v.tier != nil {
		if st.Tier != v.tier.Cgroup {
			delete(st.Advised, st.Tier)
		}
		st.Tier = v.tier.Cgroup
	}
	v.tierPath = st.Tier
	if s.Kubelet != nil {
		v.cpuManager = s.Kubelet.CPUManagerPolicy
	}
	v.mayNarrowTier = v.cpuManager == "none"
	v.pods = podsOf(s, v.tier)
	var faults []error
	v.exclusions, faults = readExclusions(v, settings, st.ExclusiveCPUs.CPUs)
	if v.ratio, err = annotation.RatioOf(s.Annotations); err != nil {
		faults = append(faults, fmt.Errorf("%w; 1 applies", err))
	}
	if unreadText != "" {
		reasons = append(reasons, "suppression: "+unreadText)
	}
	for _, fault := range faults {
		reasons = append(reasons, fmt.Sprintf("suppression: %v", fault))
	}
	return v, reasons, nil
}

// suppress decides the batch pods' limit.
func (v *view) suppress(previous limit) decision {
	threshold := &v.strategy.Threshold
	if !sloconfig.IsTrue(threshold.Enable) {
		return v.unlimited(previous)
	}
	b, why := v.budget()
	if why != "" {
		d := decision{limit: previous}
		d.addReason("suppression: %s: everything stays unchanged", why)
		return d
	}
	var d decision
	if p := threshold.CPUSuppressPolicy; p != nil && *p == sloconfig.SuppressCFSQuota {
		d = v.decideQuota(b, previous)
	} else {
		d = v.decideCPUs(b, previous)
	}
	d.outside = b.outside
	return d
}

// unlimited is the decision if suppression is disabled.
func (v *view) unlimited(previous limit) (d decision) {
	why := ""
	switch { // batch pods would get CPUs of others
	case policy.PodsUnknown(v.sample):
		why = "the cluster's pods are still unknown"
	case v.sample.IsNodeUnread():
		why = nodeUnreadText
	}
	if why != "" {
		d.limit = previous
		if previous.mode != "" {
			d.addReason("suppression: %s: everything stays unchanged", why)
		}
		return d
	}
	if previous.mode != "" {
		d.addReason("suppression: disabled (resource-threshold-config, enable: false): batch pods get all CPUs %s, and only their own quotas", v.unsuppressedCPUs())
	}
	d.isDecided = true
	return d
}

// adviseIdle puts the batch pods in the idle class, if the strategy sets that. The kernel keeps no weight for an idle cgroup, and refuses a
// new one. So only cgroups are idle whose weight kubelet does not write again: those of its own class BestEffort, which cannot be resized,
// and never a tier, whose weight it writes at each start. A rule may name any of kubelet's cgroups: a reason says that they are not idle.
func (v *view) adviseIdle(desired *desiredState) (reasons []string) {
	var cpu *sloconfig.CPUQOS
	if v.strategy.QOS.BE != nil {
		cpu = v.strategy.QOS.BE.CPU
	}
	if cpu == nil || !sloconfig.IsTrue(cpu.Enable) || cpu.SchedIdle == nil || *cpu.SchedIdle != 1 {
		return nil
	}
	var left []string
	for i := range v.pods {
		p := &v.pods[i]
		at := kubepods.Of(p.ownCgroup)
		switch {
		case !p.isSuppressed || p.ownCgroup == "":
			continue
		case p.isFromRule && at.Level != kubepods.Outside && at.BestEffort == "":
			left = append(left, clip.Text(p.ownCgroup, shownBytes))
			continue
		case !p.isFromRule && qos.KubernetesOf(p.Pod) != qos.BestEffort:
			continue
		}
		w := desired.entry(p.ownCgroup)
		w.CPUIdle, w.CPUWeight = new(true), nil
	}
	if len(left) > 0 {
		const text = "schedIdle is not applied to %s: a rule of collect makes it batch, but its path is one of kubelet's cgroups, " +
			"and kubelet cannot write the weight of an idle cgroup"
		reasons = []string{fmt.Sprintf(text, phrase.First(left, 1))}
	}
	return reasons
}

// pools returns the pools for the screens: batch pods' CPUs, the kept ones, and the rest.
func (v *view) pools(current limit) (pools []tick.Pool) {
	if current.mode != sloconfig.SuppressCPUSet || current.cpus == "" {
		return nil
	}
	add := func(name string, of set) {
		if !of.IsEmpty() {
			pools = append(pools, tick.Pool{Name: name, CPUs: of.String()})
		}
	}
	reclaim := parse(current.cpus).Intersection(v.Online)
	reserve := v.all.Difference(v.lse).Difference(reclaim)
	add(tick.PoolReserve, reserve)
	add(tick.PoolShare, v.Online.Difference(reclaim).Difference(reserve).Difference(v.lse).Difference(v.lsr))
	add(tick.PoolReclaim, reclaim)
	for _, assigned := range v.podCPUs {
		add(tick.PoolDedicatedPrefix+assigned.name, assigned.cpus)
	}
	return pools
}
