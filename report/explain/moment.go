package explain

import (
	"fmt"
	"time"
)

// Moment is a time as a person gives it: with a date and a zone, or a time of day in the recording.
type Moment struct {
	at        time.Time
	daytime   time.Duration // since midnight, where there is no date
	timeOfDay bool
	// precision is the unit of the text's last part: 12:03 means some second of that minute.
	precision time.Duration
	text      string
}

// ParseMoment reads RFC 3339, or HH:MM or HH:MM:SS.
func ParseMoment(text string) (*Moment, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		m := &Moment{at: at, precision: time.Second, text: text}
		if at.Nanosecond() != 0 {
			m.precision = time.Nanosecond
		}
		return m, nil
	}
	for layout, precision := range map[string]time.Duration{"15:04": time.Minute, "15:04:05": time.Second} {
		at, err := time.Parse(layout, text)
		if err != nil || len(text) != len(layout) {
			continue
		}
		midnight := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
		return &Moment{daytime: at.Sub(midnight), timeOfDay: true, precision: precision, text: text}, nil
	}
	return nil, fmt.Errorf("%q: want a time of the recording's day, as 12:03 or 12:03:30, or RFC 3339, as 2026-11-21T12:03:30Z", text)
}

// late is how long after --from a recording may begin: --from 12:00 of one that begins at 12:03 is all of it, not the noon of the next day.
const late = time.Hour

// From is the moment as the beginning of a period of a recording that begins at start.
func (m *Moment) From(start time.Time) time.Time {
	at := m.after(start)
	if before := at.AddDate(0, 0, -1); m.timeOfDay && before.After(start.Add(-late)) {
		return before
	}
	return at
}

// period is the time between two moments in a recording that begins at start: of the periods with these times of day the first that does
// not end before start.
func period(from, until *Moment, start time.Time) (time.Time, time.Time) {
	begin := from.From(start)
	if begin.After(start) && !from.timeOfDay {
		start = begin
	}
	end := until.after(start)
	for from.timeOfDay && begin.After(end) {
		begin = begin.AddDate(0, 0, -1)
	}
	return begin, end
}

// after is the moment as a time: of those with that time of day the first that does not end before start, in start's zone.
func (m *Moment) after(start time.Time) time.Time {
	if !m.timeOfDay {
		return m.at
	}
	hour, minute, second := int(m.daytime.Hours()), int(m.daytime.Minutes())%60, int(m.daytime.Seconds())%60
	at := time.Date(start.Year(), start.Month(), start.Day(), hour, minute, second, 0, start.Location())
	if !at.Add(m.precision).After(start) {
		at = at.AddDate(0, 0, 1)
	}
	return at
}

// end is the last instant that is printed like the moment: ticks have fractions of a second, which are not printed.
func (m *Moment) end(at time.Time) time.Time {
	return at.Add(min(m.precision, time.Second) - time.Nanosecond)
}
