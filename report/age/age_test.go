package age

import (
	"testing"
	"time"

	"polder/lib/tick"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// threeIntervals is the limit without --max-age.
func threeIntervals(interval time.Duration) time.Duration { return max(3*interval, 3*time.Second) }

func TestStream(t *testing.T) {
	const minute = time.Minute
	for _, tt := range []struct {
		name      string
		isFile    bool
		ages      []time.Duration // of the ticks as they are read, one every 10 seconds
		limit     time.Duration   // of --max-age; -1 for any age
		recording bool
		mark      string // of the last one
	}{
		{"live", false, []time.Duration{0, 0, 0}, 0, false, ""},
		{"live, and the last tick waited", false, []time.Duration{0, 0, 29 * time.Second}, 0, false, ""},
		{"live, and the last tick waited longer", false, []time.Duration{0, 0, 31 * time.Second}, 0, false, Stale},
		{"live, and all have waited", false, []time.Duration{40 * time.Second, 40 * time.Second}, 0, false, Stale},
		{"live, and the last tick is older than a minute", false, []time.Duration{0, 0, 5 * minute}, 0, false, Stale},
		{"live, and two ticks are older than a minute", false, []time.Duration{0, 5 * minute, 5 * minute}, 0, false, Stale},
		{"a clock that is ahead", false, []time.Duration{0, 0, -5 * minute}, 0, false, Early},
		{"--max-age", false, []time.Duration{0, 40 * time.Second}, minute, false, ""},
		{"older than --max-age", false, []time.Duration{0, 2 * minute}, minute, false, Stale},
		{"--max-age 0", false, []time.Duration{0, time.Hour}, -1, false, ""},
		{"a recording from a pipe", false, []time.Duration{24 * time.Hour, 24*time.Hour - 10*time.Second}, 0, true, ""},
		{"one of a machine whose clock is ahead", false, []time.Duration{-24 * time.Hour, -24 * time.Hour}, 0, true, ""},
		{"a recording that is followed by live ticks", false, []time.Duration{time.Hour, minute / 2, 0}, 0, false, ""},
		{"and then by an old one", false, []time.Duration{time.Hour, 0, 5 * minute}, 0, false, Stale},
		{"a file that was written just now", true, []time.Duration{0, 40 * time.Second}, 0, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limit := threeIntervals
			if tt.limit != 0 {
				limit = func(time.Duration) time.Duration { return max(tt.limit, 0) }
			}
			s := New(tt.isFile, limit)
			var x *tick.Tick
			for _, age := range tt.ages {
				x = &tick.Tick{Time: noon.Add(-age), Sample: &tick.Sample{PeriodSeconds: new(10.0)}}
				s.Read(x, noon)
			}
			if got := s.Mark(x, noon); s.IsRecording() != tt.recording || got != tt.mark {
				t.Errorf("a recording: %t, and the mark is %q; want %t, %q", s.IsRecording(), got, tt.recording, tt.mark)
			}
		})
	}
}

// A live tick becomes stale while no other comes, and one without a sample has the shortest limit.
func TestTickAges(t *testing.T) {
	s := New(false, threeIntervals)
	x := &tick.Tick{Time: noon}
	s.Read(x, noon)
	if before, after := s.Mark(x, noon.Add(3*time.Second)), s.Mark(x, noon.Add(time.Hour)); before != "" || after != Stale {
		t.Errorf("%q, then %q", before, after)
	}
}
