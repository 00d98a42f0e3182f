package rule

import (
	"fmt"
	"math"
	"time"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// condition is a threshold with its state: since when it has been met. With a hysteresis, a threshold that is met stays
// met until the value has passed back by that part of the threshold.
type condition struct {
	// Start is the time since which it has been met without a break; zero if it is not met.
	Start time.Time `json:"start,omitzero"`
	// Last is the time of the last measurement, Interval that sample's.
	Last     time.Time     `json:"last,omitzero"`
	Interval time.Duration `json:"interval,omitzero"`
}

// minBreak is the shortest silence that counts as a break: runs of one tick each, as cron starts them, are a minute apart
// or slightly more.
const minBreak = 90 * time.Second

// MaxGap returns the longest silence after a sample over which a condition counts as continuous: three times that
// sample's interval, but at least minBreak. The next sample's interval does not count: it covers the silence.
func MaxGap(interval time.Duration) time.Duration {
	return max(minBreak, 3*min(interval, time.Hour))
}

// Interval returns the time that a sample's rates cover, 0 if unknown.
func Interval(sample *tick.Sample) time.Duration {
	if sample == nil {
		return 0
	}
	if s := sample.IntervalSeconds; s != nil && *s > 0 && *s < time.Hour.Seconds() {
		return time.Duration(*s * float64(time.Second))
	}
	return 0
}

// isOver compares with a threshold that is met if the value exceeds it, and returns the threshold that applies now.
func (l *condition) isOver(t *tick.Tick, value, threshold, hysteresis float64) (effective float64, met bool) {
	threshold *= l.factor(t, hysteresis)
	return threshold, l.observe(t, value > threshold)
}

// isUnder is like isOver for a threshold that is met if the value is below it.
func (l *condition) isUnder(t *tick.Tick, value, threshold, hysteresis float64) (effective float64, met bool) {
	threshold *= l.factor(t, -hysteresis)
	return threshold, l.observe(t, value < threshold)
}

// factor is by what a threshold is multiplied now.
func (l *condition) factor(t *tick.Tick, hysteresis float64) float64 {
	if l.wasMet(t) {
		return 1 - hysteresis
	}
	return 1
}

// wasMet reports whether it was met at the last measurement, not long ago.
func (l *condition) wasMet(t *tick.Tick) bool {
	return !l.Start.IsZero() && t.Time.Sub(l.Last) <= MaxGap(l.Interval)
}

// observe records whether it is met, or false if that is unknown. If the clock was set back behind the beginning, it begins now: a
// duration is never negative.
func (l *condition) observe(t *tick.Tick, met bool) bool {
	switch {
	case !met:
		l.Start = time.Time{}
	case !l.wasMet(t), t.Time.Before(l.Start):
		l.Start = t.Time
	}
	l.Last, l.Interval = t.Time, Interval(t.Sample)
	return met
}

// metFor returns how long it has been met.
func (l *condition) metFor(now time.Time) time.Duration {
	if l.Start.IsZero() {
		return 0
	}
	return now.Sub(l.Start)
}

// conditions are the conditions of what a rule measures separately, by name or UID. A tick starts with none, and keeps those that it
// measures.
type conditions map[string]*condition

// keep returns a condition with its state from before.
func (l *conditions) keep(before conditions, name string) *condition {
	c := before[name]
	if c == nil {
		c = &condition{}
	}
	if *l == nil {
		*l = conditions{}
	}
	(*l)[name] = c
	return c
}

// podIsOver compares a pod's value. The pod's condition is returned, and kept, if the value exceeds the threshold; else it returns nil.
// The threshold is the one that applies now.
func (l *conditions) podIsOver(before conditions, uid string, t *tick.Tick, value, threshold, hysteresis float64) (*condition, float64) {
	c := l.keep(before, uid)
	effective, met := c.isOver(t, value, threshold, hysteresis)
	if !met {
		delete(*l, uid)
		return nil, effective
	}
	return c, effective
}

// countPeriod decides when something that is counted in times is due again.
type countPeriod struct {
	Last     time.Time     `json:"last,omitzero"`
	Interval time.Duration `json:"interval,omitzero"` // the last sample's
}

// due reports whether a time must be counted now, and whether the earlier ones still count: after a long silence they do not.
// A tick that is slightly early is used rather than the next one. If the clock is set back the period starts over.
func (p *countPeriod) due(t *tick.Tick, period time.Duration) (due, continued bool) {
	now, interval := t.Time, p.Interval
	p.Interval = Interval(t.Sample)
	gap := now.Sub(p.Last)
	switch {
	case p.Last.IsZero():
		p.Last = now
		return true, false
	case gap < 0:
		p.Last = now
		return false, true
	case gap == 0 || gap < period-period/10:
		return false, true
	}
	p.Last = now
	return true, gap <= max(MaxGap(interval), 3*period)
}

// streak counts the consecutive times at which a condition was true.
type streak struct {
	Times int `json:"times,omitempty"`
}

func (s streak) String() string {
	if s.Times == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times in a row", s.Times)
}

// count records one time.
func (s *streak) count(continued, isTrue bool) {
	if !continued || s.Times < 0 {
		s.Times = 0
	}
	switch {
	case !isTrue:
		s.Times = 0
	case s.Times < evictconfig.MaxTimes:
		s.Times++
	}
}

// maxAmount is the largest valid amount in a tick: a hundred times the memory that a machine can address, in bytes. A
// larger one is an error and counts as unknown, so that no sum or product of amounts overflows.
const maxAmount = 1e18

// amount returns a number that can be added up. JSON has no NaN; a negative amount is another stage's error and counts
// as unknown.
func amount(v *float64) (float64, bool) {
	if v == nil || !(*v >= 0 && *v <= maxAmount) {
		return 0, false
	}
	return *v, true
}

// intAmount returns an amount in whole units.
func intAmount(v *int64) (float64, bool) { return amount(tick.Float(v)) }

// graceSeconds returns a grace period in whole seconds, rounded up; nil, the pod's own, if it is 0.
func graceSeconds(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	seconds := int64(math.Ceil(d.Seconds()))
	return &seconds
}
