package main

import (
	"slices"

	"polder/advise/network"
	"polder/lib/tick"
)

// shaper is a policy with the shaping of the uplinks, which is the same for all policies.
type shaper struct {
	decider
	settings network.Settings
}

// configure applies the settings of a changed configuration.
func (s *shaper) configure(next *loaded) {
	s.decider.configure(next)
	s.settings = next.Network
}

// networkStrategist is a policy that has network settings from the cluster's configuration: they apply if the command line and the file
// have no rate of batch. Then each of their other settings takes precedence over the cluster's.
type networkStrategist interface {
	Network(*tick.Tick) (s network.Settings, reasons []string)
}

// Decide returns the policy's advice with the shaping.
func (s *shaper) Decide(t *tick.Tick) *tick.Advice {
	advice := s.decider.Decide(t)
	if advice == nil {
		return nil
	}
	combined := *advice // the policy may keep a reference to the advice
	settings := s.settings
	if strategist, ok := s.decider.(networkStrategist); ok && !settings.Batch.Rate.IsSet() {
		clusterSettings, reasons := strategist.Network(t)
		combined.Reasons = append(slices.Clip(combined.Reasons), reasons...)
		settings = settings.WithDefaults(clusterSettings)
	}
	network.Advise(t, &combined, settings)
	return &combined
}
