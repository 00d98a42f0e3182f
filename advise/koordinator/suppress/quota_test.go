package suppress

import (
	"testing"

	"polder/lib/sloconfig"
	"polder/lib/tick"
)

func TestQuota(t *testing.T) {
	for _, c := range []struct {
		name    string
		budget  float64
		present int64 // of the tier in force; -1 means none
		change  func(*tick.Sample)
		want    int64
		why     string
	}{
		{"the budget", 12_345, -1, nil, 12_345, "= 12345m -> quota 12345m"},
		{"never under the floor", 19, -1, nil, 20, "-> quota 20m; no CPU is left"},
		{"the floor itself", 20, -1, nil, 20, "-> quota 20m"},
		{"at a negative budget", -40_000, 5000, nil, 20, "= -40000m -> quota 20m; no CPU is left for batch pods, they keep the minimum"},
		{"the floor is wanted within the dead band, too", 0, 400, nil, 20, "-> quota 20m"},
		{"and a budget of just that", 20, 400, nil, 20, "-> quota 20m"},
		{"the floor in force stays within the dead band", 400, 20, nil, 20, "400m is within a hundredth of the machine (480m) of the current 20m, which stays"},
		{"another program's quota under the floor does not stay", 100, 1, nil, 100, "-> quota 100m"},
		{"a small quota where there was none", 300, -1, nil, 300, "-> quota 300m"}, // Koordinator: within 1 % of -1, and left unlimited
		{"a change within 1 % is none", 10_479, 10_000, nil, 10_000, "-> quota 10000m; 10479m is within a hundredth of the machine (480m) of the current 10000m, which stays"},
		{"nor is one down", 9_521, 10_000, nil, 10_000, "-> quota 10000m"},
		{"one of 1 % is a change", 10_480, 10_000, nil, 10_480, "-> quota 10480m"},
		{"one down of 1 %", 9_520, 10_000, nil, 9_520, "-> quota 9520m"},
		{"shrinks at once", 1000, 30_000, nil, 1000, "-> quota 1000m"},
		{"grows by a tenth of the machine", 31_200, 1000, nil, 5800, "-> quota 5800m; it grows by a tenth of the machine a step: from 1000m by 4800m"},
		{"grows by less where that is enough", 5800, 1000, nil, 5800, "-> quota 5800m"},
		{"unknown what is in force", 5000, -1, func(s *tick.Sample) { s.Tiers[1].CPUMaxMilliCPU = nil }, 5000, ""},
		{"a quota of 0 in force is none", 5000, 0, nil, 5000, ""},
		{"huge in force", 5000, 1 << 60, nil, 5000, ""},
		{"a huge machine", 5000, -1, func(s *tick.Sample) { s.Capacity.MilliCPU = new(1e300) }, 8192_000, ""},
		{"half a CPU", -30_870, 100, func(s *tick.Sample) { s.Capacity.MilliCPU = new(500.0); s.Pods[0].UsageMilliCPU = new(0.0) }, 150, "it grows by a tenth"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := withBudget(c.budget)
			s.Tiers[1].CPUMaxMilliCPU = new(c.present)
			if c.change != nil {
				c.change(s)
			}
			if s.Allocatable != nil {
				s.Allocatable = nil
			}
			a := new(State).step(s, byPolicy(sloconfig.SuppressCFSQuota))
			w := of(t, a.Cgroups, tier)
			if w.CPUMaxMilliCPU == nil || *w.CPUMaxMilliCPU != c.want || w.CPUSetCPUs != "" || !hasReason(a, c.why) {
				t.Errorf("the tier: desired %s; want %d: %q", text(w), c.want, a.Reasons)
			}
			for _, below := range []string{tier + "/podb", tier + "/podb/c"} {
				if w := of(t, a.Cgroups, below); w.CPUMaxMilliCPU == nil || *w.CPUMaxMilliCPU != tick.Unlimited {
					t.Errorf("%s: desired %s", below, text(w))
				}
			}
			if got := text(a.Fallback); got != `[{"cgroup":"/kubepods/besteffort","cpuMaxMilliCPU":20}]` {
				t.Errorf("fallback %s", got)
			}
			if len(a.Pools) > 0 {
				t.Errorf("pools %s", text(a.Pools))
			}
		})
	}
}

// If all suppressed pods are outside the tier, a new pod in it has the quota until it is counted.
func TestQuotaOfAnEmptyTier(t *testing.T) {
	outside := labelled("BE", "out", 0)
	outside.Cgroup, outside.Containers[0].Cgroup = "/kubepods/burstable/podout", "/kubepods/burstable/podout/c"
	s := withBudget(8000, outside)
	s.Pods = append(s.Pods[:1], s.Pods[2:]...)
	if w := of(t, new(State).step(s, byPolicy(sloconfig.SuppressCFSQuota)).Cgroups, tier); w.CPUMaxMilliCPU == nil || *w.CPUMaxMilliCPU != 8000 {
		t.Errorf("the tier: desired %s", text(w))
	}
}

// A pod without a cgroup of its own divides its part equally among its containers.
func TestQuotaOfContainersAlone(t *testing.T) {
	one, two := rulePod(tick.QoSReclaimed, "/one", 0), rulePod(tick.QoSReclaimed, "/two", 0)
	one.Requests, two.Requests = &tick.Resources{MilliCPU: new(6000.0)}, &tick.Resources{MilliCPU: new(2000.0)}
	two.Cgroup, two.Containers = "", []tick.Container{{Name: "a", Cgroup: "/two/a"}, {Name: "b", Cgroup: "/two/b"}}
	s := plain(machine(rulePod(tick.QoSShared, "/web", 31200-8000), one, two))
	s.CPU.UsageMilliCPU = new(0.0)
	a := new(State).step(s, byPolicy(sloconfig.SuppressCFSQuota))
	want := `[{"cgroup":"/one","cpuMaxMilliCPU":6000},{"cgroup":"/two/a","cpuMaxMilliCPU":1000},{"cgroup":"/two/b","cpuMaxMilliCPU":1000}]`
	if got := sorted(a.Cgroups, "/one", "/two/a", "/two/b"); got != want {
		t.Errorf("desired %s\nwant  %s", got, want)
	}
}

// CPUs that are kept out of the lists are kept out under a quota, too.
func TestQuotaKeepsOut(t *testing.T) {
	a := new(State).step(withBudget(5000, pinned("LSE", "e", "0-3")), byPolicy(sloconfig.SuppressCFSQuota))
	for _, path := range []string{tier, tier + "/podb", tier + "/podb/c"} {
		if w := of(t, a.Cgroups, path); w.CPUSetCPUs != "4-47" {
			t.Errorf("%s: desired %s", path, text(w))
		}
	}
}

// On a machine without tiers the quota is divided by the requests, within the pods' own limits.
func TestQuotaDivided(t *testing.T) {
	small, limited, silent := rulePod(tick.QoSReclaimed, "/small", 0), rulePod(tick.QoSReclaimed, "/limited", 0), rulePod(tick.QoSReclaimed, "/silent", 0)
	small.Requests = &tick.Resources{ReclaimedMilliCPU: new(3000.0)}
	limited.Requests = &tick.Resources{MilliCPU: new(4000.0)}
	limited.Limits = &tick.Resources{ReclaimedMilliCPU: new(1500.0)}
	below := rulePod(tick.QoSReclaimed, "/group", 0)
	below.Requests = &tick.Resources{ReclaimedMilliCPU: new(2000.0)}
	below.Containers = []tick.Container{{Name: "a", Cgroup: "/group/a"}, {Name: "b", Cgroup: "/group/b"}}
	s := plain(withBudget(10_000, small, limited, silent, below, rulePod(tick.QoSShared, "/web", 0)))
	s.Pods = s.Pods[2:]
	s.Pods[4].UsageMilliCPU = new(21_200.0)
	s.Topology.CPUs = "0-47"
	st := &State{}
	a := st.step(s, byPolicy(sloconfig.SuppressCFSQuota))
	want := `[{"cgroup":"/small","cpuMaxMilliCPU":3000},{"cgroup":"/limited","cpuMaxMilliCPU":1500},{"cgroup":"/silent","cpuMaxMilliCPU":1000},` +
		`{"cgroup":"/group","cpuMaxMilliCPU":2000},{"cgroup":"/group/a","cpuMaxMilliCPU":-1},{"cgroup":"/group/b","cpuMaxMilliCPU":-1}]`
	if got := sorted(a.Cgroups, "/small", "/limited", "/silent", "/group", "/group/a", "/group/b"); got != want {
		t.Errorf("desired %s\nwant  %s", got, want)
	}
	if got := sorted(a.Fallback, "/small", "/limited", "/silent", "/group", "/group/a"); got != `[{"cgroup":"/small","cpuMaxMilliCPU":10},{"cgroup":"/limited","cpuMaxMilliCPU":10},{"cgroup":"/silent","cpuMaxMilliCPU":10},{"cgroup":"/group","cpuMaxMilliCPU":10}]` {
		t.Errorf("fallback %s", got)
	}
	if st.QuotaMilliCPU != 10_000 {
		t.Errorf("quota %d", st.QuotaMilliCPU)
	}
	s.Pods[4].UsageMilliCPU = new(0.0)
	if st.step(s, byPolicy(sloconfig.SuppressCFSQuota)); st.QuotaMilliCPU != 14_800 {
		t.Errorf("grew to %d", st.QuotaMilliCPU)
	}
}

// sorted formats the entries of the paths, in that order; paths without an entry are omitted.
func sorted(list []tick.Cgroup, paths ...string) string {
	var out []tick.Cgroup
	for _, path := range paths {
		for _, c := range list {
			if c.Cgroup == path {
				out = append(out, c)
			}
		}
	}
	return text(out)
}

// A BE pod outside the tier, because it has native requests, gets its part in addition to the tier's.
func TestQuotaBesideTheTier(t *testing.T) {
	outside := labelled("BE", "out", 0)
	outside.KubernetesQOS, outside.Cgroup = "Burstable", "/kubepods/burstable/podout"
	outside.Containers[0].Cgroup = "/kubepods/burstable/podout/c"
	outside.Requests = &tick.Resources{MilliCPU: new(3000.0)}
	a := new(State).step(withBudget(8000, outside), byPolicy(sloconfig.SuppressCFSQuota))
	if got := sorted(a.Cgroups, tier, "/kubepods/burstable/podout", "/kubepods/burstable/podout/c"); got !=
		`[{"cgroup":"/kubepods/besteffort","cpuMaxMilliCPU":2000},{"cgroup":"/kubepods/burstable/podout","cpuMaxMilliCPU":6000},{"cgroup":"/kubepods/burstable/podout/c","cpuMaxMilliCPU":-1}]` {
		t.Errorf("desired %s", got)
	}
	grown := withBudget(30_000, outside)
	grown.Tiers[1].CPUMaxMilliCPU = new(int64(2000)) // its part
	st := &State{QuotaMilliCPU: 8000}
	if st.step(grown, byPolicy(sloconfig.SuppressCFSQuota)); st.QuotaMilliCPU != 12_800 {
		t.Errorf("grew to %d", st.QuotaMilliCPU)
	}
	a = new(State).step(withBudget(8000, outside), with(nil))
	if w := of(t, a.Cgroups, "/kubepods/burstable/podout"); w.CPUSetCPUs != "0-1,12-13,24-25,36-37" {
		t.Errorf("desired %s", text(w))
	}
}
