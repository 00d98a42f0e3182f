package rule

import (
	"time"

	"polder/lib/tick"
	"polder/lib/window"
)

// averaged is a value averaged over a window, whose length may change.
type averaged struct{ window.Trail }

// mostPoints bounds the points of a window: samples in quick succession share a point.
const mostPoints = 100

// span returns the time to average over: the setting, but at least a sample's own interval.
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

// mean returns the average over the window; false if the samples cover less than a third of it.
func (a *averaged) mean(t *tick.Tick, over time.Duration) (float64, bool) {
	n := 0
	for _, p := range a.Points {
		if age := t.Time.Sub(p.At); age >= 0 && age <= over && p.N > 0 {
			n += p.N
		}
	}
	v, ok := a.Average(t.Time, over)
	if _, known := amount(&v); !ok || !known { // a state file may contain anything
		*a = averaged{}
		return 0, false
	}
	return v, float64(n)*Interval(t.Sample).Seconds() >= over.Seconds()/3
}
