// Package koordinator is Koordinator's policy: batch and mid resources, suppression of batch pods, CPU burst, memory QoS and division of
// the cache, each in a package below this one, by the strategies of the ConfigMap slo-controller-config as in the node's sample.config.
// Formulas and defaults are Koordinator's; docs/policy-koordinator.md lists the differences.
package koordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"polder/advise/class"
	"polder/advise/koordinator/batch"
	"polder/advise/koordinator/burst"
	"polder/advise/koordinator/memory"
	"polder/advise/koordinator/resctrl"
	"polder/advise/koordinator/suppress"
	"polder/advise/layers"
	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Policy describes the package in the list of policies.
var Policy = policy.Policy{
	Name: "koordinator",
	Doc: `Koordinator's batch and mid resources, suppression and QoS strategies
What high-priority pods and the system do not use, less a safety margin, is offered to batch pods; these are limited to a
part of the CPUs, or to a quota, that follows the services' load. The strategies are the ConfigMap slo-controller-config's.`,
	StateVersion: 1001,
}

// Settings are the settings that are not in any ConfigMap.
type Settings = layers.Shared

// Defaults returns the default settings. A strategy's schedIdle and blkioQOS apply in addition. The guard and the limits of memory are off,
// because Koordinator has no guard, and its own memory QoS.
func Defaults() Settings { return Settings{Class: class.Settings{Class: class.IdleOnHosts}} }

// Decider decides for any number of nodes, and keeps a separate state for each.
type Decider struct {
	policy.Base[Settings, node, *node]
}

// New returns a Decider.
func New(s Settings) *Decider { return &Decider{Base: policy.NewBase[Settings, node](s)} }

// node is the state of one node, in the format of the state file.
type node struct {
	SeenAt time.Time `json:"seen,omitzero"`
	sloconfig.InForce
	Batch    batch.State    `json:"batch"`
	Suppress suppress.State `json:"suppress"`
	Burst    burst.State    `json:"burst"`
	Memory   memory.State   `json:"memory"`
	Resctrl  resctrl.State  `json:"resctrl"`
	layers.State
	Fallback []tick.Cgroup `json:"fallback,omitempty"`
}

// LastUsed returns when the node was last seen.
func (n *node) LastUsed() time.Time { return n.SeenAt }

// Reboot keeps the history of the pods' use.
func (n *node) Reboot() {
	n.Suppress = suppress.State{ExclusiveCPUs: n.Suppress.ExclusiveCPUs}
	n.Burst, n.Memory, n.Resctrl, n.Fallback = burst.State{}, memory.State{}, resctrl.State{}, nil
	n.State.Reboot()
}

// Decide implements [policy.Decider].
func (d *Decider) Decide(t *tick.Tick) *tick.Advice {
	n := d.Node(t.Node)
	n.SeenAt = t.Time
	a := &tick.Advice{Policy: Policy.Name}
	s, why := n.strategies(t.Sample)
	if why != "" {
		a.Reasons = []string{why}
	}
	if s == nil {
		policy.ClearIdleTiers(t.Sample, a)
		a.Fallback = n.Fallback
		return a
	}
	if t.Sample == nil || t.Sample.Fleet == nil && t.Sample.Agent == nil {
		n.Batch.Advise(t, s, a)
	} else { // collect fleet does not know the node's use: the node's own pipe decides
		a.Reasons = append(a.Reasons, "the sample is from collect fleet: no advice on batch resources")
	}
	isDecided := n.Suppress.Advise(t, s, a, suppress.Settings{ReservedCPUs: d.Settings.ReservedCPUs})
	suppressedEntries := len(a.Cgroups)
	n.Burst.Advise(t, s, a)
	dropUndoneQuotas(a.Cgroups[:suppressedEntries], a.Cgroups[suppressedEntries:], n.Suppress.OnlyUndoesQuota)
	n.Memory.Advise(t, s, a)
	n.Resctrl.Advise(t, s, a)
	a.Cgroups = merge(a.Cgroups, a)
	policy.ClearIdleTiers(t.Sample, a)
	a.Fallback = merge(a.Fallback, a)
	arePodsUnknown, m := t.Sample != nil && policy.PodsUnknown(t.Sample), machineOf(t.Sample)
	switch {
	case arePodsUnknown: // every pod counts as shared now: the layers would undo what they have set of batch
		const text = "the cluster's pods are still unknown: batch's class, disk limits, memory limits and guard steps stay unchanged"
		a.Reasons = append(a.Reasons, text)
	case isDecided:
		n.State.Advise(t, a, d.Settings, m, diskStrategy(s, a))
	default: // the machine is unknown: what is set of disks and memory stays unchanged
		const text = "the topology, or which CPUs kubelet assigned exclusively, is unknown: batch's disk limits and memory limits stay unchanged"
		a.Reasons = append(a.Reasons, text)
		n.Class = n.Class.Advise(t, a, d.Settings.Class, m)
		n.Guard = n.Guard.Advise(t, a, d.Settings.Guard, m)
	}
	layers.KeepOwnLimits(t.Sample, a)
	for _, list := range [][]tick.Cgroup{a.Cgroups, a.Fallback} { // parents come before their children
		slices.SortStableFunc(list, func(x, y tick.Cgroup) int { return strings.Compare(x.Cgroup, y.Cgroup) })
	}
	if !isDecided || arePodsUnknown { // the cgroups were not decided on
		a.Fallback = n.Fallback
	}
	n.Fallback = a.Fallback
	a.Reasons = limitReasons(a.Reasons)
	return a
}

// machineOf returns what batch pods' floor is measured against; the floor is a tenth of the machine.
func machineOf(s *tick.Sample) class.Machine {
	m := class.Machine{}
	if s == nil {
		return m
	}
	m.CgroupVersion = s.CgroupVersion
	if s.Topology != nil {
		if online, err := cpus.Parse(s.Topology.CPUs); err == nil {
			m.MilliCPU = int64(online.Size()) * 1000
			m.FloorMilliCPU = m.MilliCPU / 10
		}
	}
	return m
}

// strategies returns the strategies in force; nil, and why, if none are known.
func (n *node) strategies(s *tick.Sample) (*sloconfig.Strategies, string) {
	if s == nil {
		if n.Last == nil {
			return nil, "no sample: no decision"
		}
		return n.Last, ""
	}
	switch err := n.Update(s); {
	case err != nil && n.Last == nil:
		return nil, fmt.Sprintf("strategies: %v, and there are no earlier ones: no decision", err)
	case err != nil:
		return n.Last, fmt.Sprintf("strategies: %v: the last valid ones of %s stay in force", err, n.Last.From)
	case n.Last == nil: // no source reads a ConfigMap
		defaults := sloconfig.Shipped()
		n.Last = &defaults
	}
	return n.Last, ""
}

// maxReasons bounds the reasons of one tick.
const maxReasons = 60

func limitReasons(reasons []string) []string {
	if len(reasons) <= maxReasons {
		return reasons
	}
	return append(reasons[:maxReasons:maxReasons], fmt.Sprintf("and %d more", len(reasons)-maxReasons))
}
