package network

import (
	"slices"
	"strings"
	"testing"

	"polder/lib/tick"
)

// A link is divided if its rate is at least four times the least rate of a class, and at most the largest valid rate.
func TestRatesThatCanBeDivided(t *testing.T) {
	on := Settings{Batch: Share{Rate: Bandwidth{Percent: 10}}}
	for rate, want := range map[int64]bool{
		-1: false, 1: false, 4*minBits - 1: false, 4 * minBits: true, 1e9: true, maxBits: true, maxBits + 1: false,
	} {
		on.LinkBitsPerSecond = rate
		a := advise(sample(), on)
		if got := a.Network != nil; got != want {
			t.Errorf("a rate of %d: %+v, %q", rate, a.Network, a.Reasons)
		}
		if want && a.Network.Links[0].RateBitsPerSecond != rate {
			t.Errorf("a rate of %d is read as %d", rate, a.Network.Links[0].RateBitsPerSecond)
		}
	}
}

// If no link can be shaped nothing is advised for the network, which differs from advising no links.
func TestNothingIsAdvisedWhereNoLinkCanBeShaped(t *testing.T) {
	s := sample()
	s.Links = s.Links[2:] // its speed is unknown
	if a := advise(s, Settings{Batch: Share{Rate: Bandwidth{Percent: 10}}}); a.Network != nil || len(a.Reasons) != 1 {
		t.Errorf("network %+v, reasons %q", a.Network, a.Reasons)
	}
}

// A link without a name is ignored, and of two with the same name the first counts.
func TestLinksHaveNames(t *testing.T) {
	s := sample()
	s.Links = []tick.Link{
		{DefaultRoute: true, SpeedBitsPerSecond: new(1e9)},
		{Name: "eth0", DefaultRoute: true, SpeedBitsPerSecond: new(1e9)},
		{Name: "eth0", DefaultRoute: true, SpeedBitsPerSecond: new(1e10)},
	}
	for _, named := range [][]string{nil, {"eth0"}} {
		a := advise(s, Settings{Batch: Share{Rate: Bandwidth{Percent: 10}}, Links: named})
		if a.Network == nil || len(a.Network.Links) != 1 || a.Network.Links[0].Link != "eth0" || a.Network.Links[0].RateBitsPerSecond != 950e6 {
			t.Errorf("links %q: %+v, %q", named, a.Network, a.Reasons)
		}
	}
}

// A formatted rate has its unit.
func TestRatesAsText(t *testing.T) {
	for rate, want := range map[int64]string{
		64_000: "64 kbit/s", 999_999: "999 kbit/s", 1e6: "1.0 Mbit/s", 950e6: "950.0 Mbit/s", 9_999_900_000: "9999.9 Mbit/s",
		1e10: "10.0 Gbit/s", 1e11: "100.0 Gbit/s",
	} {
		if got := bits(rate); got != want {
			t.Errorf("%d: %s; want %s", rate, got, want)
		}
	}
}

// A batch pod's cgroup is a clean path, no longer than the kernel accepts, and never the root.
func TestBatchCgroups(t *testing.T) {
	longest := "/" + strings.Repeat("x", 4095)
	s := &tick.Sample{}
	for _, where := range []string{"", "/", "x", "/b", "/c/../d", longest, longest + "x"} {
		s.Pods = append(s.Pods, tick.Pod{QoS: tick.QoSReclaimed, Cgroup: where})
	}
	if got := batchCgroups(s); !slices.Equal(got, []string{"/b", longest}) {
		t.Errorf("%d cgroups: %.20q", len(got), got)
	}
}
