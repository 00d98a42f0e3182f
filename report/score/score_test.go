package score

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"polder/lib/tick"
)

// at is a tick of a node of 10 CPUs with one service and an offer, both in milli-CPU.
func at(minute int, service, offer float64) *tick.Tick {
	return &tick.Tick{
		V: 1, Node: "n", Time: time.Date(2026, 11, 21, 8, minute, 0, 0, time.UTC),
		Sample: &tick.Sample{
			IntervalSeconds: new(60.0), Topology: &tick.Topology{CPUs: "0-9"}, CPU: &tick.NodeCPU{UsageMilliCPU: &service},
			Pods: []tick.Pod{{
				UID: "s", Name: "s", QoS: tick.QoSShared, UsageMilliCPU: &service, Load1: new(service/1000 + 0.5),
				Containers: []tick.Container{{Name: "c", ThrottledPercent: new(10.0)}},
			}},
		},
		Advice: &tick.Advice{Policy: "katalyst", Reclaimed: &tick.Reclaimed{MilliCPU: new(int64(offer))}},
	}
}

func values(s *Stream) map[string]string {
	all := map[string]string{}
	for _, f := range s.Facts("n") {
		all[f.Name] = f.Value
	}
	return all
}

func TestScore(t *testing.T) {
	var s Stream
	for i, x := range []struct{ service, offer float64 }{{2000, 7000}, {2000, 7000}, {5000, 7000}, {5000, 4000}, {5000, 4000}} {
		tick := at(i, x.service, x.offer)
		s.Add(tick)
		s.Add(tick) // one that comes twice counts once
	}
	got := values(&s)
	for name, want := range map[string]string{
		"policy": "katalyst", "ticks": "5", "offered, cores": "5.80", "free, cores": "6.20",
		"oversold, of the ticks": "50.0 %", "oversold by, cores": "2.00", // of four with a next one: the one before the jump, and the one at it
		"moves": "15.0 an hour", "squeezes": "15.0 an hour", "services wait, threads": "0.50", "services throttled": "10.0 %", "evictions": "0",
	} {
		if got[name] != want {
			t.Errorf("%s: %q; want %q", name, got[name], want)
		}
	}
	if _, there := got["writes"]; there {
		t.Error("a stream without isolation has writes")
	}
	// A clock that is set back leaves out ticks, which the score must not hide.
	s.Name = "day.jsonl"
	s.Add(at(0, 2000, 7000))
	if got := Text(&s); !strings.Contains(got, "\n\nday.jsonl: 6 ticks left out: not newer than the one before.\n\noffered ") {
		t.Errorf("no word of the ticks that are left out:\n%s", got)
	}
}

// An offer is not judged by a tick that comes long after it: nobody knows what was left between the two.
func TestOfferBeforeAGapIsNotJudged(t *testing.T) {
	for minute, want := range map[int]string{4: "33.3 %", 30: "0.0 %"} {
		var s Stream
		for _, x := range []struct {
			minute  int
			service float64
		}{{0, 2000}, {1, 2000}, {2, 2000}, {minute, 5000}} {
			s.Add(at(x.minute, x.service, 7000))
		}
		if got := values(&s)["oversold, of the ticks"]; got != want {
			t.Errorf("minutes 2 to %d: oversold %q; want %q", minute, got, want)
		}
	}
}

// Evictions are counted once they are created or succeeded, not while they are requested or when they failed.
func TestEvictionsThatHappened(t *testing.T) {
	var s Stream
	for i, state := range []string{tick.StateRequested, tick.StateCreated, tick.StateFailed, tick.StateSucceeded} {
		x := at(i, 2000, 7000)
		x.Eviction = &tick.Eviction{Evictions: []tick.PodEviction{
			{UID: state, Name: state, Rule: "r", Scope: "s", State: state},
		}}
		s.Add(x)
	}
	if got := values(&s)["evictions"]; got != "2" {
		t.Errorf("evictions: %q; want 2", got)
	}
}

// A tick that comes early, or right after a late one, does not make a gap of the next one.
func TestEarlyTicks(t *testing.T) {
	var s Stream
	first := at(0, 2000, 9000).Time
	for i, seconds := range []float64{0, 60, 62, 122, 124, 184} {
		x := at(0, 2000, 9000)
		x.Time, x.Sample.PeriodSeconds = first.Add(time.Duration(seconds*1e9)), new(60.0)
		if i%2 == 0 {
			x.Advice.Reclaimed.MilliCPU = new(int64(7000))
		}
		s.Add(x)
	}
	if got := values(&s)["oversold, of the ticks"]; got != "40.0 %" { // two of five
		t.Errorf("oversold %q; want 40.0 %%", got)
	}
}

// Figures that were not measured are unknown: neither oversold nor zero.
func TestUnknownIsNotScored(t *testing.T) {
	var s Stream
	for i := range 3 {
		x := at(i, 2000, 7000)
		x.Sample.CPU.UsageMilliCPU, x.Sample.Pods[0].Load1, x.Sample.Pods[0].Containers = nil, nil, nil
		s.Add(x)
	}
	got := values(&s)
	for _, name := range []string{"free, cores", "oversold, of the ticks", "services wait, threads", "services throttled"} {
		if v, there := got[name]; there {
			t.Errorf("%s is %q; want it unknown", name, v)
		}
	}
}

// An eviction of a dry run was needed if its condition still holds a minute later.
func TestNeededEvictions(t *testing.T) {
	var s Stream
	for i, met := range []bool{true, true, true, false, true, false} {
		x := at(i, 2000, 7000)
		x.Time = x.Time.Add(-time.Duration(i) * 30 * time.Second) // a tick every 30 s
		x.Eviction = &tick.Eviction{DryRun: true, Pressures: []tick.PressureFinding{{Rule: "r", Scope: "s", Met: met}}}
		if met {
			x.Eviction.Evictions = []tick.PodEviction{{UID: string(rune('a' + i/3)), Name: "b", Rule: "r", Scope: "s", State: tick.StateWouldEvict}}
		}
		s.Add(x)
	}
	if got := values(&s)["needed, of a dry run's evictions"]; got != "1 of 2" {
		t.Errorf("needed: %q; want the first, which lasted a minute, of 2", got)
	}
}

// A dry run plans the same write in every tick: it is counted once.
func TestPlannedWritesCountOnce(t *testing.T) {
	var s Stream
	for i := range 61 {
		x := at(0, 2000, 7000)
		x.Time = x.Time.Add(time.Duration(i) * time.Minute)
		x.Isolation = &tick.Isolation{DryRun: true, Writes: []tick.Write{{Cgroup: "/a", Key: "cpuWeight", Old: "100", New: "2"}}}
		if i >= 30 {
			x.Isolation.Writes[0].New = "3"
		}
		s.Add(x)
	}
	if got := values(&s)["writes"]; got != "2.0 an hour (dry run)" {
		t.Errorf("writes: %q", got)
	}
}

func TestTextOfTwoStreams(t *testing.T) {
	a, b := Stream{Name: "a"}, Stream{Name: "b\x1b[31m"}
	a.Add(at(0, 2000, 7000))
	b.Add(at(0, 2000, 5000))
	other := at(0, 2000, 5000)
	other.Node = "m"
	b.Add(other)
	text := Text(&a, &b)
	lines := regexp.MustCompile(`(?m)^offered, cores +(\S+) +(\S+)$`).FindAllStringSubmatch(text, -1)
	if strings.Contains(text, "\x1b") || len(lines) != 2 || lines[0][1] != "-" || lines[0][2] != "5.00" || lines[1][1] != "7.00" || lines[1][2] != "5.00" {
		t.Errorf("the table:\n%s", text)
	}
}

// While the class of a pod is unknown, so is what batch used: neither is batch's use 0, nor is all that was idle the free part.
func TestPodOfUnknownClassIsNotScored(t *testing.T) {
	var s Stream
	for i := range 3 {
		x := at(i, 2000, 7000)
		x.Sample.Pods[0].QoSSource, x.Sample.Pods[0].Missing = tick.QoSFromRule, tick.MissingCluster
		s.Add(x)
	}
	got := values(&s)
	for _, name := range []string{"free, cores", "batch used, cores", "oversold, of the ticks", "services wait, threads"} {
		if v, there := got[name]; there {
			t.Errorf("%s is %q; want it unknown", name, v)
		}
	}
}
