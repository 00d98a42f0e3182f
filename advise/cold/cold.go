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
	// every is the time between two steps of a pod, and longest the gap after which earlier readings are stale.
	every   = 6 * time.Second
	longest = 2 * time.Minute
	// ratio is the part of a pod's memory that a step of [every] reclaims.
	ratio = 0.01
	// stallTarget is the share of time that tasks wait for memory at which nothing is reclaimed, and stallBrake the share that stops reclaim
	// for a hold-down.
	stallTarget = 0.001
	stallBrake  = 0.01
	// refaultPart is the part of a step's bytes that may refault in the same time.
	refaultPart = 0.5
	// After a mistake the pod is left alone for firstHold, after each further one twice as long, up to mostHold.
	firstHold = time.Minute
	mostHold  = 16 * time.Minute
	// A pod with less than leastUse is left alone; a step reclaims from leastStep to mostStep, and all pods' steps of a tick mostTick.
	leastUse  = 64 * mebibyte
	leastStep = mebibyte / 4
	mostStep  = 256 * mebibyte
	mostTick  = 512 * mebibyte
	// maxPods bounds the state and the requests, whatever a sample contains; isolate accepts that many cgroups in one tick.
	maxPods = 64
)

// State is what this package remembers of one node, in the format of the state file: its pods, by cgroup.
type State struct {
	Pods map[string]*pod `json:"pods,omitempty"`
}

// pod is the state of one pod.
type pod struct {
	// UID distinguishes it from a later pod with the same cgroup path.
	UID string `json:"uid,omitempty"`
	// At is when the last step began, StallMicroseconds the counter of its memory.pressure then.
	At                time.Time `json:"at"`
	StallMicroseconds float64   `json:"stallMicroseconds"`
	// RefaultBytes refaulted from At to Seen.
	RefaultBytes float64   `json:"refaultBytes,omitempty"`
	Seen         time.Time `json:"seen"`
	// Until is when the hold-down of the last mistake ends, and Hold its length.
	Until time.Time     `json:"until,omitzero"`
	Hold  time.Duration `json:"hold,omitempty"`
}

// Reboot discards the pods of before a reboot.
func (st *State) Reboot() *State { return nil }

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
		a.Reasons = append(a.Reasons, "cold memory: cgroups have no memory.reclaim (it is of cgroup version 2 and Linux 5.19): none is taken back")
		return nil
	}
	if st == nil {
		st = &State{}
	}
	var step step
	next := map[string]*pod{}
	for _, r := range readings(t.Sample, &step) {
		p := st.Pods[r.path]
		if p == nil || p.UID != r.uid || !p.goesOn(t.Time) {
			p = begin(t.Time, &r, p)
		}
		next[strings.Clone(r.path)] = p
		step.take(t.Time, &r, p)
	}
	if len(step.list) > 0 {
		a.MemoryReclaim = &tick.MemoryReclaim{
			Boot: t.Sample.MemoryReclaim.Boot, BootSeconds: t.Sample.MemoryReclaim.BootSeconds,
			Cgroups: step.list,
		}
	}
	a.Reasons = append(a.Reasons, step.reasons(t.Time, next)...)
	if st.Pods = next; len(next) == 0 {
		return nil
	}
	return st
}

// goesOn reports whether the last reading is recent: neither before a gap nor before the clock was set back.
func (p *pod) goesOn(now time.Time) bool {
	gap := now.Sub(p.Seen)
	return gap >= 0 && gap <= longest && !p.At.After(now) && now.Sub(p.At) <= 2*longest && p.StallMicroseconds >= 0 && p.RefaultBytes >= 0
}

// begin starts a pod's state. It keeps the hold-down of an earlier mistake of the same pod, which ends at the latest p.Hold from now.
func begin(now time.Time, r *reading, before *pod) *pod {
	p := &pod{UID: strings.Clone(r.uid), At: now, Seen: now, StallMicroseconds: r.stall}
	if before != nil && before.UID == r.uid && before.Hold > 0 {
		p.Hold = min(max(before.Hold, firstHold), mostHold)
		if p.Until = before.Until; p.Until.Sub(now) > p.Hold {
			p.Until = now.Add(p.Hold)
		}
	}
	return p
}

// readings returns the batch pods of which all needed values are known, sorted by cgroup. It counts the others.
func readings(s *tick.Sample, into *step) []reading {
	var list []reading
	seen := map[string]bool{}
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.QoS != tick.QoSReclaimed || p.Missing != "" || p.Ended() || p.Terminating || !isPath(p.Cgroup) {
			continue
		}
		m := p.Memory
		switch {
		case m == nil || !known(m.UsageBytes) || !known(m.RefaultBytesPerSecond), p.MemoryPressure == nil || p.MemoryPressure.Some == nil,
			!(p.MemoryPressure.Some.TotalMicroseconds >= 0):
			into.unknown++
		case seen[p.Cgroup]: // two pods claim one cgroup: neither counts
			all := len(list)
			list = slices.DeleteFunc(list, func(r reading) bool { return r.path == p.Cgroup })
			into.unknown += all - len(list) + 1
		case policy.Amount(m.UsageBytes) < leastUse:
		case len(list) == maxPods:
			into.more++
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

func known(v *float64) bool { return v != nil && *v >= 0 }

// maxPath is the longest path that the kernel accepts (PATH_MAX).
const maxPath = 4096

func isPath(path string) bool { return len(path) > 1 && len(path) <= maxPath && path[0] == '/' }

// step is what one tick requests.
type step struct {
	list                         []tick.MemoryToTake
	bytes                        int64
	unknown, more, warm, waiting int
	stopped                      []string // the reason for each pod for which a mistake was just seen
}

// take evaluates a pod's last step, if it is over, and requests the next.
func (s *step) take(now time.Time, r *reading, p *pod) {
	p.RefaultBytes = policy.Bounded(p.RefaultBytes + r.refaults*now.Sub(p.Seen).Seconds())
	p.Seen = now
	elapsed := now.Sub(p.At)
	if r.stall < p.StallMicroseconds { // the counter is another cgroup's
		*p = *begin(now, r, p)
		return
	}
	if elapsed < every {
		if now.Before(p.Until) {
			s.waiting++
		}
		return
	}
	waited := (r.stall - p.StallMicroseconds) / 1e6 / elapsed.Seconds()
	taken := r.use * ratio * elapsed.Seconds() / every.Seconds()
	refaults := p.RefaultBytes
	p.At, p.StallMicroseconds, p.RefaultBytes = now, r.stall, 0
	switch {
	case now.Before(p.Until):
		s.waiting++
		return
	case waited >= stallBrake:
		s.stop(now, r, p, fmt.Sprintf("waited for memory %.1f %% of the time", min(100*waited, 100)))
		return
	case refaults > refaultPart*taken:
		s.stop(now, r, p, fmt.Sprintf("needed %s/s again", size(refaults/elapsed.Seconds())))
		return
	}
	if p.Hold > 0 && now.Sub(p.Until) >= p.Hold { // no mistake for as long as the last hold-down
		if p.Hold /= 2; p.Hold < firstHold {
			p.Hold = 0
		}
		p.Until = now
	}
	s.ask(r, waited, taken)
}

// stop leaves a pod alone for its hold-down.
func (s *step) stop(now time.Time, r *reading, p *pod, why string) {
	p.Hold = min(max(2*p.Hold, firstHold), mostHold)
	p.Until = now.Add(p.Hold)
	s.waiting++
	const listed = 3
	if len(s.stopped) < listed {
		s.stopped = append(s.stopped, fmt.Sprintf("cold memory: %s %s: left alone for %s", policy.Quote(r.name), why, p.Hold))
	}
}

// ask requests a part of the pod's memory, less the more the pod waits, and never so much that it falls below [leastUse].
func (s *step) ask(r *reading, waited, taken float64) {
	bytes := min(min(taken, 2*ratio*r.use)*max(0, 1-waited/stallTarget), mostStep, r.use-leastUse, float64(mostTick-s.bytes))
	if bytes < leastStep {
		s.warm++
		return
	}
	whole := int64(bytes) / 4096 * 4096
	s.list = append(s.list, tick.MemoryToTake{Cgroup: r.path, Bytes: whole})
	s.bytes += whole
}

// reasons returns what is requested, and what is not.
func (s *step) reasons(now time.Time, pods map[string]*pod) []string {
	text := "cold memory: nothing to take back now"
	if len(s.list) > 0 {
		text = fmt.Sprintf("cold memory: %s of %s", size(float64(s.bytes)), phrase.Count(len(s.list), "pod"))
	}
	if s.warm > 0 {
		text += fmt.Sprintf("; %s: all in use", phrase.Count(s.warm, "pod"))
	}
	if s.waiting > 0 {
		first := time.Duration(0)
		for _, path := range slices.Sorted(maps.Keys(pods)) {
			if left := pods[path].Until.Sub(now); left > 0 && (first == 0 || left < first) {
				first = left
			}
		}
		text += fmt.Sprintf("; %s left alone, the first for %s more", phrase.Count(s.waiting, "pod"), first.Round(time.Second))
	}
	if s.unknown > 0 {
		text += fmt.Sprintf("; %s of which not all is known", phrase.Count(s.unknown, "pod"))
	}
	if s.more > 0 {
		text += fmt.Sprintf("; %s are more than %d", phrase.Count(s.more, "pod"), maxPods)
	}
	return append([]string{text}, s.stopped...)
}

// size formats a number of bytes.
func size(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/mebibyte) }
