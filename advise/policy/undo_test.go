package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"polder/lib/tick"
)

// A value is undone for a minute from the first tick that does not desire it, also after a pause and after the clock was set back.
func TestSetCgroups(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	var s SetCgroups
	for _, step := range []struct {
		second        int
		desired, want []string
	}{
		{0, []string{"/b", "/a", "/c"}, nil},
		{1, []string{"/a"}, []string{"/b", "/c"}},
		{2, []string{"/a", "/c"}, []string{"/b"}},
		{60, []string{"/a"}, []string{"/b", "/c"}},
		{61, []string{"/a"}, []string{"/c"}},
		{3600, nil, []string{"/a"}},
		{3000, nil, []string{"/a"}},
		{3059, nil, []string{"/a"}},
		{3060, nil, nil},
	} {
		if got := s.Update(start.Add(time.Duration(step.second)*time.Second), step.desired); !slices.Equal(got, step.want) {
			t.Errorf("second %d: %q; want %q", step.second, got, step.want)
		}
	}
	if len(s) > 0 {
		t.Errorf("%v is left", s)
	}
}

// Only pods that are known not to be batch get their own values back, and none gets CPUs that kubelet has assigned exclusively.
func TestUndo(t *testing.T) {
	sh, err := NewShape(&tick.Topology{CPUs: "0-7", Cores: []string{"0-1", "2-3", "4-5", "6-7"}}, "0", "6-7")
	if err != nil {
		t.Fatal(err)
	}
	own := tick.Container{Cgroup: "/now/own", CPUSetCPUs: "6-7", Requests: &tick.Resources{MilliCPU: new(2000.0)}}
	for name, tt := range map[string]struct {
		pod           tick.Pod
		lists, quotas string
	}{
		"a service": {
			tick.Pod{QoS: tick.QoSShared, Cgroup: "/now", Containers: []tick.Container{{Cgroup: "/now/c"}}},
			"/now/c 0-5", "/now/c 700 false",
		},
		"a system pod":    {tick.Pod{QoS: tick.QoSSystem, Cgroup: "/now"}, "/now 0-5", "/now 700 false"},
		"batch":           {tick.Pod{QoS: tick.QoSReclaimed, Cgroup: "/now"}, "", ""},
		"unknown class":   {tick.Pod{Cgroup: "/now"}, "", ""},
		"deleted":         {tick.Pod{QoS: tick.QoSShared, Cgroup: "/now", Missing: tick.MissingCluster}, "", ""},
		"without cgroup":  {tick.Pod{QoS: tick.QoSShared, Cgroup: "/now", Missing: tick.MissingCgroup}, "", ""},
		"ended":           {tick.Pod{QoS: tick.QoSShared, Cgroup: "/now", Phase: "Succeeded"}, "", ""},
		"another":         {tick.Pod{QoS: tick.QoSShared, Cgroup: "/other"}, "", ""},
		"exclusive CPUs":  {tick.Pod{QoS: tick.QoSShared, Cgroup: "/now", Containers: []tick.Container{own}}, "", "/now/own 700 false"},
		"without a limit": {tick.Pod{QoS: tick.QoSShared, Cgroup: "/none"}, "/none 0-5", "/none -1 true"},
	} {
		now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
		before := []string{"/now", "/now/c", "/now/own", "/none"}
		lists, quotas := SetCgroups{}, SetCgroups{}
		for _, cgroup := range before {
			lists[cgroup], quotas[cgroup] = time.Time{}, time.Time{}
		}
		s := &tick.Sample{Pods: []tick.Pod{tt.pod}}
		var ofLists, ofQuotas tick.Advice
		lists.UndoLists(now, s, &ofLists, sh)
		quotas.UndoQuotas(now, s, &ofQuotas, nil, func(p *tick.Pod, _ int) int64 {
			if p.Cgroup == "/none" {
				return tick.Unlimited
			}
			return 700
		})
		for _, list := range [][]tick.Cgroup{ofLists.Cgroups, ofLists.Fallback} {
			got := ""
			for _, c := range list {
				got += c.Cgroup + " " + c.CPUSetCPUs
			}
			if got != tt.lists {
				t.Errorf("%s: lists %q; want %q", name, got, tt.lists)
			}
		}
		for _, list := range [][]tick.Cgroup{ofQuotas.Cgroups, ofQuotas.Fallback} {
			got := ""
			for _, c := range list {
				got += fmt.Sprintf("%s %d %t", c.Cgroup, *c.CPUMaxMilliCPU, c.CPUMaxTighterOnly)
			}
			if got != tt.quotas {
				t.Errorf("%s: quotas %q; want %q", name, got, tt.quotas)
			}
		}
	}
}
