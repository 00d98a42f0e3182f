package layers

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/advise/class"
	"polder/advise/cold"
	"polder/advise/disk"
	"polder/advise/guard"
	"polder/advise/limits"
	"polder/lib/tick"
)

// A policy's defaults replace what is empty, and nothing else. Only the policy decides on the pods' own limits.
func TestOr(t *testing.T) {
	ofPolicy := Shared{
		ReservedCPUs: "7",
		Class:        class.Settings{Class: class.IdleOnHosts, ServiceWeightFactor: 3},
		Guard:        guard.Settings{Mode: guard.On, Disk: guard.On, MarginPermille: 5},
		Limits:       limits.Settings{Own: true, Batch: limits.Cap, Services: limits.ProtectIfPossible},
		Cold:         cold.Settings{Mode: cold.Reclaim},
		Disk:         disk.Settings{Share: disk.Idle, Limits: []tick.DiskLimit{{Disk: "sda"}}},
	}
	want := Defaults()
	want.Class.Class, want.Guard.Mode, want.Limits, want.Disk.Share = class.IdleOnHosts, guard.On, ofPolicy.Limits, disk.Idle
	if d := cmp.Diff(want, Defaults().Or(ofPolicy)); d != "" {
		t.Errorf("defaults: %s", d)
	}
	chosen := Shared{
		Class: class.Settings{Class: class.None}, Guard: guard.Settings{Mode: guard.Off},
		Limits: limits.Settings{Batch: limits.None, Services: limits.None}, Disk: disk.Settings{Share: disk.None},
	}
	want = chosen
	want.Limits.Own = true
	if d := cmp.Diff(want, chosen.Or(ofPolicy)); d != "" {
		t.Errorf("chosen settings: %s", d)
	}
}

// Cgroups with the same names are others after a reboot: only what does not depend on cgroups stays, of the guard.
func TestReboot(t *testing.T) {
	const state = `{"class":{"set":{"/a":"idle"}},"guard":{"services":{"u":{}},"steps":[{"kind":"quota"}],"batch":{"/a":{"quota":true}}},` +
		`"limits":{"capBytes":5},"cold":{"pods":{"/a":{"uid":"u"}}},"disk":{"set":{"/a":{"weight":true}}}}`
	var st State
	if err := tick.Unmarshal([]byte(state), &st); err != nil {
		t.Fatal(err)
	}
	if st.Class == nil || st.Limits == nil || st.Cold == nil || st.Disk == nil || len(st.Guard.Batch) == 0 {
		t.Fatalf("state %+v", st)
	}
	st.Reboot()
	if st.Class != nil || st.Limits != nil || st.Cold != nil || st.Disk != nil ||
		st.Guard == nil || len(st.Guard.Batch)+len(st.Guard.Steps) > 0 {
		t.Errorf("after a reboot: %+v", st)
	}
	if st.Reboot(); len(st.Guard.Services) != 1 {
		t.Errorf("the services' history is lost: %+v", st.Guard)
	}
}

// Limits of a cgroup that a rule names are never wider than those that it had before: an administrator's, which no sample has. The advice
// of the policy itself stays as it is, because the policy may keep it.
func TestOwnLimitsAreKept(t *testing.T) {
	ruled := func(qos, cgroup string) tick.Pod {
		return tick.Pod{
			QoS: qos, QoSSource: tick.QoSFromRule, Cgroup: cgroup, Containers: []tick.Container{{Cgroup: cgroup}, {Cgroup: cgroup + "/c"}},
		}
	}
	ofCluster := tick.Pod{QoS: tick.QoSReclaimed, QoSSource: tick.QoSFromKubernetes, Cgroup: "/kubepods/pod1"}
	sample := &tick.Sample{Pods: []tick.Pod{ruled(tick.QoSReclaimed, "/batch"), ruled(tick.QoSShared, "/web"), ofCluster}}
	limit, none := new(int64(1000)), new(int64(tick.Unlimited))
	of := func(cpu, memory bool) []tick.Cgroup {
		return []tick.Cgroup{
			{Cgroup: "/batch", CPUMaxMilliCPU: limit, CPUMaxTighterOnly: cpu},
			{Cgroup: "/batch/c", MemoryMaxBytes: none, MemoryTighterOnly: memory},
			{Cgroup: "/web", CPUMaxMilliCPU: limit, MemoryHighBytes: none, MemoryTighterOnly: memory}, // its quota may grow beyond its limit
			{Cgroup: "/web/c", CPUMaxMilliCPU: none, CPUMaxTighterOnly: cpu},
			{Cgroup: "/kubepods/pod1", CPUMaxMilliCPU: limit, MemoryMaxBytes: none}, // kubelet's limits are in the sample
			{Cgroup: "/batch.slice", CPUWeight: limit},
		}
	}
	ofPolicy := of(false, false)
	a := &tick.Advice{Cgroups: ofPolicy, Fallback: ofPolicy}
	KeepOwnLimits(sample, a)
	for name, got := range map[string][]tick.Cgroup{"cgroups": a.Cgroups, "fallback": a.Fallback} {
		if diff := cmp.Diff(of(true, true), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if diff := cmp.Diff(of(false, false), ofPolicy); diff != "" {
		t.Errorf("the policy's advice: %s", diff)
	}
}
