package harvest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"polder/advise/histogram"
	"polder/lib/tick"
)

// A sample of a whole fleet, or of its agent, offers nothing of a node, whatever it contains of one.
func TestFleetSampleOffersNothing(t *testing.T) {
	for name, change := range map[string]func(*tick.Sample){
		"a fleet's":  func(s *tick.Sample) { s.Fleet = &tick.Fleet{} },
		"an agent's": func(s *tick.Sample) { s.Agent = &tick.Agent{} },
	} {
		s := machine(4000)
		change(s)
		if a := New(Defaults()).Decide(at(0, s)); a.Reclaimed != nil || len(a.Cgroups) > 0 || !strings.Contains(a.Reasons[0], "from collect fleet") {
			t.Errorf("%s: offer %+v, %q", name, a.Reclaimed, a.Reasons)
		}
	}
}

// If the API server's pods become unknown nothing is decided, and the last offer stays. In the first tick all of them count as services:
// less is offered.
func TestUnknownPodsAreNotServices(t *testing.T) {
	unknown := machine(4000)
	unknown.Errors = []tick.SourceError{{Source: "pods", Error: "API server"}}
	for i := range unknown.Pods {
		unknown.Pods[i].QoS, unknown.Pods[i].Missing = tick.QoSShared, tick.MissingCluster
	}
	d := New(Defaults())
	if got := milli(t, d.Decide(at(0, unknown))); got != 16000-7000-1600 {
		t.Errorf("in the first tick %dm", got)
	}
	a := d.Decide(at(time.Second, unknown))
	if milli(t, a) != 16000-7000-1600 || len(a.Cgroups) > 0 || !strings.Contains(a.Reasons[0], "pods are still unknown") {
		t.Errorf("in the second tick %+v: %q", a.Reclaimed, a.Reasons)
	}
}

// An offer is withdrawn a quarter of an hour after the last known value.
func TestWhenAnOfferIsWithdrawn(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0, machine(4000)))
	for _, after := range []time.Duration{staleAfter - time.Second, staleAfter} {
		if a := d.Decide(at(after, nil)); (a.Withdrawn != "") != (after == staleAfter) {
			t.Errorf("after %s: withdrawn %q", after, a.Withdrawn)
		}
	}
}

// The services' headroom is measured against their current use, if that exceeds their mean: an offer that is too large then falls at once,
// of CPU and of memory.
func TestAnOfferFallsAtOnceWhereServicesUseAllNow(t *testing.T) {
	d := New(Defaults())
	d.Decide(at(0, machine(4000)))
	s := machine(13000)
	s.Memory.AvailableBytes = new(5e9)
	young := podOf("young", tick.QoSShared, 500)
	young.Requests = &tick.Resources{MilliCPU: new(6500.0), MemoryBytes: new(50e9)}
	s.Pods = append(s.Pods, young)
	a := d.Decide(at(time.Second, s))
	if got := milli(t, a); got > 4000 { // 16000 - the mean's 4633 - 1600 - 6000; one step would give 9600
		t.Errorf("offered %dm: %q", got, a.Reasons)
	}
	if got := *a.Reclaimed.MemoryBytes; got > 20e9 { // 100 - 33.7 - 10 - 38; one step would give 55
		t.Errorf("memory offered %d: %q", got, a.Reasons)
	}
}

// Memory is forecast as CPU is: neither leaves room for a growth that costs less than the room.
func TestForecastsLeaveNoRoomForRareGrowth(t *testing.T) {
	seldom := func(part float64) forecast {
		f := forecast{SeenAt: start.Add(-time.Second), Use: part}
		f.Hour = []use{{start.Add(-30 * time.Minute), part}, {start.Add(-30 * time.Second), part}}
		f.Growths[0] = histogram.Histogram{0: 980, 20: 20} // a tenth of the machine, 2 of 100 times
		return f
	}
	d := New(Defaults())
	d.Nodes["n"] = &node{CPU: seldom(0.25), Memory: seldom(0.3)}
	a := d.Decide(at(0, machine(4000)))
	for i, want := range map[int]string{0: "margin for growth 320m (1000 spans", 2: "margin for growth 1.9 GiB (1000 spans"} {
		if !strings.Contains(a.Reasons[i], want) {
			t.Errorf("%q; want %q", a.Reasons[i], want)
		}
	}
	if got := milli(t, a); got != 16000-4000-320 {
		t.Errorf("offered %dm", got)
	}
	if got := *a.Reclaimed.MemoryBytes; got < 68e9-16 || got > 68e9+16 {
		t.Errorf("memory offered %d", got)
	}
}

// The pools name the reserved CPUs if there are any.
func TestReservedCPUsAreAPool(t *testing.T) {
	for reserved, want := range map[string][]string{
		"": {tick.PoolShare, tick.PoolReclaim}, "0,8": {tick.PoolShare, tick.PoolReclaim, tick.PoolReserve + " 0,8"},
	} {
		settings := Defaults()
		settings.ReservedCPUs = reserved
		var got []string
		for _, p := range New(settings).Decide(at(0, machine(4000))).Pools {
			if p.Name == tick.PoolReserve {
				p.Name += " " + p.CPUs
			}
			got = append(got, p.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("reserved %q: pools (-want +got):\n%s", reserved, diff)
		}
	}
}

// CPUs that batch may not use are kept from it on machines without idle cores too, and given back later.
func TestReservedCPUsOfASmallMachine(t *testing.T) {
	small := machine(1000)
	small.Topology = &tick.Topology{CPUs: "0-3", Cores: []string{"0-1", "2-3"}}
	settings := withoutLimits()
	settings.ReservedCPUs = "0"
	d := New(settings)
	for _, exclusive := range []string{"3", ""} {
		want := map[string]string{"3": "1-2", "": "1-3"}[exclusive]
		small.Kubelet = &tick.Kubelet{CPUManagerPolicy: "static", ExclusiveCPUs: exclusive}
		if got := cpusOf(t, d.Decide(at(0, small)).Cgroups).String(); got != want {
			t.Errorf("kubelet's exclusive CPUs %q: batch runs on %q, want %q", exclusive, got, want)
		}
	}
	d.Settings.ReservedCPUs = ""
	if got := cpusOf(t, d.Decide(at(0, small)).Cgroups).String(); got != "0-3" {
		t.Errorf("without reserved CPUs batch runs on %q", got)
	}
}
