package rule

import (
	"fmt"
	"math"
	"time"

	"polder/lib/window"
)

// level is a threshold with what it remembers: since when it has been met. With a hysteresis, a threshold that is met
// stays so until the value has come back past it by that part of it.
type level struct {
	window.Since
	// Last is when it was looked at last.
	Last time.Time `json:"last,omitzero"`
}

// longestGap is the longest silence between two looks at something that is taken to have lasted meanwhile. Runs of one
// tick each, as cron has them, are a minute apart.
const longestGap = 10 * time.Minute

// over compares with a threshold that is met where the value is over it, and returns the one that counts now.
func (l *level) over(now time.Time, value, threshold, hysteresis float64) (counts float64, met bool) {
	if l.held(now) {
		threshold *= 1 - hysteresis
	}
	return threshold, l.observe(now, value > threshold)
}

// under is the same for a threshold that is met where the value is under it.
func (l *level) under(now time.Time, value, threshold, hysteresis float64) (counts float64, met bool) {
	if l.held(now) {
		threshold *= 1 + hysteresis
	}
	return threshold, l.observe(now, value < threshold)
}

// held reports whether it was met when it was looked at last, and that is not long ago.
func (l *level) held(now time.Time) bool {
	return !l.Start.IsZero() && now.Sub(l.Last) <= longestGap
}

// observe notes whether it is met, or false where that cannot be told.
func (l *level) observe(now time.Time, met bool) bool {
	if !l.held(now) {
		l.Start = time.Time{}
	}
	l.Last = now
	l.Observe(now, met)
	return met
}

// lasted is how long it has been met.
func (l *level) lasted(now time.Time) time.Duration {
	if l.Start.IsZero() {
		return 0
	}
	return now.Sub(l.Start)
}

// pace says when it is time to look at something again that is counted in times.
type pace struct {
	Last time.Time `json:"last,omitzero"`
}

// due reports whether a time is to be counted now, and whether the ones before still count: after a long silence they do
// not. A tick that comes a little early is taken rather than the next one. When the clock is set back the period begins anew.
func (p *pace) due(now time.Time, period time.Duration) (due, continued bool) {
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
	return true, gap <= max(longestGap, 3*period)
}

// streak counts the times in a row in which something was so.
type streak struct {
	Times int `json:"times,omitempty"`
}

func (s streak) String() string {
	if s.Times == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times in a row", s.Times)
}

// count notes one time.
func (s *streak) count(continued, is bool) {
	if !continued || s.Times < 0 {
		s.Times = 0
	}
	switch {
	case !is:
		s.Times = 0
	case s.Times < maxTimes:
		s.Times++
	}
}

// maxAmount is the most that a tick's amount can be: a hundred times what memory a machine can address, in bytes. What is
// more is a mistake and not known; so no sum or product of amounts overflows.
const maxAmount = 1e18

// amount is a number that can be added up. JSON has no NaN; a negative amount is another stage's mistake and counts as
// not known.
func amount(v *float64) (float64, bool) {
	if v == nil || !(*v >= 0 && *v <= maxAmount) {
		return 0, false
	}
	return *v, true
}

// whole is an amount of whole units.
func whole(v *int64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	f := float64(*v)
	return amount(&f)
}

// grace is a grace period in whole seconds, rounded up; nil, the pod's own, where it is 0.
func grace(d time.Duration) *int64 {
	if d <= 0 {
		return nil
	}
	seconds := int64(math.Ceil(d.Seconds()))
	return &seconds
}
