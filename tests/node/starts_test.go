package node

import (
	"encoding/json"
	"fmt"
	"os"
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

// A start that a cgroup or a cpuset prevents is a failure; one that a busy machine delays is not. The events are kubelet's, as recorded.
func TestStartFailures(t *testing.T) {
	data, err := os.ReadFile("testdata/start-events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for line := range strings.Lines(string(data)) {
		recorded++
		var c struct {
			Reason, Message string
			OfCgroups       bool
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("line %d: %v", recorded, err)
		}
		e := event{Type: "Warning", Reason: c.Reason, Message: c.Message}
		e.InvolvedObject.Name = "p"
		failures, others := startFailures([]event{e, {Type: "Normal", Reason: "Started", Message: "in cgroup"}})
		if (len(failures) == 1) != c.OfCgroups || len(failures)+len(others) != 1 {
			t.Errorf("%s: %s: failures %q, others %q", c.Reason, c.Message, failures, others)
		}
	}
	if recorded != 13 {
		t.Errorf("%d events; want 13", recorded)
	}
	long := event{Message: strings.Repeat("a\n", 10000)}
	if got := long.line(); len(got) > 500 || strings.Contains(got, "\n") {
		t.Errorf("the line of a long message has %d bytes: %s", len(got), fmt.Sprintf("%.50q", got))
	}
}
