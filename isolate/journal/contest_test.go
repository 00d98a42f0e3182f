package journal

import "testing"

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
	if c.Changes() != 3 {
		t.Errorf("one forgiven: %d changes count; want 3", c.Changes())
	}
	for range 2 * decayRounds {
		c.RecordUnchanged()
	}
	if c.RecordChange(); c.Changes() != 2 {
		t.Errorf("after %d quiet rounds: %d changes count; want 2", 2*decayRounds, c.Changes())
	}
	for range resetRounds {
		c.RecordUnchanged()
	}
	if c.Changes() != 0 {
		t.Errorf("after %d quiet rounds: %d changes count; want none", resetRounds, c.Changes())
	}
	if c.Discount(); c.Changes() != 0 {
		t.Errorf("none to forgive: %d changes count", c.Changes())
	}
}
