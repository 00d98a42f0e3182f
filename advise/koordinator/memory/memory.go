// Package memory is Koordinator's memory QoS: protection and throttling of memory by class, as its koordlet calculates them
// (qosmanager/plugins/cgreconcile of its repository). It is pure.
//
// Nothing is advised for a cgroup whose values are the kernel's defaults. A value that was advised is reverted to the kernel's default when
// it is no longer desired, for some time; after that nothing is advised for it.
package memory

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/advise/koordinator/revert"
	"polder/advise/policy"
	"polder/lib/phrase"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// PageBytes is the page size to which memory.high is rounded down. isolate rounds to the machine's own, if that is larger.
const PageBytes = 4096

// maxBytes is the largest valid value: 1 PiB, so that no sum over a node's pods overflows.
const maxBytes = 1 << 50

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// Cgroups are those that have had values other than the kernel's defaults.
	Cgroups revert.Cgroups[advised, *advised] `json:"cgroups,omitempty"`
}

// advised is what was advised for one cgroup.
type advised struct {
	Keys keys `json:"keys"`
	revert.Last
}

// Advise adds the memory values of kubelet's tiers, pods and containers.
func (st *State) Advise(t *tick.Tick, s *sloconfig.Strategies, a *tick.Advice) {
	if t.Sample == nil {
		if len(st.Cgroups) > 0 || isAnyEnabled(s) {
			a.Reasons = append(a.Reasons, "memory QoS: no sample: all memory values stay unchanged")
		}
		return
	}
	n := round{state: st, sample: t.Sample, strategies: s, advice: a, now: t.Time}
	n.readTiers()
	for i := range t.Sample.Pods {
		n.pod(&t.Sample.Pods[i])
	}
	n.adviseTiers()
	n.explain()
	st.Cgroups.RemoveExpired(t.Time)
}

// isAnyEnabled reports whether a class's memory QoS is enabled.
func isAnyEnabled(s *sloconfig.Strategies) bool {
	return slices.ContainsFunc([]*sloconfig.ClassQOS{s.QOS.LSR, s.QOS.LS, s.QOS.BE, s.QOS.System}, isEnabled)
}

func isEnabled(class *sloconfig.ClassQOS) bool {
	return class != nil && class.Memory != nil && sloconfig.IsTrue(class.Memory.Enable)
}

// round is the work of one tick.
type round struct {
	state      *State
	sample     *tick.Sample
	strategies *sloconfig.Strategies
	advice     *tick.Advice
	now        time.Time

	template    *sloconfig.Strategies // for pods with policy "auto"
	sums        []tier
	pods        int // with memory QoS
	invalid     []string
	withoutHigh int // containers without a limit while allocatable is unknown
	// isPartial reports whether pods with memory QoS are currently unknown: their part of the sums is then unknown too.
	isPartial bool
}

// tier is one of kubelet's tiers, with the sums of the cgroups below it.
type tier struct {
	*tick.Tier
	min, low int64
}

func (n *round) readTiers() {
	n.sums = make([]tier, len(n.sample.Tiers))
	for i := range n.sample.Tiers {
		n.sums[i].Tier = &n.sample.Tiers[i]
	}
}

// pod adds the values of one pod and its containers.
func (n *round) pod(p *tick.Pod) {
	switch {
	case p.Missing == tick.MissingCluster:
		n.isPartial = n.state.Cgroups.KeepPod(p, n.now) || n.isPartial
		return
	case p.Missing != "" || p.Ended():
		return
	}
	m := n.settings(p)
	if m == nil && len(n.state.Cgroups.EntriesOf(p)) == 0 {
		return
	}
	values := staticValues(m)
	isBE := qos.Koordinator(p) == qos.BE
	var minBytes, low int64
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Cgroup == "" {
			continue
		}
		requests, limits := c.Requests, c.Limits
		if c.Cgroup == p.Cgroup && requests == nil && limits == nil { // not a pod of Kubernetes
			requests, limits = p.Requests, p.Limits
		}
		v := values
		n.calculate(&v, m, memoryOf(requests, isBE), memoryOf(limits, isBE))
		minBytes, low = minBytes+v.min, low+v.low
		n.advise(c.Cgroup, &v)
	}
	if p.Cgroup != "" && !slices.ContainsFunc(p.Containers, func(c tick.Container) bool { return c.Cgroup == p.Cgroup }) {
		v := values
		v.min, v.low = minBytes, low
		n.advise(p.Cgroup, &v)
	}
	for i := range n.sums {
		if tick.IsBelow(p.Cgroup, n.sums[i].Cgroup) {
			n.sums[i].min, n.sums[i].low = n.sums[i].min+minBytes, n.sums[i].low+low
		}
	}
	if m != nil && values != kernelDefaults || minBytes+low > 0 {
		n.pods++
	}
}

// memoryOf returns an amount of memory, batch memory for pods of class BE; 0 if there is none.
func memoryOf(r *tick.Resources, isBE bool) int64 {
	if r == nil {
		return 0
	}
	amount := r.MemoryBytes
	if isBE {
		amount = r.ReclaimedMemoryBytes
	}
	return int64(min(policy.Amount(amount), maxBytes))
}

// calculate sets a container's protection and limit from its request and its limit, 0 if it has none.
func (n *round) calculate(v *values, m *sloconfig.MemoryQOS, request, limit int64) {
	if m == nil {
		return
	}
	v.min = request * percent(m.MinLimitPercent) / 100
	v.low = max(request*percent(m.LowLimitPercent)/100, v.min)
	throttle := percent(m.ThrottlingPercent)
	if throttle == 0 {
		return
	}
	if limit == 0 {
		if limit = memoryOf(n.sample.Allocatable, false); limit == 0 {
			n.withoutHigh++
			v.unknown |= keyHigh
			return
		}
	}
	high := max((request+(limit-request)*throttle/100)/PageBytes*PageBytes, v.min)
	if high >= PageBytes { // no process could run in less
		v.high = high
	}
}

// percent returns a value from 0 to 100, 0 if it is not set.
func percent(p *int64) int64 { return sloconfig.Within(p, 0, 0, 100) }

// adviseTiers adds the values that kubelet's tiers need for the protection below them to be effective, and their priorities.
func (n *round) adviseTiers() {
	if n.isPartial || len(n.sample.Pods) == 0 && len(n.sample.Errors) > 0 {
		for i := range n.sums {
			if h := n.state.Cgroups[n.sums[i].Cgroup]; h != nil {
				h.At = n.now
			}
		}
		return
	}
	for i := range n.sums {
		at := &n.sums[i]
		v := kernelDefaults
		v.min, v.low = at.min, at.low
		var class *sloconfig.ClassQOS
		switch at.Name {
		case tick.TierPods:
			class = n.strategies.QOS.LSR
		case tick.TierBurstable:
			class = n.strategies.QOS.LS
		case tick.TierBestEffort:
			class = n.strategies.QOS.BE
		}
		if isEnabled(class) {
			settings := staticValues(class.Memory)
			v.priority, v.usePriority = settings.priority, settings.usePriority
		}
		n.advise(at.Cgroup, &v)
	}
}

// explain adds reasons for what was found.
func (n *round) explain() {
	add := func(format string, a ...any) {
		n.advice.Reasons = append(n.advice.Reasons, "memory QoS: "+fmt.Sprintf(format, a...))
	}
	if n.pods > 0 {
		var text strings.Builder
		text.WriteString(phrase.Count(n.pods, "pod"))
		for i := range n.sums {
			if !n.isPartial {
				fmt.Fprintf(&text, "; %s has min %d and low %d bytes", policy.Quote(n.sums[i].Name), n.sums[i].min, n.sums[i].low)
			}
		}
		if n.isPartial {
			text.WriteString("; kubelet's tiers stay unchanged, because some pods are unknown to the cluster")
		}
		add("%s", text.String())
	}
	if n.withoutHigh > 0 {
		add("%s without a limit: the allocatable memory is unknown, memory.high stays unchanged", phrase.Count(n.withoutHigh, "container"))
	}
	const maxListed = 3
	for _, w := range n.invalid[:min(len(n.invalid), maxListed)] {
		add("%s", w)
	}
	if more := len(n.invalid) - maxListed; more > 0 {
		add("invalid annotations of other pods: %d", more)
	}
}
