package pick

import (
	"maps"
	"time"

	"polder/lib/tick"
	"polder/lib/window"
)

// Memory is what the choice remembers of one node. It is encoded as JSON into the state file; its zero value is empty.
type Memory struct {
	// Going are the pods on their way out.
	Going Going `json:"going,omitempty"`
	// Cooldowns are the rests after evictions, by rule.
	Cooldowns map[string]*window.Cooldown `json:"cooldowns,omitempty"`
	// Hour are the evictions within the last hour.
	Hour Hour `json:"hour,omitempty"`
	// Queue are the pods that soft findings name.
	Queue  Queue  `json:"queue,omitempty"`
	Steady Steady `json:"steady,omitzero"`
}

// Init makes a memory that was read from a file, or is new, fit for use: what is no entry there is left out.
func (m *Memory) Init() {
	if m.Going == nil {
		m.Going = Going{}
	}
	maps.DeleteFunc(m.Going, func(_ string, l *Leaving) bool { return l == nil })
	if m.Cooldowns == nil {
		m.Cooldowns = map[string]*window.Cooldown{}
	}
	maps.DeleteFunc(m.Cooldowns, func(_ string, c *window.Cooldown) bool { return c == nil })
	if m.Queue == nil {
		m.Queue = Queue{}
	}
}

// Observe begins a tick, and returns what there is to say about the pods on their way out (see [Going.Observe]). The
// sample is nil where the tick has none.
func (m *Memory) Observe(now time.Time, sample *tick.Sample, present map[string]*tick.Pod, complete bool) []tick.PodEviction {
	m.Hour.Observe(now)
	if sample != nil {
		var interval time.Duration
		if s := sample.IntervalSeconds; s != nil && *s > 0 && *s < time.Hour.Seconds() {
			interval = time.Duration(*s * float64(time.Second))
		}
		m.Steady.Observe(now, interval)
	}
	return m.Going.Observe(now, present, complete)
}

// CooldownLeft is how long a rule has still to rest after its last eviction.
func (m *Memory) CooldownLeft(rule string, now time.Time, span time.Duration) time.Duration {
	c := m.Cooldowns[rule]
	if c == nil {
		return 0
	}
	return c.Left(now, span)
}

// Take notes that a victim is asked to go.
func (m *Memory) Take(v Victim, now time.Time) *Leaving {
	for _, r := range v.Rules {
		c := m.Cooldowns[r]
		if c == nil {
			c = new(window.Cooldown)
			m.Cooldowns[r] = c
		}
		c.Strike(now)
	}
	if m.Counted(v.Pod.UID) {
		m.Hour.Refund(v.Pod.UID)
	}
	m.Hour.Add(v.Pod.UID, v.Pod.Namespace, now)
	return m.Going.Add(v, now)
}

// Counted reports whether a pod counts within the hour as the eviction that it would be: it was asked, and nobody knows
// whether it has heard.
func (m *Memory) Counted(uid string) bool { return m.Going.Unanswered(uid) && m.Hour.Has(uid) }

// Refuse notes that a pod was asked to go in vain, and that nothing has happened to it: after again, or SpareFor where that is
// 0, it is a candidate anew. Until then the next one is tried, at once: a rest after an eviction is none after a
// refusal, and the hour's count is given back.
func (m *Memory) Refuse(uid, why string, now time.Time, again time.Duration) {
	l := m.Going[uid]
	if l == nil {
		return
	}
	m.Going.Fail(uid, why, now, again)
	m.Hour.Refund(uid)
	for _, r := range l.Rules {
		if c := m.Cooldowns[r]; c != nil && c.Last.Equal(l.Decided) && !m.Going.took(r, l.Decided) {
			c.Last = time.Time{}
		}
	}
}
