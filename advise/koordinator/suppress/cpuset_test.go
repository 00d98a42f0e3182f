package suppress

import (
	"strings"
	"testing"

	"polder/advise/koordinator/annotation"
	"polder/lib/cpus"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// withBudget returns the guide's machine with services that leave the given part of the batch pods' 31200m.
func withBudget(budget float64, pods ...tick.Pod) *tick.Sample {
	s := machine(append([]tick.Pod{service(31200 - budget), labelled("BE", "b", 0)}, pods...)...)
	s.CPU.UsageMilliCPU = new(0.0)
	return s
}

func TestCPUSet(t *testing.T) {
	for _, c := range []struct {
		name   string
		sample *tick.Sample
		change func(*tick.Sample)
		want   string
		why    string
	}{
		{"whole CPUs, rounded up: pairs of both nodes in turn", withBudget(5001), nil, "0-1,12,24-25,36", "-> 6 CPUs"},
		{"a whole number stays", withBudget(4000), nil, "0,12,24,36", "-> 4 CPUs"},
		{"an odd one", withBudget(4999), nil, "0-1,12,24,36", "-> 5 CPUs"},
		{"two at least", withBudget(1), nil, "0,24", "-> 2 CPUs; no CPU is left"},
		{"two at a budget of 0", withBudget(0), nil, "0,24", "-> 2 CPUs; no CPU is left"},
		{"two at a negative budget", withBudget(-90_000), nil, "0,24", "= -90000m -> 2 CPUs; no CPU is left for batch pods, they keep the minimum"},
		{"shrinks at once", withBudget(2000), nil, "0,24", "-> 2 CPUs"},
		{"grows by a tenth, rounded up", withBudget(31_200), func(s *tick.Sample) { s.Tiers[1].CPUSetCPUs = "0,24" }, "0-1,12-13,24-25,36", "-> 7 CPUs; it grows by a tenth of all 48 CPUs a step, rounded up: from 2 by 5"},
		{"grows by less where that is enough", withBudget(5000), func(s *tick.Sample) { s.Tiers[1].CPUSetCPUs = "0,24" }, "0-1,12,24,36", "-> 5 CPUs"},
		{"reserved CPUs are excluded", withBudget(4000), func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.Reservation: `{"reservedCPUs":"0,24"}`}
		}, "12,36", "- system 2000m (reserved by annotation) = 2000m -> 2 CPUs; excluded: reserved 0,24"}, // node 1 has more free CPUs now
		{"a quantity excludes no CPU", withBudget(4000), func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.Reservation: `{"resources":{"cpu":"1"}}`}
		}, "0,12,24", "-> 3 CPUs"},
		{"an exclusive SYSTEM set is excluded", withBudget(4000), func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.System: `{"cpuset":"0-1"}`}
		}, "2,12,26,36", "excluded: SYSTEM 0-1"},
		{"one that is exclusive", withBudget(2000), func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.System: `{"cpuset":"12-23,36-47","cpusetExclusive":true}`}
		}, "0,24", "SYSTEM"},
		{"one that is not exclusive is not", withBudget(4000), func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.System: `{"cpuset":"0-1","cpusetExclusive":false}`}
		}, "0,12,24,36", "-> 4 CPUs"},
		{"one that is no list", withBudget(4000), func(s *tick.Sample) {
			s.Annotations = map[string]string{annotation.System: `{"cpuset":"0-1-2"}`}
		}, "0,12,24,36", "annotation node.koordinator.sh/system-qos-resource"},
		{"one that is no JSON", withBudget(4000), func(s *tick.Sample) { s.Annotations = map[string]string{annotation.System: `0-1`} }, "0,12,24,36", "not a JSON object"},
		{"LSE pods' CPUs are excluded", withBudget(4000, pinned("LSE", "e", "0-1,24-25")), nil, "2,12,26,36", "excluded: LSE 0-1,24-25"},
		{"a finished LSE pod has none", withBudget(4000, pinned("LSE", "e", "0-1,24-25")), func(s *tick.Sample) { s.Pods[2].Phase = "Succeeded" }, "0,12,24,36", "-> 4 CPUs"},
		{"an LSE pod without CPUs", withBudget(4000, labelled("LSE", "e", 0)), nil, "0,12,24,36", "-> 4 CPUs"},
		{"an LSE pod whose annotation is none", withBudget(4000, pinned("LSE", "e", "zero")), nil, "0,12,24,36", "pod ns/e: annotation scheduling.koordinator.sh/resource-status"},
		{"an LS pod's annotation does not count", withBudget(4000, pinned("LS", "e", "0-1")), nil, "0,12,24,36", "-> 4 CPUs"},
		{"kubelet's exclusive CPUs are excluded", withBudget(4000), func(s *tick.Sample) { s.Kubelet.ExclusiveCPUs = "12,36" }, "0,13,24,37", "excluded: kubelet's exclusive 12,36"},
		// 48 CPUs, 4 of LSR: of 12, one is theirs.
		{"of LSR pods' CPUs in proportion", withBudget(12_000, pinned("LSR", "r", "2-3,26-27")), nil, "0-2,4,12-14,24-25,36-38", "-> 12 CPUs; 1 of the 4 of LSR pods (12 * 4 / 48), 11 of the other 44"},
		{"and rounded down", withBudget(11_000, pinned("LSR", "r", "2-3,26-27")), nil, "0-1,4,12-14,24-25,36-38", "-> 11 CPUs; 0 of the 4 of LSR pods (11 * 4 / 48), 11 of the other 44"},
		{"half the machine is LSR's", withBudget(4000, pinned("LSR", "r", "0-11,24-35")), nil, "0,12,24,36", "-> 4 CPUs"},
		{"LSR has all: Koordinator's share would be nothing", withBudget(4000, pinned("LSR", "r", "0-47")), nil, "0,12,24,36", "-> 4 CPUs"},
		{"a CPU that is LSE's and LSR's is LSE's", withBudget(4000, pinned("LSR", "r", "0-47"), pinned("LSE", "e", "0,24")), nil, "1,12,25,36", "LSE 0,24"},
		{"all that there are, where the budget is more", withBudget(31_200, pinned("LSE", "e", "0-43")), nil, "44-47", "only 4 are not excluded"},
		{"one CPU is left", withBudget(31_200, pinned("LSE", "e", "0-46")), nil, "47", "-> 1 CPU;"},
		{"two CPUs are left", withBudget(-1, pinned("LSE", "e", "0-44")), nil, "45-46", "-> 2 CPUs; no CPU is left"},
		{"an LSE pod's CPUs that are offline", withBudget(4000, pinned("LSE", "e", "48-100")), nil, "0,12,24,36", "-> 4 CPUs"},
		{"an LSR pod's CPUs that are offline", withBudget(4000, pinned("LSR", "r", "48-100")), nil, "0,12,24,36", "-> 4 CPUs"},
		{"some of them", withBudget(12_000, pinned("LSR", "r", "3,27,60-99")), nil, "0-2,12-14,24-26,36-38", "0 of the 2 of LSR pods (12 * 2 / 48), 12 of the other 46"},
		{"of an LSE pod some are offline", withBudget(4000, pinned("LSE", "e", "0,24,48-100")), nil, "1,12,25,36", "excluded: LSE 0,24"},
		{"a policy that is no policy is the default", withBudget(4000), nil, "0,12,24,36", "-> 4 CPUs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.sample)
			}
			slo := with(nil)
			if strings.Contains(c.name, "is no policy") {
				slo = byPolicy("")
			}
			a := new(State).step(c.sample, slo)
			for _, path := range []string{tier, tier + "/podb", tier + "/podb/c"} {
				if w := of(t, a.Cgroups, path); w.CPUSetCPUs != c.want || w.CPUMaxMilliCPU != nil {
					t.Errorf("%s: desired %s; want %s", path, text(w), c.want)
				}
			}
			if !hasReason(a, c.why) {
				t.Errorf("reasons %q; want %q", a.Reasons, c.why)
			}
			if w := of(t, a.Cgroups, "/kubepods/burstable/pods"); w.Cgroup != "" {
				t.Errorf("the service: %s", text(w))
			}
		})
	}
}

// If every CPU is kept out the batch pods share one of those where they harm least, with the smallest quota.
func TestNoCPULeft(t *testing.T) {
	for _, c := range []struct {
		name                   string
		reserved, system       string
		kubelet, lse, want, of string
	}{
		{"all reserved", "0-47", "", "", "", "0", "reserved"},
		{"a reserved one before the others'", "40-47", "0-9", "10-19", "20-39", "40", "reserved"},
		{"SYSTEM's before LSE's", "", "10-47", "", "0-9", "12", "SYSTEM's"},
		{"LSE's before kubelet's", "", "", "0-9", "10-47", "12", "LSE's"},
		{"all are LSE's", "", "", "", "0-47", "0", "LSE's"},
		{"all are kubelet's", "", "", "0-47", "", "0", "kubelet's exclusive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var pods []tick.Pod
			if c.lse != "" {
				pods = append(pods, pinned("LSE", "e", c.lse))
			}
			s := withBudget(20_000, pods...)
			s.Kubelet.ExclusiveCPUs = c.kubelet
			s.Annotations = map[string]string{annotation.Reservation: `{"reservedCPUs":"` + c.reserved + `"}`, annotation.System: `{"cpuset":"` + c.system + `"}`}
			st := &State{}
			a := st.step(s, with(nil))
			at := of(t, a.Cgroups, tier)
			if at.CPUSetCPUs != c.want || at.CPUMaxMilliCPU == nil || *at.CPUMaxMilliCPU != 20 {
				t.Errorf("the tier: desired %s; want CPU %s and 20m", text(at), c.want)
			}
			if below := of(t, a.Cgroups, tier+"/podb/c"); below.CPUSetCPUs != c.want || below.CPUMaxMilliCPU == nil || *below.CPUMaxMilliCPU != tick.Unlimited {
				t.Errorf("a container: desired %s", text(below))
			}
			if !hasReason(a, "no CPU is left for batch pods, all 48 are excluded") || !hasReason(a, "they share CPU "+c.want+" ("+c.of+")") {
				t.Errorf("reasons %q", a.Reasons)
			}
			if down := of(t, a.Fallback, tier); down.CPUSetCPUs != c.want || *down.CPUMaxMilliCPU != 20 {
				t.Errorf("fallback %s", text(down))
			}
			a = st.step(withBudget(4000), with(nil)) // the CPUs return
			if at = of(t, a.Cgroups, tier); at.CPUSetCPUs != "0,12,24,36" || *at.CPUMaxMilliCPU != tick.Unlimited {
				t.Errorf("after that the tier: desired %s", text(at))
			}
		})
	}
}

// While nothing is decided the floor omits CPUs that an LSE pod has got since.
func TestFallbackOmitsExcludedCPUs(t *testing.T) {
	st := &State{}
	st.step(withBudget(4000), with(nil))
	s := withBudget(4000, pinned("LSE", "e", "0,24"))
	s.CPU = nil
	if got := of(t, st.step(s, with(nil)).Fallback, tier).CPUSetCPUs; got != "12,36" {
		t.Errorf("fallback %s", got)
	}
	s.Pods[2] = pinned("LSE", "e", "0-40")
	if got := of(t, st.step(s, with(nil)).Fallback, tier).CPUSetCPUs; got != "41-42" {
		t.Errorf("fallback %s", got)
	}
}

func TestSmallMachines(t *testing.T) {
	for _, c := range []struct {
		online, want string
	}{{"0", "0"}, {"0-1", "0-1"}, {"3,7", "3,7"}, {"0-2", "0-1"}, {"0-3", "0-1"}} {
		s := withBudget(0)
		s.Topology = &tick.Topology{CPUs: c.online}
		s.Tiers[1].CPUSetCPUs = c.online
		s.Capacity.MilliCPU = new(1000.0)
		if a := new(State).step(s, with(nil)); of(t, a.Cgroups, tier).CPUSetCPUs != c.want {
			t.Errorf("%s: %s; want %s", c.online, text(a), c.want)
		}
	}
}

// The growth limit on small machines: a tenth, rounded up, is one CPU.
func TestGrowthOnSmallMachines(t *testing.T) {
	for _, c := range []struct{ online, present, want, why string }{
		{"0", "0", "0", "-> 1 CPU; only 1 are not excluded"},
		{"0-1", "1", "0-1", "-> 2 CPUs"},
		{"0-3", "0", "0-1", "-> 2 CPUs; it grows by a tenth of all 4 CPUs a step, rounded up: from 1 by 1"},
		{"0-3", "0-1", "0-2", "from 2 by 1"},
	} {
		s := withBudget(4000)
		s.Topology = &tick.Topology{CPUs: c.online}
		s.Tiers[0].CPUSetCPUs, s.Tiers[1].CPUSetCPUs = c.online, c.present
		a := new(State).step(s, with(nil))
		if w := of(t, a.Cgroups, tier); w.CPUSetCPUs != c.want || !hasReason(a, c.why) {
			t.Errorf("%s of %s: %s, %q; want %s, %q", c.present, c.online, text(w), a.Reasons, c.want, c.why)
		}
	}
}

func TestReservedBySettings(t *testing.T) {
	a, st := &tick.Advice{}, &State{}
	st.Advise(&tick.Tick{Sample: withBudget(4000)}, with(nil), a, Settings{ReservedCPUs: "0-1,24-25"})
	if w := of(t, a.Cgroups, tier); w.CPUSetCPUs != "2,12,26,36" || !hasReason(a, "reserved 0-1,24-25") {
		t.Errorf("%s: %q", text(w), a.Reasons)
	}
	a = &tick.Advice{}
	st.Advise(&tick.Tick{Sample: withBudget(4000)}, with(nil), a, Settings{ReservedCPUs: "all"})
	if w := of(t, a.Cgroups, tier); w.CPUSetCPUs == "" || !hasReason(a, `"all"`) {
		t.Errorf("%s: %q", text(w), a.Reasons)
	}
}

// CPUs that kubelet gave to a pod with label LSR are shared like other LSR pods'; unknown CPUs of kubelet stay as they were.
func TestKubeletsCPUs(t *testing.T) {
	own := labelled("LSR", "r", 0)
	own.Containers[0].CPUSetCPUs = "0-23"
	s := withBudget(4000, own)
	s.Kubelet.ExclusiveCPUs = "0-23,30"
	st := &State{}
	a := st.step(s, with(nil))
	// The others are 23 (24-29,31-47), LSR's 24: of these 4 * 24 / 47 = 2.
	if w := of(t, a.Cgroups, tier); w.CPUSetCPUs != "0,12,24,36" || !hasReason(a, "excluded: kubelet's exclusive 30") {
		t.Errorf("%s: %q", text(w), a.Reasons)
	}
	s = withBudget(40_000)
	s.Kubelet, s.Errors = nil, []tick.SourceError{{Source: "kubelet", Error: "no such file"}}
	a = st.step(s, with(nil))
	if parse(st.CPUs).Intersection(parse("0-23,30")).Size() > 0 || st.ExclusiveCPUs.CPUs != "0-23,30" {
		t.Errorf("kubelet's CPUs are forgotten: %s, %+v", st.CPUs, st.ExclusiveCPUs)
	}
	if !hasReason(a, `suppression: kubelet's state could not be read: CPUs "0-23,30" still count as exclusive`) {
		t.Errorf("reasons %q", a.Reasons)
	}
	s.Errors = nil
	st.step(s, with(nil))
	if st.ExclusiveCPUs.CPUs != "" {
		t.Errorf("there is no kubelet, and %+v are exclusive", st.ExclusiveCPUs)
	}
	// Until kubelet's state was read once, nothing is decided.
	s = withBudget(40_000)
	s.Kubelet, s.Errors = nil, []tick.SourceError{{Source: "kubelet", Error: "no such file"}}
	st = &State{}
	a = st.step(s, with(nil))
	if len(a.Cgroups)+len(a.Pools)+len(a.Fallback) > 0 || st.Mode != "" || !hasReason(a, "are unknown: everything stays unchanged") {
		t.Errorf("never read: %s", text(a))
	}
	s.Kubelet, s.Errors = &tick.Kubelet{CPUManagerPolicy: "static"}, nil
	if a = st.step(s, with(nil)); len(a.Pools) == 0 {
		t.Errorf("read, and there are none: %s", text(a))
	}
}

// A list stays while its size does, whatever a new selection would give, except for CPUs that are no longer allowed.
func TestSameSizeKeepsCPUs(t *testing.T) {
	st := &State{Mode: sloconfig.SuppressCPUSet, CPUs: "7-10"}
	if st.step(withBudget(4000), with(nil)); st.CPUs != "7-10" {
		t.Errorf("CPUs = %s", st.CPUs)
	}
	if st.step(withBudget(3900), with(nil)); st.CPUs != "7-10" {
		t.Errorf("CPUs = %s", st.CPUs)
	}
	if st.step(withBudget(4000, pinned("LSE", "e", "10")), with(nil)); st.CPUs != "0,12,24,36" {
		t.Errorf("CPUs = %s after one of them was assigned exclusively", st.CPUs)
	}
	if st.step(withBudget(4001), with(nil)); st.CPUs != "0-1,12,24,36" {
		t.Errorf("CPUs = %s of another size", st.CPUs)
	}
	st = &State{Mode: sloconfig.SuppressCPUSet, CPUs: "7-10"}
	if st.step(withBudget(4000, pinned("LSR", "r", "7-10")), with(nil)); st.CPUs != "0,12,24,36" {
		t.Errorf("CPUs = %s: all of them an LSR pod's", st.CPUs)
	}
	st = &State{Mode: sloconfig.SuppressCPUSet, CPUs: "a state file of another program"}
	if st.step(withBudget(4000), with(nil)); st.CPUs != "0,12,24,36" {
		t.Errorf("CPUs = %s", st.CPUs)
	}
}

// A service's load rises and falls: the batch pods lose CPUs immediately, and get them back in steps of 5.
func TestFollowsTheLoad(t *testing.T) {
	st := &State{}
	var sizes []int
	for _, left := range []float64{31_000, 31_000, 3000, 31_000, 31_000, 31_000, 31_000, 31_000, 31_000, 31_000} {
		s := withBudget(left)
		if st.CPUs != "" {
			s.Tiers[1].CPUSetCPUs = st.CPUs // isolate has applied it
		}
		st.step(s, with(nil))
		sizes = append(sizes, parse(st.CPUs).Size())
	}
	if got := text(sizes); got != "[31,31,3,8,13,18,23,28,31,31]" {
		t.Errorf("sizes %s", got)
	}
}

func TestCurrentCPUs(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*tick.Sample)
		state  string
		want   int // with a budget for all, so 5 more than there are
	}{
		{"the tier's in force", func(s *tick.Sample) { s.Tiers[1].CPUSetCPUs = "0-9" }, "0-19", 15},
		{"unknown of the tier: as advised", func(s *tick.Sample) { s.Tiers[1].CPUSetCPUs = "" }, "0-19", 25},
		{"no list: as advised", func(s *tick.Sample) { s.Tiers[1].CPUSetCPUs = "?" }, "0-19", 25},
		{"only containers are confined: as advised", func(s *tick.Sample) { s.Kubelet.CPUManagerPolicy = "static" }, "0-19", 25},
		{"their lists, where nothing was advised", func(s *tick.Sample) {
			s.Kubelet.CPUManagerPolicy = "static"
			s.Pods[1].Containers[0].CPUSetCPUs = "4-7"
		}, "", 9},
		{"no limit where nothing is known", func(s *tick.Sample) {
			s.Kubelet.CPUManagerPolicy = "static"
			s.Tiers[1].CPUSetCPUs, s.Pods[1].Containers[0].CPUSetCPUs = "", ""
		}, "", 31},
		{"a plain machine: as advised", func(s *tick.Sample) { plain(s) }, "0-19", 25},
		{"a plain machine: the containers' lists", func(s *tick.Sample) { plain(s).Pods[1].Containers[0].CPUSetCPUs = "0" }, "", 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, s := &State{CPUs: c.state}, withBudget(31_000)
			c.change(s)
			st.step(s, with(nil))
			if got := parse(st.CPUs).Size(); got != c.want {
				t.Errorf("%d CPUs, want %d", got, c.want)
			}
		})
	}
}

func TestPools(t *testing.T) {
	s := withBudget(4000, pinned("LSE", "e", "1,25"), pinned("LSR", "r", "2-3,26-27"))
	s.Annotations = map[string]string{annotation.Reservation: `{"reservedCPUs":"0,24"}`}
	want := `[{"name":"reserve","cpus":"0,24"},{"name":"share","cpus":"5-11,13-23,29-35,37-47"},{"name":"reclaim","cpus":"4,12,28,36"},{"name":"dedicated/ns/e","cpus":"1,25"},{"name":"dedicated/ns/r","cpus":"2-3,26-27"}]`
	// 2000m of the budget are reserved: 2 CPUs less.
	s.Pods[0].UsageMilliCPU = new(25_200.0)
	a := new(State).step(s, with(nil))
	if got := text(a.Pools); got != want {
		t.Errorf("pools\n%s\nwant\n%s", got, want)
	}
	for _, slo := range []*sloconfig.Strategies{disabled(), byPolicy(sloconfig.SuppressCFSQuota)} {
		if a = new(State).step(s, slo); len(a.Pools) > 0 {
			t.Errorf("without lists there are pools %s", text(a.Pools))
		}
	}
	covered := cpus.Set{}
	for _, pool := range new(State).step(withBudget(9000), with(nil)).Pools {
		list := parse(pool.CPUs)
		if !list.Intersection(covered).IsEmpty() {
			t.Errorf("pool %s overlaps", pool.Name)
		}
		covered = covered.Union(list)
	}
	if covered.Size() != 48 {
		t.Errorf("pools cover %s", covered)
	}
}
