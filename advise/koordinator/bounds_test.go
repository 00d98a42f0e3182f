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

// Of two values of a cgroup the smaller one applies. A limit of 0 is tighter than any, and any is tighter than none.
func TestSmallerValueApplies(t *testing.T) {
	for _, tt := range []struct{ x, y, limit, weight int64 }{
		{0, -1, 0, -1}, {-1, 0, 0, -1}, {0, 5, 0, 0}, {5, 0, 0, 0}, {-1, -1, -1, -1}, {4, 5, 4, 4},
	} {
		x := tick.Cgroup{Cgroup: "/a", CPUMaxMilliCPU: &tt.x, MemoryHighBytes: &tt.x, CPUWeight: &tt.x}
		y := tick.Cgroup{Cgroup: "/a", CPUMaxMilliCPU: &tt.y, MemoryHighBytes: &tt.y, CPUWeight: &tt.y}
		got := merge([]tick.Cgroup{x, y}, new(tick.Advice))[0]
		if *got.CPUMaxMilliCPU != tt.limit || *got.MemoryHighBytes != tt.limit || *got.CPUWeight != tt.weight {
			t.Errorf("of %d and %d the quota %d, memory.high %d and weight %d apply; want %d, %d and %d",
				tt.x, tt.y, *got.CPUMaxMilliCPU, *got.MemoryHighBytes, *got.CPUWeight, tt.limit, tt.limit, tt.weight)
		}
	}
}

// The maximum number of reasons is passed on unchanged.
func TestReasonsUpToTheirBound(t *testing.T) {
	if got := limitReasons(make([]string, maxReasons)); len(got) != maxReasons {
		t.Errorf("%d reasons become %d", maxReasons, len(got))
	}
}
