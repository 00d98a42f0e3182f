package batch

import (
	"strings"
	"testing"
	"time"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// Uses count as their average over metricAggregateDurationSeconds.
func TestAverage(t *testing.T) {
	st, s := &State{}, shipped()
	s.Colocation.MetricAggregateDurationSeconds = new(int64(60))
	cpu := func(second int, use float64) int64 {
		t.Helper()
		a := &tick.Advice{}
		x := sample(onePod("a", "Burstable", 1, 1, use, 10))
		x.CPU.UsageMilliCPU = new(use*1000 + 1000)
		st.Advise(at(x, time.Duration(second)*time.Second), s, a)
		redo(t, a.Reasons)
		return *a.Reclaimed.MilliCPU
	}
	if got := cpu(0, 1); got != 4000 {
		t.Errorf("first = %d; want 4000", got)
	}
	if got := cpu(30, 3); got != 3000 { // average of 2 cores
		t.Errorf("second = %d; want 3000", got)
	}
	if got := cpu(60, 2); got != 3000 { // of 1, 3 and 2
		t.Errorf("third = %d; want 3000", got)
	}
	if got := cpu(95, 2); got != 3000 { // the first two are outside of the window
		t.Errorf("fourth = %d; want 3000", got)
	}
	if got := cpu(3600, 0); got != 5000 { // all others are outside of the window
		t.Errorf("an hour on = %d; want 5000", got)
	}
	if got := cpu(1800, 1); got != 4000 { // the clock was set back: values in the future are discarded
		t.Errorf("clock set back = %d; want 4000", got)
	}
	for second := range 10_000 {
		cpu(4000+second, 1)
	}
	if n := len(st.Uses.At); n > slotCount+1 || len(st.Uses.Node[0].Sum) > n || len(st.Uses.Pods["uid-a"][0].Sum) > n {
		t.Errorf("%d slots are kept, %d and %d figures; want no more than %d", n, len(st.Uses.Node[0].Sum), len(st.Uses.Pods["uid-a"][0].Sum), slotCount+1)
	}
}

// The window is at least a minute and at most a day, and 5 minutes by default; any time that a line may contain leaves the slots valid.
func TestWindow(t *testing.T) {
	for set, want := range map[int64]time.Duration{-1: time.Minute, 1: time.Minute, 90: 90 * time.Second, 1 << 62: 24 * time.Hour} {
		if got := windowOf(&sloconfig.Colocation{MetricAggregateDurationSeconds: &set}); got != want {
			t.Errorf("%d s: %s; want %s", set, got, want)
		}
	}
	if got := windowOf(&sloconfig.Colocation{}); got != 5*time.Minute {
		t.Errorf("not set: %s", got)
	}
	st := &State{}
	for _, year := range []int{2026, 9999, 1, 2026, 1500, 2262, 2263, 2026} {
		a := &tick.Advice{}
		x := at(sample(onePod("a", "Burstable", 1, 1, 1, 10)), 0)
		x.Time = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		st.Advise(x, shipped(), a)
		if a.Reclaimed == nil || *a.Reclaimed.MilliCPU != 4000 {
			t.Errorf("year %d: %v", year, a.Reasons)
		}
	}
}

// After the clock was set back, values in the future are discarded, in every series.
func TestClockSetBack(t *testing.T) {
	st := &State{}
	for _, c := range []struct {
		second int
		use    float64
	}{{0, 1000}, {20, 5000}, {40, 9000}, {20, 3000}} {
		x := sample()
		x.CPU.UsageMilliCPU = &c.use
		st.Advise(at(x, time.Duration(c.second)*time.Second), shipped(), &tick.Advice{})
	}
	if got, _ := st.Uses.Node[cpu].average(); got != 3000 { // of 1000, 5000 and 3000
		t.Errorf("average %d; want 3000: %+v", got, st.Uses)
	}
	s := series{Sum: []int64{10, -5, 7}, N: []int{1, -1, 0}} // invalid in a state file
	if got, ok := s.average(); got != 10 || !ok {
		t.Errorf("average %d, %t; want 10", got, ok)
	}
}

// The system's use is the average of the differences at each instant: the past use of a removed pod is not the system's.
func TestUseOfEndedPodsIsTheSystems(t *testing.T) {
	st := &State{}
	x := sample(onePod("a", "BestEffort", -1, 0, 1.5, 10))
	st.Advise(at(x, 0), shipped(), &tick.Advice{})
	gone := sample()
	gone.CPU.UsageMilliCPU, gone.Memory.AvailableBytes = new(500.0), new(gi(80))
	a := &tick.Advice{}
	st.Advise(at(gone, 10*time.Second), shipped(), a)
	if got := *a.Reclaimed.MilliCPU; got != 5500 {
		t.Errorf("batch-cpu = %d; want 5500: %v", got, a.Reasons)
	}
	if len(st.Uses.Pods) != 0 {
		t.Errorf("%d pods are remembered that ended", len(st.Uses.Pods))
	}
}

// A pod without a metric in this tick has one as long as the last one is within the window.
func TestMetricLastsForTheWindow(t *testing.T) {
	st := &State{}
	st.Advise(at(sample(onePod("a", "Burstable", 3, 1, 1, 10)), 0), shipped(), &tick.Advice{})
	unmeasured := sample(onePod("a", "Burstable", 3, 1, -1, 0))
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{{300 * time.Second, 10000 - 4000 - 1500 - 1000}, {301 * time.Second, 10000 - 4000 - 2000 - 3000}} {
		a := &tick.Advice{}
		st.Advise(at(unmeasured, c.after), shipped(), a)
		if got := *a.Reclaimed.MilliCPU; got != c.want {
			t.Errorf("after %s: batch-cpu = %d; want %d: %v", c.after, got, c.want, a.Reasons)
		}
	}
}

// While the node's use is unknown the last offer stays, up to degradeTimeMinutes; then it is withdrawn, until the use is known again.
func TestDegrade(t *testing.T) {
	st, blind := &State{}, sample(onePod("a", "Burstable", 2, 2, 1, 10))
	blind.CPU, blind.IntervalSeconds = nil, nil
	steps := []struct {
		name      string
		after     time.Duration
		sample    *tick.Sample
		offer     int64 // -1 means none
		withdrawn string
		reason    string
	}{
		{"first reading", 0, blind, -1, "", "first reading, there are no rates yet: no advice"},
		{"second", time.Second, sample(onePod("a", "Burstable", 2, 2, 1, 10)), 4000, "", ""},
		{"blind", 2 * time.Second, blind, 4000, "", "first reading, there are no rates yet: the last offer stays until 2026-03-01T12:15:01Z (degradeTimeMinutes 15)"},
		{"no sample", 3 * time.Second, nil, 4000, "", "no sample: the last offer stays"},
		{"at the end of the time", 15*time.Minute + time.Second, blind, 4000, "", "the last offer stays"},
		{"beyond it", 15*time.Minute + 1001*time.Millisecond, blind, -1, "degraded: first reading, there are no rates yet, since 2026-03-01T12:00:01Z (degradeTimeMinutes 15)", "nothing is offered"},
		{"without any sample", 16 * time.Minute, nil, -1, "degraded: no sample", ""},
		{"known again", 17 * time.Minute, sample(onePod("a", "Burstable", 2, 2, 1, 10)), 4000, "", ""},
		{"blind again", 18 * time.Minute, blind, 4000, "", ""},
		{"back after an hour, without rates: no flap", 78 * time.Minute, blind, -1, "", "first reading, there are no rates yet: no advice"},
		{"with rates", 78*time.Minute + time.Second, sample(onePod("a", "Burstable", 2, 2, 1, 10)), 4000, "", ""},
		{"away again", 140 * time.Minute, nil, -1, "", "no sample: no advice"},
		{"still blind", 155 * time.Minute, blind, -1, "", "no advice"},
		{"one time of grace", 155*time.Minute + 1, blind, -1, "degraded: first reading", "nothing is offered"},
		{"no second one after another gap", 200 * time.Minute, blind, -1, "degraded: first reading", ""},
	}
	for _, c := range steps {
		a := &tick.Advice{}
		st.Advise(at(c.sample, c.after), shipped(), a)
		got := int64(-1)
		if a.Reclaimed != nil {
			got = *a.Reclaimed.MilliCPU
		}
		if got != c.offer || (a.Mid != nil) != (c.offer >= 0) {
			t.Errorf("%s: offer %d, mid %v; want %d: %v", c.name, got, a.Mid, c.offer, a.Reasons)
		}
		if !strings.HasPrefix(a.Withdrawn, c.withdrawn) || (a.Withdrawn == "") != (c.withdrawn == "") {
			t.Errorf("%s: withdrawn %q; want %q", c.name, a.Withdrawn, c.withdrawn)
		}
		if !strings.Contains(strings.Join(a.Reasons, "\n"), c.reason) {
			t.Errorf("%s: reasons %q; want %q", c.name, a.Reasons, c.reason)
		}
	}

	// If the use was never known nothing is advised, and after degradeTime an earlier run's published offer is withdrawn.
	st = &State{}
	for _, c := range []struct {
		after     time.Duration
		withdrawn bool
	}{{0, false}, {15 * time.Minute, false}, {15*time.Minute + 1, true}} {
		a := &tick.Advice{}
		st.Advise(at(blind, c.after), shipped(), a)
		if (a.Withdrawn != "") != c.withdrawn || a.Reclaimed != nil || a.Mid != nil {
			t.Errorf("never known, after %s: %+v", c.after, a)
		}
	}
}

// The reason names which of the node's values is missing.
func TestMissingUse(t *testing.T) {
	for want, change := range map[string]func(*tick.Sample){
		"the node's CPU use is unknown":       func(s *tick.Sample) { s.CPU.UsageMilliCPU = nil },
		"the node's memory in use is unknown": func(s *tick.Sample) { s.Memory.AvailableBytes = nil },
		"the node's use is unknown":           func(s *tick.Sample) { s.CPU, s.Memory = nil, nil },
	} {
		s := sample()
		change(s)
		if a := advised(s, shipped()); a.Reclaimed != nil || a.Withdrawn != "" || !strings.HasPrefix(a.Reasons[0], want+":") {
			t.Errorf("%+v; want %q and no offer", a, want)
		}
	}
}

func TestDisabled(t *testing.T) {
	for name, c := range map[string]struct {
		strategies *sloconfig.Strategies
		want       string
	}{
		"for the node": {strategies(func(c *sloconfig.Colocation) { c.Enable = new(false) }), "colocation is disabled for this node (defaults: enable)"},
		"not set":      {strategies(func(c *sloconfig.Colocation) { c.Enable = nil }), "colocation is disabled for this node"},
		"for the cluster, though the node's is on": {func() *sloconfig.Strategies { s := shipped(); s.ColocationDisabled = true; return s }(), "colocation is disabled for the cluster"},
	} {
		st := &State{}
		st.Advise(at(sample(), 0), shipped(), &tick.Advice{})
		for _, s := range []*tick.Sample{sample(), nil} { // whatever else is known
			a := &tick.Advice{}
			st.Advise(at(s, time.Second), c.strategies, a)
			if a.Reclaimed != nil || a.Mid != nil || !strings.HasPrefix(a.Withdrawn, c.want) || a.Reasons[0] != "nothing is offered: "+a.Withdrawn {
				t.Errorf("%s: %+v; want it withdrawn: %q", name, a, c.want)
			}
		}
		blind := sample()
		blind.CPU = nil
		a := &tick.Advice{}
		st.Advise(at(blind, time.Second), shipped(), a)
		if a.Reclaimed != nil || a.Mid != nil {
			t.Errorf("%s: what was withdrawn is offered again, and nothing is known: %+v", name, a)
		}
		a = &tick.Advice{}
		st.Advise(at(sample(), 2*time.Second), shipped(), a)
		if a.Reclaimed == nil || a.Withdrawn != "" {
			t.Errorf("%s: enabled again: %+v", name, a)
		}
	}
}

// A state that was written and read gives the same advice as the original.
func TestStateContinues(t *testing.T) {
	stays, s := &State{}, shipped()
	ticks := func(i int) *tick.Tick {
		x := sample(onePod("a", "Burstable", 4, 10, float64(i%7)/3, float64(i%5)), onePod("b", "BestEffort", -1, 0, 0.1, 1))
		return at(x, time.Duration(i)*7*time.Second)
	}
	for i := range 300 {
		stays.Advise(ticks(i), s, &tick.Advice{})
	}
	text, err := tick.Marshal(stays)
	if err != nil {
		t.Fatal(err)
	}
	read := &State{}
	if err := tick.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		one, other := &tick.Advice{}, &tick.Advice{}
		stays.Advise(ticks(300+i), s, one)
		read.Advise(ticks(300+i), s, other)
		a, _ := tick.Marshal(one)
		b, _ := tick.Marshal(other)
		if string(a) != string(b) {
			t.Fatalf("tick %d\n%s\n%s", i, a, b)
		}
	}
}

// While all pods are unknown to the cluster their requests are unknown: the last offer stays up to degradeTime, and a new one is not made.
func TestUnknownPodsAreNoOffer(t *testing.T) {
	known := onePod("a", "Burstable", 5, 60, 1, 10)
	lost := known
	lost.QoSSource, lost.Missing, lost.Requests, lost.KubernetesQOS = tick.QoSFromRule, tick.MissingCluster, nil, ""
	unread := sample(lost)
	unread.Errors = []tick.SourceError{{Source: "pods", Error: "forbidden"}}
	byRequest := strategies(func(c *sloconfig.Colocation) {
		c.MemoryCalculatePolicy, c.MidUnallocatedPercent = new(sloconfig.CalculateRequest), new(int64(100))
	})
	st := &State{}
	advise := func(after time.Duration, s *tick.Sample) *tick.Advice {
		a := &tick.Advice{}
		st.Advise(at(s, after), byRequest, a)
		return a
	}
	first := advise(0, sample(known))
	for _, after := range []time.Duration{time.Second, 15 * time.Minute} {
		a := advise(after, unread)
		if a.Reclaimed == nil || *a.Reclaimed.MemoryBytes != *first.Reclaimed.MemoryBytes || *a.Mid.MilliCPU != *first.Mid.MilliCPU {
			t.Errorf("after %s: offer %+v and mid %+v: %q; want the last ones, %+v and %+v",
				after, a.Reclaimed, a.Mid, a.Reasons, first.Reclaimed, first.Mid)
		}
	}
	if a := advise(15*time.Minute+time.Second, unread); a.Reclaimed != nil || !strings.Contains(a.Withdrawn, "pods are still unknown") {
		t.Errorf("after degradeTime: %+v, withdrawn %q", a.Reclaimed, a.Withdrawn)
	}
	if a := advised(unread, byRequest); a.Reclaimed != nil || a.Mid != nil || a.Withdrawn != "" {
		t.Errorf("without an earlier offer: %+v and %+v", a.Reclaimed, a.Mid)
	}
}
