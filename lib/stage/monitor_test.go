package stage

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"polder/tests/need"
)

// switches is how often a thread has gone to sleep.
func switches(t *testing.T, thread string) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + thread + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
	first, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	n, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// One thread has the slack, and it is the runtime's monitor: the one that wakes again and again while the process does nothing but compute.
func TestTheMonitorWakesSeldom(t *testing.T) {
	need.Nice(t)
	if err := calmMonitor(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var calm []string
	for _, entry := range entries {
		slack, err := os.ReadFile("/proc/" + entry.Name() + "/timerslack_ns")
		if err == nil && strings.TrimSpace(string(slack)) == strconv.Itoa(monitorSlack) {
			calm = append(calm, entry.Name())
		}
	}
	if len(calm) != 1 {
		t.Fatalf("threads %v have the slack; want one", calm)
	}
	before, begun := switches(t, calm[0]), time.Now()
	for switches(t, calm[0]) < before+10 {
		if time.Since(begun) > time.Minute {
			t.Fatalf("thread %s has not woken ten times within a minute: it is not the runtime's monitor", calm[0])
		}
	}
}
