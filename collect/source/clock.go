package source

import (
	"log/slog"
	"math"
	"time"

	"polder/collect/host"
)

// clock is the machine's clock: seconds since its start, so that readings of different runs can be compared. On this
// machine it continues with the monotonic clock, for /proc/uptime has steps of 10 ms. Under another root the machine may be a
// copy, whose time is what its uptime says, and which stands still as long as that does: then there are no rates,
// rather than rates of 0.
type clock struct {
	host *host.Host
	now  func() time.Time
	log  *slog.Logger

	started time.Time // when uptime was read
	uptime  float64
	seconds float64 // under another root: the clock of this round
	warned  bool
}

// sameSeconds is how far uptime and the monotonic clock may differ on a machine that is mounted elsewhere, and not a copy.
const sameSeconds = 0.05

func (c *clock) startRound() {
	live := c.live()
	if live && !c.started.IsZero() {
		return
	}
	up, err := c.host.UptimeSeconds()
	if err != nil && !c.warned {
		c.warned = true
		c.log.Warn("no uptime: there will be no rates over the time between two runs, and none at all under another --root", "error", err)
	}
	at := c.now()
	switch step := up - c.uptime; {
	case c.started.IsZero(), err != nil:
		c.seconds = max(up, c.seconds)
	case step <= 0:
	case math.Abs(step-at.Sub(c.started).Seconds()) <= sameSeconds:
		c.seconds += at.Sub(c.started).Seconds()
	default:
		c.seconds += step
	}
	c.started, c.uptime = at, up
}

func (c *clock) live() bool { return c.host.Root() == "/" }

// Seconds is the time now.
func (c *clock) Seconds() float64 {
	if !c.live() {
		return c.seconds
	}
	return c.uptime + c.now().Sub(c.started).Seconds()
}

// asTime is a reading of the clock as a time, for what calculates with times.
func asTime(seconds float64) time.Time {
	return time.Unix(0, int64(seconds*1e9)).UTC()
}
