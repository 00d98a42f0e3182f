package limits

import (
	"cmp"
	"math"
	"slices"
	"time"

	"polder/advise/policy"
)

const (
	// freePermille is the part of the machine's memory that stays free beside batch, for services that grow between two ticks.
	freePermille = 20
	// minBytes is the smallest cap, and minPermille the same as a part of the machine's memory.
	minBytes    = 128 << 20
	minPermille = 10
	// riseAfter is how long a larger cap must have been possible before the cap rises.
	riseAfter = 30 * time.Second
	// unknownAfter is how long a cap stays while batch's use, the offer or the free memory is unknown.
	unknownAfter = time.Minute
)

// cappedCgroup is a cgroup that is capped ([policy.OutermostBatch]), with the number and the memory of its pods in bytes.
type cappedCgroup struct {
	path     string
	pods     int
	use, rss float64
}

// cappedCgroups returns the cgroups that are capped, sorted, and whether the use of each of their pods is known.
func (w *round) cappedCgroups() (list []cappedCgroup, isKnown bool) {
	isKnown = true
	indexOf := map[string]int{}
	for path, p := range policy.OutermostBatch(w.tick.Sample) {
		index, found := indexOf[path]
		if !found {
			index = len(list)
			indexOf[path] = index
			list = append(list, cappedCgroup{path: path})
		}
		list[index].pods++
		use, ok := useOf(p.Memory)
		isKnown = isKnown && ok
		rss := use
		if p.Memory != nil && p.Memory.RSSBytes != nil {
			rss = min(policy.Amount(p.Memory.RSSBytes), use)
		}
		list[index].use, list[index].rss = list[index].use+use, list[index].rss+rss
	}
	slices.SortFunc(list, func(x, y cappedCgroup) int { return cmp.Compare(x.path, y.path) })
	return list, isKnown
}

// applyCap sets memory.high and memory.max of batch: in total at most what is offered, and at most batch's use plus the free memory, less a
// part that stays free. Batch keeps use above the offer while there is free memory, but may not grow further.
func (w *round) applyCap() {
	st, now := w.state, w.tick.Time
	list, isKnown := w.cappedCgroups()
	if len(list) == 0 {
		st.removeCap()
		return
	}
	possible, text, why := w.possibleCap(list, isKnown)
	if why != "" {
		w.keepCap(list, why)
		return
	}
	st.KnownAt = now
	boundText := st.moveCap(now, possible)
	total, pods := 0.0, 0
	for i := range list {
		total, pods = total+list[i].use, pods+list[i].pods
	}
	isOver := total > float64(st.CapBytes)
	for i := range list {
		w.boundCgroup(&list[i], float64(st.CapBytes), total, float64(list[i].pods)/float64(pods))
	}
	w.addEventReasons(list)
	switch {
	case isOver:
		w.addReason("batch memory: cap %s (%s%s); batch uses %s: memory.high reduces it in steps of %s, memory.max follows",
			size(float64(st.CapBytes)), text, boundText, size(total), percent(stepPart))
	default:
		w.addReason("batch memory: cap %s (%s%s)", size(float64(st.CapBytes)), text, boundText)
	}
}

// possibleCap returns the cap by current values, a text that explains it, and why there is none.
func (w *round) possibleCap(list []cappedCgroup, isKnown bool) (possible float64, text, why string) {
	s := w.tick.Sample
	total, r := policy.MachineBytes(s), w.advice.Reclaimed
	switch {
	case !isKnown:
		return 0, "", "batch's use is unknown"
	case total <= 0:
		return 0, "", "the machine's memory is unknown"
	case s.Memory == nil || s.Memory.AvailableBytes == nil:
		return 0, "", "the available memory is unknown"
	case r == nil || r.MemoryBytes == nil:
		return 0, "", "the offer is unknown"
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
	possible, text = offer, "the offer"
	if use > possible { // the use was offered before, and is reclaimed only if the machine needs it
		possible, text = use, "batch's use, above the offer of "+size(offer)
		if w.state.CapBytes > 0 { // batch may not grow further
			possible = min(use, max(offer, float64(w.state.CapBytes)))
		}
	}
	if room < possible {
		possible, text = room, "batch's use and the available memory, less 2 % of the machine"
	}
	if minimum := max(minBytes, total*minPermille/1000); possible < minimum {
		possible, text = minimum, "the minimum; "+text+" is less"
	}
	return min(possible, total), text, ""
}

// keepCap keeps the cap for [unknownAfter] while a value is unknown.
func (w *round) keepCap(list []cappedCgroup, why string) {
	st, now := w.state, w.tick.Time
	age := now.Sub(st.KnownAt)
	if st.CapBytes == 0 || age >= unknownAfter {
		w.addReason("batch memory: %s: no cap", why)
		st.removeCap()
		return
	}
	w.addReason("batch memory: %s: the cap of %s stays for %s", why, size(float64(st.CapBytes)), (unknownAfter - age).Round(time.Second))
	for i := range list {
		if previous := w.previous(list[i].path); previous.Cap != (values{}) {
			s := w.entry(list[i].path)
			s.Cap, s.Events = previous.Cap, previous.Events
		}
	}
}

// removeCap removes the cap; the values that were set for it are undone.
func (st *State) removeCap() {
	st.CapBytes, st.MinPossibleBytes, st.RiseSince, st.KnownAt = 0, 0, time.Time{}, time.Time{}
}

// moveCap moves the cap: it falls immediately, rises after a delay, and ignores small changes. It returns what keeps it from rising.
func (st *State) moveCap(now time.Time, possible float64) (boundText string) {
	target := int64(possible) / mebibyte * mebibyte
	deadBand := st.CapBytes / 32
	switch {
	case st.CapBytes == 0 || target < st.CapBytes-deadBand:
		st.CapBytes, st.RiseSince, st.MinPossibleBytes = target, now, math.MaxInt64
	default:
		if st.MinPossibleBytes == 0 {
			st.MinPossibleBytes = math.MaxInt64
		}
		st.MinPossibleBytes = min(st.MinPossibleBytes, target)
		if now.Sub(st.RiseSince) >= riseAfter {
			if st.MinPossibleBytes > st.CapBytes+deadBand {
				st.CapBytes = st.MinPossibleBytes
			}
			st.RiseSince, st.MinPossibleBytes = now, math.MaxInt64
		}
	}
	if target > st.CapBytes+deadBand {
		boundText = "; it may rise after " + riseAfter.String()
	}
	return boundText
}

// boundCgroup sets the values of one of the cgroups that use total bytes together and that has a part of all their pods. It gets that part
// of the memory that is left under the cap: no pod gets more of it because it is in a cgroup of its own. Use over the cap is taken from
// each cgroup in proportion to its use.
func (w *round) boundCgroup(u *cappedCgroup, capBytes, total, part float64) {
	target := u.use + (capBytes-total)*part
	if total > capBytes {
		target = u.use * capBytes / total
	}
	target = max(target, minBytes*part)
	high := max(target, u.use*(1-stepPart))
	limit := max(target, u.use) * (1 + stepPart)
	if w.tick.Sample.CgroupVersion == 1 { // version 1 has no memory.high: the hard limit is the cap
		if limit = target; u.use > target*(1-stepPart/4) {
			limit = max(target, u.use*(1+stepPart/4))
		}
	}
	s, previous := w.entry(u.path), w.previous(u.path).Cap
	if s.Events = w.updateEvents(u, target); s.Events != nil {
		if w.tick.Time.Before(s.Events.Until) {
			high = max(target, u.use)
		}
		if s.Events.isTight(w.tick.Time) {
			limit = max(limit, float64(previous.Max))
		}
	}
	s.Cap.High = steadyValue(previous.High, wholeMiB(high), u.use*(1-stepPart))
	s.Cap.Max = steadyValue(previous.Max, wholeMiB(limit), u.use)
}
