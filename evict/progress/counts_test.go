package progress

import (
	"slices"
	"testing"

	"polder/lib/tick"
)

// An unknown rule is counted as "other": the state file of another version may name any.
func TestCountsOfUnknownRules(t *testing.T) {
	c := counts{rules: []string{"known"}}
	c.eviction("known", tick.StateFailed)
	c.eviction("of another version", tick.StateFailed)
	c.eviction("of a third", tick.StateFailed)
	want := []Count{{Tally{"known", tick.StateFailed}, 1}, {Tally{"other", tick.StateFailed}, 2}}
	if got, _ := c.read(); !slices.Equal(got, want) {
		t.Errorf("counts %v; want %v", got, want)
	}
}
