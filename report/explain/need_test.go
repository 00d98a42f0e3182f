package explain

import (
	"testing"

	"polder/lib/tick"
)

// What no pod used is unknown while a pod's use is: the pod's part would count as that of processes outside all pods.
func TestBeside(t *testing.T) {
	for _, tt := range []struct {
		name string
		pods []tick.Pod
		want float64 // -1 for unknown
	}{
		{"known", []tick.Pod{{Name: "a", QoS: tick.QoSShared, UsageMilliCPU: new(1000.0)}}, 2000},
		{"a pod that has just started", []tick.Pod{
			{Name: "a", QoS: tick.QoSShared, UsageMilliCPU: new(1000.0)}, {Name: "b", QoS: tick.QoSShared},
		}, -1},
	} {
		milliCPU, known := beside(&tick.Tick{Sample: &tick.Sample{CPU: &tick.NodeCPU{UsageMilliCPU: new(3000.0)}, Pods: tt.pods}})
		if !known {
			milliCPU = -1
		}
		if milliCPU != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, milliCPU, tt.want)
		}
	}
}
