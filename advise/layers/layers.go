// Package layers is what follows each policy's own decision: batch's scheduling class and disks, the guard, the limits of memory, and the
// reclaim of cold memory. Policies share its settings, its state and its order.
package layers

import (
	"cmp"
	"slices"

	"polder/advise/class"
	"polder/advise/cold"
	"polder/advise/disk"
	"polder/advise/guard"
	"polder/advise/limits"
	"polder/lib/tick"
)

// Shared are the settings that all policies have. An empty class, mode or share means the policy's default.
type Shared struct {
	// ReservedCPUs is a list of CPUs that belong to no pool, and that batch never runs on (the system's own).
	ReservedCPUs string
	// Class sets how batch and services share CPUs.
	Class class.Settings
	// Guard takes from batch while services wait.
	Guard guard.Settings
	// Limits cap batch pods' memory and protect the services'.
	Limits limits.Settings
	// Cold reclaims memory that batch pods have but do not use.
	Cold cold.Settings
	// Disk gives batch pods the idle share of the disks, and limits what they read and write.
	Disk disk.Settings
}

// Defaults returns the default settings of all policies.
func Defaults() Shared {
	return Shared{
		Class: class.Defaults(),
		Guard: guard.Settings{MarginPermille: guard.DefaultMarginPermille},
		Cold:  cold.Settings{Mode: cold.None},
	}
}

// Or returns the settings with a policy's defaults for those that are empty, and with the policy's own choice of [limits.Settings.Own].
func (s Shared) Or(ofPolicy Shared) Shared {
	s.Class.Class = cmp.Or(s.Class.Class, ofPolicy.Class.Class)
	s.Guard.Mode = cmp.Or(s.Guard.Mode, ofPolicy.Guard.Mode)
	s.Limits.Batch = cmp.Or(s.Limits.Batch, ofPolicy.Limits.Batch)
	s.Limits.Services = cmp.Or(s.Limits.Services, ofPolicy.Limits.Services)
	s.Limits.Own = ofPolicy.Limits.Own
	s.Disk.Share = cmp.Or(s.Disk.Share, ofPolicy.Disk.Share)
	return s
}

// State is what the layers remember of one node, in the format of the state file.
type State struct {
	Class  *class.State  `json:"class,omitempty"`
	Guard  *guard.State  `json:"guard,omitempty"`
	Limits *limits.State `json:"limits,omitempty"`
	Cold   *cold.State   `json:"cold,omitempty"`
	Disk   *disk.State   `json:"disk,omitempty"`
}

// Reboot discards what was set of cgroups before a reboot.
func (st *State) Reboot() { *st = State{Guard: st.Guard.Reboot()} }

// Advise adds what all layers decide to the advice and to its fallback. Each layer sees what those before it desire: the guard tightens
// the disks' limits, and the cap of batch's memory depends on the offer, which must be in the advice. Strategy is the disks' part of the
// policy's own configuration.
func (st *State) Advise(t *tick.Tick, a *tick.Advice, s Shared, m class.Machine, strategy disk.Strategy) {
	st.Class = st.Class.Advise(t, a, s.Class, m)
	st.Disk = st.Disk.Advise(t, a, s.Disk, strategy)
	st.Guard = st.Guard.Advise(t, a, s.Guard, m)
	st.Limits = st.Limits.Advise(t, a, s.Limits)
	st.Cold = st.Cold.Advise(t, a, s.Cold)
	KeepOwnLimits(t.Sample, a)
}

// KeepOwnLimits makes the advised limits of cgroups that a rule of collect names apply only where they are tighter than their original
// ones. A policy does not know those: an administrator's CPUQuota and MemoryMax, or, without a cluster, kubelet's limits. A service's quota
// may be wider on purpose (CPU burst), but the end of a quota restores the original one.
func KeepOwnLimits(sample *tick.Sample, a *tick.Advice) {
	if sample == nil {
		return
	}
	var isBatch map[string]bool // of each cgroup of a pod that a rule names
	for i := range sample.Pods {
		p := &sample.Pods[i]
		if p.QoSSource != tick.QoSFromRule {
			continue
		}
		if isBatch == nil {
			isBatch = map[string]bool{}
		}
		isBatch[p.Cgroup] = isBatch[p.Cgroup] || p.QoS == tick.QoSReclaimed
		for j := range p.Containers {
			c := &p.Containers[j]
			isBatch[c.Cgroup] = isBatch[c.Cgroup] || p.QoS == tick.QoSReclaimed
		}
	}
	if isBatch == nil {
		return
	}
	for _, list := range []*[]tick.Cgroup{&a.Cgroups, &a.Fallback} {
		*list = slices.Clone(*list) // the policy may keep a reference to the advice
		for i := range *list {
			c := &(*list)[i]
			ofBatch, isNamed := isBatch[c.Cgroup]
			if !isNamed {
				continue
			}
			if c.CPUMaxMilliCPU != nil && (ofBatch || *c.CPUMaxMilliCPU == tick.Unlimited) {
				c.CPUMaxTighterOnly = true
			}
			if c.MemoryHighBytes != nil || c.MemoryMaxBytes != nil || c.MemoryMinBytes != nil || c.MemoryLowBytes != nil {
				c.MemoryTighterOnly = true
			}
		}
	}
}
