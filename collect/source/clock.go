package source

import (
	"log/slog"
	"math"
	"time"

	"polder/collect/host"
)

// clock is the machine's clock: seconds since its boot, so that readings of different runs can be compared. On this
// machine it continues with the monotonic clock, because /proc/uptime has steps of 10 ms. Under another root the machine may be a
// copy, whose clock is its uptime file and stands still while that does not change: then rates are absent, not 0.
type clock struct {
	host *host.Host
	now  func() time.Time
	log  *slog.Logger

	started time.Time // when uptime was read
	uptime  float64
	seconds float64 // under another root: the clock of this round
	warned  bool
}

// sameSeconds is by how much uptime and the monotonic clock may differ on a machine that is mounted under another root and no copy.
const sameSeconds = 0.05

func (c *clock) startRound() {
	isLive := c.isLive()
	if isLive && !c.started.IsZero() {
		return
	}
	up, err := c.host.UptimeSeconds()
	if err != nil && !c.warned {
		c.warned = true
		c.log.Warn("read uptime: rates over the time between two runs are absent, and with another --root all rates", "error", err)
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

func (c *clock) isLive() bool { return c.host.Root() == "/" }

// Seconds is the time now.
func (c *clock) Seconds() float64 {
	if !c.isLive() {
		return c.seconds
	}
	return c.uptime + c.now().Sub(c.started).Seconds()
}

// asTime converts a reading of the clock to a time, for code that computes with times.
func asTime(seconds float64) time.Time {
	return time.Unix(0, int64(seconds*1e9)).UTC()
}
