package controlplane

import (
	"testing"
	"time"
)

// After a poll Eventually waits as long as it took, after one by kubectl twice as long, within bounds.
func TestRest(t *testing.T) {
	before := kubectls.Load()
	check := func(how string, wants map[time.Duration]time.Duration) {
		t.Helper()
		for took, want := range wants {
			if got := rest(before, took); got != want {
				t.Errorf("%s, after a poll of %s: %s, want %s", how, took, got, want)
			}
		}
	}
	check("by itself", map[time.Duration]time.Duration{0: pollInterval, 100 * time.Millisecond: 100 * time.Millisecond, time.Minute: mostRest})
	kubectls.Add(1)
	check("by kubectl", map[time.Duration]time.Duration{0: pollInterval, 100 * time.Millisecond: 200 * time.Millisecond, time.Minute: mostRest})
}
