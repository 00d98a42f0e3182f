package koordinator

import (
	"slices"
	"testing"

	"polder/lib/tick"
)

// A sample of a whole fleet, or of its agent, has no batch resources, whatever it contains of a node.
func TestFleetSampleHasNoBatchAdvice(t *testing.T) {
	const reason = "the sample is from collect fleet: no advice on batch resources"
	for name, change := range map[string]func(*tick.Sample){
		"a fleet's":  func(s *tick.Sample) { s.Fleet = &tick.Fleet{} },
		"an agent's": func(s *tick.Sample) { s.Agent = &tick.Agent{} },
	} {
		if a := New(Defaults()).Decide(nodeTick(0, change)); a.Reclaimed != nil || !slices.Contains(a.Reasons, reason) {
			t.Errorf("%s: offer %+v, %q", name, a.Reclaimed, a.Reasons)
		}
	}
}

// A limit of 0 is tighter than any, and a missing limit is none.
func TestSmallerLimitApplies(t *testing.T) {
	for _, tt := range []struct{ x, y, want int64 }{{0, -1, 0}, {-1, 0, 0}, {0, 5, 0}, {5, 0, 0}, {-1, -1, -1}, {4, 5, 4}} {
		if got := *smaller(&tt.x, &tt.y, true); got != tt.want {
			t.Errorf("of %d and %d %d holds; want %d", tt.x, tt.y, got, tt.want)
		}
	}
}

// The maximum number of reasons is passed on unchanged.
func TestReasonsUpToTheirBound(t *testing.T) {
	if got := limitReasons(make([]string, maxReasons)); len(got) != maxReasons {
		t.Errorf("%d reasons become %d", maxReasons, len(got))
	}
}
