package tick

import "testing"

// A pod that has ended has a phase of the two ends.
func TestEnded(t *testing.T) {
	for phase, want := range map[string]bool{"": false, "Pending": false, "Running": false, "Unknown": false, "Succeeded": true, "Failed": true} {
		if got := (&Pod{Phase: phase}).Ended(); got != want {
			t.Errorf("%q: %t", phase, got)
		}
	}
}
