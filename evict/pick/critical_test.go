package pick

import (
	"testing"

	"polder/lib/tick"
)

// The priority of system-cluster-critical is the lowest critical one.
func TestTheFirstCriticalPriorityIsProtected(t *testing.T) {
	for priority, protected := range map[int64]bool{1_999_999_999: false, 2_000_000_000: true, 2_000_000_001: true} {
		p := &tick.Pod{UID: "u", Namespace: "default", Name: "p", QoS: tick.QoSReclaimed, Priority: &priority}
		if why := Protected(p, nil); (why != "") != protected {
			t.Errorf("priority %d: %q; want protected %t", priority, why, protected)
		}
	}
}
