package suppress

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"polder/advise/koordinator/annotation"
	"polder/advise/policy"
	"polder/lib/qos"
	"polder/lib/sloconfig"
	"polder/lib/tick"
)

// guaranteed returns a pod of 100m and 100 MiB that its tenant labels BE.
func guaranteed(spec string) tick.Pod {
	pod := labelled("BE", "g", 0)
	own := &tick.Resources{MilliCPU: new(100.0), MemoryBytes: new(float64(100 << 20))}
	pod.Cgroup, pod.KubernetesQOS = "/kubepods/podg", qos.Guaranteed
	pod.Requests, pod.Limits = own, own
	pod.Containers = []tick.Container{{Name: "main", Cgroup: "/kubepods/podg/c", Requests: own, Limits: own}}
	pod.Annotations[annotation.Extended] = spec
	return pod
}

func TestAnAnnotationAloneLiftsNoLimit(t *testing.T) {
	for _, text := range []string{
		`{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"400k"}}}}`,
		`{"containers":{"main":{"requests":{"koordinator.sh/batch-cpu":1}}}}`,
		`{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"400k","kubernetes.io/batch-memory":"1Ti"}}}}`,
		`{"containers":{"main":{"limits":{"kubernetes.io/batch-memory":"4Ei"}},"other":{"requests":{"kubernetes.io/batch-cpu":"1k"}}}}`,
	} {
		for _, native := range []bool{true, false} {
			pod := guaranteed(text)
			if !native {
				pod.Requests, pod.Limits, pod.Containers[0].Requests, pod.Containers[0].Limits = nil, nil, nil, nil
				pod.KubernetesQOS = qos.BestEffort
			}
			a := new(State).step(machine(service(1000), pod), disabled())
			for _, path := range []string{"/kubepods/podg", "/kubepods/podg/c"} {
				if got := values(of(t, a.Cgroups, path)); got != "- - -" {
					t.Errorf("%s: %s: desired %s", text, path, got)
				}
			}
			if !hasReason(a, annotation.Extended) {
				t.Errorf("%s: no reason names it: %q", text, a.Reasons)
			}
		}
	}
}

func TestAnnotatedCPUsAreBoundedByTheRequest(t *testing.T) {
	for _, c := range []struct {
		name, class, kubernetes, list string
		request                       float64
		want                          string // CPUs that are kept out, or shared with LSR pods
	}{
		{"all of the machine, by a pod of 1m", "LSE", "Guaranteed", "0-47", 1, ""},
		{"by an LSR pod of 1m", "LSR", "Guaranteed", "0-47", 1, ""},
		{"less than two CPUs are one", "LSE", "Guaranteed", "0-47", 1999, "0"},
		{"as many as it requests", "LSE", "Guaranteed", "2-3,26-27", 4000, "2-3,26-27"},
		{"fewer than it requests", "LSE", "Guaranteed", "2-3", 4000, "2-3"},
		{"more than it requests", "LSR", "Guaranteed", "2-7", 4000, "2-5"},
		{"a Burstable pod", "LSE", "Burstable", "0-3", 4000, ""},
		{"a BestEffort pod", "LSE", "BestEffort", "0-3", 0, ""},
		{"CPUs that the machine does not have come to nothing", "LSE", "Guaranteed", "100-8191", 4000, ""},
		{"and do not stand for those that it has", "LSE", "Guaranteed", "46-8191", 4000, "46-47"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := pinned(c.class, "claims", c.list)
			pod.KubernetesQOS, pod.Requests = c.kubernetes, &tick.Resources{MilliCPU: &c.request}
			a := new(State).step(withBudget(30_000, pod), with(nil))
			got := ""
			for _, pool := range a.Pools {
				if pool.Name == tick.PoolDedicatedPrefix+"ns/claims" {
					got = pool.CPUs
				}
			}
			if got != c.want {
				t.Errorf("its own are %q, want %q: %q", got, c.want, a.Reasons)
			}
			for _, w := range a.Cgroups {
				if w.CPUMaxMilliCPU != nil && *w.CPUMaxMilliCPU == minQuotaMilliCPU {
					t.Errorf("batch is left with %s", text(w))
				}
			}
		})
	}
}

// drawTenant returns a pod labelled BE with arbitrary values of everything that a tenant writes, and the sums that collect calculates.
func drawTenant(t *rapid.T) tick.Pod {
	pod := labelled("BE", "b", rapid.Float64Range(0, 4000).Draw(t, "use"))
	some := func(name string, maximum float64) *float64 {
		if rapid.Bool().Draw(t, "no "+name) {
			return nil
		}
		return new(float64(int64(rapid.Float64Range(1, maximum).Draw(t, name))))
	}
	native := rapid.Bool().Draw(t, "native")
	var requests, limits tick.Resources
	add := func(into **float64, v *float64) {
		if v == nil {
			return
		}
		if *into == nil {
			*into = new(0.0)
		}
		**into += *v
	}
	pod.Containers = nil
	limited, held := true, true
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		r := &tick.Resources{ReclaimedMilliCPU: some("batch request", 9e5)}
		l := &tick.Resources{ReclaimedMilliCPU: some("batch limit", 9e5), ReclaimedMemoryBytes: some("batch memory", 1<<62)}
		if native {
			r.MilliCPU, l.MilliCPU, l.MemoryBytes = some("request", 9000), some("limit", 9000), some("memory", 1<<34)
		}
		limited, held = limited && l.MilliCPU != nil, held && l.MemoryBytes != nil
		add(&requests.MilliCPU, r.MilliCPU)
		add(&requests.ReclaimedMilliCPU, r.ReclaimedMilliCPU)
		add(&limits.MilliCPU, l.MilliCPU)
		add(&limits.MemoryBytes, l.MemoryBytes)
		add(&limits.ReclaimedMilliCPU, l.ReclaimedMilliCPU)
		add(&limits.ReclaimedMemoryBytes, l.ReclaimedMemoryBytes)
		pod.Containers = append(pod.Containers, tick.Container{Name: fmt.Sprint("c", i), Requests: r, Limits: l})
	}
	if !limited {
		limits.MilliCPU = nil
	}
	if !held {
		limits.MemoryBytes = nil
	}
	pod.Requests, pod.Limits = &requests, &limits
	if native {
		pod.KubernetesQOS, pod.Cgroup = qos.Burstable, "/kubepods/burstable/podb"
	}
	for i := range pod.Containers {
		pod.Containers[i].Cgroup = fmt.Sprint(pod.Cgroup, "/x", i)
	}
	if rapid.Bool().Draw(t, "annotated") {
		pod.Annotations[annotation.Extended] = fmt.Sprintf(`{"containers":{"c0":{"requests":{"kubernetes.io/batch-cpu":%d},"limits":{"kubernetes.io/batch-cpu":%d,"koordinator.sh/batch-memory":%d}}}}`,
			rapid.Int64Range(-1, 1e9).Draw(t, "a"), rapid.Int64Range(-1, 1e9).Draw(t, "b"), rapid.Int64Range(-1, 1<<61).Draw(t, "c"))
		if rapid.Bool().Draw(t, "annotation alone") {
			for i := range pod.Containers {
				of := &pod.Containers[i]
				of.Requests, of.Limits = &tick.Resources{MilliCPU: of.Requests.MilliCPU}, &tick.Resources{MilliCPU: of.Limits.MilliCPU, MemoryBytes: of.Limits.MemoryBytes}
			}
			pod.Requests, pod.Limits = &tick.Resources{MilliCPU: requests.MilliCPU}, &tick.Resources{MilliCPU: limits.MilliCPU, MemoryBytes: limits.MemoryBytes}
		}
	}
	return pod
}

// For any input of a tenant: no desired value of its cgroups, in the advice, the fallback or an undo, is wider than kubelet's from the
// pod's own resources, and a limit that is not given is not lifted.
func TestNoValueIsWiderThanWhatKubeletSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := drawTenant(t)
		s := machine(service(rapid.Float64Range(0, 48_000).Draw(t, "service")), pod)
		s.CgroupVersion = rapid.IntRange(1, 2).Draw(t, "version")
		st := &State{}
		for range 3 {
			slo := rapid.SampledFrom([]*sloconfig.Strategies{disabled(), byPolicy(sloconfig.SuppressCPUSet), byPolicy(sloconfig.SuppressCFSQuota)}).Draw(t, "strategies")
			s.Pods[1].Labels[qos.KoordinatorClass] = rapid.SampledFrom([]string{"BE", "BE", "LS"}).Draw(t, "label")
			a := st.step(s, slo)
			for _, w := range append(append([]tick.Cgroup(nil), a.Cgroups...), a.Fallback...) {
				if w.Cgroup == pod.Cgroup {
					checkNotWider(t, &w, &pod, pod.Requests, pod.Limits, s.CgroupVersion)
				}
				for i := range pod.Containers {
					if c := &pod.Containers[i]; c.Cgroup == w.Cgroup {
						checkNotWider(t, &w, &pod, c.Requests, c.Limits, s.CgroupVersion)
					}
				}
			}
		}
	})
}

func checkNotWider(t *rapid.T, w *tick.Cgroup, pod *tick.Pod, requests, limits *tick.Resources, version int) {
	over := func(v *int64, limit float64, minimum int64) bool {
		return v != nil && limit > 0 && (*v < 0 || *v > max(int64(limit), minimum))
	}
	if over(w.CPUMaxMilliCPU, valueOf(limits.MilliCPU), minPartMilliCPU) {
		t.Fatalf("%s: kubelet's quota is %gm", text(w), *limits.MilliCPU)
	}
	if over(w.MemoryMaxBytes, valueOf(limits.MemoryBytes), 0) {
		t.Fatalf("%s: kubelet's memory limit is %g", text(w), *limits.MemoryBytes)
	}
	request := valueOf(requests.MilliCPU)
	if pod.KubernetesQOS == qos.BestEffort {
		request = max(request, valueOf(requests.ReclaimedMilliCPU))
	}
	if maximum := policy.WeightOf(policy.SharesOf(request), version); w.CPUWeight != nil && *w.CPUWeight > maximum {
		t.Fatalf("%s: the weight of its own requests is %d", text(w), maximum)
	}
}
