package pick

import (
	"math"
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

// A cooldown ends early only if all of its events are undone, and then what is left of the one before continues.
func TestUndoCooldown(t *testing.T) {
	at := func(seconds int) time.Time { return time.Date(2026, 11, 21, 12, 0, seconds, 0, time.UTC) }
	for _, tt := range []struct {
		name   string
		of     Cooldown
		begun  []int
		undone []int
		want   time.Time
	}{
		{"the only one", Cooldown{}, []int{0}, []int{0}, time.Time{}},
		{"one of two", Cooldown{}, []int{0, 0}, []int{0}, at(0)},
		{"both", Cooldown{}, []int{0, 0}, []int{0, 0}, time.Time{}},
		{"the later one", Cooldown{}, []int{0, 5}, []int{5}, at(0)},
		{"the earlier one", Cooldown{}, []int{0, 5}, []int{0}, at(5)},
		{"more than there were, after the later one", Cooldown{}, []int{0, 5}, []int{5, 5, 0}, at(0)},
		{"one of an earlier version's state file", Cooldown{Last: at(0)}, nil, []int{0}, at(0)},
		{"one at the same time as an earlier version's", Cooldown{Last: at(0)}, []int{0}, []int{0}, at(0)},
		{"one after an earlier version's", Cooldown{Last: at(0)}, []int{5}, []int{5}, at(0)},
		{"a state file with less than no event", Cooldown{Last: at(0), Events: -3}, []int{0, 0}, []int{0, 0}, at(0)},
		{"a state file with too many", Cooldown{Last: at(0), Events: math.MaxInt}, []int{0}, []int{0}, at(0)},
	} {
		c := tt.of
		m := State{Cooldowns: map[string]*Cooldown{"r": &c}}
		m.Init()
		for _, second := range tt.begun {
			c.Begin(at(second))
		}
		for _, second := range tt.undone {
			c.Undo(at(second))
		}
		if !c.Last.Equal(tt.want) || c.Events < 0 {
			t.Errorf("%s: last at %s, %d events; want %s", tt.name, c.Last, c.Events, tt.want)
		}
	}
}
