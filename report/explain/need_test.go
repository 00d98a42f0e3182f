package explain

import (
	"strings"
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

// A service of which nothing is known, as in the first tick, needs an unknown amount and not nothing.
func TestUnknownNeeds(t *testing.T) {
	containers := []tick.Container{{Cgroup: "/s/c"}}
	unknown := tick.Pod{Namespace: "shop", Name: "web", QoS: tick.QoSShared, Cgroup: "/s", Containers: containers}
	idle, requesting := unknown, unknown
	idle.Cgroup, idle.Containers, idle.Missing = "", nil, tick.MissingCgroup
	requesting.Requests = &tick.Resources{MilliCPU: new(2000.0)}
	zero, busy := unknown, unknown
	zero.Containers = []tick.Container{{Cgroup: "/s/c", UsageMilliCPU: new(0.0)}}
	busy.Containers = []tick.Container{{Cgroup: "/s/c", UsageMilliCPU: new(3000.0)}}
	at := func(p tick.Pod) *tick.Tick { return &tick.Tick{Sample: &tick.Sample{Pods: []tick.Pod{p}}} }
	for _, tt := range []struct {
		name string
		pod  tick.Pod
		want string
	}{
		{"nothing is known", unknown, "What the services needed is unknown."},
		{"it has no cgroup yet", idle, "No service needed anything."},
		{"its use is 0", zero, "No service needed anything."},
		{"its request counts", requesting, "shop/web needed most: 2.00 cores (its request)."},
	} {
		if got := strings.Join(needed(at(tt.pod)), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for want, before := range map[string]tick.Pod{
		"shop/web needed 3.00 cores, and what it needed before is unknown": unknown,
		"shop/web needed 3.00 cores instead of 0 cores":                    zero,
	} {
		if got := cause(at(before), at(busy), 3000); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
