package pick

import (
	"maps"
	"time"

	"polder/evict/rule"
	"polder/lib/tick"
)

// State is the choice's state of one node. The state file contains it as JSON; its zero value is empty.
type State struct {
	// InProgress are the pods whose eviction is in progress.
	InProgress InProgress `json:"going,omitempty"`
	// TerminatingSince is the time since which a pod has been terminating, by UID.
	TerminatingSince map[string]time.Time `json:"ending,omitempty"`
	// Cooldowns are those after evictions, by [rule.Finding.CooldownKey].
	Cooldowns map[string]*Cooldown `json:"cooldowns,omitempty"`
	// LastHour are the evictions within the last hour.
	LastHour LastHour `json:"hour,omitempty"`
	// Queue are the pods that soft findings name.
	Queue      Queue      `json:"queue,omitempty"`
	Continuity Continuity `json:"steady,omitzero"`
}

// Init prepares a state that is new, or was read from a file: it drops invalid entries.
func (m *State) Init() {
	if m.InProgress == nil {
		m.InProgress = InProgress{}
	}
	maps.DeleteFunc(m.InProgress, func(_ string, l *Ongoing) bool { return l == nil })
	if m.TerminatingSince == nil {
		m.TerminatingSince = map[string]time.Time{}
	}
	if m.Cooldowns == nil {
		m.Cooldowns = map[string]*Cooldown{}
	}
	maps.DeleteFunc(m.Cooldowns, func(_ string, c *Cooldown) bool { return c == nil })
	for _, c := range m.Cooldowns {
		c.fixInvalid()
	}
	if m.Queue == nil {
		m.Queue = Queue{}
	}
}

// Pods are a sample's pods, by UID.
type Pods struct {
	ByUID map[string]*tick.Pod
	// AreComplete means that a pod that is missing has ended: collect reports no pod or cgroup that it could not read.
	AreComplete bool
}

// PodsOf returns a sample's pods; sample is nil if the tick has none.
func PodsOf(sample *tick.Sample) Pods {
	if sample == nil {
		return Pods{}
	}
	pods := Pods{make(map[string]*tick.Pod, len(sample.Pods)), !sample.IsUnread("pods") && !sample.IsUnread("cgroup")}
	for i := range sample.Pods {
		pods.ByUID[sample.Pods[i].UID] = &sample.Pods[i]
	}
	return pods
}

// HasEnded reports whether a pod has certainly ended.
func (p Pods) HasEnded(uid string) bool { return p.AreComplete && p.ByUID[uid] == nil }

// Observe begins a tick, and returns the reports about the evictions in progress (see [InProgress.Observe]). sample is nil
// if the tick has none.
func (m *State) Observe(now time.Time, sample *tick.Sample, pods Pods) []tick.PodEviction {
	m.LastHour.Observe(now)
	if sample != nil {
		m.Continuity.Observe(now, rule.Interval(sample))
	}
	m.observeTerminating(now, pods)
	return m.InProgress.Observe(now, pods)
}

// observeTerminating records since when pods have been terminating, whichever client has deleted them.
func (m *State) observeTerminating(now time.Time, pods Pods) {
	maps.DeleteFunc(m.TerminatingSince, func(uid string, since time.Time) bool {
		if p := pods.ByUID[uid]; p != nil {
			return !rule.IsTerminating(p)
		}
		return pods.AreComplete || now.Sub(since) > time.Hour
	})
	for uid, p := range pods.ByUID {
		if since, ok := m.TerminatingSince[uid]; rule.IsTerminating(p) && (!ok || now.Before(since)) {
			m.TerminatingSince[uid] = now
		}
	}
}

// releases reports whether a pod's resources count as released already: its eviction is in progress, and not for so long that it
// may never end.
func (m *State) releases(p *tick.Pod, now time.Time) bool {
	l := m.InProgress[p.UID]
	if l != nil && l.FailedAt.IsZero() {
		return l.releases(now)
	}
	if !rule.IsTerminating(p) || l != nil && l.StuckTerminating {
		return false
	}
	since, ok := m.TerminatingSince[p.UID]
	return !ok || now.Sub(since) <= stuckAfter
}

// CooldownLeft returns the remaining cooldown after the last eviction for findings with this key.
func (m *State) CooldownLeft(key string, now time.Time, span time.Duration) time.Duration {
	c := m.Cooldowns[key]
	if c == nil {
		return 0
	}
	return c.Left(now, span)
}

// RecordRequest records that a victim's end is requested. If an earlier request for it has no known answer, this one replaces it.
func (m *State) RecordRequest(v Victim, now time.Time) *Ongoing {
	if m.InProgress.Unanswered(v.Pod.UID) {
		m.undoCooldowns(m.InProgress[v.Pod.UID])
	}
	for _, r := range v.Cooldowns {
		c := m.Cooldowns[r]
		if c == nil {
			c = new(Cooldown)
			m.Cooldowns[r] = c
		}
		c.Begin(now)
	}
	if m.IsCounted(v.Pod.UID) {
		m.LastHour.RemoveLatest(v.Pod.UID)
	}
	m.LastHour.Add(v.Pod.UID, v.Pod.Namespace, now)
	return m.InProgress.Add(v, now)
}

// IsCounted reports whether a new request for a pod is already counted within the hour: its end was requested, and the
// answer is unknown.
func (m *State) IsCounted(uid string) bool {
	return m.InProgress.Unanswered(uid) && m.LastHour.Has(uid)
}

// ServerError records that the API server answered with a failure for a pod, such as 429 or 503. That leaves open what it has done (see
// [InProgress.NoAnswer]), but repeated failures count as a refusal: the server, or a webhook, may fail for this pod alone, and another
// one may be evicted. An overload passes, so that the pod is a candidate again after retryAfter, or DefaultRetryAfter if that is 0.
func (m *State) ServerError(uid, why string, now time.Time, retryAfter time.Duration) {
	l := m.InProgress[uid]
	if l == nil {
		return
	}
	failures := l.ServerErrors + 1
	if failures >= maxServerErrors {
		m.Refuse(uid, why, now, retryAfter)
		return
	}
	m.InProgress.NoAnswer(uid, why, now)
	l.ServerErrors = failures
}

// Refuse records that a pod's eviction was refused, without effect on the pod: after retryAfter, or DefaultRetryAfter if that is 0, it
// is a candidate again. Until then the next one is tried, at once: a refusal begins no cooldown, and it no longer counts
// towards the hourly limit.
func (m *State) Refuse(uid, why string, now time.Time, retryAfter time.Duration) {
	l := m.InProgress[uid]
	if l == nil {
		return
	}
	m.InProgress.Fail(uid, why, now, retryAfter)
	m.LastHour.RemoveLatest(uid)
	m.undoCooldowns(l)
}

// undoCooldowns takes back the cooldowns that a request began. Those of other requests at the same tick stay, and what was left of an
// earlier one continues.
func (m *State) undoCooldowns(l *Ongoing) {
	for _, key := range l.Cooldowns {
		if c := m.Cooldowns[key]; c != nil {
			c.Undo(l.DecidedAt)
		}
	}
}
