package katalyst

import (
	"fmt"
	"path"
	"slices"
	"time"

	"polder/advise/class"
	"polder/advise/policy"
	"polder/lib/tick"
)

// Values of [Settings.Overlap]: whether the pods in the shared pools also run on the reclaim pool's CPUs (Katalyst's
// allowSharedCoresOverlapReclaimedCores). The pools and what is offered are the same with it.
const (
	// OverlapShort lets services of a plain host run there, and batch on theirs, while they need more CPUs than the floor leaves them: then
	// pools divide nothing that would be enough for the services. Confined, these would wait for each other while batch runs on the floor;
	// here the kernel gives them all CPUs first, because batch is in a lower class, and batch has what is left.
	OverlapShort = "short"
	// OverlapOn lets them run there always; batch keeps to the reclaim pool.
	OverlapOn  = "on"
	OverlapOff = "off"
)

// Overlaps contains all values.
var Overlaps = []string{OverlapShort, OverlapOn, OverlapOff}

// recordShortage records when the shared pools last needed more than the floor of the reclaimed side leaves.
func (d *divided) recordShortage(now time.Time, groups []group) {
	isShort := slices.ContainsFunc(groups, func(g group) bool { return g.isShort })
	if isShort || d.ShortAt.After(now) { // the clock was set back
		d.ShortAt = now
	}
}

// markOverlaps marks the pods in the shared pools that also run on the reclaim pool's CPUs, and in a shortage the reclaimed ones that run
// on all. It returns the reason, empty if there are none. Like a pool, a shortage has a hold-down, so that CPU lists do not alternate.
func markOverlaps(in inputs, members []member, shortAt time.Time) string {
	isShort := !in.isOff && !shortAt.IsZero() && in.now.Sub(shortAt) < max(in.settings.Hold, 1) // without reclaim batch keeps to the floor
	if in.overlap == OverlapOff || in.overlap == OverlapShort && !(isShort && isBatchBesideServices(in, members)) {
		return ""
	}
	count := 0
	for i := range members {
		m := &members[i]
		if m.isInSharedPool() && (in.overlap == OverlapOn || class.IsOfHost(m.Pod)) {
			m.overlaps = true
			count++
		}
	}
	switch {
	case count == 0:
		return ""
	case in.overlap == OverlapOn:
		return fmt.Sprintf("services run on the reclaim pool's CPUs, too (%s)", in.overlapFrom)
	}
	for i := range members {
		members[i].overlaps = members[i].overlaps || members[i].class == tick.QoSReclaimed
	}
	const text = "services need more than the floor leaves: they and batch run on the CPUs of both, services before batch (share-overlap: %s)"
	return fmt.Sprintf(text, in.overlapFrom)
}

// isBatchBesideServices reports whether all batch is on the plain host and in a lower scheduling class than all services. A class only
// counts among siblings, so each service must be below the parent of batch's outermost cgroup: batch in /app/job comes after /app/web, but
// while that uses nothing, /app competes with the service /db for batch.
func isBatchBesideServices(in inputs, members []member) bool {
	for i := range members {
		m := &members[i]
		if m.class == tick.QoSReclaimed && m.Missing == "" && (!class.IsOfHost(m.Pod) || class.Of(in.settings.Class.Class, m.Pod) == class.None) {
			return false
		}
	}
	seen := map[string]bool{"/": true}
	for outermost := range policy.OutermostBatch(in.sample) {
		parent := path.Dir(outermost)
		if seen[parent] {
			continue
		}
		seen[parent] = true
		for i := range members {
			if m := &members[i]; m.isInSharedPool() && m.Missing != tick.MissingCgroup && !tick.IsBelow(m.Cgroup, parent) {
				return false
			}
		}
	}
	return true
}

// isInSharedPool reports whether a pod runs on a shared pool's CPUs: one of class shared, or a dedicated one without CPUs of its own.
func (m *member) isInSharedPool() bool {
	return !m.hasExclusive && (m.class == tick.QoSShared || m.class == tick.QoSDedicated && m.ownCPUs == "")
}
