package series

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/reason"
	"polder/lib/series/seriestest"
	"polder/lib/tick"
)

func samplesOf(t *tick.Tick) []Sample {
	n := NewNode("evict")
	n.Add(t)
	return n.Samples(t)
}

func text(samples []Sample) []string {
	var lines []string
	for _, s := range samples {
		lines = append(lines, fmt.Sprintf("%s%s%v", s.Name, s.Values, s.Value))
	}
	return lines
}

// Each metric of the list has a sample, each sample's metric is in the list, and each has its labels.
func TestAllMetricsExist(t *testing.T) {
	seen := map[*Metric]bool{}
	for _, s := range append(samplesOf(seriestest.Everything()), samplesOf(seriestest.Fleet())...) {
		seen[s.Metric] = true
		if len(s.Values) != len(s.Labels) || s.Values[0] != "n" || s.Labels[0] != "node" {
			t.Errorf("%s has the labels %q with the values %q", s.Name, s.Labels, s.Values)
		}
	}
	names := map[string]bool{}
	for _, m := range All {
		if !seen[m] {
			t.Errorf("%s has no sample", m.Name)
		}
		if names[m.Name] {
			t.Errorf("%s is there twice", m.Name)
		}
		names[m.Name] = true
		if !strings.HasPrefix(m.Name, "polder_") || (m.Kind == Counter) != strings.HasSuffix(m.Name, "_total") || !strings.HasSuffix(m.Help, ".") && !strings.HasSuffix(m.Help, ").") {
			t.Errorf("%s, a %s: %q", m.Name, m.Kind, m.Help)
		}
		delete(seen, m)
	}
	for m := range seen {
		t.Errorf("%s is not in the list", m.Name)
	}
}

// A fleet controller does not have the metrics of the nodes' own tools.
func TestFleet(t *testing.T) {
	for _, s := range samplesOf(seriestest.Fleet()) {
		if strings.HasPrefix(s.Name, "polder_pods") || strings.HasPrefix(s.Name, "polder_node") || strings.HasPrefix(s.Name, "polder_reclaimed") {
			t.Errorf("the fleet controller has %s", s.Name)
		}
	}
}

// Unknown values have no sample: unknown is not zero.
func TestMissingIsNotZero(t *testing.T) {
	x := &tick.Tick{Node: "n", Time: time.Unix(1, 0), Sample: &tick.Sample{CPU: &tick.NodeCPU{}, Memory: &tick.NodeMemory{KswapdStealPerSecond: new(math.NaN())}, Pods: []tick.Pod{{QoS: tick.QoSReclaimed}}}, Advice: &tick.Advice{Reclaimed: &tick.Reclaimed{}}}
	want := []string{
		"polder_tick_timestamp_seconds[n evict]1", "polder_ticks_total[n evict]1", "polder_pods[n reclaimed]1",
		"polder_source_errors_total", "polder_dropped_ticks_total[n collect]0", "polder_advice_reasons[n]0",
		"polder_batch_squeezed_seconds_total[n guard]0", // an advice without steps has none in force
		"polder_errors_total[n collect]0",
	}
	for _, line := range text(samplesOf(x)) {
		if !slices.Contains(want, line) {
			t.Errorf("%s comes from nothing", line)
		}
	}
}

// A refused tick says nothing about the cgroups and the queue: their numbers are unknown, and not 0.
func TestRefusedIsNotZero(t *testing.T) {
	names := []string{"polder_isolation_unchanged_values", "polder_isolation_missing_cgroups", "polder_eviction_queue_pods"}
	for refused, want := range map[string]int{"": len(names), "tick is 1h old": 0} {
		x := &tick.Tick{
			Node: "n", Time: time.Unix(1, 0), Isolation: &tick.Isolation{Refused: refused}, Eviction: &tick.Eviction{Refused: refused},
		}
		got := slices.DeleteFunc(samplesOf(x), func(s Sample) bool { return !slices.Contains(names, s.Name) })
		if len(got) != want {
			t.Errorf("refused %q: %q; want %d of %q", refused, text(got), want, names)
		}
	}
}

// No series is repeated, whatever a tick repeats.
func TestNoSeriesTwice(t *testing.T) {
	x := seriestest.Everything()
	x.Advice.Pools = append(x.Advice.Pools, x.Advice.Pools...)
	x.Advice.Reclaimed.NUMANodes = append(x.Advice.Reclaimed.NUMANodes, x.Advice.Reclaimed.NUMANodes...)
	x.Sample.NUMANodes = append(x.Sample.NUMANodes, x.Sample.NUMANodes...)
	x.Eviction.Pressures = append(x.Eviction.Pressures, x.Eviction.Pressures...)
	x.Eviction.Taints = append(x.Eviction.Taints, x.Eviction.Taints...)
	x.Report.Targets = append(x.Report.Targets, x.Report.Targets...)
	seen := map[string]bool{}
	for _, s := range samplesOf(x) {
		key := s.Name + strings.Join(s.Values, "\x00")
		if seen[key] {
			t.Errorf("%s %q comes twice", s.Name, s.Values)
		}
		seen[key] = true
	}
	// The part distinguishes findings of the same rule and scope.
	x.Eviction.Pressures = []tick.PressureFinding{{Rule: "r", Scope: "s", Part: "0"}, {Rule: "r", Scope: "s", Part: "1"}}
	n := 0
	for _, s := range samplesOf(x) {
		if s.Metric == pressureValue {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d values of two NUMA nodes", n)
	}
}

// A state that lasts counts once, and counters remember a bounded number of names.
func TestCounters(t *testing.T) {
	n := NewNode("evict")
	add := func(rule string, states ...string) *tick.Tick {
		e := &tick.Eviction{}
		for _, s := range states {
			e.Evictions = append(e.Evictions, tick.PodEviction{UID: "u", Rule: rule, State: s})
		}
		x := &tick.Tick{Node: "n", Time: time.Unix(1, 0), Eviction: e}
		n.Add(x)
		return x
	}
	add("r")
	add("r", tick.StateRequested)
	add("r", tick.StateRequested)
	add("r", tick.StateCreated)
	add("r")
	x := add("r", tick.StateRequested)
	for _, want := range []string{
		"polder_evictions_total[n r requested]2", "polder_evictions_total[n r created]1", "polder_ticks_total[n evict]6",
	} {
		if got := text(n.Samples(x)); !slices.Contains(got, want) {
			t.Errorf("want %s in %q", want, got)
		}
	}
	for i := range 10 * maxKeys {
		x = add(fmt.Sprint("rule", i), tick.StateRequested)
	}
	got := text(n.Samples(x))
	if len(got) > maxKeys+20 {
		t.Errorf("%d series of one node", len(got))
	}
	if want := fmt.Sprintf("polder_evictions_total[n other other]%d", 10*maxKeys-(maxKeys-2)); !slices.Contains(got, want) {
		t.Errorf("want %s in %q", want, got[len(got)-5:])
	}
}

// What lasts in a process's first eviction section was counted by the process before it: only later states count, and ends, which a section
// reports once. A frozen pod's end is reported for as long as it is frozen. A tool's own metrics are made from its own section alone.
func TestEvictionsBeforeTheStart(t *testing.T) {
	const frozen = "frozen"
	n := NewNode("report")
	add := func(refused string, states ...string) []string {
		e := &tick.Eviction{Refused: refused}
		for i, s := range states {
			x := tick.PodEviction{UID: fmt.Sprint("u", i), Rule: "r", State: s}
			if s == frozen {
				x.UID, x.State, x.Message = frozen, tick.StateSucceeded, "why"+reason.Frozen
			}
			e.Evictions = append(e.Evictions, x)
		}
		x := &tick.Tick{Node: "n", Time: time.Unix(1, 0), Eviction: e}
		n.Add(x)
		return slices.DeleteFunc(text(n.Samples(x)), func(s string) bool { return !strings.HasPrefix(s, "polder_evictions_total") })
	}
	counted := func(created, failed, succeeded int) []string {
		return []string{
			fmt.Sprint("polder_evictions_total[n r created]", created), fmt.Sprint("polder_evictions_total[n r failed]", failed),
			"polder_evictions_total[n r requested]0", fmt.Sprint("polder_evictions_total[n r succeeded]", succeeded),
			"polder_evictions_total[n r wouldEvict]0",
		}
	}
	first := []string{tick.StateRequested, tick.StateCreated, tick.StateWouldEvict, tick.StateSucceeded, tick.StateFailed, frozen}
	if got := add("tick is 1h old", first...); len(got) > 0 {
		t.Errorf("a refused tick: %q", got)
	}
	for range 2 {
		if got, want := add("", first...), counted(0, 1, 1); !slices.Equal(got, want) {
			t.Errorf("the first section: %q; want %q", got, want)
		}
	}
	if n.worth.Evicted != 1 {
		t.Errorf("%v evictions; want the one that has just ended", n.worth.Evicted)
	}
	if got, want := add("", tick.StateCreated, tick.StateSucceeded), counted(1, 1, 2); !slices.Equal(got, want) {
		t.Errorf("the next section: %q; want %q", got, want)
	}
	if n.worth.Evicted != 2 {
		t.Errorf("%v evictions; want two: the third was accepted before the start", n.worth.Evicted)
	}
}

// increase() sees the first eviction, and the first fallback, because the series exists at 0 before.
func TestCountersBeginAtZero(t *testing.T) {
	n := NewNode("evict")
	x := &tick.Tick{
		Node: "n", Time: time.Unix(1, 0), Isolation: &tick.Isolation{},
		Eviction: &tick.Eviction{Pressures: []tick.PressureFinding{{Rule: "quiet"}, {Rule: "r"}, {Rule: "r", Hard: true}}},
	}
	has := func(want ...string) {
		t.Helper()
		n.Add(x)
		got := text(n.Samples(x))
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("want %s in %q", line, got)
			}
		}
	}
	for _, state := range []string{tick.StateWouldEvict, tick.StateRequested, tick.StateCreated, tick.StateSucceeded, tick.StateFailed} {
		has("polder_evictions_total[n quiet "+state+"]0", "polder_evictions_total[n r "+state+"]0", "polder_isolation_fallbacks_total[n]0")
	}
	x.Isolation = &tick.Isolation{Fallback: true}
	x.Eviction.Evictions = []tick.PodEviction{{UID: "u", Rule: "r", State: tick.StateRequested}}
	has("polder_evictions_total[n r requested]1", "polder_evictions_total[n r failed]0", "polder_isolation_fallbacks_total[n]1")
	x.Isolation = &tick.Isolation{} // it is in one tick, and stays counted
	has("polder_evictions_total[n r requested]1", "polder_isolation_fallbacks_total[n]1")
}

// Rules that a stream invents leave room for real ones.
func TestUnknownRulesLeaveRoom(t *testing.T) {
	n := NewNode("evict")
	e := &tick.Eviction{Evictions: []tick.PodEviction{{UID: "u", Rule: "real", State: tick.StateRequested}}}
	for i := range maxKeys {
		e.Pressures = append(e.Pressures, tick.PressureFinding{Rule: fmt.Sprint("rule", i)})
	}
	x := &tick.Tick{Node: "n", Time: time.Unix(1, 0), Eviction: e}
	n.Add(&tick.Tick{Node: "n", Eviction: &tick.Eviction{}})
	n.Add(x)
	if got := text(n.Samples(x)); !slices.Contains(got, "polder_evictions_total[n real requested]1") {
		t.Errorf("the eviction is not there: %q", got)
	}
}

// Metrics of a fleet controller's tools differ from those of the node's own tools of the same name.
func TestFleetTools(t *testing.T) {
	fleet := func(x *tick.Tick) *tick.Tick {
		x.Node, x.Time = "n", time.Unix(1, 0)
		return x
	}
	for _, c := range []struct {
		of   string
		tick *tick.Tick
	}{
		{"collect-fleet", fleet(&tick.Tick{Sample: &tick.Sample{Fleet: &tick.Fleet{}}})},
		{"evict-fleet", fleet(&tick.Tick{Eviction: &tick.Eviction{}})}, // of a tick it has only its own section
		{"report-fleet", fleet(&tick.Tick{Report: &tick.Report{Targets: []tick.Target{{Target: "cnr", State: tick.TargetFailed}}}})},
		{"report", fleet(&tick.Tick{Sample: &tick.Sample{Fleet: &tick.Fleet{}}, Isolation: &tick.Isolation{}, Eviction: &tick.Eviction{}, Report: &tick.Report{}})}, // the file of report --to prometheus
	} {
		n := NewNode(c.of)
		n.Add(c.tick)
		for _, s := range n.Samples(c.tick) {
			if i := slices.Index(s.Labels, "tool"); i >= 0 && !strings.HasSuffix(s.Values[i], "-fleet") {
				t.Errorf("%s: %s%q", c.of, s.Name, s.Values)
			}
		}
	}
	x := fleet(&tick.Tick{Sample: &tick.Sample{}, Eviction: &tick.Eviction{}})
	if got := text(samplesOf(x)); !slices.Contains(got, "polder_errors_total[n evict]0") || !slices.Contains(got, "polder_dropped_ticks_total[n collect]0") {
		t.Errorf("a node's own tools: %q", got)
	}
}

// A pod that has ended requests nothing any more; evict leaves it out as well.
func TestEndedPodsRequestNothing(t *testing.T) {
	pod := func(name, phase string) tick.Pod {
		return tick.Pod{Name: name, QoS: tick.QoSReclaimed, Phase: phase, Requests: &tick.Resources{
			ReclaimedMilliCPU: new(1000.0), ReclaimedMemoryBytes: new(1e9),
		}}
	}
	got := text(samplesOf(&tick.Tick{Node: "n", Sample: &tick.Sample{
		Pods: []tick.Pod{pod("a", "Running"), pod("b", "Succeeded"), pod("c", "Failed"), pod("d", "")},
	}}))
	for _, want := range []string{
		"polder_reclaimed_requested_cpu_cores[n]2", "polder_reclaimed_requested_memory_bytes[n]2e+09", "polder_pods[n reclaimed]4",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in %s", want, strings.Join(got, "\n"))
		}
	}
}
