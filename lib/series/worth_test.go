package series

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// used is a tick of a node of 4 CPUs; its pods and the rest use the given milli-CPU.
func used(at time.Duration, interval, node float64, pods ...tick.Pod) *tick.Tick {
	return &tick.Tick{Node: "n", Time: noon.Add(at), Sample: &tick.Sample{
		IntervalSeconds: &interval, Topology: &tick.Topology{CPUs: "0-3"}, CPU: &tick.NodeCPU{UsageMilliCPU: &node}, Pods: pods,
	}}
}

func batchPod(name string, milliCPU float64) tick.Pod {
	return tick.Pod{Namespace: "spark", Name: name, QoS: tick.QoSReclaimed, UsageMilliCPU: &milliCPU}
}

func TestWorth(t *testing.T) {
	throttled := batchPod("a", 1000)
	throttled.Containers = []tick.Container{{ThrottledPercent: new(50.0)}, {ThrottledPercent: new(10.0)}}
	requests := batchPod("a", 1000)
	requests.Requests = &tick.Resources{ReclaimedMilliCPU: new(600.0), MilliCPU: new(100.0)}
	unknown := batchPod("a", 0)
	unknown.UsageMilliCPU = nil
	service := batchPod("s", 2000)
	service.QoS = tick.QoSShared
	unclassed := batchPod("podu", 1000)
	unclassed.QoS, unclassed.QoSSource, unclassed.Missing = tick.QoSShared, tick.QoSFromRule, tick.MissingCluster
	unclassedUnused := unclassed
	unclassedUnused.UsageMilliCPU = new(0.0)
	noTopology := used(0, 1, 2000, batchPod("a", 1000))
	noTopology.Sample.Topology, noTopology.Sample.Capacity = nil, &tick.Resources{MilliCPU: new(8000.0)}
	noCapacity := used(time.Second, 1, 2000, batchPod("a", 1000))
	noCapacity.Sample.Topology, noCapacity.Sample.Capacity = nil, &tick.Resources{MilliCPU: new(1e308)}
	negative := batchPod("a", 1000)
	negative.Requests = &tick.Resources{ReclaimedMilliCPU: new(-1e308)}
	noNode := used(2*time.Second, 1, 0, batchPod("a", 1000))
	noNode.Sample.CPU.UsageMilliCPU = nil
	noInterval := used(2*time.Second, 1, 0, batchPod("a", 1000))
	noInterval.Sample.IntervalSeconds = nil
	stolen := used(0, 1, 3000, batchPod("a", 1000), service)
	stolen.Sample.CPU.StealMilliCPU = new(500.0)
	start := used(0, 1, 3000, batchPod("a", 1000), service)
	tests := []struct {
		name                                    string
		ticks                                   []*tick.Tick
		seconds, batch, left, beyond, throttled float64
	}{
		{"services use 2 of 4", []*tick.Tick{start}, 1, 1, 2, 1, 0},
		{"the next tick counts since the one before", []*tick.Tick{start, used(2*time.Second, 1, 1000, batchPod("a", 500))}, 3, 2, 9, 2, 0},
		{"after a long gap its own interval counts", []*tick.Tick{start, used(time.Hour, 1, 1000, batchPod("a", 500))}, 2, 1.5, 5.5, 1.5, 0},
		{"a tick that comes twice", []*tick.Tick{start, start}, 1, 1, 2, 1, 0},
		{"the clock is set back", []*tick.Tick{start, used(-time.Hour, 1, 3000, batchPod("a", 1000)), used(time.Second-time.Hour, 1, 3000, batchPod("a", 1000))}, 2, 2, 4, 2, 0},
		{"nothing is known of the node", []*tick.Tick{start, noNode}, 1, 1, 2, 1, 0},
		{"no interval", []*tick.Tick{start, noInterval}, 1, 1, 2, 1, 0},
		{"a pod of unknown use", []*tick.Tick{used(0, 1, 1000, unknown)}, 1, 0, 3, 0, 0},
		{"beyond requests", []*tick.Tick{used(0, 10, 1000, requests)}, 10, 10, 40, 3, 0},
		{"throttled", []*tick.Tick{used(0, 10, 1000, throttled)}, 10, 10, 40, 10, 5},
		{"batch used more than the node, as the two are read", []*tick.Tick{used(0, 1, 4000, batchPod("a", 4100))}, 1, 4.1, 4.1, 4.1, 0},
		{"a pod of unknown class", []*tick.Tick{start, used(time.Second, 1, 3000, batchPod("a", 1000), unclassed)}, 1, 1, 2, 1, 0},
		{"a pod of unknown class that uses nothing", []*tick.Tick{
			start, used(time.Second, 1, 3000, batchPod("a", 1000), service, unclassedUnused),
		}, 2, 2, 4, 2, 0},
		{"without a topology the cluster's capacity counts", []*tick.Tick{noTopology}, 1, 1, 7, 1, 0},
		{"an interval that is none", []*tick.Tick{
			used(0, math.Inf(1), 1000, throttled), used(0, math.NaN(), 1000, throttled), used(0, -1, 1000, throttled),
			used(time.Second, 1e300, 1000, throttled),
		}, 0, 0, 0, 0, 0},
		{
			"a use that is no measurement",
			[]*tick.Tick{start, used(time.Second, 1, 1000, batchPod("a", 500), batchPod("h", 1e308))},
			2, 1.5, 5.5, 1.5, 0,
		},
		{"a capacity that is none", []*tick.Tick{start, noCapacity}, 1, 1, 2, 1, 0},
		{"the hypervisor took half a CPU", []*tick.Tick{stolen}, 1, 1, 1.5, 1, 0},
		{"a negative request", []*tick.Tick{used(0, 10, 1000, negative)}, 10, 10, 40, 10, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w Worth
			for _, x := range tt.ticks {
				w.add(x)
			}
			got := []float64{w.Seconds, w.Batch, w.Free, w.BeyondRequests, w.Throttled}
			want := []float64{tt.seconds, tt.batch, tt.left, tt.beyond, tt.throttled}
			if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
				t.Errorf("time, batch, left, beyond requests, throttled: %v, want %v", got, want)
			}
		})
	}
}

// A batch pod has a series while it exists, and its time increases; two pods of one name have one series.
func TestWorthOfPods(t *testing.T) {
	n := NewNode("report")
	series := func() (lines []string) {
		for _, line := range text(n.Samples(used(0, 1, 0))) {
			if after, ok := strings.CutPrefix(line, batchPodTime.Name); ok {
				lines = append(lines, after)
			}
		}
		return lines
	}
	n.Add(used(0, 1, 4000, batchPod("a", 1000), batchPod("b", 500), batchPod("b", 250)))
	n.Add(used(time.Second, 1, 4000, batchPod("b", 1000)))
	if got := strings.Join(series(), " "); got != "[n spark b reclaimed]1.75" {
		t.Errorf("series: %s", got)
	}
	var many []tick.Pod
	for i := range 3 * maxKeys {
		many = append(many, batchPod(strings.Repeat("x", i), 1))
	}
	n.Add(used(2*time.Second, 1, 4000, many...))
	if got := len(series()); got > maxKeys+1 {
		t.Errorf("%d series of pods", got)
	}
}

// A batch pod's counter never decreases while the pod exists, and that of the pods beyond the bound never.
func TestPodCountersNeverDecrease(t *testing.T) {
	unknown := batchPod("a", 0)
	unknown.UsageMilliCPU = nil
	otherClass := batchPod("a", 1000)
	otherClass.QoS, otherClass.Missing = tick.QoSShared, tick.MissingCluster
	many := func(first, n int) (pods []tick.Pod) {
		for i := range n {
			pods = append(pods, batchPod(fmt.Sprintf("p%03d", first+i), 1000))
		}
		return pods
	}
	unread := used(time.Second, 1, 4000)
	unread.Sample.Errors = []tick.SourceError{{Source: "pods", Error: "the API server does not answer"}}
	for _, tt := range []struct {
		name  string
		ticks []*tick.Tick
		key   string
		want  float64
	}{
		{
			"its use is unknown for a tick", []*tick.Tick{
				used(0, 1, 4000, batchPod("a", 1000)), used(time.Second, 1, 4000, unknown),
				used(2*time.Second, 1, 4000, batchPod("a", 500)),
			}, "spark\x00a", 1.5,
		},
		{
			"its use is unknown in the last tick",
			[]*tick.Tick{used(0, 1, 4000, batchPod("a", 1000)), used(time.Second, 1, 4000, unknown)},
			"spark\x00a", 1,
		},
		{
			"its class is unknown for a tick", []*tick.Tick{
				used(0, 1, 4000, batchPod("a", 1000)), used(time.Second, 1, 4000, otherClass),
				used(2*time.Second, 1, 4000, batchPod("a", 500)),
			}, "spark\x00a", 1.5,
		},
		{
			"the pods could not be read for a tick", []*tick.Tick{
				used(0, 1, 4000, batchPod("a", 1000)), unread, used(2*time.Second, 1, 4000, batchPod("a", 500)),
			}, "spark\x00a", 1.5,
		},
		{
			"its use is negative in a forged tick", []*tick.Tick{
				used(0, 1, 4000, batchPod("a", 1000)), used(time.Second, 1, 4000, batchPod("a", -500)),
			}, "spark\x00a", 1,
		},
		{
			"more pods than are remembered",
			[]*tick.Tick{used(0, 1, 4000, many(0, maxKeys+10)...), used(time.Second, 1, 4000, many(0, maxKeys+10)...)},
			other, 20,
		},
		{
			"then only a few",
			[]*tick.Tick{used(0, 1, 4000, many(0, maxKeys+10)...), used(time.Second, 1, 4000, many(0, 3)...)},
			other, 10,
		},
		{
			"then none",
			[]*tick.Tick{used(0, 1, 4000, many(0, maxKeys+10)...), used(time.Second, 1, 4000)},
			other, 10,
		},
		{
			"new pods come before it in the list", []*tick.Tick{
				used(0, 1, 4000, batchPod("a", 1000)), used(time.Second, 1, 4000, append(many(0, maxKeys+10), batchPod("a", 500))...),
			}, "spark\x00a", 1.5,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w Worth
			before := 0.0
			for _, x := range tt.ticks {
				w.add(x)
				if now := w.pods[tt.key]; now < before {
					t.Errorf("%s: the counter has decreased from %v to %v", x.Time.Format(time.TimeOnly), before, now)
				}
				before = w.pods[tt.key]
			}
			if math.Abs(before-tt.want) > 1e-9 || len(w.pods) > maxKeys+1 {
				t.Errorf("the counter is %v of %d, want %v of at most %d", before, len(w.pods), tt.want, maxKeys+1)
			}
		})
	}
}

// Services' waiting is a mean over those whose waiting is known. With PSI it is a part of the time, otherwise a sum over threads, of which
// the counter has at most the whole time.
func TestWorthOfServices(t *testing.T) {
	waits := func(name string, permille float64) tick.Pod {
		p := tick.Pod{Namespace: "shop", Name: name, QoS: tick.QoSShared, CPUWaitPermille: &permille}
		return p
	}
	withPSI := func(p tick.Pod) tick.Pod {
		p.CPUPressure = &tick.Pressure{}
		return p
	}
	throttled := func(p tick.Pod) tick.Pod {
		p.Containers = []tick.Container{{ThrottledPercent: new(10.0)}}
		return p
	}
	batch := waits("b", 900)
	batch.QoS = tick.QoSReclaimed
	const each = " s per second each (all threads added up)"
	for _, tt := range []struct {
		name             string
		pods             []tick.Pod
		services, waited float64
		want             string
	}{
		{"none", []tick.Pod{batch, {QoS: tick.QoSShared}}, 0, 0, ""},
		{
			"two",
			[]tick.Pod{batch, withPSI(waits("a", 30)), withPSI(waits("c", 0)), {QoS: tick.QoSShared}},
			20, 0.3,
			"services waited 1.5 % of the time",
		},
		{"two without PSI", []tick.Pod{waits("a", 940), waits("c", 0)}, 20, 9.4, "services waited 0.47" + each},
		{"two threads that wait all the time", []tick.Pod{waits("a", 2000)}, 10, 10, "services waited 2.00" + each},
		{
			"one with PSI and one without",
			[]tick.Pod{withPSI(waits("a", 30)), waits("c", 500)},
			20, 5.3,
			"services waited 3.0 % of the time; services waited 0.50" + each,
		},
		{"more than a kernel's threads", []tick.Pod{waits("a", 1e308)}, 0, 0, ""},
		{"one that its own limit throttles", []tick.Pod{throttled(waits("a", 900)), waits("c", 0)}, 10, 0, "services waited 0.00" + each},
		{"no amount", []tick.Pod{waits("a", -1)}, 0, 0, ""},
		{"a pod that may be batch", []tick.Pod{
			{QoS: tick.QoSShared, Missing: tick.MissingCluster, CPUWaitPermille: new(900.0), UsageMilliCPU: new(0.0)},
		}, 0, 0, ""},
	} {
		var w Worth
		w.add(used(0, 10, 1000, tt.pods...))
		got := strings.Join(w.OfServices(), "; ")
		if math.Abs(w.Services-tt.services) > 1e-9 || math.Abs(w.Waited-tt.waited) > 1e-9 || got != tt.want {
			t.Errorf("%s: %v of %v, %q; want %v of %v, %q", tt.name, w.Waited, w.Services, got, tt.waited, tt.services, tt.want)
		}
		if whole := w.String(); !strings.HasSuffix(whole, "throttled 0.0 % of it"+strings.TrimSuffix("; "+tt.want, "; ")) {
			t.Errorf("%s: %s", tt.name, whole)
		}
	}
}

// An eviction that a budget refuses does not count; one with several states counts once.
func TestWorthOfEvictions(t *testing.T) {
	n := NewNode("report")
	for i, states := range [][]string{{tick.StateWouldEvict, tick.StateRequested}, {tick.StateRequested, tick.StateFailed}, {tick.StateCreated, tick.StateFailed}, {tick.StateSucceeded, tick.StateFailed}} {
		x := used(time.Duration(i)*time.Second, 1, 2000, batchPod("a", 1000))
		x.Eviction = &tick.Eviction{Evictions: []tick.PodEviction{{UID: "a", Rule: "r", State: states[0]}, {UID: "b", Rule: "r", State: states[1]}}}
		n.Add(x)
		n.Add(&tick.Tick{V: 1, Node: "n", Time: x.Time, Eviction: &tick.Eviction{Refused: "late"}}) // it says nothing of evictions
	}
	const want = "batch got 4.0 of 12.0 idle core-seconds (33 %, 4.0 beyond requests) in 4s, throttled 0.0 % of it, 1 eviction"
	if got := n.Worth().String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := NewNode("report").Worth().String(); got != "" {
		t.Errorf("nothing is counted, and it is %s", got)
	}
}

// A tick may have the end of an eviction and the next request for the same pod: both count, and the pod is evicted once.
func TestARepeatedRequestCounts(t *testing.T) {
	n := NewNode("report")
	for _, states := range [][]string{
		{},
		{tick.StateRequested},
		{tick.StateFailed, tick.StateRequested},
		{tick.StateRequested},
		{tick.StateFailed, tick.StateRequested},
		{tick.StateCreated},
	} {
		x := &tick.Tick{V: 1, Node: "n", Eviction: &tick.Eviction{}}
		for _, state := range states {
			x.Eviction.Evictions = append(x.Eviction.Evictions, tick.PodEviction{UID: "a", Rule: "r", State: state})
		}
		n.Add(x)
	}
	got := map[string]float64{}
	n.evictions.each(func(key string, v float64) { got[key] = v })
	want := map[string]float64{"r\x00" + tick.StateRequested: 3, "r\x00" + tick.StateFailed: 2, "r\x00" + tick.StateCreated: 1}
	for key, v := range want {
		if got[key] != v {
			t.Errorf("%q: %v, want %v", key, got[key], v)
		}
	}
	if n.worth.Evicted != 1 {
		t.Errorf("%v evictions; want one", n.worth.Evicted)
	}
}

// The time in which batch was held back is counted by cause, between two advices: a cause of which nothing is known has no counter, and a
// long or a negative time counts nothing.
func TestSqueezed(t *testing.T) {
	yes, no := new(true), new(false)
	at := func(seconds float64, starved *bool, steps ...string) *tick.Tick {
		now := noon.Add(time.Duration(seconds * float64(time.Second)))
		return &tick.Tick{Node: "n", Time: now, Advice: &tick.Advice{GuardSteps: steps, BatchStarved: starved}}
	}
	dryRun := at(2, yes, "quota")
	dryRun.Isolation = &tick.Isolation{DryRun: true}
	applied := at(2, no, "quota")
	applied.Isolation = &tick.Isolation{}
	for _, tt := range []struct {
		name  string
		ticks []*tick.Tick
		want  string // the counters
		held  string
	}{
		{"the first advice", []*tick.Tick{at(0, yes, "CPUs")}, "[n guard]0 [n starved]0", ""},
		{"no step, starvation is unknown", []*tick.Tick{at(0, nil), at(2, nil)}, "[n guard]0", ""},
		{
			"steps",
			[]*tick.Tick{at(0, nil), at(2, nil, "CPUs", "quota"), at(4, nil), at(8, nil)},
			"[n guard]2", "held back 25.0 % of the time",
		},
		{
			"both at once count once in all",
			[]*tick.Tick{at(0, no), at(2, yes, "CPUs"), at(3, yes), at(4, no)},
			"[n guard]2 [n starved]3", "held back 75.0 % of the time",
		},
		{
			"starvation becomes unknown",
			[]*tick.Tick{at(0, no), at(2, yes), at(4, nil)},
			"[n guard]0 [n starved]2", "held back 50.0 % of the time",
		},
		{"a dry run of isolate", []*tick.Tick{at(0, no), dryRun}, "[n guard]0 [n starved]2", "held back 100.0 % of the time"},
		{"isolate applies it", []*tick.Tick{at(0, no), applied}, "[n guard]2 [n starved]0", "held back 100.0 % of the time"},
		{
			"a tick without an advice",
			[]*tick.Tick{at(0, no, "CPUs"), {Node: "n", Time: noon.Add(time.Second)}, at(2, no, "CPUs")},
			"[n guard]2 [n starved]0", "held back 100.0 % of the time",
		},
		{"a gap", []*tick.Tick{at(0, no, "CPUs"), at(3600, no, "CPUs"), at(3601, no)}, "[n guard]0 [n starved]0", ""},
		{
			"the clock is set back",
			[]*tick.Tick{at(0, no, "CPUs"), at(-10, yes, "CPUs"), at(-10, yes, "CPUs")},
			"[n guard]0 [n starved]0", "",
		},
		{"next to nothing", []*tick.Tick{at(0, no), at(0.01, yes), at(100, no)}, "[n guard]0 [n starved]0.01", ""},
	} {
		n := NewNode("advise") // it has the section advice alone
		for _, x := range tt.ticks {
			n.Add(x)
		}
		var got []string
		for _, line := range text(n.Samples(tt.ticks[len(tt.ticks)-1])) {
			if after, ok := strings.CutPrefix(line, batchSqueezed.Name); ok {
				got = append(got, after)
			}
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, text, tt.want)
		}
		if held := n.Worth().OfSqueeze(); held != tt.held {
			t.Errorf("%s: %q; want %q", tt.name, held, tt.held)
		}
	}
}

// The closing sentence names how long batch was held back, between batch and services.
func TestWorthOfSqueeze(t *testing.T) {
	n := NewNode("report")
	service := batchPod("s", 0)
	service.QoS, service.CPUWaitPermille, service.CPUPressure = tick.QoSShared, new(10.0), &tick.Pressure{}
	for i := range 5 {
		x := used(time.Duration(i)*time.Second, 1, 2000, batchPod("a", 1000), service)
		x.Advice = &tick.Advice{}
		if i == 4 {
			x.Advice.GuardSteps = []string{"CPUs"}
		}
		n.Add(x)
	}
	const want = "batch got 5.0 of 15.0 idle core-seconds (33 %, 5.0 beyond requests) in 5s, throttled 0.0 % of it; " +
		"batch was held back 25.0 % of the time; services waited 1.0 % of the time"
	if got := n.Worth().String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// The sentence has what was beyond requests in the unit of the rest, and omits it where it would be shown as 0.
func TestWorthBeyondRequests(t *testing.T) {
	requesting := func(milliCPU float64) tick.Pod {
		p := batchPod("a", 1000)
		p.Requests = &tick.Resources{ReclaimedMilliCPU: &milliCPU}
		return p
	}
	for _, tt := range []struct {
		interval float64
		pod      tick.Pod
		want     string
	}{
		{1, requesting(1000), "batch got 1.0 of 3.0 idle core-seconds (33 %) in 1s, throttled 0.0 % of it"},
		{1, requesting(980), "batch got 1.0 of 3.0 idle core-seconds (33 %) in 1s, throttled 0.0 % of it"},
		{10, requesting(600), "batch got 10.0 of 30.0 idle core-seconds (33 %, 4.0 beyond requests) in 10s, throttled 0.0 % of it"},
		{7200, requesting(600), "batch got 2.0 of 6.0 idle core-hours (33 %, 0.8 beyond requests) in 2h00m, throttled 0.0 % of it"},
	} {
		var w Worth
		w.add(used(0, tt.interval, 2000, tt.pod))
		if got := w.String(); got != tt.want {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}

// A batch pod's counter has its class, which stays while the pod is there; the counter of the pods beyond the bound has none of theirs.
func TestClassesOfPods(t *testing.T) {
	requesting := func(name string, r *tick.Resources) tick.Pod {
		p := batchPod(name, 1000)
		p.Requests = r
		return p
	}
	mid, none := &tick.Resources{MidMilliCPU: new(500.0)}, &tick.Resources{MidMilliCPU: new(0.0)}
	n := NewNode("report")
	series := func() string {
		var lines []string
		for _, line := range text(n.Samples(used(0, 1, 0))) {
			if after, ok := strings.CutPrefix(line, batchPodTime.Name); ok {
				lines = append(lines, after)
			}
		}
		return strings.Join(lines, " ")
	}
	check := func(want string) {
		t.Helper()
		if got := series(); got != want {
			t.Errorf("series %s; want %s", got, want)
		}
	}
	memory := &tick.Resources{MidMemoryBytes: new(1e9)}
	n.Add(used(0, 1, 4000, requesting("a", mid), requesting("b", none), requesting("c", memory)))
	check("[n spark a mid]1 [n spark b reclaimed]1 [n spark c mid]1")
	n.Add(used(time.Second, 1, 4000, requesting("a", nil), requesting("c", memory)))
	check("[n spark a mid]2 [n spark c mid]2")
	n.Add(used(2*time.Second, 1, 4000))
	n.Add(used(3*time.Second, 1, 4000, requesting("a", nil))) // another one of the same name
	check("[n spark a reclaimed]1")
	replaced := requesting("a", mid)
	replaced.UID = "another"
	n.Add(used(4*time.Second, 1, 4000, replaced)) // without a tick in between
	check("[n spark a mid]1")
	n.Add(used(5*time.Second, 1, 4000, requesting("a", nil), replaced)) // the cgroup of the one before is still there
	check("[n spark a mid]3")

	var many []tick.Pod
	for i := range maxKeys + 10 {
		many = append(many, requesting(fmt.Sprintf("p%03d", i), mid))
	}
	n.Add(used(6*time.Second, 1, 4000, many...))
	if got := series(); !strings.Contains(got, "[n other  other]10") || len(n.Worth().counted) > maxKeys {
		t.Errorf("%d pods, series %s", len(n.Worth().counted), got)
	}
}

// A very large number in a tick is not written digit by digit: the sentence is a line of the log.
func TestLargeSumsAreShort(t *testing.T) {
	w := Worth{Seconds: 10, Batch: 1e298, Free: 1e298, BeyondRequests: 1e298}
	const want = "batch got 2.78e+294 of 2.78e+294 idle core-hours (100 %, 2.78e+294 beyond requests) in 10s, throttled 0.0 % of it"
	if got := w.String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
