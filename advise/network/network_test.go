package network

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"polder/lib/tick"
)

func sample() *tick.Sample {
	return &tick.Sample{
		Links: []tick.Link{{Name: "eth0", DefaultRoute: true, SpeedBitsPerSecond: tick.Ptr(1e9)}, {Name: "eth1", SpeedBitsPerSecond: tick.Ptr(1e10)}, {Name: "tun0", DefaultRoute: true}},
		Pods: []tick.Pod{
			{UID: "a", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/batch/a"},
			{UID: "b", QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/batch/b"},
			{UID: "c", QoS: tick.QoSShared, QoSSource: tick.QoSFromRule, Cgroup: "/serve"},
			{UID: "d", QoS: tick.QoSReclaimed, Cgroup: "/batch/d", Phase: "Succeeded"},
			{UID: "e", QoS: tick.QoSReclaimed, Cgroup: "/batch/../serve"},
		},
	}
}

func advise(s *tick.Sample, set Settings) *tick.Advice {
	a := &tick.Advice{}
	Advise(&tick.Tick{Sample: s}, a, set)
	return a
}

// The uplink with a known speed is shaped: batch gets its setting, services the rest, and packets of batch pods are in batch's class.
func TestAdvise(t *testing.T) {
	a := advise(sample(), Settings{Batch: Share{Rate: Bandwidth{Percent: 10}, Ceiling: Bandwidth{BitsPerSecond: 500e6}}})
	if a.Network == nil || len(a.Network.Links) != 1 {
		t.Fatalf("network %+v, reasons %q", a.Network, a.Reasons)
	}
	l := a.Network.Links[0]
	if l.Link != "eth0" || l.RateBitsPerSecond != 950e6 || len(l.Classes) != 2 {
		t.Fatalf("link %+v", l)
	}
	services, batch := l.Classes[0], l.Classes[1]
	if !services.Default || services.RateBitsPerSecond != 855e6 || services.CeilingBitsPerSecond != 950e6 || services.Priority != 0 || len(services.Cgroups) > 0 {
		t.Errorf("services %+v", services)
	}
	if batch.Default || batch.RateBitsPerSecond != 95e6 || batch.CeilingBitsPerSecond != 500e6 || batch.Priority != 7 || !slices.Equal(batch.Cgroups, []string{"/batch/a", "/batch/b"}) {
		t.Errorf("batch %+v", batch)
	}
	want := []string{
		`network: "eth0": 950.0 Mbit/s (95 % of its speed); batch: 95.0 Mbit/s guaranteed, 500.0 Mbit/s at most; services first; 2 batch cgroups`,
		`network: "tun0": its speed is unknown: set it (--network-rate)`,
	}
	if !slices.Equal(a.Reasons, want) {
		t.Errorf("reasons %q; want %q", a.Reasons, want)
	}
}

// Missing input is reported, and nothing is advised.
func TestWhatIsMissing(t *testing.T) {
	on := Settings{Batch: Share{Rate: Bandwidth{Percent: 10}}}
	named := on
	named.Links, named.LinkBitsPerSecond = []string{"eth9", "eth1", "eth1"}, 1e8
	noLinks, noRoute, unknownPods := sample(), sample(), sample()
	noLinks.Links, noRoute.Links = nil, sample().Links[1:2]
	unknownPods.Errors = []tick.SourceError{{Source: "pods", Error: "API server"}}
	unknownPods.Pods = []tick.Pod{{UID: "a", QoSSource: tick.QoSFromRule, Missing: tick.MissingCluster, Cgroup: "/kubepods/a"}}
	tiny := named
	tiny.LinkBitsPerSecond = 1000
	for _, c := range []struct {
		name   string
		sample *tick.Sample
		set    Settings
		links  int
		reason string
	}{
		{"off", sample(), Settings{}, 0, ""},
		{"no sample", nil, on, 0, ""},
		{"a fleet's sample", &tick.Sample{Fleet: &tick.Fleet{}}, on, 0, ""},
		{"no links", noLinks, on, 0, "links are unknown"},
		{"no default route", noRoute, on, 0, "--network-links"},
		{"pods unknown", unknownPods, on, 0, "it is unknown which pods are batch"},
		{"named", sample(), named, 1, `the machine has no link "eth9"`},
		{"no rate", sample(), tiny, 0, "cannot be divided"},
	} {
		a := advise(c.sample, c.set)
		links := 0
		if a.Network != nil {
			links = len(a.Network.Links)
		}
		if links != c.links || !strings.Contains(strings.Join(a.Reasons, "\n"), c.reason) || (c.reason == "") != (len(a.Reasons) == 0) {
			t.Errorf("%s: %d links, reasons %q; want %d and %q", c.name, links, a.Reasons, c.links, c.reason)
		}
	}
}

// For any sample and settings: only links of the sample are named, services keep half of each, and no class gets more than the link.
func TestAnySample(t *testing.T) {
	number := func(t *rapid.T, name string) float64 {
		return rapid.SampledFrom([]float64{0, -1, 1, 64_000, 256_000, 1e6, 1e9, 1e10, 1e308, math.NaN(), math.Inf(1), math.Inf(-1)}).Draw(t, name)
	}
	bandwidth := func(t *rapid.T, name string) Bandwidth {
		return Bandwidth{Percent: number(t, name+" percent"), BitsPerSecond: rapid.Int64().Draw(t, name)}
	}
	names := []string{"eth0", "eth1", "", "../x", "lo"}
	rapid.Check(t, func(t *rapid.T) {
		s := &tick.Sample{}
		for range rapid.IntRange(0, 4).Draw(t, "links") {
			s.Links = append(s.Links, tick.Link{Name: rapid.SampledFrom(names).Draw(t, "name"), DefaultRoute: rapid.Bool().Draw(t, "route"), SpeedBitsPerSecond: tick.Ptr(number(t, "speed"))})
		}
		for range rapid.IntRange(0, 4).Draw(t, "pods") {
			s.Pods = append(s.Pods, tick.Pod{QoS: tick.QoSReclaimed, Cgroup: rapid.SampledFrom([]string{"", "/", "/b", "/b/../c", "x", "/b//c"}).Draw(t, "cgroup")})
		}
		set := Settings{
			Batch: Share{bandwidth(t, "rate"), bandwidth(t, "ceiling")}, Services: Share{bandwidth(t, "services"), bandwidth(t, "services' ceiling")},
			Links: rapid.SliceOf(rapid.SampledFrom(names)).Draw(t, "named"), LinkBitsPerSecond: rapid.SampledFrom([]int64{0, 1, -1, 1e8, math.MaxInt64}).Draw(t, "link rate"),
		}
		a := advise(s, set)
		if a.Network == nil {
			return
		}
		for _, l := range a.Network.Links {
			if !slices.ContainsFunc(s.Links, func(x tick.Link) bool { return x.Name == l.Link }) {
				t.Fatalf("link %q is none of the machine's", l.Link)
			}
			sum := int64(0)
			for _, c := range l.Classes {
				sum += c.RateBitsPerSecond
				if c.RateBitsPerSecond < minBits || c.CeilingBitsPerSecond < c.RateBitsPerSecond || c.CeilingBitsPerSecond > l.RateBitsPerSecond {
					t.Fatalf("%+v of %+v", c, l)
				}
				for _, g := range c.Cgroups {
					if g != "/b" {
						t.Fatalf("cgroup %q", g)
					}
				}
			}
			if sum > l.RateBitsPerSecond || l.Classes[1].RateBitsPerSecond > l.RateBitsPerSecond/2 {
				t.Fatalf("%+v", l)
			}
		}
	})
}
