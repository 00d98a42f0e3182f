package view

import (
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// The screen adds up the memory that was reclaimed, without skipped reclaims, and a cgroup's name cannot draw on it.
func TestColdRow(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var m Model
	shown := func(list ...tick.Reclaim) string {
		m.Add(&tick.Tick{V: 1, Node: "n", Time: at, Sample: &tick.Sample{}, Isolation: &tick.Isolation{Reclaims: list}})
		return strings.Join(Frame(&m, Look{Width: 130, Height: 40}, at), "\n")
	}
	if got := shown(tick.Reclaim{State: tick.ReclaimSkipped, Reason: "a repeat"}); strings.Contains(got, "cold") {
		t.Errorf("a skipped reclaim has a row:\n%s", got)
	}
	shown(tick.Reclaim{Cgroup: "/b", ReclaimedBytes: 1 << 30, State: tick.ReclaimDone})
	got := shown(tick.Reclaim{Cgroup: "/b\x1b[2J", ReclaimedBytes: 1 << 30, State: tick.ReclaimPartial}, tick.Reclaim{State: tick.ReclaimSkipped})
	if !strings.Contains(got, "2.00 GiB reclaimed from batch in 2 steps") || !strings.Contains(got, "1.00 GiB of /b?[2J (no more was found)") {
		t.Errorf("the screen:\n%s", got)
	}
}

// A screen that begins in the middle of a recording shows no sum over the ticks that it has, as if they were all: of writes and of
// reclaimed memory. The planned writes of a dry run are those of the tick.
func TestResumedHasNoSums(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	x := &tick.Tick{V: 1, Node: "n", Time: at, Sample: &tick.Sample{}, Isolation: &tick.Isolation{
		Writes:   []tick.Write{{Cgroup: "/b", Key: "cpuIdle", New: "1"}},
		Reclaims: []tick.Reclaim{{Cgroup: "/b", ReclaimedBytes: 1 << 30, State: tick.ReclaimDone}, {Cgroup: "/c", State: tick.ReclaimFailed}},
	}}
	shown := func(m *Model) string {
		m.Add(x)
		return strings.Join(Frame(m, Look{Width: 130, Height: 40}, at), "\n")
	}
	sums := []string{"1.00 GiB reclaimed from batch in 2 steps", "writes 1", "1 failed"}
	for _, text := range sums {
		if got := shown(&Model{}); !strings.Contains(got, text) {
			t.Errorf("from the first tick on there is no %q:\n%s", text, got)
		}
		if got := shown(Resumed()); strings.Contains(got, text) || !strings.Contains(got, "0 B of /c (it failed)") {
			t.Errorf("from the middle on there is %q:\n%s", text, got)
		}
	}
	x.Isolation.DryRun = true
	if got := shown(Resumed()); !strings.Contains(got, "would write 1") {
		t.Errorf("a dry run:\n%s", got)
	}
}
