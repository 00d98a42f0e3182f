package pick

import (
	"maps"
	"time"

	"polder/evict/rule"
	"polder/lib/tick"
)

// Memory is what the choice remembers of one node. It is encoded as JSON into the state file; its zero value is empty.
type Memory struct {
	// InProgress are the pods whose eviction is in progress.
	InProgress InProgress `json:"going,omitempty"`
	// Ending is the time since which a pod has been seen to terminate, by UID.
	Ending map[string]time.Time `json:"ending,omitempty"`
	// Cooldowns are those after evictions, by [rule.Finding.CooldownKey].
	Cooldowns map[string]*Cooldown `json:"cooldowns,omitempty"`
	// Hour are the evictions within the last hour.
	Hour Hour `json:"hour,omitempty"`
	// Queue are the pods that soft findings name.
	Queue  Queue  `json:"queue,omitempty"`
	Steady Steady `json:"steady,omitzero"`
}

// Init makes a memory that was read from a file, or is new, fit for use: what is no entry there is left out.
func (m *Memory) Init() {
	if m.InProgress == nil {
		m.InProgress = InProgress{}
	}
	maps.DeleteFunc(m.InProgress, func(_ string, l *Ongoing) bool { return l == nil })
	if m.Ending == nil {
		m.Ending = map[string]time.Time{}
	}
	if m.Cooldowns == nil {
		m.Cooldowns = map[string]*Cooldown{}
	}
	maps.DeleteFunc(m.Cooldowns, func(_ string, c *Cooldown) bool { return c == nil })
	if m.Queue == nil {
		m.Queue = Queue{}
	}
}

// Observe begins a tick, and returns what there is to report about the evictions in progress (see [InProgress.Observe]). The
// sample is nil where the tick has none.
func (m *Memory) Observe(now time.Time, sample *tick.Sample, present map[string]*tick.Pod, complete bool) []tick.PodEviction {
	m.Hour.Observe(now)
	if sample != nil {
		m.Steady.Observe(now, rule.Interval(sample))
	}
	m.observeEnding(now, present, complete)
	return m.InProgress.Observe(now, present, complete)
}

// observeEnding notes since when pods terminate, whoever has deleted them.
func (m *Memory) observeEnding(now time.Time, present map[string]*tick.Pod, complete bool) {
	maps.DeleteFunc(m.Ending, func(uid string, since time.Time) bool {
		if p := present[uid]; p != nil {
			return !p.Terminating
		}
		return complete || now.Sub(since) > time.Hour
	})
	for uid, p := range present {
		if since, ok := m.Ending[uid]; p.Terminating && (!ok || now.Before(since)) {
			m.Ending[uid] = now
		}
	}
}

// releases reports whether what a pod holds counts as released already: its eviction is in progress, and not for so long that it
// may never end.
func (m *Memory) releases(p *tick.Pod, now time.Time) bool {
	l := m.InProgress[p.UID]
	if l != nil && l.Spared.IsZero() {
		return l.releases(now)
	}
	if !p.Terminating || l != nil && l.Hangs {
		return false
	}
	since, ok := m.Ending[p.UID]
	return !ok || now.Sub(since) <= hangAfter
}

// CooldownLeft is how long the cooldown lasts yet after the last eviction for findings with its key.
func (m *Memory) CooldownLeft(key string, now time.Time, span time.Duration) time.Duration {
	c := m.Cooldowns[key]
	if c == nil {
		return 0
	}
	return c.Left(now, span)
}

// Take notes that a victim is asked to end.
func (m *Memory) Take(v Victim, now time.Time) *Ongoing {
	for _, r := range v.Cooldowns {
		c := m.Cooldowns[r]
		if c == nil {
			c = new(Cooldown)
			m.Cooldowns[r] = c
		}
		c.Strike(now)
	}
	if m.Counted(v.Pod.UID) {
		m.Hour.Refund(v.Pod.UID)
	}
	m.Hour.Add(v.Pod.UID, v.Pod.Namespace, now)
	return m.InProgress.Add(v, now)
}

// Counted reports whether a pod counts within the hour as the eviction that it would be: it was asked, and nobody knows
// whether it has heard.
func (m *Memory) Counted(uid string) bool { return m.InProgress.Unanswered(uid) && m.Hour.Has(uid) }

// ServerError notes that the API server failed at a pod. That leaves open what it has done (see [InProgress.NoAnswer]), but when it
// is so again and again, it counts as a refusal: the server may fail at this pod alone, and another one may be evicted.
func (m *Memory) ServerError(uid, why string, now time.Time) {
	l := m.InProgress[uid]
	if l == nil {
		return
	}
	failures := l.ServerErrors + 1
	if failures >= mostServerErrors {
		m.Refuse(uid, why, now, 0)
		return
	}
	m.InProgress.NoAnswer(uid, why, now)
	l.ServerErrors = failures
}

// Refuse notes that a pod was asked to leave, and that nothing has happened to it: after again, or SpareFor where that is
// 0, it is a candidate again. Until then the next one is tried, at once: a cooldown after an eviction is none after a
// refusal, and the hour's count is given back.
func (m *Memory) Refuse(uid, why string, now time.Time, again time.Duration) {
	l := m.InProgress[uid]
	if l == nil {
		return
	}
	m.InProgress.Fail(uid, why, now, again)
	m.Hour.Refund(uid)
	for _, r := range l.Cooldowns {
		if c := m.Cooldowns[r]; c != nil && c.Last.Equal(l.Decided) && !m.InProgress.took(r, l.Decided) {
			c.Last = time.Time{}
		}
	}
}
