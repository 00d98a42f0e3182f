// Package age decides whether a stream is live or a recording, and which ticks of a live one are too old to act on. It is pure: the time at
// which a tick is read is an argument.
package age

import (
	"time"

	"polder/lib/tick"
)

// recordedAfter is the age of a stream's first tick from which the stream counts as a recording. A live pipe begins with a tick that was
// taken a moment ago, even where all tools start at once on a busy machine.
const recordedAfter = time.Minute

// These are the marks of a live stream's ticks.
const (
	// Stale marks a tick that is too old to act on.
	Stale = "stale"
	// Early marks a tick whose time is ahead of the clock.
	Early = "early"
)

// Stream is the input, of one node or of many.
type Stream struct {
	isFile     bool
	isRecorded bool // so far each tick was far from the clock
	hasBegun   bool
	limit      func(interval time.Duration) time.Duration
}

// New returns a stream before its first tick. An input that is a file on a disk is a recording. limit returns the age up to which ticks of
// an interval may be acted on, 0 for any age.
func New(isFile bool, limit func(interval time.Duration) time.Duration) *Stream {
	return &Stream{isFile: isFile, limit: limit}
}

// Read notes a tick that was read at a time. A pipe whose first tick is far from the clock is a recording, and remains one as long as all
// its ticks are: they follow the first one at their own spacing. From the first tick on that has just been taken the stream is live, and
// remains so: it was a recording that is followed by live ticks (tail -f), or a live pipe that was stopped. Older ticks after that are
// stale.
func (s *Stream) Read(t *tick.Tick, now time.Time) {
	isFar := now.Sub(t.Time).Abs() > recordedAfter
	s.isRecorded = isFar && (s.isRecorded || !s.hasBegun)
	s.hasBegun = true
}

// IsRecording reports whether the ticks belong to a recording, so that their age means nothing.
func (s *Stream) IsRecording() bool { return s.isFile || s.isRecorded }

// Mark returns the mark of a tick at a time; it is empty for one that may be acted on and for those of a recording.
func (s *Stream) Mark(t *tick.Tick, now time.Time) string {
	limit := s.limit(t.Sample.Interval())
	age := now.Sub(t.Time)
	switch {
	case s.IsRecording() || limit == 0:
	case age > limit:
		return Stale
	case age < -limit:
		return Early
	}
	return ""
}
