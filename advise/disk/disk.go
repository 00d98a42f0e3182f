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

	"polder/advise/class"
	"polder/advise/policy"
	"polder/lib/phrase"
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
	// Share is one of [Shares]; empty means the policy's default.
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
	leastWeight = 1
	// minBytes and minOperations are the smallest limits that isolate writes, per second.
	minBytes      = 64 << 10
	minOperations = 4
	// releaseFor is for how long a value is undone after the last tick in which it was desired.
	releaseFor = time.Minute
	// maxCgroups and maxDisks bound the state, whatever a sample or a state file contains.
	maxCgroups = 10_000
	maxDisks   = 64
)

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// Set is what was advised, by cgroup.
	Set map[string]*set `json:"set,omitempty"`
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

func (v *values) none() bool { return !v.Weight && len(v.Disks) == 0 }

type set struct {
	values
	// Undo is what was advised before and is no longer desired, since UndoAt or earlier.
	Undo   values    `json:"undo,omitzero"`
	UndoAt time.Time `json:"undoAt,omitzero"`

	weight int64
	limits []tick.DiskLimit
}

// Reboot discards what was set of cgroups before a reboot.
func (st *State) Reboot() *State { return nil }

// Advise adds batch's weight and limits to the advice and to its fallback. idle reports whether the share idle is the default. It returns
// the new state, nil if there is nothing to remember.
func (st *State) Advise(t *tick.Tick, a *tick.Advice, s Settings, own Strategy, idle bool) *State {
	if t.Sample == nil || t.Sample.Fleet != nil || t.Sample.Agent != nil {
		return st
	}
	if st == nil {
		st = &State{}
	}
	st.mend(t.Time)
	weight := own.Weight
	if s.Share == Idle || s.Share == "" && idle {
		weight = leastWeight
	} else if s.Share == None {
		weight = 0
	}
	limits := slices.Concat(own.Limits, s.Limits)
	limits = limits[:min(len(limits), maxDisks)]
	next := map[string]*set{}
	if weight > 0 {
		st.share(t.Sample, a, next, weight)
	}
	if len(limits) > 0 {
		st.limit(t.Sample, a, next, limits)
	}
	st.release(t.Time, next)
	apply(a, next)
	st.costs(t, a, bothCosts(own.Costs, s.Costs))
	if st.Set = next; len(next)+len(st.Costs)+len(st.UndoCosts) == 0 {
		return nil
	}
	return st
}

// mend corrects invalid values of a state file, and times after a clock was set back.
func (st *State) mend(now time.Time) {
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
		if s == nil || !isPath(path) || len(s.Disks) > maxDisks || len(s.Undo.Disks) > 2*maxDisks {
			delete(st.Set, path)
			continue
		}
		if s.UndoAt.After(now) {
			s.UndoAt = now
		}
	}
}

// share sets batch's weight.
func (st *State) share(s *tick.Sample, a *tick.Advice, next map[string]*set, weight int64) {
	list := st.seen(s, units(s))
	for _, path := range list {
		one := of(next, path)
		one.Weight, one.weight = true, weight
	}
	if len(list) > 0 {
		a.Reasons = append(a.Reasons, fmt.Sprintf("batch disks: weight %d of %s", weight, phrase.Count(len(list), "cgroup")))
	}
}

// limit divides the limits among batch's cgroups.
func (st *State) limit(s *tick.Sample, a *tick.Advice, next map[string]*set, limits []tick.DiskLimit) {
	list := units(s)
	if s.CgroupVersion == 1 {
		list = containers(s)
	}
	if list = st.seen(s, list); len(list) == 0 {
		return
	}
	for _, path := range list {
		one := of(next, path)
		for i := range limits {
			one.limits = append(one.limits, divided(&limits[i], int64(len(list))))
			one.Disks = append(one.Disks, limits[i].Disk)
		}
		slices.Sort(one.Disks)
		one.Disks = slices.Compact(one.Disks)
	}
	texts := make([]string, len(limits))
	for i := range limits {
		texts[i] = Text(&limits[i])
	}
	const text = "batch disks: at most %s, divided among %s"
	a.Reasons = append(a.Reasons, fmt.Sprintf(text, strings.Join(texts, "; "), phrase.Count(len(list), "cgroup")))
}

// divided returns the part of one of n cgroups, with all four keys: keys without a limit restore the original value.
func divided(d *tick.DiskLimit, n int64) tick.DiskLimit {
	part := func(limit *int64, least int64) *int64 {
		if limit == nil || *limit < 0 {
			return tick.Ptr(int64(tick.Unlimited))
		}
		return new(max(*limit/n, least))
	}
	return tick.DiskLimit{
		Disk:               d.Disk,
		ReadBytesPerSecond: part(d.ReadBytesPerSecond, minBytes), WriteBytesPerSecond: part(d.WriteBytesPerSecond, minBytes),
		ReadsPerSecond: part(d.ReadsPerSecond, minOperations), WritesPerSecond: part(d.WritesPerSecond, minOperations),
	}
}

// NoLimit undoes all limits of a disk.
func NoLimit(disk string) tick.DiskLimit { return divided(&tick.DiskLimit{Disk: disk}, 1) }

// Text formats a limit.
func Text(d *tick.DiskLimit) string {
	var parts []string
	for _, one := range []struct {
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
		case one.limit == nil || *one.limit < 0:
		case one.bytes:
			parts = append(parts, fmt.Sprintf("%.2f MiB/s %s", float64(*one.limit)/(1<<20), one.verb))
		default:
			parts = append(parts, fmt.Sprintf("%d %s/s", *one.limit, one.verb))
		}
	}
	return strings.Join(parts, ", ") + " on " + policy.Quote(d.Disk)
}

// seen returns the cgroups in which some pod's I/O is known, and those for which something was advised before, so that a failed reading
// changes nothing.
func (st *State) seen(s *tick.Sample, list []string) []string {
	return slices.DeleteFunc(list, func(path string) bool {
		if was := st.Set[path]; was != nil && !was.none() {
			return false
		}
		return !slices.ContainsFunc(s.Pods, func(p tick.Pod) bool {
			return p.IO != nil && isBatch(&p) && (within(p.Cgroup, path) || within(path, p.Cgroup))
		})
	})
}

// units returns the outermost cgroups that contain only batch, including kubelet's of the BestEffort pods, and the batch pods that are in
// none of those.
func units(s *tick.Sample) (list []string) {
	above := class.Above(s) // outermost first
	for i := range s.Tiers {
		if tier := &s.Tiers[i]; tier.Name == tick.TierBestEffort && isPath(tier.Cgroup) && batchAlone(s, tier.Cgroup) {
			above = append(above, tier.Cgroup)
		}
	}
	add := func(path string) {
		if isPath(path) && !slices.ContainsFunc(list, func(one string) bool { return within(path, one) }) {
			list = append(list, path)
		}
	}
	for _, path := range above {
		add(path)
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; isBatch(p) {
			add(p.Cgroup)
		}
	}
	slices.Sort(list)
	return list
}

// containers returns the cgroups that contain batch's processes.
func containers(s *tick.Sample) (list []string) {
	for i := range s.Pods {
		p := &s.Pods[i]
		if !isBatch(p) {
			continue
		}
		for j := range policy.Cgroups(p) {
			if path := policy.Cgroup(p, j); isPath(path) {
				list = append(list, path)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func isBatch(p *tick.Pod) bool {
	return p.QoS == tick.QoSReclaimed && p.Missing == "" && !p.Ended()
}

// batchAlone reports whether a cgroup contains some pod, and no service.
func batchAlone(s *tick.Sample, path string) bool {
	some := false
	for i := range s.Pods {
		p := &s.Pods[i]
		if !within(p.Cgroup, path) {
			continue
		}
		if p.QoS != tick.QoSReclaimed {
			return false
		}
		some = true
	}
	return some
}

// maxPath is the longest path that the kernel accepts (PATH_MAX).
const maxPath = 4096

func isPath(path string) bool { return len(path) > 1 && len(path) <= maxPath && path[0] == '/' }

// within reports whether path is parent or below it.
func within(path, parent string) bool {
	return strings.HasPrefix(path, parent) && (len(path) == len(parent) || path[len(parent)] == '/')
}

// of returns what is desired of a cgroup, and creates it if there is nothing.
func of(next map[string]*set, path string) *set {
	s := next[path]
	if s == nil {
		s = &set{}
		next[strings.Clone(path)] = s
	}
	return s
}

// release undoes what is no longer desired, for [releaseFor].
func (st *State) release(now time.Time, next map[string]*set) {
	for path, was := range st.Set {
		is, desired := next[path]
		if !desired {
			is = &set{}
		}
		all := slices.Contains(is.Disks, tick.AllDisks) // its limits include those of all disks that had limits by name
		dropped := values{Weight: was.Weight && !is.Weight, Disks: without(was.Disks, is.Disks, all)}
		if is.UndoAt = was.UndoAt; !dropped.none() {
			is.UndoAt = now
		}
		is.Undo.Weight = dropped.Weight || was.Undo.Weight && !is.Weight
		is.Undo.Disks = slices.Concat(dropped.Disks, without(was.Undo.Disks, slices.Concat(is.Disks, dropped.Disks), all))
		slices.Sort(is.Undo.Disks)
		if now.Sub(is.UndoAt) >= releaseFor {
			is.Undo = values{}
		}
		if !desired && !is.Undo.none() {
			next[path] = is
		}
	}
}

func without(list, others []string, all bool) (left []string) {
	for _, one := range list {
		if !all && !slices.Contains(others, one) {
			left = append(left, one)
		}
	}
	return left
}

// apply adds all values to the advice. A weight that the policy itself desires takes precedence.
func apply(a *tick.Advice, next map[string]*set) {
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
				c.IOWeight = tick.Ptr(int64(tick.Unlimited))
			}
			if len(limits) > 0 {
				c.IOMax = slices.Concat(c.IOMax, limits)
			}
		})
	}
	d.Finish(a)
}
