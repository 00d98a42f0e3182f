package rule

import (
	"time"

	"polder/lib/tick"
	"polder/lib/window"
)

// averaged is what a figure was over a window, whose length may change.
type averaged struct{ window.Trail }

// mostPoints bounds what is remembered of a window: what comes in quick succession shares a point.
const mostPoints = 100

// span is the time to average over: what is set, but a sample's own interval at least.
func span(seconds *int64, t *tick.Tick) time.Duration {
	own := Interval(t.Sample)
	if seconds == nil || *seconds <= 0 {
		return own
	}
	return max(own, time.Duration(min(*seconds, int64(maxWindow/time.Second)))*time.Second)
}

func (a *averaged) add(t *tick.Tick, v float64, over time.Duration) {
	a.Add(t.Time, v, over/mostPoints, over)
}

// mean is the average over the window; false where less than a third of it was seen.
func (a *averaged) mean(t *tick.Tick, over time.Duration) (float64, bool) {
	n := 0
	for _, p := range a.Points {
		if age := t.Time.Sub(p.At); age >= 0 && age <= over && p.N > 0 {
			n += p.N
		}
	}
	v, ok := a.Average(t.Time, over)
	if _, known := amount(&v); !ok || !known { // of a state file, it may be anything
		*a = averaged{}
		return 0, false
	}
	return v, float64(n)*Interval(t.Sample).Seconds() >= over.Seconds()/3
}
