package customconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestVerdicts(t *testing.T) {
	registered := func(name, resource string) *Target {
		target := TargetOf(decoded(t, strings.NewReplacer(`"kcc"`, fmt.Sprintf("%q", name), "adminqosconfigurations", resource).Replace(kcc)))
		target.Generation = 3
		return target
	}
	yes, no := true, false
	for name, c := range map[string]struct {
		targets    []*Target
		candidates []*Candidate
		absent     bool
		unread     bool
		valid      *bool
		reason     string
		message    string
		invalid    []string
		none       bool
	}{
		"in order":         {targets: []*Target{registered("a", AdminQoS.Resource)}, candidates: []*Candidate{candidate(t, "g", "")}, valid: &yes, reason: ReasonNormal},
		"no objects":       {targets: []*Target{registered("a", AdminQoS.Resource)}, valid: &yes, reason: ReasonNormal},
		"paused":           {targets: []*Target{registered("a", AdminQoS.Resource)}, candidates: []*Candidate{candidate(t, "g", `"paused":true,`)}, valid: &yes, reason: ReasonNormal},
		"not read yet":     {targets: []*Target{registered("a", AdminQoS.Resource)}, unread: true, none: true},
		"absent":           {targets: []*Target{registered("a", AdminQoS.Resource)}, unread: true, absent: true, valid: &no, reason: ReasonNotExist, message: "the cluster has no adminqosconfigurations.config.katalyst.kubewharf.io"},
		"another kind":     {targets: []*Target{registered("a", "authconfigurations")}, reason: ReasonNotRead, message: "resource adminqosconfigurations or evictionconfigurations"},
		"twice":            {targets: []*Target{registered("a", AdminQoS.Resource), registered("b", AdminQoS.Resource)}, valid: &no, reason: ReasonOverlap, message: "KatalystCustomConfigs sys/a and sys/b are both for adminqosconfigurations: the previous configuration stays in force"},
		"one is invalid":   {targets: []*Target{registered("a", AdminQoS.Resource)}, candidates: []*Candidate{candidate(t, "g", ""), candidate(t, "h", `"nodeLabelSelector":"(",`)}, valid: &no, reason: ReasonInvalid, message: `sys/h: nodeLabelSelector: "(": `, invalid: []string{"sys/h"}},
		"two do not agree": {targets: []*Target{registered("a", AdminQoS.Resource)}, candidates: []*Candidate{candidate(t, "h", ""), candidate(t, "g", "")}, valid: &no, reason: ReasonInvalid, message: "sys/h and sys/g are both for all nodes: the previous configuration stays in force", invalid: []string{"sys/g", "sys/h"}},
		"a value":          {targets: []*Target{registered("a", AdminQoS.Resource)}, candidates: []*Candidate{CandidateOf(AdminQoS, decoded(t, `{"metadata":{"namespace":"sys","name":"v"},"spec":{"config":{"evictionConfig":{"cpuPressureEvictionConfig":{"loadMetricRingSize":0}}}}}`))}, valid: &no, reason: ReasonInvalid, message: "sys/v: config.evictionConfig.cpuPressureEvictionConfig.loadMetricRingSize: 0: want a whole number from 1 to 10000", invalid: []string{"sys/v"}},
	} {
		in := Configs{Targets: c.targets, Candidates: map[Kind][]*Candidate{AdminQoS: c.candidates}}
		if c.unread {
			in.Candidates = nil
		}
		if c.absent {
			in.Absent = []Kind{AdminQoS}
		}
		got := in.Verdicts(made)
		if c.none {
			if len(got) > 0 {
				t.Errorf("%s: %+v; want none", name, got)
			}
			continue
		}
		if len(got) != len(c.targets) {
			t.Errorf("%s: %+v; want one each", name, got)
			continue
		}
		for _, v := range got {
			if (v.Valid == nil) != (c.valid == nil) || v.Valid != nil && *v.Valid != *c.valid || v.Reason != c.reason || !strings.Contains(v.Message, c.message) || !slices.Equal(v.InvalidTargetConfigList, c.invalid) || v.ObservedGeneration != 3 || v.Namespace != "sys" {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
}

// A verdict is small for any objects.
func TestVerdictBounds(t *testing.T) {
	in := Configs{Targets: []*Target{TargetOf(decoded(t, kcc))}, Candidates: map[Kind][]*Candidate{}}
	for i := range 300 {
		in.Candidates[AdminQoS] = append(in.Candidates[AdminQoS], candidate(t, fmt.Sprintf("%d%s", i, strings.Repeat("x", 200)), `"nodeLabelSelector":"`+strings.Repeat("y", 5000)+`(",`))
		in.Targets = append(in.Targets, &Target{Namespace: "n", Name: fmt.Sprint(i), Resource: "other"})
	}
	got := in.Verdicts(made.Add(time.Hour))
	if len(got) != maxVerdicts {
		t.Errorf("%d verdicts; want %d", len(got), maxVerdicts)
	}
	for _, v := range got {
		if len(v.Message) > maxMessage+4 || len(v.InvalidTargetConfigList) > maxInvalid {
			t.Errorf("%s: a message of %d bytes, %d names", v.Name, len(v.Message), len(v.InvalidTargetConfigList))
		}
	}
}
