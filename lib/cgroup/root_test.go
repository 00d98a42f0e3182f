package cgroup

import "testing"

// Only the root of the kernel's own hierarchy has cgroup.sane_behavior (version 1), and only it has no cgroup.type (version 2).
func TestIsMachineRoot(t *testing.T) {
	v1, _ := ofV1(t)
	if v1.IsMachineRoot("cpu") {
		t.Error("version 1: a part of the hierarchy counts as the machine's root")
	}
	at, _, err := v1.Dir("cpu", "/")
	if err != nil {
		t.Fatal(err)
	}
	put(t, at+"/cgroup.sane_behavior", "0")
	if !v1.IsMachineRoot("cpu") || v1.IsMachineRoot("io") {
		t.Error("version 1: only the root of the controller's own hierarchy counts")
	}
	v2, base := copyOfV2(t)
	if !v2.IsMachineRoot("cpu") {
		t.Error("version 2: the machine's root does not count as one")
	}
	put(t, base+"/cgroup.type", "domain")
	if v2.IsMachineRoot("cpu") {
		t.Error("version 2: a part of the hierarchy counts as the machine's root")
	}
}
