package pick

import (
	"testing"

	"polder/lib/tick"
)

// The priority of system-cluster-critical is the lowest critical one.
func TestTheFirstCriticalPriorityIsProtected(t *testing.T) {
	for priority, protected := range map[int64]bool{criticalPriority - 1: false, criticalPriority: true, criticalPriority + 1: true} {
		p := &tick.Pod{UID: "u", Namespace: "default", Name: "p", QoS: tick.QoSReclaimed, Priority: &priority}
		if why := Protected(p, nil); (why != "") != protected {
			t.Errorf("priority %d: %q; want protected %t", priority, why, protected)
		}
	}
}
