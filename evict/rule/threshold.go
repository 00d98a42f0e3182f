package rule

import (
	"fmt"
	"math"
	"time"

	"polder/lib/evictconfig"
	"polder/lib/tick"
)

// level is a threshold with its state: since when it has been met. With a hysteresis, a threshold that is met stays
// met until the value has passed back by that part of the threshold.
type level struct {
	Since
	// Last is the time of the last measurement, Interval that sample's.
	Last     time.Time     `json:"last,omitzero"`
	Interval time.Duration `json:"interval,omitzero"`
}

// leastBreak is the shortest silence that counts as a break: runs of one tick each, as cron starts them, are a minute apart
// or slightly more.
const leastBreak = 90 * time.Second

// LongestGap returns the longest silence after a sample over which a condition counts as continuous: three times that
// sample's interval, but at least leastBreak. The next sample's interval does not count: it covers the silence.
func LongestGap(interval time.Duration) time.Duration {
	return max(leastBreak, 3*min(interval, time.Hour))
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

// over compares with a threshold that is met if the value exceeds it, and returns the threshold that applies now.
func (l *level) over(t *tick.Tick, value, threshold, hysteresis float64) (counts float64, met bool) {
	if l.held(t) {
		threshold *= 1 - hysteresis
	}
	return threshold, l.observe(t, value > threshold)
}

// podOver compares a pod's value, given the pod's earlier level. If the value exceeds the threshold, now gets the pod's level, which is
// returned; else it returns nil. The threshold is the one that applies now.
func podOver(now *map[string]*level, before map[string]*level, uid string, t *tick.Tick, value, threshold, hysteresis float64,
) (*level, float64) {
	l := before[uid]
	if l == nil {
		l = &level{}
	}
	counts, met := l.over(t, value, threshold, hysteresis)
	if !met {
		return nil, counts
	}
	if *now == nil {
		*now = map[string]*level{}
	}
	(*now)[uid] = l
	return l, counts
}

// under is like over for a threshold that is met if the value is below it.
func (l *level) under(t *tick.Tick, value, threshold, hysteresis float64) (counts float64, met bool) {
	if l.held(t) {
		threshold *= 1 + hysteresis
	}
	return threshold, l.observe(t, value < threshold)
}

// held reports whether it was met at the last measurement, not long ago.
func (l *level) held(t *tick.Tick) bool {
	return !l.Start.IsZero() && t.Time.Sub(l.Last) <= LongestGap(l.Interval)
}

// observe records whether it is met, or false if that is unknown.
func (l *level) observe(t *tick.Tick, met bool) bool {
	if !l.held(t) {
		l.Start = time.Time{}
	}
	l.Last, l.Interval = t.Time, Interval(t.Sample)
	l.Observe(t.Time, met)
	return met
}

// lasted returns how long it has been met.
func (l *level) lasted(now time.Time) time.Duration {
	if l.Start.IsZero() {
		return 0
	}
	return now.Sub(l.Start)
}

// pace decides when something that is counted in times is due again.
type pace struct {
	Last     time.Time     `json:"last,omitzero"`
	Interval time.Duration `json:"interval,omitzero"` // the last sample's
}

// due reports whether a time must be counted now, and whether the earlier ones still count: after a long silence they do not.
// A tick that is slightly early is used rather than the next one. If the clock is set back the period starts over.
func (p *pace) due(t *tick.Tick, period time.Duration) (due, continued bool) {
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
	return true, gap <= max(LongestGap(interval), 3*period)
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
func (s *streak) count(continued, is bool) {
	if !continued || s.Times < 0 {
		s.Times = 0
	}
	switch {
	case !is:
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

// whole returns an amount in whole units.
func whole(v *int64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	f := float64(*v)
	return amount(&f)
}

// grace returns a grace period in whole seconds, rounded up; nil, the pod's own, if it is 0.
func grace(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	seconds := int64(math.Ceil(d.Seconds()))
	return &seconds
}
