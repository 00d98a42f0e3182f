package guard

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"polder/advise/class"
	"polder/advise/policy"
	"polder/lib/cpus"
	"polder/lib/tick"
)

const (
	// maxMilliCPU is more than any machine has; a larger value in a sample or a state file is invalid.
	maxMilliCPU = 1 << 40
	// memoryStep is the part of a cgroup's memory that a step takes, and minMemory the memory that steps always leave.
	memoryStep = 0.1
	minMemory  = 128 << 20
	mebibyte   = 1 << 20
)

// applied is what was set of a batch cgroup: a container's, or for disks a pod's. The numbers are those of the first step, so that a steady
// state writes nothing.
type applied struct {
	// Quota and Memory report whether they were set, and must be undone if they are no longer desired.
	Quota  bool `json:"quota,omitempty"`
	Memory bool `json:"memory,omitempty"`
	// Base is the CPU that the cgroup used at the first step of quota, and Floor the CPU that it keeps, in milli-CPU.
	Base  int64 `json:"base,omitempty"`
	Floor int64 `json:"floor,omitempty"`
	// Bytes is the memory that the cgroup used at the first step of memory.
	Bytes int64 `json:"bytes,omitempty"`
	// Disk reports whether the pod's I/O was limited; Rates are its rates at the first step of disk.
	Disk  bool  `json:"disk,omitempty"`
	Rates rates `json:"rates,omitzero"`
	// NotBatchSince is since when the cgroup is not one of batch; zero while it is.
	NotBatchSince time.Time `json:"notBatch,omitzero"`
}

// draft is an advice's cgroups while the guard changes them.
type draft struct{ *policy.Draft }

// apply applies the steps in force to the advice, and undoes what earlier steps set.
func (st *State) apply(now time.Time, a *tick.Advice, v *view, m class.Machine) {
	if len(st.Steps) == 0 && len(st.Batch) == 0 {
		return
	}
	d := draft{policy.NewDraft(a)}
	if n := st.stepsTaken(kindCPUs); n > 0 {
		for i := range d.Cgroups {
			if c := &d.Cgroups[i]; c.CPUSetCPUs != "" && v.isBatch(c.Cgroup) {
				c.CPUSetCPUs = v.narrowed(c.CPUSetCPUs, d.floorList(c.Cgroup), m, n)
			}
		}
	}
	quotaLowered := st.applyQuota(d, v, m, st.stepsTaken(kindQuota))
	highLowered := st.applyMemory(d, v, st.stepsTaken(kindMemory))
	throttled := st.applyDisk(d, v, st.stepsTaken(kindDisk))
	st.undo(now, d, v, quotaLowered, highLowered, throttled)
	d.Finish(a)
}

// floorList returns the CPU list of a cgroup in the fallback: the policy's floor.
func (d draft) floorList(path string) string {
	if c := d.FallbackOf(path); c != nil {
		return c.CPUSetCPUs
	}
	return ""
}

// canNarrow reports whether one more step takes CPUs.
func (v *view) canNarrow(a *tick.Advice, m class.Machine, taken int) bool {
	d := draft{policy.NewDraft(a)}
	for i := range d.Cgroups {
		c := &d.Cgroups[i]
		if c.CPUSetCPUs == "" || !v.isBatch(c.Cgroup) {
			continue
		}
		floor := d.floorList(c.Cgroup)
		if v.narrowed(c.CPUSetCPUs, floor, m, taken+1) != v.narrowed(c.CPUSetCPUs, floor, m, taken) {
			return true
		}
	}
	return false
}

// narrowed returns a CPU list after a number of steps: the floor, and whole cores of the list up to the remaining size. It is never empty.
// If two lists have the same floor and one contains the other, their results contain each other too.
func (v *view) narrowed(list, floorList string, m class.Machine, steps int) string {
	set, err := cpus.Parse(list)
	if err != nil || steps == 0 || set.IsEmpty() {
		return list
	}
	floor, err := cpus.Parse(floorList)
	if err != nil {
		floor = cpus.Set{}
	}
	if floor = floor.Intersection(set); floor.IsEmpty() {
		floor = v.fill(cpus.Set{}, set, max(int(math.Ceil(float64(m.FloorMilliCPU)/1000)), 1))
	}
	excess := float64(set.Size() - floor.Size())
	size := set.Size() - int(math.Ceil(excess*float64(steps)/float64(stepsOf[kindCPUs])-1e-9))
	return v.fill(floor, set, size).String()
}

// fill adds cores of a list to a set until the set has size CPUs or the next core does not fit.
func (v *view) fill(into, from cpus.Set, size int) cpus.Set {
	for _, core := range v.coreSets() {
		if into.Size() >= size {
			return into
		}
		into = into.Union(core.Intersection(from))
	}
	if into.Size() < size { // CPUs that belong to no core
		into = from
	}
	return into
}

// quotaGroups returns the cgroups whose quota the steps lower: those of which the policy desires a quota and that contain only batch, and
// batch's own cgroups if no such cgroup is above or below them.
func quotaGroups(d draft, v *view) []group {
	var list []group
	for i := range d.Cgroups {
		if c := &d.Cgroups[i]; c.CPUMaxMilliCPU != nil && *c.CPUMaxMilliCPU > 0 && v.hasOnlyBatch(c.Cgroup) {
			list = append(list, group{cgroup: c.Cgroup, limit: float64(*c.CPUMaxMilliCPU)})
		}
	}
	fromPolicy := len(list)
	for i := range v.groups {
		g := v.groups[i]
		isCovered := false
		for j := range fromPolicy {
			u := &list[j]
			switch {
			case tick.IsWithin(g.cgroup, u.cgroup):
				u.use += max(g.use, 0)
				isCovered = true
			case tick.IsWithin(u.cgroup, g.cgroup):
				isCovered = true
			}
		}
		if !isCovered {
			list = append(list, g)
		}
	}
	return list
}

// canLowerQuota reports whether one more step of quota takes CPU.
func (st *State) canLowerQuota(a *tick.Advice, v *view, m class.Machine) bool {
	if st.stepsTaken(kindQuota) == 0 {
		return len(v.groups) > 0 && v.batchUse > float64(m.FloorMilliCPU)+policy.MinQuotaMilliCPU
	}
	for _, u := range quotaGroups(draft{policy.NewDraft(a)}, v) {
		if s := st.Batch[u.cgroup]; s != nil && s.Base > s.Floor {
			return true
		}
	}
	return false
}

// applyQuota lowers quotas, and returns the cgroups whose quota it lowered.
func (st *State) applyQuota(d draft, v *view, m class.Machine, steps int) map[string]bool {
	if steps == 0 {
		return nil
	}
	list := quotaGroups(d, v)
	totalUse := 0.0
	for i := range list {
		totalUse += max(list[i].use, 0)
	}
	quotas := make([]int64, len(list))
	var sum, ownSum int64 // of all, and of those without a floor of the policy
	for i := range list {
		u := &list[i]
		s := st.appliedTo(u.cgroup)
		if s.Quota = true; s.Base == 0 {
			s.Floor, s.Base = d.floorAndBase(u, totalUse, len(list), m)
		}
		quota := s.Base - int64(float64(s.Base-s.Floor)*float64(min(steps, stepsOf[kindQuota]))/float64(stepsOf[kindQuota]))
		quotas[i] = max(quota, policy.MinQuotaMilliCPU)
		if sum += quotas[i]; d.floorOf(u) == 0 {
			ownSum += quotas[i]
		}
	}
	lowered := make(map[string]bool, len(list))
	for i := range list {
		u, quota := &list[i], quotas[i]
		if sum < m.FloorMilliCPU && d.floorOf(u) == 0 { // pods that started since the step have only the least floor
			quota += int64(float64(m.FloorMilliCPU-sum) * float64(quota) / float64(ownSum))
		}
		d.Each(u.cgroup, func(c *tick.Cgroup) { c.CPUMaxMilliCPU = policy.Tighter(c.CPUMaxMilliCPU, quota) })
		lowered[u.cgroup] = true
	}
	return lowered
}

// floorAndBase returns the part of batch's floor that a cgroup always keeps, and its CPU before the first step: its use, within its limit.
// The floor is divided by use; a cgroup that uses nothing keeps a little, so that it can start.
func (d draft) floorAndBase(u *group, totalUse float64, n int, m class.Machine) (floor, base int64) {
	part := 1 / float64(4*n)
	if totalUse > 0 && u.use > 0 {
		part = max(part, u.use/totalUse)
	}
	floor = max(int64(math.Ceil(float64(m.FloorMilliCPU)*part)), policy.MinQuotaMilliCPU)
	if ofPolicy := d.floorOf(u); ofPolicy > 0 {
		floor = ofPolicy
	}
	base = int64(math.Ceil(max(u.use, 0)))
	if u.limit > 0 {
		base = min(base, quotaOf(u.limit))
	}
	return floor, max(base, floor)
}

// floorOf returns the quota that the policy advises as the cgroup's floor; 0 if there is none. A quota in the fallback that is not lower
// than the one in the advice is a limit of the pod itself.
func (d draft) floorOf(u *group) int64 {
	c := d.FallbackOf(u.cgroup)
	if c == nil || c.CPUMaxMilliCPU == nil || *c.CPUMaxMilliCPU <= 0 || u.limit > 0 && *c.CPUMaxMilliCPU >= quotaOf(u.limit) {
		return 0
	}
	return *c.CPUMaxMilliCPU
}

// applyMemory lowers memory.high, and returns the cgroups whose memory.high it lowered. It never sets it more than one step below the use.
func (st *State) applyMemory(d draft, v *view, steps int) map[string]bool {
	if steps == 0 {
		return nil
	}
	lowered := make(map[string]bool, len(v.groups))
	for i := range v.groups {
		g := &v.groups[i]
		if g.bytes < 0 {
			continue
		}
		s := st.appliedTo(g.cgroup)
		if s.Memory = true; s.Bytes == 0 {
			s.Bytes = int64(max(g.bytes, minMemory))
		}
		high := max(float64(s.Bytes)*(1-memoryStep*float64(steps-1)), g.bytes*(1-memoryStep), minMemory)
		rounded := int64(math.Ceil(high/mebibyte)) * mebibyte
		d.Each(g.cgroup, func(c *tick.Cgroup) { c.MemoryHighBytes = policy.Tighter(c.MemoryHighBytes, rounded) })
		lowered[g.cgroup] = true
	}
	return lowered
}

// undo undoes what was set of cgroups of which it is no longer desired, and of those that are not batch's any more, for
// [policy.UndoFor]. Values that the policy desires take precedence.
func (st *State) undo(now time.Time, d draft, v *view, quotaLowered, highLowered, throttled map[string]bool) {
	limits := v.limits()
	for _, path := range slices.Sorted(maps.Keys(st.Batch)) {
		s := st.Batch[path]
		limit, exists := limits[path]
		switch isBatch := v.isBatch(path) || quotaLowered[path] || v.isDeleted(path); {
		case s == nil || !s.Quota && !s.Memory && !s.Disk:
			delete(st.Batch, path)
			continue
		case isBatch:
			s.NotBatchSince = time.Time{}
		case s.NotBatchSince.IsZero() || s.NotBatchSince.After(now): // or the clock was set back
			s.NotBatchSince = now
		case now.Sub(s.NotBatchSince) >= policy.UndoFor:
			delete(st.Batch, path)
			continue
		}
		if !exists && !quotaLowered[path] {
			continue // it may come back
		}
		if s.Quota && !quotaLowered[path] {
			quota := int64(tick.Unlimited)
			if limit > 0 {
				quota = quotaOf(limit)
			}
			s.Base, s.Floor = 0, 0
			d.Each(path, func(c *tick.Cgroup) {
				if c.CPUMaxMilliCPU == nil {
					c.CPUMaxMilliCPU, c.CPUMaxTighterOnly = new(quota), limit <= 0 // an administrator's own quota applies again
				}
			})
		}
		if s.Memory && !highLowered[path] {
			s.Bytes = 0
			d.Each(path, func(c *tick.Cgroup) {
				if c.MemoryHighBytes != nil {
					return
				}
				c.MemoryHighBytes = new(int64(tick.Unlimited))
				if c.MemoryMaxBytes == nil {
					c.MemoryTighterOnly = true // an administrator's own memory.high applies again
				}
			})
		}
		if s.Disk && !throttled[path] {
			s.Rates = rates{}
			d.removeDiskLimits(path)
		}
	}
}

// quotaOf converts a limit in milli-CPU to a quota: the kernel accepts none below [policy.MinQuotaMilliCPU], and kubelet sets that for
// smaller limits.
func quotaOf(limit float64) int64 {
	return int64(min(max(limit, policy.MinQuotaMilliCPU), maxMilliCPU))
}

// appliedTo returns what was set of a cgroup, and creates the entry if there is none.
func (st *State) appliedTo(path string) *applied {
	s := st.Batch[path]
	if s == nil {
		if st.Batch == nil {
			st.Batch = map[string]*applied{}
		}
		s = &applied{}
		st.Batch[strings.Clone(path)] = s
	}
	return s
}
