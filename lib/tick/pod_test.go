package tick

import "testing"

// A pod has ended in each of the two final phases.
func TestEnded(t *testing.T) {
	for phase, want := range map[string]bool{"": false, "Pending": false, "Running": false, "Unknown": false, "Succeeded": true, "Failed": true} {
		if got := (&Pod{Phase: phase}).Ended(); got != want {
			t.Errorf("%q: %t", phase, got)
		}
	}
}
