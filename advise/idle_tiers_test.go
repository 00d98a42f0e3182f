package main

import (
	"testing"
	"time"

	"polder/lib/tick"
)

// Every policy clears the idle class of kubelet's tiers in ticks without a decision, too: kubelet cannot start while a tier is idle, and
// what prevents the decision may last until it does.
func TestIdleTiersAreClearedWithoutDecision(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(*tick.Sample)
		isSinceStart bool  // there was no decision before
		weight       int64 // of the tier burstable; 313 is that of the 8000m that its four pods request
	}{
		"the cluster's pods are unknown": {func(s *tick.Sample) {
			s.Errors = []tick.SourceError{{Source: "pods", Error: "never read"}}
			for i := range s.Pods {
				p := &s.Pods[i]
				p.QoS, p.QoSSource, p.Missing = tick.QoSShared, tick.QoSFromRule, tick.MissingCluster
				p.KubernetesQOS, p.Labels, p.Annotations, p.Requests, p.Limits = "", nil, nil, nil, nil
				for j := range p.Containers {
					p.Containers[j].Requests, p.Containers[j].Limits = nil, nil
				}
			}
		}, false, 39},
		"no topology": {func(s *tick.Sample) { s.Topology = nil }, false, 313},
		"kubelet's state was never read": {func(s *tick.Sample) {
			s.Kubelet, s.Errors = nil, []tick.SourceError{{Source: "kubelet", Error: "no permission"}}
		}, true, 313},
		"the strategies of policy koordinator were never valid": {func(s *tick.Sample) {
			s.Config = tick.Raw(`{"koordinator":5}`)
		}, true, 313},
	} {
		for _, p := range policies {
			t.Run(p.Name+": "+name, func(t *testing.T) {
				decider := p.start(&loaded{kind: p})
				for second := range 3 {
					in := &tick.Tick{V: 1, Node: "n", Time: time.Date(2026, 1, 1, 0, second, 0, 0, time.UTC), Sample: &tick.Sample{}}
					if err := tick.Unmarshal([]byte(filled(t)), in.Sample); err != nil {
						t.Fatal(err)
					}
					if second < 2 && !c.isSinceStart {
						decider.Decide(in)
						continue
					}
					c.change(in.Sample)
					advice := decider.Decide(in)
					entries := 0
					for _, entry := range advice.Cgroups {
						if entry.Cgroup != "/kubepods/burstable" {
							continue
						}
						entries++
						if entry.CPUIdle == nil || *entry.CPUIdle || entry.CPUWeight == nil || *entry.CPUWeight != c.weight {
							t.Errorf("second %d: the tier: desired idle %v, weight %v; want weight %d", second, entry.CPUIdle, entry.CPUWeight, c.weight)
						}
					}
					if entries != 1 {
						t.Errorf("second %d: the tier is advised %d times; want once\nreasons %q", second, entries, advice.Reasons)
					}
				}
			})
		}
	}
}
