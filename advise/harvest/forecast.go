package harvest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"polder/advise/histogram"
)

// Parameters of a forecast. The level is the mean of the largest use of the last few minutes and that of the last hour: a single spike does
// not dominate for an hour, and peaks that recur within the hour are not forgotten. Growth is the difference between the largest use of a
// span and the level before it.
const (
	meanTime  = 15 * time.Second // use is averaged over this time: the idle cores and the scheduling class handle shorter peaks
	minute    = time.Minute
	shortTime = 10 * time.Minute
	longTime  = time.Hour
	spanTime  = 5 * time.Minute

	// halfLife is the time in which an observation's weight halves.
	halfLife = 48 * time.Hour
	// priorSpans is the weight of the expected first growth, in observed spans.
	priorSpans = 2
	// maxExceeded is the largest part of the spans that may have grown by more than the margin, at any cost.
	maxExceeded = 0.07
	// warmUpMargin is the smallest margin while the history is shorter than shortTime.
	warmUpMargin = 0.1

	// maxMinutes and maxSpans bound what a state file may contain.
	maxMinutes = int(longTime/minute) + 2
	maxSpans   = 16
)

// variability has the differences between the hour's largest and mean use that divide machines into classes: use that varies less grows
// less, so each class has its own growths.
var variability = [...]float64{0.08, 0.16}

const classes = len(variability) + 1

// forecast predicts the use of one resource, as a part of its capacity. It learns from each span how much the use grew, and remembers only
// an hour of minutes and a histogram of growths.
type forecast struct {
	// SeenAt is when the use was last observed, and Use its mean over [meanTime].
	SeenAt time.Time `json:"seen,omitzero"`
	Use    float64   `json:"use"`
	// Hour has the largest use of each minute, oldest first; the last minute is still running.
	Hour []use `json:"hour,omitempty"`
	// Spans are the spans that are still running.
	Spans []span `json:"spans,omitempty"`
	// Growths are those of completed spans, by the machine's class at their start.
	Growths [classes]histogram.Histogram `json:"growths"`
	// AgedAt is when the weights of the growths were last reduced.
	AgedAt time.Time `json:"aged,omitzero"`
	// Capacity is that of which all uses are parts, in milli-CPU or bytes.
	Capacity float64 `json:"capacity,omitempty"`
}

// setCapacity converts the observed uses to parts of a new capacity, for example after CPUs went offline or kubelet assigned some
// exclusively: the services use what they used. It returns the factor. The growths stay parts: a machine's services grow with its size.
func (f *forecast) setCapacity(capacity float64) (factor float64) {
	old := f.Capacity
	f.Capacity = capacity
	if old <= 0 || capacity <= 0 || old == capacity {
		return 1
	}
	factor = old / capacity
	convert := func(part *float64) { *part = min(*part*factor, 1) }
	convert(&f.Use)
	for i := range f.Hour {
		convert(&f.Hour[i].Use)
	}
	for i := range f.Spans {
		convert(&f.Spans[i].Level)
		convert(&f.Spans[i].Max)
	}
	return factor
}

type use struct {
	At  time.Time `json:"at"`
	Use float64   `json:"use"`
}

// span is a period after a level.
type span struct {
	At    time.Time `json:"at"`
	Level float64   `json:"level"`
	Max   float64   `json:"most"`
	Class int       `json:"class"`
}

// level is the start of a forecast.
type level struct {
	part              float64 // the level
	shortMax, longMax float64 // the largest use of the two times
	class             int
	isWarmingUp       bool // the history is shorter than the short time
}

// observe adds an observation of the use. It ignores a tick that is not newer than the last one and returns false.
func (f *forecast) observe(now time.Time, part float64) bool {
	gap := now.Sub(f.SeenAt)
	switch {
	case f.SeenAt.IsZero() || gap > longTime: // the history is too old for a forecast; the growths stay
		f.Hour, f.Spans, f.Use = nil, nil, part
	case gap < 0: // the clock was set back, or the tick is old
		f.clockSetBack(now)
		return false
	case gap == 0:
		return false
	default:
		f.Use += min(gap.Seconds()/meanTime.Seconds(), 1) * (part - f.Use)
	}
	f.SeenAt = now
	last := len(f.Hour) - 1
	if last >= 0 && now.Sub(f.Hour[last].At) < minute {
		f.Hour[last].Use = max(f.Hour[last].Use, f.Use)
		return true
	}
	if last >= 0 {
		f.learn(f.Hour[last])
	}
	f.Hour = append(f.Hour, use{now, f.Use})
	drop := max(len(f.Hour)-maxMinutes, 0)
	for f.Hour[drop].At.Before(now.Add(-longTime)) { // the last minute is the current one
		drop++
	}
	f.Hour = slices.Delete(f.Hour, 0, drop)
	return true
}

// clockSetBack keeps the history for up to another hour if the clock is set back: too high a forecast is safer than too low a one.
func (f *forecast) clockSetBack(now time.Time) {
	for i := range f.Hour {
		if f.Hour[i].At.After(now) {
			f.Hour[i].At = now
		}
	}
	f.SeenAt, f.Spans = now, nil
	if f.AgedAt.After(now) {
		f.AgedAt = now
	}
}

// learn adds a completed minute: it completes the spans that end with it, and starts a new one.
func (f *forecast) learn(m use) {
	if gap := m.At.Sub(f.AgedAt); f.AgedAt.IsZero() || gap > 0 {
		if !f.AgedAt.IsZero() {
			for i := range f.Growths {
				f.Growths[i].Age(math.Exp2(-gap.Hours() / halfLife.Hours()))
			}
		}
		f.AgedAt = m.At
	}
	running := f.Spans[:0]
	for _, s := range f.Spans {
		s.Max = max(s.Max, m.Use)
		if m.At.Sub(s.At) < spanTime {
			running = append(running, s)
		} else if s.Class >= 0 && s.Class < classes {
			f.Growths[s.Class].Add(s.Max - s.Level)
		}
	}
	l := f.level(m.At)
	f.Spans = append(running, span{At: m.At, Level: l.part, Class: l.class})
	f.Spans = slices.Delete(f.Spans, 0, max(len(f.Spans)-maxSpans, 0))
}

// level returns the level at a time.
func (f *forecast) level(at time.Time) (l level) {
	sum, n := 0.0, 0.0
	for i, m := range f.Hour {
		if m.At.Before(at.Add(-longTime)) {
			continue
		}
		l.longMax = max(l.longMax, m.Use)
		if !m.At.Before(at.Add(-shortTime)) {
			l.shortMax = max(l.shortMax, m.Use)
		}
		sum += m.Use
		n++
		if i == 0 {
			l.isWarmingUp = at.Sub(m.At) < shortTime
		}
	}
	l.part = (l.shortMax + l.longMax) / 2
	for l.class < len(variability) && l.longMax-sum/max(n, 1) > variability[l.class] {
		l.class++
	}
	return l
}

// margin returns the growth to leave room for, and the number of spans that it is based on.
func (f *forecast) margin(l level, s Settings) (part, spans float64) {
	part, spans = cheapest(f.Growths[l.class], s)
	if l.isWarmingUp {
		part = max(part, warmUpMargin)
	}
	return part, spans
}

// text explains a level, in amounts of the resource.
func (l level) text(amount func(part float64) string) string {
	return fmt.Sprintf("level %s (half of the largest use of 10 minutes, %s, and half of the hour's, %s)",
		amount(l.part), amount(l.shortMax), amount(l.longMax))
}

// bins is the number of a histogram's bins: from 0 to all of the machine, in steps of half a percent.
const bins = histogram.Bins

// cheapest returns the growth to leave room for: the one with the lowest sum of the cost of the room and the cost of growth beyond it.
func cheapest(c histogram.Histogram, s Settings) (part, observations float64) {
	observations = c.Sum()
	total := observations + priorSpans
	exceeding, lowestCost := total, math.Inf(1)
	first := int(math.Round(s.FirstMargin * bins))
	for i := range bins + 1 {
		if i < len(c) && c[i] > 0 {
			exceeding -= c[i]
		}
		if i == first {
			exceeding -= priorSpans
		}
		room := float64(i) / bins
		exceededPart := max(exceeding, 0) / total
		cost := room + s.Price*exceededPart
		if room >= s.Margin-1e-9 && exceededPart <= maxExceeded && cost < lowestCost {
			part, lowestCost = room, cost
		}
	}
	if math.IsInf(lowestCost, 1) {
		return 1, observations
	}
	return part, observations
}
