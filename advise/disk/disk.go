// Package disk decides batch's weight and limits on disks, after a policy has decided:
//
//	share   the smallest weight (io.weight, BFQ's): batch gets what services leave, immediately and also between two ticks
//	limits  what all batch may read and write per second on a disk (io.max, blkio.throttle)
//
// Both are set on the outermost cgroups that contain only batch. On version 1 a limit applies to a cgroup's own processes and not to those
// below, so it is set on each container's cgroup. Nothing is advised for a cgroup whose I/O was never seen: the controller is not enabled
// for it. A value that is no longer desired is undone for some time: the advice is to restore its original value.
//
// Throttling batch while services wait is the task of package guard.
package disk

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"polder/advise/policy"
	"polder/lib/phrase"
	"polder/lib/reason"
	"polder/lib/tick"
)

// Names of shares.
const (
	Idle = "idle"
	None = "none"
)

// Shares are all names of shares.
var Shares = []string{Idle, None}

// Settings are what an administrator can set.
type Settings struct {
	// Share is one of [Shares]; empty means the weight of the policy's own configuration.
	Share string
	// Limits are batch's total limits on each disk that they name.
	Limits []tick.DiskLimit
	// Costs are the disks that the kernel shares by the cost of each read and write, so that weights take effect (io.cost, version 2).
	Costs []tick.DiskCost
}

// Strategy is what a policy's own configuration contains: batch's weight, 0 for none, limits, and disks that are shared by costs. For a
// disk that the settings name too, the settings' costs apply.
type Strategy struct {
	Weight int64
	Limits []tick.DiskLimit
	Costs  []tick.DiskCost
}

const (
	minWeight = 1
	// minBytes and minOperations are the smallest limits that isolate writes, per second.
	minBytes      = 64 << 10
	minOperations = 4
	// maxCgroups and maxDisks bound the state, whatever a sample or a state file contains.
	maxCgroups = 10_000
	maxDisks   = 64
)

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// Set is what was advised, by cgroup.
	Set map[string]*cgroupState `json:"set,omitempty"`
	// Costs are the disks whose costs were advised, and UndoCosts those whose costs are restored, since UndoCostsAt or earlier.
	Costs       []string  `json:"costs,omitempty"`
	UndoCosts   []string  `json:"undoCosts,omitempty"`
	UndoCostsAt time.Time `json:"undoCostsAt,omitzero"`
}

// values are what is advised, or undone, for one cgroup: a weight, and limits of disks.
type values struct {
	Weight bool     `json:"weight,omitempty"`
	Disks  []string `json:"disks,omitempty"`
}

func (v *values) isEmpty() bool { return !v.Weight && len(v.Disks) == 0 }

type cgroupState struct {
	values
	// Undo is what was advised before and is no longer desired, since UndoAt or earlier.
	Undo   values    `json:"undo,omitzero"`
	UndoAt time.Time `json:"undoAt,omitzero"`

	weight int64
	limits []tick.DiskLimit
}

// Advise adds batch's weight and limits to the advice and to its fallback. It returns the new state, nil if there is nothing to remember.
func (st *State) Advise(t *tick.Tick, a *tick.Advice, s Settings, strategy Strategy) *State {
	if t.Sample == nil || t.Sample.Fleet != nil || t.Sample.Agent != nil {
		return st
	}
	if st == nil {
		st = &State{}
	}
	st.sanitize(t.Time)
	weight := strategy.Weight
	switch s.Share {
	case Idle:
		weight = minWeight
	case None:
		weight = 0
	}
	limits := slices.Concat(strategy.Limits, s.Limits)
	limits = limits[:min(len(limits), maxDisks)]
	next := map[string]*cgroupState{}
	if weight > 0 {
		st.adviseWeight(t.Sample, a, next, weight)
	}
	if len(limits) > 0 {
		st.adviseLimits(t.Sample, a, next, limits)
	}
	st.undoDropped(t.Time, next)
	apply(a, next)
	st.adviseCosts(t, a, mergeCosts(strategy.Costs, s.Costs))
	if st.Set = next; len(next)+len(st.Costs)+len(st.UndoCosts) == 0 {
		return nil
	}
	return st
}

// sanitize corrects invalid values of a state file, and times after a clock was set back.
func (st *State) sanitize(now time.Time) {
	if len(st.Set) > maxCgroups {
		st.Set = nil
	}
	if len(st.Costs)+len(st.UndoCosts) > 2*maxDisks {
		st.Costs, st.UndoCosts = nil, nil
	}
	if st.UndoCostsAt.After(now) {
		st.UndoCostsAt = now
	}
	for path, s := range st.Set {
		if s == nil || !policy.IsCgroup(path) || len(s.Disks) > maxDisks || len(s.Undo.Disks) > 2*maxDisks {
			delete(st.Set, path)
			continue
		}
		if s.UndoAt.After(now) {
			s.UndoAt = now
		}
	}
}

// adviseWeight sets batch's weight.
func (st *State) adviseWeight(s *tick.Sample, a *tick.Advice, next map[string]*cgroupState, weight int64) {
	list := st.withKnownIO(s, outermostBatch(s))
	for _, path := range list {
		entry := entryOf(next, path)
		entry.Weight, entry.weight = true, weight
	}
	if len(list) > 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf(reason.DiskWeight+"%d of %s", weight, phrase.Count(len(list), "cgroup")))
	}
}

// adviseLimits divides the limits among batch's cgroups.
func (st *State) adviseLimits(s *tick.Sample, a *tick.Advice, next map[string]*cgroupState, limits []tick.DiskLimit) {
	list := outermostBatch(s)
	if s.CgroupVersion == 1 {
		list = containerCgroups(s)
	}
	if list = st.withKnownIO(s, list); len(list) == 0 {
		return
	}
	for _, path := range list {
		entry := entryOf(next, path)
		for i := range limits {
			entry.limits = append(entry.limits, dividedLimit(&limits[i], int64(len(list))))
			entry.Disks = append(entry.Disks, limits[i].Disk)
		}
		slices.Sort(entry.Disks)
		entry.Disks = slices.Compact(entry.Disks)
	}
	texts := make([]string, len(limits))
	for i := range limits {
		texts[i] = Text(&limits[i])
	}
	const text = reason.DiskLimits + "%s, divided among %s"
	a.Reasons = append(a.Reasons, fmt.Sprintf(text, strings.Join(texts, "; "), phrase.Count(len(list), "cgroup")))
}

// dividedLimit returns the part of one of n cgroups, with all four keys: keys without a limit restore the original value.
func dividedLimit(d *tick.DiskLimit, n int64) tick.DiskLimit {
	part := func(limit *int64, minimum int64) *int64 {
		if limit == nil || *limit < 0 {
			return new(int64(tick.Unlimited))
		}
		return new(max(*limit/n, minimum))
	}
	return tick.DiskLimit{
		Disk:               d.Disk,
		ReadBytesPerSecond: part(d.ReadBytesPerSecond, minBytes), WriteBytesPerSecond: part(d.WriteBytesPerSecond, minBytes),
		ReadsPerSecond: part(d.ReadsPerSecond, minOperations), WritesPerSecond: part(d.WritesPerSecond, minOperations),
	}
}

// NoLimit undoes all limits of a disk.
func NoLimit(disk string) tick.DiskLimit { return dividedLimit(&tick.DiskLimit{Disk: disk}, 1) }

// Text formats a limit.
func Text(d *tick.DiskLimit) string {
	var parts []string
	for _, rate := range []struct {
		limit *int64
		bytes bool
		verb  string
	}{
		{d.ReadBytesPerSecond, true, "read"},
		{d.WriteBytesPerSecond, true, "written"},
		{d.ReadsPerSecond, false, "reads"},
		{d.WritesPerSecond, false, "writes"},
	} {
		switch {
		case rate.limit == nil || *rate.limit < 0:
		case rate.bytes:
			parts = append(parts, fmt.Sprintf("%.2f MiB/s %s", float64(*rate.limit)/(1<<20), rate.verb))
		default:
			parts = append(parts, fmt.Sprintf("%d %s/s", *rate.limit, rate.verb))
		}
	}
	return strings.Join(parts, ", ") + " on " + policy.Quote(d.Disk)
}

// withKnownIO returns the cgroups in which some pod's I/O is known, and those for which something was advised before, so that a failed
// reading changes nothing.
func (st *State) withKnownIO(s *tick.Sample, list []string) []string {
	return slices.DeleteFunc(list, func(path string) bool {
		if previous := st.Set[path]; previous != nil && !previous.isEmpty() {
			return false
		}
		return !slices.ContainsFunc(s.Pods, func(p tick.Pod) bool {
			return p.IO != nil && policy.IsRunningBatch(&p) && (tick.IsWithin(p.Cgroup, path) || tick.IsWithin(path, p.Cgroup))
		})
	})
}

// outermostBatch returns the outermost cgroups that contain only batch, sorted.
func outermostBatch(s *tick.Sample) []string {
	found := map[string]bool{}
	for path := range policy.OutermostBatch(s) {
		found[path] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// containerCgroups returns the cgroups that contain batch's processes.
func containerCgroups(s *tick.Sample) (list []string) {
	for i := range s.Pods {
		p := &s.Pods[i]
		if !policy.IsRunningBatch(p) {
			continue
		}
		for j := range policy.Cgroups(p) {
			if path := policy.Cgroup(p, j); policy.IsCgroup(path) {
				list = append(list, path)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// entryOf returns what is desired of a cgroup, and creates it if there is nothing.
func entryOf(next map[string]*cgroupState, path string) *cgroupState {
	s := next[path]
	if s == nil {
		s = &cgroupState{}
		next[strings.Clone(path)] = s
	}
	return s
}

// undoDropped undoes what is no longer desired, for [policy.UndoFor].
func (st *State) undoDropped(now time.Time, next map[string]*cgroupState) {
	for path, previous := range st.Set {
		current, isDesired := next[path]
		if !isDesired {
			current = &cgroupState{}
		}
		dropped := values{Weight: previous.Weight && !current.Weight, Disks: without(previous.Disks, current.Disks)}
		if current.UndoAt = previous.UndoAt; !dropped.isEmpty() {
			current.UndoAt = now
		}
		current.Undo.Weight = dropped.Weight || previous.Undo.Weight && !current.Weight
		current.Undo.Disks = slices.Concat(dropped.Disks, without(previous.Undo.Disks, current.Disks))
		slices.Sort(current.Undo.Disks)
		current.Undo.Disks = slices.Compact(current.Undo.Disks)
		if now.Sub(current.UndoAt) >= policy.UndoFor {
			current.Undo = values{}
		}
		if !isDesired && !current.Undo.isEmpty() {
			next[path] = current
		}
	}
}

// without returns the disks of a list that are not among others. [tick.AllDisks] includes each disk that has a name.
func without(list, others []string) []string {
	if slices.Contains(others, tick.AllDisks) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(others, name) })
}

// apply adds all values to the advice. A weight that the policy itself desires takes precedence.
func apply(a *tick.Advice, next map[string]*cgroupState) {
	if len(next) == 0 {
		return
	}
	d := policy.NewDraft(a)
	for _, path := range slices.Sorted(maps.Keys(next)) {
		s := next[path]
		limits := s.limits
		for _, disk := range s.Undo.Disks {
			limits = append(limits, NoLimit(disk))
		}
		d.Each(path, func(c *tick.Cgroup) {
			switch {
			case c.IOWeight != nil:
			case s.Weight:
				c.IOWeight = new(s.weight)
			case s.Undo.Weight:
				c.IOWeight = new(int64(tick.Unlimited))
			}
			if len(limits) > 0 {
				c.IOMax = slices.Concat(c.IOMax, limits)
			}
		})
	}
	d.Finish(a)
}
