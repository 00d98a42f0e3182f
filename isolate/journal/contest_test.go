package journal

import "testing"

// changesOf returns the number of changes that count: the smallest limit at which the value is still written.
func changesOf(c *Contest) int {
	limit := 0
	for c.YieldReason(limit) != "" {
		limit++
	}
	return limit
}

func TestContest(t *testing.T) {
	var c Contest
	for range 3 {
		c.RecordChange()
	}
	if got := c.YieldReason(3); got != "" {
		t.Errorf("3 changes of 3: %q; want that the value is still written", got)
	}
	c.RecordChange()
	if got, want := c.YieldReason(3), "left to the other writer: changed externally 4 times (--contest 3)"; got != want {
		t.Errorf("4 changes of 3: %q; want %q", got, want)
	}
	c.Discount()
	if changesOf(&c) != 3 {
		t.Errorf("one forgiven: %d changes count; want 3", changesOf(&c))
	}
	for range 2 * decayRounds {
		c.RecordUnchanged()
	}
	if c.RecordChange(); changesOf(&c) != 2 {
		t.Errorf("after %d quiet rounds: %d changes count; want 2", 2*decayRounds, changesOf(&c))
	}
	for range resetRounds {
		c.RecordUnchanged()
	}
	if changesOf(&c) != 0 {
		t.Errorf("after %d quiet rounds: %d changes count; want none", resetRounds, changesOf(&c))
	}
	if c.Discount(); changesOf(&c) != 0 {
		t.Errorf("none to forgive: %d changes count", changesOf(&c))
	}
}
