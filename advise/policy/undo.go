package policy

import (
	"slices"
	"time"

	"polder/lib/tick"
)

// UndoFor is how long a value is undone once it is no longer desired, because isolate may miss some ticks. After that nothing is advised.
const UndoFor = time.Minute

// SetCgroups are the cgroups of which a value was set, in the format of the state file, with the time since which it is undone: zero while
// the value is desired. The time counts from the first tick that undoes, because there may have been no tick for long before.
type SetCgroups map[string]time.Time

// Update records the cgroups of which the value is desired now, and returns those of which it must be undone, sorted: it was desired
// before, and has been undone for less than [UndoFor]. They may no longer exist.
func (s *SetCgroups) Update(now time.Time, desired []string) (undo []string) {
	next := make(SetCgroups, len(desired))
	for _, cgroup := range desired {
		next[cgroup] = time.Time{}
	}
	for cgroup, since := range *s {
		if _, isDesired := next[cgroup]; isDesired {
			continue
		}
		if since.IsZero() || since.After(now) { // the undo begins, or the clock was set back
			since = now
		}
		if now.Sub(since) < UndoFor {
			next[cgroup] = since
			undo = append(undo, cgroup)
		}
	}
	*s = next
	slices.Sort(undo)
	return undo
}

// UndoLists gives pods that are not batch all CPUs that kubelet has not assigned exclusively, if they had a CPU list before and have none
// in the advice: they were of another class. Nothing else would widen the list of a running container.
func (s *SetCgroups) UndoLists(now time.Time, sample *tick.Sample, a *tick.Advice, sh *Shape) {
	var desired []string
	for i := range a.Cgroups {
		if c := &a.Cgroups[i]; c.CPUSetCPUs != "" {
			desired = append(desired, c.Cgroup)
		}
	}
	undo := s.Update(now, desired)
	all := sh.Online.Difference(sh.Exclusive)
	if len(undo) == 0 || all.IsEmpty() {
		return
	}
	eachService(sample, undo, func(p *tick.Pod, i int, cgroup string) {
		if i < len(p.Containers) {
			if c := &p.Containers[i]; HasExclusiveCPUs(c, ExclusiveCount(c.CPUSetCPUs, sh.Exclusive)) {
				return
			}
		}
		entryOf(&a.Cgroups, cgroup).CPUSetCPUs = all.String()
		entryOf(&a.Fallback, cgroup).CPUSetCPUs = all.String()
	})
}

// eachService calls f with the existing cgroups that are in a sorted list, of pods that are known not to be batch: with the pod, and the
// cgroup's index in it.
func eachService(s *tick.Sample, sorted []string, f func(p *tick.Pod, i int, cgroup string)) {
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.QoS == "" || p.QoS == tick.QoSReclaimed || p.Missing != "" || p.Ended() {
			continue
		}
		for j := range Cgroups(p) {
			if _, found := slices.BinarySearch(sorted, Cgroup(p, j)); found {
				f(p, j, Cgroup(p, j))
			}
		}
	}
}

// UndoQuotas gives pods that are not batch their own CPU limit, of the i-th cgroup, if they had a quota before and none is desired now.
func (s *SetCgroups) UndoQuotas(
	now time.Time, sample *tick.Sample, a *tick.Advice, desired []string, limitOf func(p *tick.Pod, i int) int64,
) {
	undo := s.Update(now, desired)
	if len(undo) == 0 {
		return
	}
	eachService(sample, undo, func(p *tick.Pod, i int, cgroup string) {
		limit := limitOf(p, i)
		for _, list := range []*[]tick.Cgroup{&a.Cgroups, &a.Fallback} {
			c := entryOf(list, cgroup)
			c.CPUMaxMilliCPU, c.CPUMaxTighterOnly = &limit, limit == tick.Unlimited // an administrator's own quota applies again
		}
	})
}
