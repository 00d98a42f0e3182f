package burst

import (
	"strings"
	"testing"
	"time"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// A bucket that was unused for twice its period is removed, after at least ten minutes and at most a day: a container that returns earlier
// keeps its tokens.
func TestBucketsAreRemoved(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		seconds int64
		ago     time.Duration
		stays   bool
	}{
		{60, 10 * time.Minute, true},
		{60, 10*time.Minute + 1, false},
		{3600, 2 * time.Hour, true},
		{3600, 2*time.Hour + 1, false},
		{1 << 40, 24 * time.Hour, true},
		{1 << 40, 24*time.Hour + 1, false},
		{60, -time.Hour, true}, // the clock was set back
	} {
		st := &State{Buckets: map[string]*bucket{"/a": {At: now.Add(-tt.ago), Seconds: tt.seconds}, "/null": nil}}
		st.forget(now)
		if b := st.Buckets["/a"]; (b != nil) != tt.stays || len(st.Buckets) > 1 || b != nil && b.At.After(now) {
			t.Errorf("%+v: %+v", tt, st.Buckets)
		}
	}
}

// Without a sample a reason reports that everything stays, if there is something: a policy, or a cgroup that must be reverted.
func TestReasonWithoutASample(t *testing.T) {
	for _, tt := range []struct {
		policy string
		held   bool
		want   bool
	}{{sloconfig.BurstNone, false, false}, {sloconfig.BurstNone, true, true}, {sloconfig.BurstAutomatic, false, true}, {sloconfig.BurstAutomatic, true, true}} {
		st, a := &State{}, &tick.Advice{}
		if tt.held {
			st.Cgroups.Entry("/a")
		}
		st.Advise(&tick.Tick{}, burstPolicy(tt.policy), a)
		if got := strings.Contains(strings.Join(a.Reasons, "\n"), "unchanged"); got != tt.want {
			t.Errorf("%+v: %q", tt, a.Reasons)
		}
	}
}
