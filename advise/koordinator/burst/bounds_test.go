package burst

import (
	"strings"
	"testing"
	"time"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// A bucket that nobody has used for twice its period is forgotten, for ten minutes at least and a day at most: what a container may spend
// is known while it may be back.
func TestBucketsAreForgotten(t *testing.T) {
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

// Without a sample it is reported that everything stays, where there is something that does: a policy, or a cgroup that is to be put back.
func TestWithoutASampleWhatIsInForceIsNamed(t *testing.T) {
	for _, tt := range []struct {
		policy string
		held   bool
		want   bool
	}{{sloconfig.BurstNone, false, false}, {sloconfig.BurstNone, true, true}, {sloconfig.BurstAutomatic, false, true}, {sloconfig.BurstAutomatic, true, true}} {
		st, a := &State{}, &tick.Advice{}
		if tt.held {
			st.Cgroups.Remember("/a")
		}
		st.Advise(&tick.Tick{}, burstPolicy(tt.policy), a)
		if got := strings.Contains(strings.Join(a.Reasons, "\n"), "stays as it is"); got != tt.want {
			t.Errorf("%+v: %q", tt, a.Reasons)
		}
	}
}
