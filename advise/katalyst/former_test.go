package katalyst

import (
	"testing"
	"time"

	"polder/advise/class"
	"polder/advise/guard"
	"polder/lib/tick"
)

// hostMachine is a plain machine of 4 or 16 CPUs in a second of a run.
func hostMachine(cpus string, second int, pods ...tick.Pod) *tick.Tick {
	topology := &tick.Topology{CPUs: cpus, Cores: []string{"0", "1", "2", "3"}, NUMANodes: []tick.TopologyNUMA{{ID: 0, CPUs: cpus}}}
	if cpus == "0-15" {
		topology.Cores = []string{"0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"}
	}
	return &tick.Tick{V: 1, Node: "n", Time: start.Add(time.Duration(second) * time.Second), Sample: &tick.Sample{
		IntervalSeconds: new(1.0), CgroupVersion: 2, Topology: topology,
		CPU:    &tick.NodeCPU{UsageMilliCPU: new(2000.0)},
		Memory: &tick.NodeMemory{TotalBytes: new(8e9), AvailableBytes: new(4e9)},
		Pods:   pods,
	}}
}

func hostPod(name, qos string, use, waitPermille float64) tick.Pod {
	return tick.Pod{
		UID: name, Name: name, QoS: qos, QoSSource: tick.QoSFromRule, Cgroup: "/" + name,
		UsageMilliCPU: &use, Load1: new(use / 1000), Load5: new(use / 1000), CPUWaitPermille: &waitPermille,
		Memory: &tick.Memory{RSSBytes: new(1e9), UsageBytes: new(1e9), WorkingSetBytes: new(1e9)},
	}
}

// A pod that was batch keeps neither batch's quota nor its CPUs, and a pod that was shared not those of the shared pool.
func TestFormerClass(t *testing.T) {
	unlimited := tick.Cgroup{CPUMaxMilliCPU: new(int64(tick.Unlimited)), CPUMaxTighterOnly: true}
	allCPUs := tick.Cgroup{CPUSetCPUs: "0-15"}
	for name, tt := range map[string]struct {
		cpus, limit, class, before, after string
		want                              tick.Cgroup
	}{
		"quota":           {"0-3", LimitQuota, "", tick.QoSReclaimed, tick.QoSShared, unlimited},
		"batch's pool":    {"0-15", LimitClass, class.None, tick.QoSReclaimed, tick.QoSSystem, allCPUs},
		"the shared pool": {"0-15", LimitClass, class.None, tick.QoSShared, tick.QoSSystem, allCPUs},
	} {
		s := Defaults()
		s.Limit, s.Class.Class = tt.limit, tt.class
		d := New(s)
		web := hostPod("web", tick.QoSShared, 1000, 0)
		for second := range 60 {
			d.Decide(hostMachine(tt.cpus, second, web, hostPod("job", tt.before, 500, 0)))
		}
		d = restarted(t, d)
		for _, second := range []int{60, 119, 120} {
			a := d.Decide(hostMachine(tt.cpus, second, web, hostPod("job", tt.after, 500, 0)))
			for list, entries := range map[string][]tick.Cgroup{"cgroups": a.Cgroups, "fallback": a.Fallback} {
				var got *tick.Cgroup
				for i := range entries {
					if c := &entries[i]; c.Cgroup == "/job" && (c.CPUSetCPUs != "" || c.CPUMaxMilliCPU != nil) {
						got = c
					}
				}
				switch {
				case second == 120 && got == nil:
				case second == 120 || got == nil || got.CPUSetCPUs != tt.want.CPUSetCPUs,
					got.CPUMaxTighterOnly != tt.want.CPUMaxTighterOnly,
					tt.want.CPUMaxMilliCPU != nil && (got.CPUMaxMilliCPU == nil || *got.CPUMaxMilliCPU != *tt.want.CPUMaxMilliCPU):
					t.Errorf("%s, second %d, %s: %+v; want %+v for a minute", name, second, list, got, tt.want)
				}
			}
		}
	}
}

// A batch pod's own limit does not keep the guard's steps from it, and a steady state has the same order of entries each time.
func TestGuardOnASmallMachine(t *testing.T) {
	orders := map[string]bool{}
	for range 10 {
		s := Defaults()
		s.Guard.Mode = guard.On
		d := New(s)
		pods := func(use, wait float64) (list []tick.Pod) {
			list = append(list, hostPod("web", tick.QoSShared, 1000, wait))
			for _, name := range []string{"a", "b", "c", "d"} {
				p := hostPod(name, tick.QoSReclaimed, use, 0)
				p.Limits = &tick.Resources{ReclaimedMilliCPU: new(1900.0)}
				list = append(list, p)
			}
			return list
		}
		for second := range 60 {
			d.Decide(hostMachine("0-3", second, pods(10, 0)...))
		}
		var a *tick.Advice
		for second := 60; second < 80; second++ {
			a = d.Decide(hostMachine("0-3", second, pods(700, 400)...))
		}
		order := ""
		for _, c := range a.Cgroups {
			if order += c.Cgroup + " "; c.Cgroup != "/web" && (*c.CPUMaxMilliCPU != 100) {
				t.Fatalf("quota of %s %d after steps %q; want a quarter of the floor of 400m", c.Cgroup, *c.CPUMaxMilliCPU, a.GuardSteps)
			}
		}
		for second := 80; second < 200; second++ {
			a = d.Decide(hostMachine("0-3", second, pods(50, 0)...))
		}
		for _, c := range a.Cgroups {
			order += c.Cgroup + " "
		}
		orders[order] = true
	}
	if len(orders) != 1 {
		t.Errorf("orders of the same entries: %v", orders)
	}
}
