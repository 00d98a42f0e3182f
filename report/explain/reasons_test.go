package explain

import (
	"strings"
	"testing"
	"time"

	"polder/lib/reason"
	"polder/lib/tick"
)

// Each bound of policy katalyst's sum has a sentence, with several shared pools too. Another clause is quoted.
func TestBindings(t *testing.T) {
	floor := reason.CPUs(4)
	atMost := reason.HoldDown{Size: floor, Remaining: 1500 * time.Millisecond, Hold: 30 * time.Second, HoldFrom: "default"}
	divided := reason.Floor{Floor: floor, FloorFrom: "default", Need: 12, Divided: 44}
	small := reason.Floor{Floor: reason.Amount{MilliCPU: 200}, FloorFrom: "default"}
	for bound, want := range map[string]string{
		atMost.String():  "keep what they got for 2 seconds more (hold 30s, default).",
		divided.String(): "only the floor of 4.00 cores was left to reclaimed pods (default).",
		small.String():   "only the floor of 0.20 cores was left to reclaimed pods (default).",
		reason.Shrink{Need: 4, Step: 2, StepFrom: "default"}.String(): "4 CPUs would suffice; the pool shrinks by 2 CPUs at a time " +
			"(shrink-step, default).",
		reason.Off{Floor: floor, FloorFrom: "default", IsSeveral: true}.String(): "Reclaiming was switched off",
		"other pools need 2000m": "Advise adds: other pools need 2.00 cores.",
	} {
		s := reason.Share{
			Pool: tick.PoolShare, ReserveMilliCPU: 2000, ReserveOfMilliCPU: 4000, ReserveFrom: "default", Size: floor, Bound: bound,
		}
		b, found := shareOf([]string{"other", s.String()})
		const begin = "The services of the pool share had 4 of 48 CPUs."
		if text := b.describe(48_000); !found || !strings.HasPrefix(text, begin) || !strings.Contains(text, want) {
			t.Errorf("%q; want %q in it", text, want)
		}
	}
}

// Why nothing is offered is the reason about the offered CPU, under each policy; without one it is the first.
func TestWhyNothing(t *testing.T) {
	for want, reasons := range map[string][]string{
		"offer: 0 cores left":            {"memory: the machine's total is unknown: none is offered", reason.Offer + "0m left"},
		"batch-cpu (usage): 0 cores":     {"suppression: x; no CPU is left for batch pods", reason.BatchCPU + " (usage): 0m", "batch-memory: 1"},
		"the operator said so":           {"the operator said so", "another"},
		"advise gives no reason":         nil,
		"nothing is offered: the switch": {"another", reason.NotOffered + "the switch"},
	} {
		x := &tick.Tick{Advice: &tick.Advice{Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(0))}, Reasons: reasons}}
		if got := whyNothing(x); got != want {
			t.Errorf("%q: %q; want %q", reasons, got, want)
		}
	}
}

// A pod's own reasons come first; those that bound no CPU are left out, whatever the names in them are.
func TestOtherReasons(t *testing.T) {
	pod := &tick.Pod{Name: "spark", Cgroup: "/b/spark"}
	x := &tick.Tick{Advice: &tick.Advice{Reasons: []string{
		"a step for spark is near", `guard: service "shop/memory-NUMA" waits for a CPU`, "memory: 5 bytes", "NUMA node 0: none",
		reason.Mid + "cpu: 1m",
		"cgroup /b/spark-2 is not confined", `cgroup /b/spark is not confined: memory`, reason.BatchClass + "idle: 1 pod", reason.SystemUse(5),
	}}}
	want := []string{
		"a step for spark is near", "cgroup /b/spark is not confined: memory",
		`guard: service "shop/memory-NUMA" waits for a CPU`, "cgroup /b/spark-2 is not confined",
	}
	if got := otherReasons(x, pod, 9); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q; want %q", got, want)
	}
	if got := otherReasons(x, nil, 3); len(got) != 4 || got[3] != "and 5 more" {
		t.Errorf("the node's: %q; want three and how many more", got)
	}
}
