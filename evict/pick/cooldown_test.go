package pick

import (
	"testing"
	"time"
)

func TestCooldown(t *testing.T) {
	const span = 300 * time.Second
	at := func(seconds int) time.Time { return time.Date(2026, 11, 21, 12, 0, seconds, 0, time.UTC) }
	var c Cooldown
	if got := c.Left(at(0), span); got != 0 {
		t.Errorf("Left before any event = %s; want 0", got)
	}
	c.Begin(at(1000))
	for _, step := range []struct {
		at   int
		want time.Duration
	}{
		{1000, span},
		{1299, time.Second},
		{1300, 0},
		{400, span},        // set back: not early …
		{699, time.Second}, // … and not for longer than the span
		{700, 0},
	} {
		if got := c.Left(at(step.at), span); got != step.want {
			t.Errorf("Left(%d) = %s; want %s", step.at, got, step.want)
		}
	}
}
