package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"polder/lib/tick"
)

// Each of kubelet's idle tiers gets kubelet's weight; others are left alone.
func TestClearIdleTiers(t *testing.T) {
	pod := func(class, phase string, milliCPU float64) tick.Pod {
		return tick.Pod{KubernetesQOS: class, Phase: phase, Requests: &tick.Resources{MilliCPU: &milliCPU}}
	}
	weight := func(cgroup string, n int64) tick.Cgroup {
		return tick.Cgroup{Cgroup: cgroup, CPUIdle: new(false), CPUWeight: &n}
	}
	const top = "/kubepods.slice"
	for name, c := range map[string]struct {
		tiers       []tick.Tier
		version     int
		allocatable *tick.Resources
		advised     []tick.Cgroup
		want        []tick.Cgroup
		reasons     int
	}{
		"none is idle": {tiers: []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "/kubepods/besteffort"}}, version: 2},
		"all are": {
			tiers: []tick.Tier{
				{Name: tick.TierPods, Cgroup: top, CPUIdle: true},
				{Name: tick.TierBurstable, Cgroup: top + "/burstable", CPUIdle: true},
				{Name: tick.TierBestEffort, Cgroup: top + "/besteffort", CPUIdle: true},
			},
			version: 2, allocatable: &tick.Resources{MilliCPU: new(8000.0)},
			want: []tick.Cgroup{weight(top, 313), weight(top+"/burstable", 59), weight(top+"/besteffort", 1)}, reasons: 3, // 8192, 1536 and 2 shares
		},
		"on version 1": {
			tiers: []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "/kubepods/besteffort", CPUIdle: true}}, version: 1,
			want: []tick.Cgroup{weight("/kubepods/besteffort", 1)}, reasons: 1,
		},
		"what else is advised stays": {
			tiers: []tick.Tier{{Name: tick.TierBestEffort, Cgroup: "/b", CPUIdle: true}}, version: 2,
			advised: []tick.Cgroup{{Cgroup: "/a"}, {Cgroup: "/b", CPUSetCPUs: "0"}},
			want: []tick.Cgroup{
				{Cgroup: "/a"}, {Cgroup: "/b", CPUSetCPUs: "0", CPUIdle: new(false), CPUWeight: new(int64(1))},
			}, reasons: 1,
		},
		"the node's size is unknown": {
			tiers: []tick.Tier{{Name: tick.TierPods, Cgroup: "/kubepods", CPUIdle: true}}, version: 2,
			want: []tick.Cgroup{weight("/kubepods", 39)}, reasons: 1,
		},
		"nothing is allocatable": {
			tiers: []tick.Tier{{Name: tick.TierPods, Cgroup: "/kubepods", CPUIdle: true}}, version: 2,
			allocatable: &tick.Resources{MilliCPU: new(0.0)},
			want:        []tick.Cgroup{weight("/kubepods", 39)}, reasons: 1,
		},
		"what is no tier": {
			tiers: []tick.Tier{
				{Name: "x", Cgroup: "/x", CPUIdle: true}, {Name: tick.TierPods, Cgroup: "/", CPUIdle: true}, {Name: tick.TierPods, CPUIdle: true},
			}, version: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &tick.Sample{CgroupVersion: c.version, Tiers: c.tiers, Allocatable: c.allocatable, Pods: []tick.Pod{
				pod("Burstable", "Running", 1000), pod("Burstable", "Pending", 500), pod("Burstable", "Failed", 700),
				pod("Guaranteed", "Running", 900), pod("BestEffort", "Running", 0),
				{KubernetesQOS: "Burstable"},
			}}
			a := &tick.Advice{Cgroups: c.advised}
			ClearIdleTiers(s, a)
			if diff := cmp.Diff(c.want, a.Cgroups); diff != "" || len(a.Reasons) != c.reasons {
				t.Errorf("%s\nreasons %q; want %d", diff, a.Reasons, c.reasons)
			}
		})
	}
}

// An unknown request is not 0: the tier of services never gets the weight of the BestEffort pods because of that.
func TestBurstableTierOfUnknownPods(t *testing.T) {
	const tier = "/kubepods/burstable"
	milli := func(n float64) *tick.Resources { return &tick.Resources{MilliCPU: &n} }
	known := func(n float64) tick.Pod {
		return tick.Pod{QoSSource: tick.QoSFromKubernetes, KubernetesQOS: "Burstable", Cgroup: tier + "/pod1", Requests: milli(n)}
	}
	ruled := tick.Pod{QoSSource: tick.QoSFromRule, QoS: tick.QoSShared, Cgroup: tier + "/pod2"}
	lost, elsewhere, host := ruled, ruled, ruled
	lost.Missing = tick.MissingCluster
	elsewhere.Missing, elsewhere.Cgroup = tick.MissingCluster, "/kubepods/besteffort/pod3"
	host.Cgroup, host.Requests = "/web", milli(4000)
	requestedByRule := ruled
	requestedByRule.Requests = milli(3000)
	memoryOnly := known(0)
	memoryOnly.Requests = &tick.Resources{MemoryBytes: new(1e9)}
	for name, tt := range map[string]struct {
		pods []tick.Pod
		want float64
	}{
		"none":                                    {nil, 0},
		"there is no cluster":                     {[]tick.Pod{ruled}, 1000},
		"the cluster does not know one":           {[]tick.Pod{known(100), lost}, 1000},
		"and the known ones request more":         {[]tick.Pod{known(5000), lost}, 5000},
		"it is in another tier":                   {[]tick.Pod{known(100), elsewhere}, 100},
		"a rule has the request":                  {[]tick.Pod{requestedByRule}, 3000},
		"a rule has that of a cgroup of the host": {[]tick.Pod{known(100), host}, 100},
		"one is known to request no CPU":          {[]tick.Pod{memoryOnly}, 0},
	} {
		s := &tick.Sample{CgroupVersion: 2, Tiers: []tick.Tier{{Name: tick.TierBurstable, Cgroup: tier, CPUIdle: true}}, Pods: tt.pods}
		a := &tick.Advice{}
		ClearIdleTiers(s, a)
		want := []tick.Cgroup{{Cgroup: tier, CPUIdle: new(false), CPUWeight: new(WeightOf(SharesOf(tt.want), 2))}}
		if diff := cmp.Diff(want, a.Cgroups); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
