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

// A class is assumed where the cluster does not have the pod, and known of a pod that was deleted meanwhile.
func TestClasses(t *testing.T) {
	for _, tt := range []struct {
		pod                         Pod
		isUnknown, isBatch, service bool
	}{
		{Pod{QoS: QoSReclaimed, QoSSource: QoSFromKatalyst}, false, true, false},
		{Pod{QoS: QoSReclaimed, QoSSource: QoSFromRule}, false, true, false},
		{Pod{QoS: QoSReclaimed, QoSSource: QoSFromKoordinator, Missing: MissingCluster}, false, true, false},
		{Pod{QoS: QoSShared, QoSSource: QoSFromRule, Missing: MissingCluster}, true, false, false},
		{Pod{QoS: QoSShared, Missing: MissingCluster}, true, false, false},
		{Pod{QoS: QoSShared, QoSSource: QoSFromKubernetes, Missing: MissingCgroup}, false, false, true},
		{Pod{QoS: QoSSystem, QoSSource: QoSFromRule}, false, false, true},
		{Pod{QoS: QoSDedicated}, false, false, true},
	} {
		if p := &tt.pod; p.IsClassUnknown() != tt.isUnknown || p.IsBatch() != tt.isBatch || p.IsService() != tt.service {
			t.Errorf("%+v: unknown %t, batch %t, service %t", tt.pod, p.IsClassUnknown(), p.IsBatch(), p.IsService())
		}
	}
}

// A pod without a running container uses nothing; that is not known of a cgroup, which needs no containers.
func TestIdle(t *testing.T) {
	for _, tt := range []struct {
		name string
		pod  Pod
		want bool
	}{
		{"nothing is known", Pod{}, false},
		{"no cgroup yet", Pod{Namespace: "a", Missing: MissingCgroup}, true},
		{"its sandbox alone", Pod{Namespace: "a", Cgroup: "/kubepods/poda", Containers: []Container{{Name: "c"}}}, true},
		{"a running container", Pod{Namespace: "a", Cgroup: "/kubepods/a", Containers: []Container{{Cgroup: "/kubepods/a/c"}}}, false},
		{
			"a container that the status does not have",
			Pod{Namespace: "a", Cgroup: "/kubepods/a", Containers: []Container{{Name: "crio-1.scope", Cgroup: "/kubepods/a/crio-1.scope"}}},
			false,
		},
		{"a cgroup of a plain host", Pod{Cgroup: "/batch.slice"}, false},
	} {
		if got := tt.pod.IsIdle(); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
