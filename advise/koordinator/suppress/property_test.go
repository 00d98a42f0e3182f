package suppress

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"polder/advise/koordinator/annotation"
	"polder/lib/cpus"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// drawSample returns a sample of a machine with random numbers of CPUs and pods, some with exclusive CPUs.
func drawSample(t *rapid.T, online int) *tick.Sample {
	list := func(name string) string {
		return cpus.New(rapid.SliceOfN(rapid.IntRange(0, online+1), 0, online).Draw(t, name)...).String()
	}
	s := &tick.Sample{
		Topology: &tick.Topology{CPUs: fmt.Sprintf("0-%d", online-1)}, CgroupVersion: rapid.IntRange(1, 2).Draw(t, "version"),
		CPU:         &tick.NodeCPU{UsageMilliCPU: new(rapid.Float64Range(0, float64(online)*1000).Draw(t, "use"))},
		Capacity:    &tick.Resources{MilliCPU: new(float64(online) * 1000)},
		Allocatable: &tick.Resources{MilliCPU: new(float64(online) * 950)},
		Annotations: map[string]string{},
	}
	for i := range online / 2 {
		s.Topology.Cores = append(s.Topology.Cores, fmt.Sprintf("%d,%d", i, i+online/2))
	}
	if rapid.Bool().Draw(t, "kubelet") {
		s.Kubelet = &tick.Kubelet{CPUManagerPolicy: rapid.SampledFrom([]string{"none", "static", ""}).Draw(t, "policy")}
		s.Tiers = []tick.Tier{{Name: tick.TierBestEffort, Cgroup: tier, CPUSetCPUs: list("inForce"), CPUMaxMilliCPU: new(rapid.Int64Range(-1, 20_000).Draw(t, "quota"))}}
		if rapid.Bool().Draw(t, "given") {
			s.Kubelet.ExclusiveCPUs = list("exclusive")
		}
	}
	if rapid.Bool().Draw(t, "reservation") {
		s.Annotations[annotation.Reservation] = fmt.Sprintf(`{"reservedCPUs":%q}`, list("reserved"))
	}
	if rapid.Bool().Draw(t, "system") {
		s.Annotations[annotation.System] = fmt.Sprintf(`{"cpuset":%q}`, list("systems"))
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		class := rapid.SampledFrom([]string{"BE", "BE", "LS", "LSR", "LSE", "SYSTEM", "x"}).Draw(t, "class")
		pod := labelled(class, fmt.Sprint("p", i), rapid.Float64Range(0, 20_000).Draw(t, "podUse"))
		if class == "LSE" || class == "LSR" {
			pod.Annotations[annotation.Status] = fmt.Sprintf(`{"cpuset":%q}`, list("own"))
			pod.Requests = &tick.Resources{MilliCPU: new(rapid.Float64Range(0, float64(online)*1000).Draw(t, "request"))}
			pod.KubernetesQOS = rapid.SampledFrom([]string{"Guaranteed", "Guaranteed", "Burstable"}).Draw(t, "kubernetes")
		}
		if class == "BE" && rapid.Bool().Draw(t, "batch") {
			pod.Limits = &tick.Resources{ReclaimedMilliCPU: new(rapid.Float64Range(-1, 1e6).Draw(t, "limit"))}
			pod.Containers[0].Limits, pod.Containers[0].Requests = pod.Limits, pod.Limits
		}
		pod.Missing = rapid.SampledFrom([]string{"", "", "", tick.MissingCgroup, tick.MissingCluster}).Draw(t, "missing")
		s.Pods = append(s.Pods, pod)
	}
	return s
}

// excludedCPUs returns the CPUs that batch pods must not use, calculated independently of the code.
func excludedCPUs(s *tick.Sample, online cpus.Set) cpus.Set {
	out := cpus.Set{}
	for _, name := range []string{annotation.Reservation, annotation.System} {
		var list struct{ ReservedCPUs, CPUSet string }
		if text := s.Annotations[name]; text != "" {
			if err := unmarshal(text, &list); err != nil {
				panic(err)
			}
			out = out.Union(parse(list.ReservedCPUs), parse(list.CPUSet))
		}
	}
	if s.Kubelet != nil {
		exclusive := parse(s.Kubelet.ExclusiveCPUs)
		for i := range s.Pods {
			if list := parse(s.Pods[i].Containers[0].CPUSetCPUs); qos.Koordinator(&s.Pods[i]) == qos.LSR && list.IsSubsetOf(exclusive) {
				exclusive = exclusive.Difference(list)
			}
		}
		out = out.Union(exclusive)
	}
	for i := range s.Pods {
		if pod := &s.Pods[i]; pod.Labels[qos.KoordinatorClass] == qos.LSE && pod.KubernetesQOS == "Guaranteed" {
			var status struct{ CPUSet string }
			if err := unmarshal(pod.Annotations[annotation.Status], &status); err != nil {
				panic(err)
			}
			own := parse(status.CPUSet).Intersection(online).List()
			out = out.Union(cpus.New(own[:min(len(own), int(*pod.Requests.MilliCPU/1000))]...))
		}
	}
	return out.Intersection(online)
}

// For any stream: lists are never empty and have only online CPUs, batch pods never have CPUs that are kept out unless all are, they have
// at least two if there are two, they grow by at most a tenth, and the same stream gives the same result.
func TestSuppressionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		online := rapid.IntRange(1, 64).Draw(t, "online")
		all := cpus.Set{}
		for i := range online {
			all = all.Union(cpus.New(i))
		}
		st, twin := &State{}, &State{}
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			s := drawSample(t, online)
			slo := sloconfig.Shipped()
			slo.Threshold.CPUSuppressPolicy = new(rapid.SampledFrom([]string{sloconfig.SuppressCPUSet, sloconfig.SuppressCPUSet, sloconfig.SuppressCFSQuota}).Draw(t, "mode"))
			slo.Threshold.Enable = new(rapid.IntRange(0, 4).Draw(t, "enable") > 0)
			before := *st
			again := &State{}
			if err := tick.Unmarshal([]byte(text(twin)), again); err != nil {
				t.Fatal(err)
			}
			twin = again
			a, b := st.step(s, &slo), twin.step(s, &slo)
			if x, y := text(a), text(b); x != y || text(st) != text(twin) {
				t.Fatalf("two of the same:\n%s %s\n%s %s", x, text(st), y, text(twin))
			}
			check(t, st, &before, s, a, all)
		}
	})
}

func check(t *rapid.T, st, before *State, s *tick.Sample, a *tick.Advice, all cpus.Set) {
	out := excludedCPUs(s, all)
	free := all.Difference(out).Size()
	seen := map[string]bool{}
	for i, c := range append(append([]tick.Cgroup(nil), a.Cgroups...), a.Fallback...) {
		if i < len(a.Cgroups) && seen[c.Cgroup] {
			t.Fatalf("%s is named twice", c.Cgroup)
		}
		seen[c.Cgroup] = true
		if q := c.CPUMaxMilliCPU; q != nil && *q != tick.Unlimited && *q < minPartMilliCPU {
			t.Fatalf("quota of %s", text(c))
		}
		if c.CPUSetCPUs == "" {
			continue
		}
		list, err := cpus.Parse(c.CPUSetCPUs)
		if err != nil || list.IsEmpty() || !list.IsSubsetOf(all) {
			t.Fatalf("list of %s: %v", text(c), err)
		}
		// The tier and pods are widened to all CPUs except kubelet's exclusive ones: containers need room.
		isContainer := len(c.Cgroup) > 2 && c.Cgroup[len(c.Cgroup)-2:] == "/c"
		if free > 0 && isContainer && !list.Intersection(out).IsEmpty() {
			t.Fatalf("%s has CPUs that are excluded (%s)", text(c), out)
		}
	}
	if st.Mode != sloconfig.SuppressCPUSet || hasReason(a, "unchanged") {
		return
	}
	be := parse(st.CPUs)
	switch {
	case be.IsEmpty():
		t.Fatal("an empty list")
	case free == 0 && (be.Size() != 1 || st.QuotaMilliCPU != minQuotaMilliCPU):
		t.Fatalf("none is left: %s, quota %d", be, st.QuotaMilliCPU)
	case free > 0 && !be.Intersection(out).IsEmpty() && st.Mode == sloconfig.SuppressCPUSet && before.CPUs != st.CPUs:
		t.Fatalf("%s has CPUs that are excluded (%s)", be, out)
	}
	present := parse(before.CPUs).Size()
	if len(s.Tiers) > 0 && s.Kubelet != nil && s.Kubelet.CPUManagerPolicy == "none" && s.Tiers[0].CPUSetCPUs != "" {
		present = parse(s.Tiers[0].CPUSetCPUs).Size()
	}
	if before.CPUs != st.CPUs && present > 0 && be.Size() > present+(all.Size()+9)/10 && be.Size() > minCPUs {
		t.Fatalf("grew from %d to %s of %d", present, be, all.Size())
	}
}

func unmarshal(text string, into any) error { return json.Unmarshal([]byte(text), into) }

// FuzzAnnotations decides with arbitrary annotations: the advice must be well formed.
func FuzzAnnotations(f *testing.F) {
	for _, seed := range [][5]string{
		{`{"resources":{"cpu":"2"},"reservedCPUs":"0-1","applyPolicy":"Default"}`, `{"cpuset":"2-3","cpusetExclusive":true}`, `{"cpuset":"4-5"}`, `{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"1k"}}}}`, "1.20"},
		{`{"resources":{"cpu":1e999}}`, `{"cpuset":"0-99999"}`, `{"cpuset":["0"]}`, `{"containers":[]}`, "NaN"},
		{`[`, `null`, `""`, `{"containers":{"main":null}}`, "-1"},
		{`{"resources":null,"reservedCPUs":"0-8191"}`, `{"cpusetExclusive":null,"cpuset":"0-47"}`, `{"cpuset":"0-47"}`, `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":{}},"limits":{"koordinator.sh/batch-memory":"9E"}}}}`, "5"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4])
	}
	all := parse("0-47")
	f.Fuzz(func(t *testing.T, reservation, system, status, spec, ratio string) {
		s := withBudget(9000, pinned("LSE", "e", ""), pinned("LSR", "r", ""))
		s.Annotations = map[string]string{annotation.Reservation: reservation, annotation.System: system, annotation.Ratio: ratio}
		s.Pods[1].Annotations[annotation.Extended] = spec
		s.Pods[2].Annotations[annotation.Status], s.Pods[3].Annotations[annotation.Status] = status, status
		for _, slo := range []*sloconfig.Strategies{with(nil), byPolicy(sloconfig.SuppressCFSQuota)} {
			a := new(State).step(s, slo)
			if len(a.Reasons) == 0 || len(a.Reasons) > 8 {
				t.Errorf("%d reasons", len(a.Reasons))
			}
			for _, c := range append(a.Cgroups, a.Fallback...) {
				if list, err := cpus.Parse(c.CPUSetCPUs); err != nil || !list.IsSubsetOf(all) {
					t.Errorf("%s: %v", text(c), err)
				}
				if q := c.CPUMaxMilliCPU; q != nil && (*q < tick.Unlimited || *q >= 0 && *q < minPartMilliCPU || *q > maxQuotaMilliCPU) {
					t.Errorf("quota of %s", text(c))
				}
				if w := c.CPUWeight; w != nil && (*w < 1 || *w > 10000) {
					t.Errorf("weight of %s", text(c))
				}
				if m := c.MemoryMaxBytes; m != nil && *m < tick.Unlimited {
					t.Errorf("memory of %s", text(c))
				}
			}
			if _, err := tick.Marshal(a); err != nil {
				t.Errorf("advice: %v", err)
			}
		}
	})
}
