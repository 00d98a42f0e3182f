package object

import (
	"math"
	"time"

	"polder/lib/sloconfig"
)

// Given are the rules that somebody has set, and that stand above a strategy's.
type Given struct{ MinChange, MinInterval, Resync bool }

// longestWait bounds times of a strategy: a number of seconds may be any.
const longestWait = 24 * time.Hour

// Koordinator are the rules by which Koordinator's manager publishes: at a change, up or down, of more than resourceDiffThreshold
// of what is published, and later than updateTimeThresholdSeconds after the last time.
func (r Rules) Koordinator(c sloconfig.Colocation, given Given) Rules {
	d := sloconfig.Defaults().Colocation
	r.Even = true
	if !given.MinChange {
		r.MinChange = *d.ResourceDiffThreshold
		if v := c.ResourceDiffThreshold; v != nil && *v > 0 && *v < math.MaxFloat64 {
			r.MinChange = *v
		}
	}
	if !given.Resync {
		r.Resync = seconds(c.UpdateTimeThresholdSeconds, d.UpdateTimeThresholdSeconds, 1)
	}
	if !given.MinInterval {
		r.MinInterval = math.MaxInt64 // a loss waits as a gain does
	}
	return r
}

// seconds is a strategy's time, or the default where it has none that is one; at least so many seconds.
func seconds(v, otherwise *int64, least int64) time.Duration {
	if v == nil || *v <= 0 {
		v = otherwise
	}
	return time.Duration(min(max(*v, least), int64(longestWait/time.Second))) * time.Second
}
