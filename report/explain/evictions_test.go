package explain

import (
	"strings"
	"testing"
	"time"

	"polder/lib/reason"
	"polder/lib/tick"
)

// What was measured is added to an eviction's message unless the message has it.
func TestMeasuredIsNotSaidTwice(t *testing.T) {
	for message, want := range map[string]bool{
		"900Mi of the node's memory are free, under the " + reason.Threshold + "1024Mi":                                          false,
		"the load of pool share is 9.00, " + reason.LoadBound + "2.00; it was over the bound in 80% of the last 10 samples":      false,
		"current pool suppression rate 6.00 is over than " + reason.ToleranceRate + "5.00; the load of another pool is too high": false,
		"too little memory is free": true,
	} {
		e := eviction{
			name: "demo/batch", rule: "r", state: tick.StateSucceeded, message: message,
			finding: &tick.PressureFinding{Rule: "r", Scope: "memory", Value: 900 << 20, Threshold: 1 << 30, Below: true},
		}
		text := e.describe(func(time.Time) string { return "08:00:00" })
		if got := strings.Contains(text, "Measured:"); got != want {
			t.Errorf("what was measured is added: %t; want %t in %q", got, want, text)
		}
	}
}
