// Package replay is the clock and the keys of a recording that is played: it decides when each tick is shown. It is pure: its input is the
// elapsed time and the pressed keys.
package replay

import (
	"fmt"
	"sort"
	"strconv"
	"time"
)

// Speeds are bounded so that a frame is never more than minutes, and a second never more than a day.
const (
	Slowest = 0.01
	Fastest = 86400
)

// longestWait is the longest wait between two ticks at speed 1, so that longer gaps of a recording are skipped.
const longestWait = time.Minute

// Player selects the tick of a recording that is shown. Ticks are added while it plays.
type Player struct {
	times []time.Time
	at    int
	// since is how long, in the recording's time, the tick has been shown.
	since    time.Duration
	speed    float64
	playing  bool
	complete bool
	// target is a requested time that was not read yet.
	target time.Time
}

// New returns a player that plays at a speed: 1 is the recording's own.
func New(speed float64) *Player {
	return &Player{at: -1, speed: min(max(speed, Slowest), Fastest), playing: true}
}

// Add adds the next tick of the recording. One that is older than the one before counts as of the same time.
func (p *Player) Add(at time.Time) {
	if n := len(p.times); n > 0 && at.Before(p.times[n-1]) {
		at = p.times[n-1]
	}
	p.times = append(p.times, at)
	switch {
	case !p.target.IsZero():
		p.at, p.since = len(p.times)-1, 0
		if !at.Before(p.target) {
			p.target = time.Time{}
		}
	case p.at < 0:
		p.at = 0
	}
}

// Complete notes that no more ticks follow.
func (p *Player) Complete() { p.complete, p.target = true, time.Time{} }

// Seek shows the first tick that is not before a time, as soon as it is read.
func (p *Player) Seek(at time.Time) {
	i := sort.Search(len(p.times), func(i int) bool { return !p.times[i].Before(at) })
	if i == len(p.times) && !p.complete {
		p.target = at
	}
	p.show(i)
}

func (p *Player) show(i int) { p.at, p.since = max(min(i, len(p.times)-1), min(0, len(p.times)-1)), 0 }

// Step shows a tick that is so many ticks later, and stops there.
func (p *Player) Step(ticks int) {
	p.playing, p.target = false, time.Time{}
	p.show(p.at + ticks)
}

// Skip shows the tick that is so much later, or the next one where there is none within that time, and stops there.
func (p *Player) Skip(by time.Duration) {
	p.playing, p.target = false, time.Time{}
	if p.at < 0 {
		return
	}
	to := p.times[p.at].Add(by)
	if by > 0 {
		i := sort.Search(len(p.times), func(i int) bool { return p.times[i].After(to) }) - 1
		p.show(max(i, p.at+1))
		return
	}
	i := sort.Search(len(p.times), func(i int) bool { return !p.times[i].Before(to) })
	p.show(min(i, p.at-1))
}

// Toggle plays or stops; at the end it plays from the beginning.
func (p *Player) Toggle() {
	if !p.playing && p.AtEnd() {
		p.show(0)
	}
	p.playing = !p.playing
}

// Faster multiplies the speed.
func (p *Player) Faster(by float64) { p.speed = min(max(p.speed*by, Slowest), Fastest) }

// Pass advances the clock. It reports whether another tick is shown now.
func (p *Player) Pass(real time.Duration) (moved bool) {
	if !p.playing || p.at < 0 || real <= 0 {
		return false
	}
	p.since += time.Duration(min(float64(real)*p.speed, float64(Fastest*time.Hour)))
	for p.at+1 < len(p.times) {
		wait := min(p.times[p.at+1].Sub(p.times[p.at]), max(longestWait, time.Duration(p.speed*float64(time.Second))))
		if p.since < wait {
			return moved
		}
		p.since -= wait
		p.at++
		moved = true
	}
	p.since = 0 // the last tick that was read: the wait for the next one begins now
	if p.complete {
		p.playing = false
	}
	return moved
}

// At is the number of the tick that is shown, -1 before the first one.
func (p *Player) At() int { return p.at }

// Time is the time of the tick that is shown.
func (p *Player) Time() time.Time {
	if p.at < 0 {
		return time.Time{}
	}
	return p.times[p.at]
}

// AtEnd reports whether the last tick of the recording is shown.
func (p *Player) AtEnd() bool { return p.complete && p.at == len(p.times)-1 }

// Status is the player's status for the screen.
func (p *Player) Status() string {
	state := "playing"
	switch {
	case p.AtEnd():
		state = "the end"
	case !p.playing:
		state = "stopped"
	}
	number := strconv.Itoa(len(p.times))
	if !p.complete {
		number += "+"
	}
	return fmt.Sprintf("recording, %s, %s×, tick %d of %s", state, strconv.FormatFloat(p.speed, 'g', 3, 64), p.at+1, number)
}
