package object

import (
	"math"
	"time"

	"polder/lib/sloconfig"
)

// Given shows which rules the user has set; these take precedence over a strategy's.
type Given struct{ MinChange, MinInterval, Resync bool }

// longestWait bounds a strategy's times, whose number of seconds is arbitrary.
const longestWait = 24 * time.Hour

// Koordinator are the rules of Koordinator's manager: it publishes a change, up or down, of more than resourceDiffThreshold of the
// published amount, and any change later than updateTimeThresholdSeconds after the last time.
func (r Rules) Koordinator(c sloconfig.Colocation, given Given) Rules {
	d := sloconfig.Defaults().Colocation
	r.Symmetric = true
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
		r.MinInterval = math.MaxInt64 // a loss waits like a gain
	}
	return r
}

// seconds is a strategy's time, or the default where it has no valid one; at least so many seconds.
func seconds(v, otherwise *int64, least int64) time.Duration {
	if v == nil || *v <= 0 {
		v = otherwise
	}
	return time.Duration(min(max(*v, least), int64(longestWait/time.Second))) * time.Second
}
