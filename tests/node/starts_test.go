package node

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"polder/lib/clip"
)

// event is the part of a cluster's event that the test reads.
type event struct {
	Type, Reason, Message string
	InvolvedObject        struct{ Name string }
}

// line is the event in one short line: a CI that shows only the first lines of a failure must show the cause.
func (e event) line() string {
	return clip.Text(e.InvolvedObject.Name+": "+e.Reason+": "+strings.Join(strings.Fields(e.Message), " "), 400)
}

// startReasons are kubelet's for what it could not create or start: a pod's cgroup, its sandbox, a container ("Failed"). Others that begin
// alike are not about a start: FailedScheduling, FailedMount, FailedSync (the runtime no longer knew a container), FailedKillPod.
var startReasons = []string{"Failed", "FailedCreatePodContainer", "FailedCreatePodSandBox"}

// ofCgroups is in the message wherever kubelet or runc could not make, write or enter a cgroup: a path below /sys/fs/cgroup, runc's "unable
// to apply cgroup configuration", kubelet's "failed to create container for [kubepods …]", and a limit that is too low for runc itself.
var ofCgroups = regexp.MustCompile(`(?i)cgroup|cpuset|kubepods|OOM-killed`)

// startFailures are the failures to start that a change of cgroups can cause, which is all that Polder does to a node. The others come from
// a busy machine: a deadline of containerd that passed, a name that such an attempt still reserves, a sandbox that ended with its pod.
// kubelet retries after them, and the tests wait for the pods to run.
func startFailures(events []event) (failures, others []string) {
	for _, e := range events {
		switch {
		case e.Type != "Warning":
		case slices.Contains(startReasons, e.Reason) && ofCgroups.MatchString(e.Message):
			failures = append(failures, e.line())
		case strings.HasPrefix(e.Reason, "Failed") || e.Reason == "BackOff":
			others = append(others, e.line())
		}
	}
	return failures, others
}

// checkStarts fails the test for each container that a cgroup or a cpuset kept from starting, and logs other failures on the node.
func (n *Node) checkStarts(t *testing.T) {
	t.Helper()
	var events struct{ Items []event }
	if err := json.Unmarshal([]byte(n.Kubectl("get", "events", "-o", "json")), &events); err != nil {
		t.Fatal(err)
	}
	failures, others := startFailures(events.Items)
	for _, f := range failures {
		t.Errorf("start failure: %s", f)
	}
	for _, o := range others {
		t.Logf("not by a cgroup: %s", o)
	}
}

// A start that a cgroup or a cpuset prevents is a failure; one that a busy machine delays is not.
func TestStartFailures(t *testing.T) {
	const create = "Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
	for _, c := range []struct {
		reason, message string
		failure         bool
	}{
		{"Failed", create + "unable to start container process: unable to apply cgroup configuration: failed to write 71: no space left on device", true},
		{"Failed", create + "unable to start container process: error during container init: error setting cgroup config for procHooks process: " +
			"failed to write \"0-1\": write /sys/fs/cgroup/cpuset/kubepods/besteffort/pod1/c/cpuset.cpus: permission denied", true},
		{"Failed", create + "unable to start container process: container init was OOM-killed (memory limit too low?)", true},
		{"FailedCreatePodSandBox", "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to start sandbox: write " +
			"/sys/fs/cgroup/cpuset/kubepods/pod1/s/cpuset.cpus: invalid argument", true},
		{"FailedCreatePodContainer", "unable to ensure pod container exists: failed to create container for [kubepods besteffort pod1] : device or resource busy", true},

		{"Failed", "Error: context deadline exceeded", false},
		{"Failed", `Error: failed to reserve container name "main_brief-0-1_default_0": name is reserved for "1a2b"`, false},
		{"FailedCreatePodSandBox", "Failed to create pod sandbox: rpc error: code = DeadlineExceeded desc = context deadline exceeded", false},
		{"FailedKillPod", "error killing pod: failed to remove cgroup kubepods/besteffort/pod1: device or resource busy", false},
		{"FailedSync", `error determining status: rpc error: code = NotFound desc = container "1a2b": not found`, false},
		{"FailedMount", `MountVolume.SetUp failed for volume "kube-api-access-x" : object "default"/"kube-root-ca.crt" not registered`, false},
		{"FailedScheduling", "0/1 nodes are available: 1 Insufficient cpu.", false},
		{"BackOff", "Back-off restarting failed container stress in pod shared-normal-pod", false},
	} {
		e := event{Type: "Warning", Reason: c.reason, Message: c.message}
		e.InvolvedObject.Name = "p"
		failures, others := startFailures([]event{e, {Type: "Normal", Reason: "Started", Message: "in cgroup"}})
		if (len(failures) == 1) != c.failure || len(failures)+len(others) != 1 {
			t.Errorf("%s: %s: failures %q, others %q", c.reason, c.message, failures, others)
		}
	}
	long := event{Message: strings.Repeat("a\n", 10000)}
	if got := long.line(); len(got) > 500 || strings.Contains(got, "\n") {
		t.Errorf("the line of a long message has %d bytes: %s", len(got), fmt.Sprintf("%.50q", got))
	}
}
