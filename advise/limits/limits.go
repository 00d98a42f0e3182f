// Package limits bounds memory after a policy has decided, in three parts:
//
//	own      a batch pod's CPU quota and memory limit from its limits of reclaimed resources, which kubelet does not know
//	cap      memory.high and memory.max on the cgroup above batch pods, by the offer and the free memory
//	protect  memory.low of services up to their working set, on version 2
//
// It only ever tightens what the policy advises, and never widens the cgroup's original values (isolate ensures that, by
// [tick.Cgroup.MemoryTighterOnly]). No limit is more than one step below a cgroup's current use, and no hard limit is below the use:
// memory.high reduces the use, memory.max only follows, and memory.events show whether that works (see [eventHistory]). Unknown values
// change nothing; a value that is no longer desired is undone for some time, and after that nothing is advised for it.
package limits

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"polder/advise/policy"
	"polder/lib/tick"
)

// Modes of the cap and of the protection.
const (
	Cap     = "cap"
	Protect = "protect"
	None    = "none"
)

// BatchModes and ServiceModes are all values of the two settings.
var (
	BatchModes   = []string{Cap, None}
	ServiceModes = []string{Protect, None}
)

// ProtectIfPossible is a policy's default for services; it is not one of [ServiceModes]: like [Protect], but nothing is reported where the
// kernel has no protection.
const ProtectIfPossible = "protect if possible"

// Settings are what an administrator can set, and Own, which each policy sets: it leaves the pods' own limits to this package.
type Settings struct {
	// Batch is one of [BatchModes], Services one of [ServiceModes] or [ProtectIfPossible]; empty means [None].
	Batch, Services string
	Own             bool
}

const (
	mebibyte = 1 << 20
	// maxBytes and maxMilliCPU are the largest valid limit and quota: a larger value means no limit.
	maxBytes    = 1 << 53
	maxMilliCPU = 8192 * 1000
	// stepPart is the part of a cgroup's use by which memory.high may be below it, and by which a hard limit stays above it.
	stepPart = 0.1
	// maxCgroups bounds the state, whatever a sample or a state file contains.
	maxCgroups = 10_000
)

// State is what this package remembers of one node, in the format of the state file.
type State struct {
	// CapBytes is the total that batch may use; 0 if no cap is in force. RiseSince is since when a larger cap has been possible, and
	// MinPossibleBytes the smallest cap that was possible since then.
	CapBytes         int64     `json:"capBytes,omitempty"`
	RiseSince        time.Time `json:"riseSince,omitzero"`
	MinPossibleBytes int64     `json:"leastBytes,omitempty"`
	// KnownAt is when batch's use, the offer and the free memory were last known.
	KnownAt time.Time `json:"known,omitzero"`
	// Set are the values that were advised, by cgroup, each by the part that advised it.
	Set map[string]*cgroupState `json:"set,omitempty"`
}

// cgroupState is what was advised for one cgroup; 0 means no value.
type cgroupState struct {
	Own values `json:"own,omitzero"`
	Cap values `json:"cap,omitzero"`
	Low int64  `json:"low,omitempty"`
	// Events is the history of a capped cgroup's events; nil if unknown.
	Events *eventHistory `json:"watch,omitempty"`
	// IsParent reports whether the cgroup is above pods: the sample does not show whether it still exists.
	IsParent bool `json:"above,omitempty"`
	// Undo is what was advised before and is no longer desired, since UndoAt or earlier.
	Undo   keys      `json:"undo,omitzero"`
	UndoAt time.Time `json:"undoAt,omitzero"`
}

// values are limits in milli-CPU and bytes.
type values struct {
	CPU  int64 `json:"cpu,omitempty"`
	High int64 `json:"high,omitempty"`
	Max  int64 `json:"max,omitempty"`
}

// keys are the fields of a [tick.Cgroup] that this package sets.
type keys struct {
	CPU  bool `json:"cpu,omitempty"`
	High bool `json:"high,omitempty"`
	Max  bool `json:"max,omitempty"`
	Low  bool `json:"low,omitempty"`
}

// without returns the keys that are not among others.
func (k keys) without(others keys) keys {
	return keys{k.CPU && !others.CPU, k.High && !others.High, k.Max && !others.Max, k.Low && !others.Low}
}

// union returns the keys of both.
func (k keys) union(others keys) keys {
	return keys{k.CPU || others.CPU, k.High || others.High, k.Max || others.Max, k.Low || others.Low}
}

func (s *cgroupState) keys() keys {
	return keys{s.Own.CPU > 0, s.Own.High > 0 || s.Cap.High > 0, s.Own.Max > 0 || s.Cap.Max > 0, s.Low > 0}
}

// Advise adds the limits and protections to the advice and to its fallback. It returns the new state, nil if there is nothing to remember.
func (st *State) Advise(t *tick.Tick, a *tick.Advice, s Settings) *State {
	if t.Sample == nil || t.Sample.Fleet != nil || t.Sample.Agent != nil {
		return st
	}
	if st == nil {
		st = &State{}
	}
	st.sanitize(t.Time)
	w := round{state: st, tick: t, advice: a, next: map[string]*cgroupState{}, pods: map[string]kubeletLimits{}}
	w.readPods()
	if s.Own {
		w.applyOwnLimits(s.Batch == Cap)
	}
	if s.Batch == Cap {
		w.applyCap()
	} else {
		st.removeCap()
	}
	if s.Services == Protect || s.Services == ProtectIfPossible {
		w.protect(s.Services)
	}
	w.undoDropped()
	w.apply()
	if st.Set = w.next; len(st.Set) == 0 && st.CapBytes == 0 {
		return nil
	}
	return st
}

// sanitize corrects invalid values of a state file, and times after a clock was set back.
func (st *State) sanitize(now time.Time) {
	st.CapBytes, st.MinPossibleBytes = bounded(st.CapBytes), bounded(st.MinPossibleBytes)
	for _, at := range []*time.Time{&st.RiseSince, &st.KnownAt} {
		if at.After(now) {
			*at = now
		}
	}
	if len(st.Set) > maxCgroups {
		st.Set = nil
	}
	for path, s := range st.Set {
		if s == nil || !policy.IsCgroup(path) {
			delete(st.Set, path)
			continue
		}
		if s.UndoAt.After(now) {
			s.UndoAt = now
		}
		for _, v := range []*int64{&s.Own.High, &s.Own.Max, &s.Cap.High, &s.Cap.Max, &s.Low} {
			*v = bounded(*v)
		}
		if s.Events != nil {
			s.Events.sanitize(now)
		}
		s.Own.CPU, s.Cap.CPU = min(max(s.Own.CPU, 0), maxMilliCPU), 0
	}
}

func bounded(n int64) int64 { return min(max(n, 0), maxBytes) }

// round is the work of one tick.
type round struct {
	state  *State
	tick   *tick.Tick
	advice *tick.Advice
	next   map[string]*cgroupState
	pods   map[string]kubeletLimits // of each cgroup of a pod or container in the sample
}

// kubeletLimits are the limits that kubelet sets on a cgroup from a pod's own resources; [tick.Unlimited] if it sets none.
type kubeletLimits struct{ milliCPU, bytes int64 }

// readPods finds the cgroups of the pods in the sample.
func (w *round) readPods() {
	for i := range w.tick.Sample.Pods {
		p := &w.tick.Sample.Pods[i]
		if p.Missing == tick.MissingCgroup {
			continue
		}
		hasContainers := len(p.Containers) > 0 // kubelet limits a pod only if it limits each of its containers
		milliCPU, memory := hasContainers, hasContainers
		for j := range p.Containers {
			c := &p.Containers[j]
			limits := kubeletLimitsOf(c.Limits)
			milliCPU, memory = milliCPU && limits.milliCPU > 0, memory && limits.bytes > 0
			if policy.IsCgroup(c.Cgroup) && c.Cgroup != p.Cgroup {
				w.pods[c.Cgroup] = limits
			}
		}
		if !policy.IsCgroup(p.Cgroup) {
			continue
		}
		limits := kubeletLimitsOf(p.Limits)
		if len(p.Containers) > 0 && !milliCPU {
			limits.milliCPU = tick.Unlimited
		}
		if len(p.Containers) > 0 && !memory {
			limits.bytes = tick.Unlimited
		}
		w.pods[p.Cgroup] = limits
	}
}

func kubeletLimitsOf(r *tick.Resources) kubeletLimits {
	n := kubeletLimits{tick.Unlimited, tick.Unlimited}
	if r != nil {
		n.milliCPU, n.bytes = quotaOf(r.MilliCPU), bytesOf(r.MemoryBytes)
	}
	return n
}

// quotaOf converts a limit to a quota in milli-CPU, at least the kernel's least; a value larger than any machine means no quota.
func quotaOf(limit *float64) int64 {
	if limit == nil || !(*limit > 0 && *limit <= maxMilliCPU) {
		return tick.Unlimited
	}
	return max(int64(math.Ceil(*limit)), policy.MinQuotaMilliCPU)
}

// bytesOf converts a limit of memory in the same way.
func bytesOf(limit *float64) int64 {
	if limit == nil || !(*limit >= 1 && *limit <= maxBytes) {
		return tick.Unlimited
	}
	return int64(*limit)
}

// entry returns what is desired of a cgroup, and creates it if there is nothing.
func (w *round) entry(path string) *cgroupState {
	s := w.next[path]
	if s == nil {
		s = &cgroupState{}
		if _, isPodCgroup := w.pods[path]; !isPodCgroup {
			s.IsParent = true
		}
		w.next[strings.Clone(path)] = s
	}
	return s
}

// previous returns what was advised for a cgroup in the last tick.
func (w *round) previous(path string) cgroupState {
	if s := w.state.Set[path]; s != nil {
		return *s
	}
	return cgroupState{}
}

// undoDropped undoes what is no longer desired, for [policy.UndoFor] and while the cgroup exists, or may exist.
func (w *round) undoDropped() {
	for path, previous := range w.state.Set {
		_, exists := w.pods[path]
		if !exists && !previous.IsParent {
			continue // the cgroup no longer exists, nor do its values
		}
		s, isDesired := w.next[path]
		if !isDesired {
			s = &cgroupState{IsParent: previous.IsParent}
		}
		dropped := previous.keys().without(s.keys())
		if s.UndoAt = previous.UndoAt; dropped != (keys{}) {
			s.UndoAt = w.tick.Time
		}
		if s.Undo = dropped.union(previous.Undo.without(s.keys())); w.tick.Time.Sub(s.UndoAt) >= policy.UndoFor {
			s.Undo = keys{}
		}
		if s.Undo != (keys{}) {
			w.next[path] = s
		}
	}
}

// apply adds all values to the advice.
func (w *round) apply() {
	if len(w.next) == 0 {
		return
	}
	d := policy.NewDraft(w.advice)
	for _, path := range slices.Sorted(maps.Keys(w.next)) {
		s := w.next[path]
		limits, isPodCgroup := w.pods[path]
		if !isPodCgroup {
			limits = kubeletLimits{tick.Unlimited, tick.Unlimited}
		}
		current := s.keys()
		d.Each(path, func(c *tick.Cgroup) {
			if current.CPU {
				c.CPUMaxMilliCPU = policy.Tighter(c.CPUMaxMilliCPU, s.Own.CPU)
			}
			for _, v := range []values{s.Own, s.Cap} {
				if v.High > 0 {
					c.MemoryHighBytes = policy.Tighter(c.MemoryHighBytes, v.High)
				}
				if v.Max > 0 {
					c.MemoryMaxBytes = policy.Tighter(c.MemoryMaxBytes, v.Max)
				}
			}
			if current.Low && c.MemoryLowBytes == nil {
				c.MemoryLowBytes = new(s.Low)
			}
			if current.High || current.Max || current.Low || s.Undo.High || s.Undo.Max || s.Undo.Low {
				c.MemoryTighterOnly = true
			}
		})
		for _, key := range []struct {
			undo bool
			at   func(*tick.Cgroup) **int64
			to   int64
		}{
			{s.Undo.CPU, func(c *tick.Cgroup) **int64 { return &c.CPUMaxMilliCPU }, limits.milliCPU},
			{s.Undo.High, func(c *tick.Cgroup) **int64 { return &c.MemoryHighBytes }, tick.Unlimited},
			{s.Undo.Max, func(c *tick.Cgroup) **int64 { return &c.MemoryMaxBytes }, limits.bytes},
			{s.Undo.Low, func(c *tick.Cgroup) **int64 { return &c.MemoryLowBytes }, 0},
		} {
			if key.undo {
				d.SetIfUnset(path, key.at, key.to)
			}
		}
	}
	d.Finish(w.advice)
}

func (w *round) addReason(format string, args ...any) {
	w.advice.Reasons = append(w.advice.Reasons, fmt.Sprintf(format, args...))
}

// percent formats a part of a whole.
func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// size formats a number of bytes.
func size(bytes float64) string { return fmt.Sprintf("%.2f GiB", bytes/(1<<30)) }
