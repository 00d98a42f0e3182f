package progress

import (
	"log/slog"
	"testing"

	"polder/evict/pick"
	"polder/lib/stage"
)

// A limit counts at every tick in which it excludes pods.
func TestLimitsAreCountedByTick(t *testing.T) {
	w, r := Tracker{session: &stage.Session{Log: slog.New(slog.DiscardHandler)}}, &Record{}
	burst, hour := pick.ReachedLimit{Rule: "r", Limit: pick.LimitBurst}, pick.ReachedLimit{Rule: "r", Limit: pick.LimitPerHour}
	for _, reached := range [][]pick.ReachedLimit{{burst}, {burst, hour}, nil} {
		w.LogLimits(r, reached)
	}
	if got := w.limitCounts.ticks; got[burst] != 2 || got[hour] != 1 || len(got) != 2 {
		t.Errorf("counts %v; want 2 of %v and 1 of %v", got, burst, hour)
	}
}
