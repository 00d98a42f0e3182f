package rule

import (
	"time"

	"polder/lib/tick"
	"polder/lib/window"
)

// movingAverage is a value averaged over a window, whose length may change.
type movingAverage struct{ window.Samples }

// maxPoints bounds the points of a window: samples in quick succession share a point.
const maxPoints = 100

// averagingTime returns the time to average over: the setting, but at least a sample's own interval.
func averagingTime(seconds *int64, t *tick.Tick) time.Duration {
	interval := Interval(t.Sample)
	if seconds == nil || *seconds <= 0 {
		return interval
	}
	return max(interval, time.Duration(min(*seconds, int64(maxAveragingTime/time.Second)))*time.Second)
}

func (a *movingAverage) add(t *tick.Tick, v float64, span time.Duration) {
	a.Add(t.Time, v, span/maxPoints, span)
}

// mean returns the average over the window; false if the samples cover less than a third of it.
func (a *movingAverage) mean(t *tick.Tick, span time.Duration) (float64, bool) {
	n := 0
	for _, p := range a.Points {
		if age := t.Time.Sub(p.At); age >= 0 && age <= span && p.N > 0 {
			n += p.N
		}
	}
	v, ok := a.Average(t.Time, span)
	if _, known := amount(&v); !ok || !known { // a state file may contain anything
		*a = movingAverage{}
		return 0, false
	}
	return v, float64(n)*Interval(t.Sample).Seconds() >= span.Seconds()/3
}
