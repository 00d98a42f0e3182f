package katalyst

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/advise/class"
	"polder/lib/tick"
)

// fromRule returns a reclaimed cgroup of a plain host.
func fromRule(name string) tick.Pod {
	return tick.Pod{
		UID: "/" + name, Name: name, QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromRule, Cgroup: "/" + name,
		Containers: []tick.Container{{Name: name, Cgroup: "/" + name}},
	}
}

// onSmall returns a tick on a small machine of 4 CPUs.
func onSmall(seconds float64, pods ...tick.Pod) *tick.Tick {
	tk := at(seconds, pods...)
	tk.Sample.Topology, tk.Sample.CgroupVersion = &tick.Topology{CPUs: "0-3", Cores: []string{"0-1", "2-3"}}, 2
	return tk
}

// TestClassLimitsBatchOnASmallMachine: batch cgroups are idle and have no quota but their own limit, and so are BestEffort pods of
// Kubernetes. A quota limits those whose own cgroup is unknown, each to its part of the whole.
func TestClassLimitsBatchOnASmallMachine(t *testing.T) {
	limited, inTier := fromRule("limited"), reclaimed("in-tier")
	inTier.Cgroup, inTier.QoSSource = "/kubepods/besteffort/pod1", tick.QoSFromKatalyst
	inTier.Containers[0].Cgroup = inTier.Cgroup + "/c"
	limited.Limits = &tick.Resources{MilliCPU: new(300.0)}
	idle, one := new(true), new(int64(1))
	for _, tt := range []struct {
		name     string
		settings func(*Settings)
		want     []tick.Cgroup
		offer    int64
	}{
		{"by default", func(*Settings) {}, []tick.Cgroup{
			{Cgroup: "/limited", CPUMaxMilliCPU: new(int64(300)), CPUMaxTighterOnly: true, CPUIdle: idle, CPUWeight: one},
			{Cgroup: "/kubepods/besteffort/pod", CPUMaxMilliCPU: new(int64(2600))},
			{Cgroup: "/batch", CPUIdle: idle, CPUWeight: one},
			{Cgroup: "/kubepods/besteffort/pod1", CPUIdle: idle, CPUWeight: one},
		}, 2600},
		{"limit quota", func(s *Settings) { s.Limit = LimitQuota }, []tick.Cgroup{
			{Cgroup: "/batch", CPUMaxMilliCPU: new(int64(650)), CPUMaxTighterOnly: true, CPUIdle: idle, CPUWeight: one},
			{Cgroup: "/limited", CPUMaxMilliCPU: new(int64(300)), CPUMaxTighterOnly: true, CPUIdle: idle, CPUWeight: one},
			{Cgroup: "/kubepods/besteffort/pod", CPUMaxMilliCPU: new(int64(650))},
			{Cgroup: "/kubepods/besteffort/pod1/c", CPUMaxMilliCPU: new(int64(650))},
			{Cgroup: "/kubepods/besteffort/pod1", CPUIdle: idle, CPUWeight: one},
		}, 2600},
		{"class none", func(s *Settings) { s.Class.Class = class.None }, []tick.Cgroup{
			{Cgroup: "/batch", CPUMaxMilliCPU: new(int64(650)), CPUMaxTighterOnly: true},
			{Cgroup: "/limited", CPUMaxMilliCPU: new(int64(300)), CPUMaxTighterOnly: true},
			{Cgroup: "/kubepods/besteffort/pod", CPUMaxMilliCPU: new(int64(650))},
			{Cgroup: "/kubepods/besteffort/pod1/c", CPUMaxMilliCPU: new(int64(650))},
		}, 2600},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Defaults()
			tt.settings(&s)
			a := New(s).Decide(onSmall(0, shared("a", 1), fromRule("batch"), limited, reclaimed("pod"), inTier))
			if diff := cmp.Diff(tt.want, a.Cgroups); diff != "" {
				t.Errorf("cgroups (-want +got):\n%s", diff)
			}
			if *a.Reclaimed.MilliCPU != tt.offer {
				t.Errorf("offer %d, want %d: the class changes nothing of it", *a.Reclaimed.MilliCPU, tt.offer)
			}
		})
	}
}

// TestEarlierQuotaIsRemoved: pods that change from quota to class have no quota any more, and the reverse.
func TestEarlierQuotaIsRemoved(t *testing.T) {
	s := Defaults()
	s.Limit = LimitQuota
	d := New(s)
	if a := d.Decide(onSmall(0, fromRule("batch"))); a.Cgroups[0].CPUMaxMilliCPU == nil {
		t.Fatalf("by quota: %+v", a.Cgroups)
	}
	s.Limit = ""
	d.Configure(s)
	for seconds := range 2 {
		a := d.Decide(onSmall(float64(seconds+1), fromRule("batch")))
		if c := a.Cgroups[0]; c.CPUMaxMilliCPU == nil || *c.CPUMaxMilliCPU != tick.Unlimited || c.CPUIdle == nil || !*c.CPUIdle {
			t.Errorf("by class: %+v; want the idle class and no quota", c)
		}
		if f := a.Fallback[0]; f.CPUMaxMilliCPU == nil || *f.CPUMaxMilliCPU != tick.Unlimited || f.CPUIdle == nil || !*f.CPUIdle {
			t.Errorf("fallback: %+v; want the same", f)
		}
	}
}

// TestForeignQuotaStays: if Polder never set a quota, none is lifted, because it may be another program's.
func TestForeignQuotaStays(t *testing.T) {
	d := New(Defaults())
	for seconds := range 3 {
		a := d.Decide(onSmall(float64(seconds), fromRule("batch")))
		if c := a.Cgroups[0]; c.CPUMaxMilliCPU != nil || c.CPUIdle == nil {
			t.Errorf("tick %d: %+v; want the idle class, and the quota unchanged", seconds, c)
		}
		if len(a.Fallback) > 0 && a.Fallback[0].CPUMaxMilliCPU != nil {
			t.Errorf("tick %d: fallback %+v; want the quota unchanged", seconds, a.Fallback[0])
		}
	}
}

// TestClassOnTopOfPools: on a machine with pools the CPU lists stay unchanged, and the class applies in addition.
func TestClassOnTopOfPools(t *testing.T) {
	s := Defaults()
	s.Class.Class = class.None
	tk := at(0, shared("a", 1), fromRule("batch"))
	plain, classed := New(s).Decide(tk), New(Defaults()).Decide(tk)
	if diff := cmp.Diff(plain.Pools, classed.Pools); diff != "" {
		t.Errorf("pools (-without +with the class):\n%s", diff)
	}
	for i, c := range classed.Cgroups {
		if c.CPUSetCPUs != plain.Cgroups[i].CPUSetCPUs || (c.Cgroup == "/batch") != (c.CPUIdle != nil && *c.CPUIdle) {
			t.Errorf("%+v, without the class %+v", c, plain.Cgroups[i])
		}
	}
}

// TestFullMachineIsTheOnlineCPUs: how small and how busy the machine is depends on its CPUs, whatever the Node object reserves of them.
func TestFullMachineIsTheOnlineCPUs(t *testing.T) {
	s := Defaults()
	s.Class = class.Defaults()
	for _, cpus := range []string{"0-7", "0-6"} {
		batch := fromRule("batch")
		batch.UsageMilliCPU = new(2000.0)
		tk := at(0, shared("a", 1), batch)
		tk.Sample.Topology, tk.Sample.Allocatable = &tick.Topology{CPUs: cpus}, &tick.Resources{MilliCPU: new(6000.0)}
		tk.Sample.CPU = &tick.NodeCPU{UsageMilliCPU: new(3000.0)}
		if got, want := New(s).Decide(tk).ReschedIntervalSeconds != nil, cpus == "0-6"; got != want {
			t.Errorf("CPUs %s, 6000m of them allocatable: CPUs are rescheduled: %t; want %t", cpus, got, want)
		}
	}
}
