package main

import (
	"testing"

	"polder/advise/network"
	"polder/advise/settings"
	"polder/lib/tick"
)

// clusterNetwork is a policy whose cluster configures the network.
type clusterNetwork struct{ settings network.Settings }

func (clusterNetwork) Decide(*tick.Tick) *tick.Advice { return &tick.Advice{} }
func (clusterNetwork) State() any                     { return nil }
func (clusterNetwork) configure(*loaded)              {}
func (clusterNetwork) Reboot()                        {}

func (c clusterNetwork) Network(*tick.Tick) (network.Settings, []string) { return c.settings, nil }

// If batch's rate is the cluster's, each of the other settings that is given by a flag or in the file still takes precedence.
func TestNetworkFlagsPrecedeTheClusters(t *testing.T) {
	percent := func(part float64) network.Bandwidth { return network.Bandwidth{Percent: part} }
	cluster := network.Settings{
		Batch: network.Share{Rate: percent(10), Ceiling: percent(80)}, Services: network.Share{Rate: percent(60), Ceiling: percent(90)},
		LinkBitsPerSecond: 1e9,
	}
	for _, tt := range []struct {
		name                          string
		flags                         map[string]string
		link                          string
		rate, batchRate, ceiling      int64
		servicesRate, servicesCeiling int64
	}{
		{"none", nil, "eth0", 1e9, 100e6, 800e6, 600e6, 900e6},
		{"ceiling", map[string]string{"batch-network-ceiling": "20%"}, "eth0", 1e9, 100e6, 200e6, 600e6, 900e6},
		{"ceiling as by default", map[string]string{"batch-network-ceiling": "100%"}, "eth0", 1e9, 100e6, 1e9, 600e6, 900e6},
		{"link and its rate", map[string]string{"network-links": "eth1", "network-rate": "100Mbit"}, "eth1", 1e8, 10e6, 80e6, 60e6, 90e6},
		{"rate", map[string]string{"batch-network-rate": "20%", "network-rate": "1Gbit"}, "eth0", 1e9, 200e6, 1e9, 800e6, 1e9},
	} {
		given := settings.Defaults()
		for _, row := range given.Rows() {
			if text, found := tt.flags[row.Name]; found {
				if err := row.Set(text); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := shaper{decider: clusterNetwork{cluster}, settings: given.Network}
		a := s.Decide(&tick.Tick{Sample: &tick.Sample{Links: []tick.Link{{Name: "eth0", DefaultRoute: true}, {Name: "eth1"}}}})
		if a.Network == nil || len(a.Network.Links) != 1 {
			t.Errorf("%s: advised %+v: %q", tt.name, a.Network, a.Reasons)
			continue
		}
		l := a.Network.Links[0]
		services, batch := l.Classes[0], l.Classes[1]
		got := [...]int64{
			l.RateBitsPerSecond, batch.RateBitsPerSecond, batch.CeilingBitsPerSecond,
			services.RateBitsPerSecond, services.CeilingBitsPerSecond,
		}
		if want := [...]int64{tt.rate, tt.batchRate, tt.ceiling, tt.servicesRate, tt.servicesCeiling}; got != want || l.Link != tt.link {
			t.Errorf("%s: %s has %v; want %s with %v", tt.name, l.Link, got, tt.link, want)
		}
	}
}
