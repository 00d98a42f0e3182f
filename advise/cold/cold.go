// Package cold reclaims memory that batch pods have but do not use, before an eviction is needed for it: a small part of each pod's memory,
// every few seconds, as long as the pod is not affected. It requests this by [tick.MemoryReclaim], an action that isolate does once.
//
//	bytes = the pod's memory * 1 % * max(0, 1 - pressure / 0.1 %)      every 6 s
//
// The brake is per pod: its memory.pressure, the share of time in which one of its tasks waited for memory, and its refaults, memory that
// is needed again shortly after it was reclaimed. At a tenth of a percent of waiting nothing is reclaimed; at ten times that, or if half as
// much refaults as a step reclaims, the pod is left alone for a minute, and twice as long after each further mistake. How a pod uses its
// memory is not examined: reclaiming a page shows whether it was cold.
//
// Sources of the ideas:
//   - TMO (Weiner and others, ASPLOS 2022, "TMO: Transparent Memory Offloading in Datacenters"): the formula, its target of 0.1 %, the step
//     of 6 s, pressure instead of promotion rates to distinguish cold from warm memory, and offloading to compressed memory.
//   - senpai (Meta, github.com/facebookincubator/senpai; its successor is a plugin of oomd): 1 % per step, where TMO's 0.05 %
//     is for the services of a whole fleet; and the backoff if the target is far exceeded.
//   - memory.reclaim (Linux 5.19, Documentation/admin-guide/cgroup-v2.rst): reclaims without leaving a limit behind, unlike senpai's
//     memory.high, and the kernel attributes the time to the writer instead of the pod.
package cold

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

// Modes: [Reclaim] reclaims cold memory, [None], the default of all policies, does not.
const (
	Reclaim = "cold"
	None    = "none"
)

// Modes are all values of the setting.
var Modes = []string{Reclaim, None}

// Settings are what an administrator can set; an empty mode means [None].
type Settings struct{ Mode string }

const (
	mebibyte = 1 << 20
	// stepInterval is the time between two steps of a pod, and maxGap the gap after which earlier readings are stale.
	stepInterval = 6 * time.Second
	maxGap       = 2 * time.Minute
	// stepPart is the part of a pod's memory that a step of [stepInterval] reclaims.
	stepPart = 0.01
	// stallTarget is the share of time that tasks wait for memory at which nothing is reclaimed, and stallLimit the share that stops reclaim
	// for a hold-down.
	stallTarget = 0.001
	stallLimit  = 0.01
	// refaultPart is the part of a step's bytes that may refault in the same time.
	refaultPart = 0.5
	// After a mistake the pod is left alone for firstHold, after each further one twice as long, up to maxHold.
	firstHold = time.Minute
	maxHold   = 16 * time.Minute
	// A pod with less than minUse is left alone; a step reclaims from minStep to maxStep, and all pods' steps of a tick maxPerTick.
	minUse     = 64 * mebibyte
	minStep    = mebibyte / 4
	maxStep    = 256 * mebibyte
	maxPerTick = 512 * mebibyte
	// maxPods bounds the state and the requests, whatever a sample contains; isolate accepts that many cgroups in one tick.
	maxPods = 64
	// maxStepAge is the age from which a step's readings are stale. A pod may wait for as many ticks as the steps of all pods need: each
	// tick has room for two.
	maxStepAge = 2*maxGap + maxPods/(maxPerTick/maxStep)*maxGap
)

// State is what this package remembers of one node, in the format of the state file: its pods, by cgroup.
type State struct {
	Pods map[string]*pod `json:"pods,omitempty"`
}

// pod is the state of one pod.
type pod struct {
	// UID distinguishes it from a later pod with the same cgroup path.
	UID string `json:"uid,omitempty"`
	// StepAt is when the last step began, StallMicroseconds the counter of its memory.pressure then.
	StepAt            time.Time `json:"at"`
	StallMicroseconds float64   `json:"stallMicroseconds"`
	// RefaultBytes refaulted from StepAt to SeenAt.
	RefaultBytes float64   `json:"refaultBytes,omitempty"`
	SeenAt       time.Time `json:"seen"`
	// HoldUntil is when the hold-down of the last mistake ends, and Hold its length.
	HoldUntil time.Time     `json:"until,omitzero"`
	Hold      time.Duration `json:"hold,omitempty"`
}

// reading is what a sample contains about one pod.
type reading struct {
	path, uid, name string
	use             float64 // bytes
	stall           float64 // microseconds
	refaults        float64 // bytes per second
}

// Advise requests reclaim of cold memory of the batch pods, and gives reasons for what was requested and what was not. It returns the new
// state, nil if there is nothing to remember.
func (st *State) Advise(t *tick.Tick, a *tick.Advice, s Settings) *State {
	if t.Sample == nil || t.Sample.Fleet != nil || t.Sample.Agent != nil {
		return st
	}
	if s.Mode != Reclaim {
		return nil
	}
	if t.Sample.MemoryReclaim == nil {
		a.Reasons = append(a.Reasons, reason.ColdMemory+
			"cgroups have no memory.reclaim (it needs cgroup version 2 and Linux 5.19): nothing is reclaimed")
		return nil
	}
	if st == nil {
		st = &State{}
	}
	var step step
	next := map[string]*pod{}
	list := readings(t.Sample, &step)
	for i := range list {
		r := &list[i]
		p := st.Pods[r.path]
		if p == nil || p.UID != r.uid || !p.isContinuous(t.Time) {
			p = newPod(t.Time, r, p)
		}
		next[strings.Clone(r.path)] = p
	}
	slices.SortStableFunc(list, func(x, y reading) int { return next[x.path].StepAt.Compare(next[y.path].StepAt) })
	for i := range list {
		step.evaluate(t.Time, &list[i], next[list[i].path])
	}
	if len(step.requests) > 0 {
		a.MemoryReclaim = &tick.MemoryReclaim{
			Boot: t.Sample.MemoryReclaim.Boot, BootSeconds: t.Sample.MemoryReclaim.BootSeconds,
			Cgroups: step.requests,
		}
	}
	a.Reasons = append(a.Reasons, step.reasons(t.Time, next)...)
	if st.Pods = next; len(next) == 0 {
		return nil
	}
	return st
}

// isContinuous reports whether the last reading is recent: neither before a gap nor before the clock was set back.
func (p *pod) isContinuous(now time.Time) bool {
	gap := now.Sub(p.SeenAt)
	return gap >= 0 && gap <= maxGap && !p.StepAt.After(now) && now.Sub(p.StepAt) <= maxStepAge &&
		p.StallMicroseconds >= 0 && p.RefaultBytes >= 0
}

// newPod starts a pod's state. It keeps the hold-down of an earlier mistake of the same pod, which ends at the latest p.Hold from now.
func newPod(now time.Time, r *reading, previous *pod) *pod {
	p := &pod{UID: strings.Clone(r.uid), StepAt: now, SeenAt: now, StallMicroseconds: r.stall}
	if previous != nil && previous.UID == r.uid && previous.Hold > 0 {
		p.Hold = min(max(previous.Hold, firstHold), maxHold)
		if p.HoldUntil = previous.HoldUntil; p.HoldUntil.Sub(now) > p.Hold {
			p.HoldUntil = now.Add(p.Hold)
		}
	}
	return p
}

// readings returns the batch pods of which all needed values are known, sorted by cgroup. It counts the others.
func readings(s *tick.Sample, counts *step) []reading {
	var list []reading
	seen := map[string]bool{}
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.QoS != tick.QoSReclaimed || p.Missing != "" || p.Ended() || p.Terminating || !policy.IsCgroup(p.Cgroup) {
			continue
		}
		m := p.Memory
		switch {
		case seen[p.Cgroup]: // two pods claim one cgroup: neither counts
			total := len(list)
			list = slices.DeleteFunc(list, func(r reading) bool { return r.path == p.Cgroup })
			counts.unknown += total - len(list) + 1
		case m == nil || !isKnown(m.UsageBytes) || !isKnown(m.RefaultBytesPerSecond), p.MemoryPressure == nil || p.MemoryPressure.Some == nil,
			!(p.MemoryPressure.Some.TotalMicroseconds >= 0):
			counts.unknown++
		case policy.Amount(m.UsageBytes) < minUse:
		case len(list) == maxPods:
			counts.excess++
		default:
			name := p.Name
			if p.Namespace != "" {
				name = policy.Key(p)
			}
			list = append(list, reading{
				path: p.Cgroup, uid: policy.Identity(p), name: name, use: policy.Amount(m.UsageBytes),
				stall: policy.Bounded(p.MemoryPressure.Some.TotalMicroseconds), refaults: policy.Amount(m.RefaultBytesPerSecond),
			})
		}
		seen[p.Cgroup] = true
	}
	slices.SortFunc(list, func(x, y reading) int { return strings.Compare(x.path, y.path) })
	return list
}

func isKnown(v *float64) bool { return v != nil && *v >= 0 }

// step is what one tick requests.
type step struct {
	requests                       []tick.CgroupReclaim
	bytes                          int64
	unknown, excess, inUse, onHold int
	waiting                        int      // pods whose next step did not fit into this tick
	stopReasons                    []string // the reason for each pod for which a mistake was just seen
}

// evaluate evaluates a pod's last step, if it is over, and requests the next. If this tick has no room for that, the last step goes on, so
// that the pod comes first in a later tick.
func (s *step) evaluate(now time.Time, r *reading, p *pod) {
	p.RefaultBytes = policy.Bounded(p.RefaultBytes + r.refaults*now.Sub(p.SeenAt).Seconds())
	isRepeated := !now.After(p.SeenAt)
	p.SeenAt = now
	elapsed := now.Sub(p.StepAt)
	if r.stall < p.StallMicroseconds { // the counter is another cgroup's
		*p = *newPod(now, r, p)
		return
	}
	if elapsed < stepInterval || isRepeated {
		if now.Before(p.HoldUntil) {
			s.onHold++
		}
		return
	}
	stalled := (r.stall - p.StallMicroseconds) / 1e6 / elapsed.Seconds()
	reclaimed := r.use * stepPart * elapsed.Seconds() / stepInterval.Seconds()
	bytes := nextBytes(r, stalled, reclaimed)
	switch {
	case now.Before(p.HoldUntil):
		s.onHold++
	case stalled >= stallLimit:
		s.startHold(now, r, p, fmt.Sprintf("waited for memory %.1f %% of the time", min(100*stalled, 100)))
	case p.RefaultBytes > refaultPart*reclaimed:
		s.startHold(now, r, p, fmt.Sprintf("refaulted %s/s", size(p.RefaultBytes/elapsed.Seconds())))
	case s.bytes+bytes > maxPerTick:
		s.waiting++
		return
	default:
		p.shortenHold(now)
		s.request(r, bytes)
	}
	p.StepAt, p.StallMicroseconds, p.RefaultBytes = now, r.stall, 0
}

// shortenHold halves the next hold-down if there was no mistake for as long as the last one.
func (p *pod) shortenHold(now time.Time) {
	if p.Hold > 0 && now.Sub(p.HoldUntil) >= p.Hold {
		if p.Hold /= 2; p.Hold < firstHold {
			p.Hold = 0
		}
		p.HoldUntil = now
	}
}

// startHold leaves a pod alone for its hold-down.
func (s *step) startHold(now time.Time, r *reading, p *pod, why string) {
	p.Hold = min(max(2*p.Hold, firstHold), maxHold)
	p.HoldUntil = now.Add(p.Hold)
	s.onHold++
	const maxListed = 3
	if len(s.stopReasons) < maxListed {
		s.stopReasons = append(s.stopReasons, fmt.Sprintf(reason.ColdMemory+"pod %s %s: no reclaim for %s", policy.Quote(r.name), why, p.Hold))
	}
}

// nextBytes returns the part of the pod's memory that the next step reclaims, less the more the pod waits, and never so much that it falls
// below [minUse]; 0 if it is all in use.
func nextBytes(r *reading, stalled, goal float64) int64 {
	bytes := min(min(goal, 2*stepPart*r.use)*max(0, 1-stalled/stallTarget), maxStep, r.use-minUse)
	if bytes < minStep {
		return 0
	}
	return int64(bytes) / 4096 * 4096
}

// request requests a part of the pod's memory.
func (s *step) request(r *reading, bytes int64) {
	if bytes == 0 {
		s.inUse++
		return
	}
	s.requests = append(s.requests, tick.CgroupReclaim{Cgroup: r.path, Bytes: bytes})
	s.bytes += bytes
}

// reasons returns what is requested, and what is not.
func (s *step) reasons(now time.Time, pods map[string]*pod) []string {
	text := reason.ColdMemory + "nothing to reclaim now"
	if len(s.requests) > 0 {
		text = fmt.Sprintf(reason.ColdMemory+"reclaim %s from %s", size(float64(s.bytes)), phrase.Count(len(s.requests), "pod"))
	}
	if s.inUse > 0 {
		text += fmt.Sprintf("; %s: all in use", phrase.Count(s.inUse, "pod"))
	}
	if s.waiting > 0 {
		text += fmt.Sprintf("; %s in a later tick: at most %s per tick", phrase.Count(s.waiting, "pod"), size(maxPerTick))
	}
	if s.onHold > 0 {
		first := time.Duration(0)
		for _, path := range slices.Sorted(maps.Keys(pods)) {
			if remaining := pods[path].HoldUntil.Sub(now); remaining > 0 && (first == 0 || remaining < first) {
				first = remaining
			}
		}
		text += fmt.Sprintf("; %s in hold-down, the first for %s more", phrase.Count(s.onHold, "pod"), first.Round(time.Second))
	}
	if s.unknown > 0 {
		text += fmt.Sprintf("; %s with unknown values", phrase.Count(s.unknown, "pod"))
	}
	if s.excess > 0 {
		text += fmt.Sprintf("; %s beyond the maximum of %d", phrase.Count(s.excess, "pod"), maxPods)
	}
	return append([]string{text}, s.stopReasons...)
}

// size formats a number of bytes.
func size(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/mebibyte) }
