package limits

import (
	"cmp"
	"math"
	"slices"
	"time"

	"polder/advise/class"
	"polder/advise/policy"
	"polder/lib/tick"
)

const (
	// freePermille is the part of the machine's memory that stays free beside batch, for services that grow between two ticks.
	freePermille = 20
	// leastBytes is the smallest cap, and leastPermille the same as a part of the machine's memory.
	leastBytes    = 128 << 20
	leastPermille = 10
	// riseAfter is how long a larger cap must have been possible before the cap rises.
	riseAfter = 30 * time.Second
	// unknownAfter is how long a cap stays while batch's use, the offer or the free memory is unknown.
	unknownAfter = time.Minute
)

// unit is a cgroup that is capped: the outermost one that contains only batch.
type unit struct {
	path     string
	use, rss float64
}

// units returns the cgroups that are capped, and whether the use of each is known: the outermost cgroups that contain only batch, including
// kubelet's of the BestEffort pods, and the batch pods that are in none of those.
func (w *work) units() (list []unit, known bool) {
	above := class.Above(w.tick.Sample) // outermost first
	for i := range w.tick.Sample.Tiers {
		if t := &w.tick.Sample.Tiers[i]; t.Name == tick.TierBestEffort && isPath(t.Cgroup) && w.batchAlone(t.Cgroup) {
			above = append(above, t.Cgroup)
		}
	}
	for _, path := range above {
		if !slices.ContainsFunc(list, func(u unit) bool { return within(path, u.path) }) {
			list = append(list, unit{path: path})
		}
	}
	number := len(list)
	used := make([]bool, number)
	known = true
	for i := range w.tick.Sample.Pods {
		p := &w.tick.Sample.Pods[i]
		if p.QoS != tick.QoSReclaimed || p.Missing == tick.MissingCgroup || p.Ended() || !isPath(p.Cgroup) {
			continue
		}
		use, ok := useOf(p.Memory)
		known = known && ok
		rss := use
		if p.Memory != nil && p.Memory.RSSBytes != nil {
			rss = min(policy.Amount(p.Memory.RSSBytes), use)
		}
		at := slices.IndexFunc(list[:number], func(u unit) bool { return within(p.Cgroup, u.path) })
		if at < 0 {
			list = append(list, unit{path: p.Cgroup, use: use, rss: rss})
			continue
		}
		used[at] = true
		list[at].use, list[at].rss = list[at].use+use, list[at].rss+rss
	}
	for i := number - 1; i >= 0; i-- { // a cgroup whose pods have ended, or a configured one without pods
		if !used[i] {
			list = slices.Delete(list, i, i+1)
		}
	}
	slices.SortFunc(list, func(x, y unit) int { return cmp.Compare(x.path, y.path) })
	list = slices.CompactFunc(list, func(x, y unit) bool { return x.path == y.path })
	return list, known
}

// batchAlone reports whether no pod in a cgroup is a service.
func (w *work) batchAlone(path string) bool {
	return !slices.ContainsFunc(w.tick.Sample.Pods, func(p tick.Pod) bool { return p.QoS != tick.QoSReclaimed && within(p.Cgroup, path) })
}

// cap sets memory.high and memory.max of batch: in total at most what is offered, and at most batch's use plus the free memory, less a part
// that stays free. Batch keeps use above the offer while there is free memory, but may not grow further.
func (w *work) cap() {
	st, now := w.state, w.tick.Time
	list, known := w.units()
	if len(list) == 0 {
		st.uncap()
		return
	}
	can, text, why := w.possible(list, known)
	if why != "" {
		w.stay(list, why)
		return
	}
	st.Known = now
	bound := st.follow(now, can)
	total := 0.0
	for i := range list {
		total += list[i].use
	}
	over := total > float64(st.CapBytes)
	for i := range list {
		w.bound(&list[i], float64(st.CapBytes), total, len(list))
	}
	w.watched(list)
	switch {
	case over:
		w.addReason("batch memory: cap %s (%s%s); batch holds %s: memory.high brings it down by steps of %s, memory.max follows",
			size(float64(st.CapBytes)), text, bound, size(total), percent(stepPart))
	default:
		w.addReason("batch memory: cap %s (%s%s)", size(float64(st.CapBytes)), text, bound)
	}
}

// possible returns the cap by current values, a text that explains it, and why there is none.
func (w *work) possible(list []unit, known bool) (can float64, text, why string) {
	s := w.tick.Sample
	total := 0.0
	switch {
	case s.Capacity != nil && s.Capacity.MemoryBytes != nil:
		total = policy.Amount(s.Capacity.MemoryBytes)
	case s.Memory != nil:
		total = policy.Amount(s.Memory.TotalBytes)
	}
	r := w.advice.Reclaimed
	switch {
	case !known:
		return 0, "", "what batch holds is not known"
	case total <= 0:
		return 0, "", "the machine's memory is not known"
	case s.Memory == nil || s.Memory.AvailableBytes == nil:
		return 0, "", "the available memory is not known"
	case r == nil || r.MemoryBytes == nil:
		return 0, "", "no memory is offered or refused"
	}
	use, rss := 0.0, 0.0
	for i := range list {
		use, rss = use+list[i].use, rss+list[i].rss
	}
	// The kernel counts batch's page cache as available already: the cap adds only batch's other memory.
	room := rss + policy.Amount(s.Memory.AvailableBytes) - total*freePermille/1000
	offer := policy.Bounded(float64(*r.MemoryBytes))
	if m := w.advice.Mid; m != nil && m.MemoryBytes != nil {
		offer += max(policy.Bounded(float64(*m.MemoryBytes)), 0)
	}
	can, text = offer, "what is offered"
	if use > can { // the use was offered before, and is reclaimed only if the machine needs it
		can, text = use, "what batch holds, over the "+size(offer)+" that are offered"
		if w.state.CapBytes > 0 { // batch may not grow further
			can = min(use, max(offer, float64(w.state.CapBytes)))
		}
	}
	if room < can {
		can, text = room, "what batch holds and what is available, less 2 % of the machine"
	}
	if least := max(leastBytes, total*leastPermille/1000); can < least {
		can, text = least, "the least; "+text+" is less"
	}
	return min(can, total), text, ""
}

// stay keeps the cap for [unknownAfter] while a value is unknown.
func (w *work) stay(list []unit, why string) {
	st, now := w.state, w.tick.Time
	age := now.Sub(st.Known)
	if st.CapBytes == 0 || age >= unknownAfter {
		w.addReason("batch memory: %s: no cap", why)
		st.uncap()
		return
	}
	w.addReason("batch memory: %s: the cap of %s stays for %s", why, size(float64(st.CapBytes)), (unknownAfter - age).Round(time.Second))
	for i := range list {
		if was := w.before(list[i].path); was.Cap != (values{}) {
			s := w.of(list[i].path)
			s.Cap, s.Watch = was.Cap, was.Watch
		}
	}
}

// uncap removes the cap; the values that were set for it are undone.
func (st *State) uncap() {
	st.CapBytes, st.LeastBytes, st.RiseSince, st.Known = 0, 0, time.Time{}, time.Time{}
}

// follow moves the cap: it falls immediately, rises after a delay, and ignores small changes. It returns what keeps it from rising.
func (st *State) follow(now time.Time, can float64) (bound string) {
	next := int64(can) / mebibyte * mebibyte
	dead := st.CapBytes / 32
	switch {
	case st.CapBytes == 0 || next < st.CapBytes-dead:
		st.CapBytes, st.RiseSince, st.LeastBytes = next, now, math.MaxInt64
	default:
		if st.LeastBytes == 0 {
			st.LeastBytes = math.MaxInt64
		}
		st.LeastBytes = min(st.LeastBytes, next)
		if now.Sub(st.RiseSince) >= riseAfter {
			if st.LeastBytes > st.CapBytes+dead {
				st.CapBytes = st.LeastBytes
			}
			st.RiseSince, st.LeastBytes = now, math.MaxInt64
		}
	}
	if next > st.CapBytes+dead {
		bound = "; it may rise after " + riseAfter.String()
	}
	return bound
}

// bound sets the values of one of n cgroups that use total bytes together. Memory that is left under the cap is divided among them in equal
// parts; use over the cap is taken from each in proportion to its use.
func (w *work) bound(u *unit, all, total float64, n int) {
	goal := u.use + (all-total)/float64(n)
	if total > all {
		goal = u.use * all / total
	}
	goal = max(goal, leastBytes/float64(n))
	high := max(goal, u.use*(1-stepPart))
	hard := max(goal, u.use) * (1 + stepPart)
	if w.tick.Sample.CgroupVersion == 1 { // version 1 has no memory.high: the hard limit is the cap
		if hard = goal; u.use > goal*(1-stepPart/4) {
			hard = max(goal, u.use*(1+stepPart/4))
		}
	}
	s, was := w.of(u.path), w.before(u.path).Cap
	if s.Watch = w.watch(u, goal); s.Watch != nil {
		if w.tick.Time.Before(s.Watch.Until) {
			high = max(goal, u.use)
		}
		if s.Watch.isTight(w.tick.Time) {
			hard = max(hard, float64(was.Max))
		}
	}
	s.Cap.High = steady(was.High, whole(high), u.use*(1-stepPart))
	s.Cap.Max = steady(was.Max, whole(hard), u.use)
}
