package object

import (
	"errors"
	"math"
	"slices"
	"time"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Strategies are the newest of Koordinator's that ticks had. Its zero value has the defaults.
type Strategies struct {
	last *sloconfig.Strategies
	raw  tick.Raw // what they were read from
}

// Take notes a sample's. A configuration that could not be read leaves the last ones in force; one that is there and has none
// of Koordinator's leaves the defaults.
func (m *Strategies) Take(s *tick.Sample) {
	if s == nil || m.last != nil && len(s.Config) > 0 && slices.Equal(m.raw, s.Config) {
		return
	}
	read, err := sloconfig.Read(s.Config)
	switch {
	case err == nil:
		m.last, m.raw = read, slices.Clone(s.Config)
	case errors.Is(err, sloconfig.ErrNone) && !s.Unread("config"):
		m.last, m.raw = nil, nil
	}
}

// Colocation are the strategies of what is offered and measured.
func (m *Strategies) Colocation() sloconfig.Colocation {
	if m.last != nil {
		return m.last.Colocation
	}
	return sloconfig.Defaults().Colocation
}

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
