package limits

import (
	"slices"
	"time"

	"polder/lib/phrase"
	"polder/lib/tick"
)

const (
	// stuckAfter is how long memory.high may throttle batch below its use without effect, and stuckFor how long it then stays at batch's use.
	stuckAfter = 10 * time.Second
	stuckFor   = time.Minute
	// progressPart is the part by which the use must fall to count as an effect.
	progressPart = stepPart / 8
	// calmAfter is how long no allocation may have reached memory.max before memory.max is lowered.
	calmAfter = 30 * time.Second
)

// eventHistory contains the memory.events of a capped cgroup, on version 2 only.
type eventHistory struct {
	High    float64 `json:"high,omitempty"`
	Max     float64 `json:"max,omitempty"`
	OOMKill float64 `json:"oomKill,omitempty"`
	// HighAt and MaxAt are when High and Max last rose.
	HighAt time.Time `json:"highAt,omitzero"`
	MaxAt  time.Time `json:"maxAt,omitzero"`
	// Use is the use at Since, when memory.high was set below it, or last reduced it; 0 if memory.high is not below the use.
	Use   float64   `json:"use,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Until then memory.high stays at the use.
	Until time.Time `json:"until,omitzero"`

	killed float64 // since the last tick
}

// sanitize corrects invalid values of a state file, and times after a clock was set back.
func (x *eventHistory) sanitize(now time.Time) {
	for _, at := range []*time.Time{&x.HighAt, &x.MaxAt, &x.Since} {
		if at.After(now) {
			*at = now
		}
	}
	if x.Until.Sub(now) > stuckFor {
		x.Until = now.Add(stuckFor)
	}
}

// eventsOf returns the memory events of a cgroup in the sample; nil if unknown.
func (w *round) eventsOf(path string) *tick.MemoryEvents {
	s := w.tick.Sample
	if i := slices.IndexFunc(s.BatchMemory, func(c tick.CgroupMemory) bool { return c.Cgroup == path }); i >= 0 {
		return s.BatchMemory[i].Events
	}
	if i := slices.IndexFunc(s.Pods, func(p tick.Pod) bool { return p.Cgroup == path }); i >= 0 {
		return s.Pods[i].MemoryEvents
	}
	return nil
}

// updateEvents compares a cgroup's events with those of the last tick, and returns whether memory.high has an effect: nil if they are
// unknown.
func (w *round) updateEvents(u *cappedCgroup, target float64) *eventHistory {
	e, now := w.eventsOf(u.path), w.tick.Time
	if e == nil {
		return nil
	}
	x := eventHistory{}
	if previous := w.previous(u.path).Events; previous != nil {
		x = *previous
		if e.High > x.High {
			x.HighAt = now
		}
		if e.Max > x.Max {
			x.MaxAt = now
		}
		x.killed = max(e.OOMKill-x.OOMKill, 0)
	}
	x.High, x.Max, x.OOMKill = e.High, e.Max, e.OOMKill
	switch {
	case u.use <= target:
		x.Use, x.Since, x.Until = 0, time.Time{}, time.Time{}
	case now.Before(x.Until):
	case x.Use == 0, !x.Until.IsZero(), u.use <= x.Use*(1-progressPart):
		x.Use, x.Since, x.Until = u.use, now, time.Time{}
	case now.Sub(x.Since) >= stuckAfter && !x.HighAt.IsZero() && now.Sub(x.HighAt) <= stuckAfter:
		x.Until = now.Add(stuckFor)
	}
	return &x
}

// addEventReasons adds reasons for what the events of the capped cgroups have changed.
func (w *round) addEventReasons(list []cappedCgroup) {
	stuck, tight, killed := 0, 0, 0.0
	for i := range list {
		s := w.next[list[i].path]
		if s == nil || s.Events == nil {
			continue
		}
		killed += s.Events.killed
		if w.tick.Time.Before(s.Events.Until) {
			stuck++
		}
		if s.Events.isTight(w.tick.Time) {
			tight++
		}
	}
	if stuck > 0 {
		w.addReason("batch memory: memory.high of %s stays at the use: nothing could be reclaimed within %s", phrase.Count(stuck, "cgroup"), stuckAfter)
	}
	if tight > 0 {
		w.addReason("batch memory: memory.max of %s is not lowered: allocations reached it in the last %s", phrase.Count(tight, "cgroup"),
			calmAfter)
	}
	if killed > 0 {
		w.addReason("batch memory: the kernel killed %.0f of batch's processes at a limit", killed)
	}
}

// isTight reports whether allocations have recently reached memory.max.
func (x *eventHistory) isTight(now time.Time) bool {
	return !x.MaxAt.IsZero() && now.Sub(x.MaxAt) < calmAfter
}
